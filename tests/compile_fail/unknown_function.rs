//! A function that there is not.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    requires(pow2(n));
    for k in 0..lg2(n) {
        each(|r| r.to(r ^ (1 << k)).reduce(data));
    }
}

fn main() {}
