//! A part that the library does not have.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    chunks(n);

    run(reduce_scatter::rign);
    run(all_gather::ring);
}

fn main() {}
