//! One round only: most chunks never arrive.

use roundelay::algorithm;

#[algorithm(all_gather)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).copy(data[r]));
}

fn main() {}
