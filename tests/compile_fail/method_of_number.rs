//! A method where the language has a function.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1).min(n - 1)).reduce(data));
}

fn main() {}
