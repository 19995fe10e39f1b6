//! A helper that calls itself.

use roundelay::algorithm_fn;

#[algorithm_fn]
fn half(x: i64) -> i64 {
    if x < 2 { x } else { half(x / 2) }
}

fn main() {}
