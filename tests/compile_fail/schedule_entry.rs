//! A schedule with an entry that there is not.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    chunks(n);

    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
    schedule().pipelines(4);
}

fn main() {}
