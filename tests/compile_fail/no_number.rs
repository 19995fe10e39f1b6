//! A truth value where a number belongs.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + even(r)) % n).reduce(data));
}

fn main() {}
