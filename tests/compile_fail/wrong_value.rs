//! A chunk that nobody asked for.

use roundelay::algorithm;

#[algorithm(all_gather)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).copy(data[r]));
}

fn main() {}
