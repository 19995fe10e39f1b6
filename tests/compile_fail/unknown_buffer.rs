//! A buffer that was not declared.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).copy(temp[0]));
}

fn main() {}
