//! A helper that the algorithm does not name.

use roundelay::{algorithm, algorithm_fn};

#[algorithm_fn]
fn next(r: i64, n: i64) -> i64 {
    (r + 1) % n
}

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to(next(r, n)).reduce(data));
}

fn main() {}
