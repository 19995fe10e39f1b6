//! A part of one's own that is refuted is reported there.

use roundelay::algorithm;

#[algorithm(all_gather)]
fn part(n: Ranks) {
    each(|r| r.to((r + 1) % n).copy(data[r]));
}

#[algorithm(all_reduce, with(part))]
fn whole(n: Ranks) {
    chunks(n);

    run(reduce_scatter::ring);
    run(part);
}

fn main() {}
