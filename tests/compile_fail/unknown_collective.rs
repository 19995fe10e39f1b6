//! A collective that there is not.

use roundelay::algorithm;

#[algorithm(allreduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).reduce(data));
}

fn main() {}
