//! A transfer without data.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n));
}

fn main() {}
