//! A part that the library does not have.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    chunks(n);

    play(reduce_scatter::rign);
    play(all_gather::ring);
}

fn main() {}
