//! An algorithm of no collective.

use roundelay::algorithm;

#[algorithm]
fn wrong(n: Ranks) {
    each(|r| r.to(0).reduce(data));
}

fn main() {}
