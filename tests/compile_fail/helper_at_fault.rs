//! A fault in a helper is reported there, and nowhere else.

use roundelay::{algorithm, algorithm_fn};

#[algorithm_fn]
fn next(r: i64, n: i64) -> i64 {
    (r + 1) % m
}

#[algorithm(all_reduce, with(next))]
pub fn wrong(n: Ranks) {
    each(|r| r.to(next(r, n)).reduce(data));
}

pub fn user() -> &'static str {
    wrong.name()
}

fn main() {}
