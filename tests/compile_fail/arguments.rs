//! A function with an argument too many.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    for k in 0..log2(n, 2) {
        each(|r| r.to(r ^ (1 << k)).reduce(data));
    }
}

fn main() {}
