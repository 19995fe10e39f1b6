//! Scratch that is read before anything was stored there.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    let t = scratch(1);

    each(|r| r.to((r + 1) % n).copy(t));
}

fn main() {}
