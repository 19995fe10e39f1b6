//! A rank count was named that the algorithm does not allow.

use roundelay::algorithm;

#[algorithm(all_reduce, check(2, 3))]
fn wrong(n: Ranks) {
    requires(pow2(n));
    chunks(n);

    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
}

fn main() {}
