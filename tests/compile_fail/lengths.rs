//! Two regions of different length.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    chunks(n);

    let t = scratch(2);
    each(|r| r.to(r).copy(data[0]).into(t[0..2]));
}

fn main() {}
