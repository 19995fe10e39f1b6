//! A variable that changes.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    let mut d = 1;
    for k in 0..log2(n) {
        each(|r| r.to(r ^ d).reduce(data));
        d *= 2;
    }
}

fn main() {}
