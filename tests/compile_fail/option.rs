//! An option that there is not.

use roundelay::algorithm;

#[algorithm(all_reduce, chek(4))]
fn wrong(n: Ranks) {
    each(|r| r.to(0).reduce(data));
}

fn main() {}
