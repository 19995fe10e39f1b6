//! A chunk that arrives where another belongs.

use roundelay::algorithm;

#[algorithm(all_gather)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).copy(data[r]).into(data[(r + 1) % n]));
}

fn main() {}
