//! No sample rank count is allowed.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    requires(n > 100);
    chunks(n);

    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
}

fn main() {}
