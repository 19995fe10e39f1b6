//! One round too many: a contribution is counted twice.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    for s in 0..n {
        each(|r| r.to((r + 1) % n).reduce(data));
    }
}

fn main() {}
