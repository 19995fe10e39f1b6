//! Two writes to one place in one round.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to(0).copy(data));
}

fn main() {}
