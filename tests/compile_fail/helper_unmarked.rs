//! A helper that is not marked.

use roundelay::algorithm;

fn next(r: i64, n: i64) -> i64 {
    (r + 1) % n
}

#[algorithm(all_reduce, with(next))]
fn wrong(n: Ranks) {
    each(|r| r.to(next(r, n)).reduce(data));
}

fn main() {}
