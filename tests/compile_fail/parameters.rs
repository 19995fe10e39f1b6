//! Parameters that do not say what the ranks are.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: usize) {
    each(|r| r.to(0).reduce(data));
}

fn main() {}
