//! A file that is refuted.

static WRONG: roundelay::Prototype = roundelay::algo_file!("wrong.algo");

fn main() {}
