//! A loop that Rust has and the language has not.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    while n > 1 {
        each(|r| r.to(0).reduce(data));
    }
}

fn main() {}
