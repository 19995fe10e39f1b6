//! A file that there is not.

static WRONG: roundelay::Prototype = roundelay::algo_file!("no_such.algo");

fn main() {}
