//! A clause after a statement.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    let next = n - 1;
    each(|r| r.to(r).copy(data));
    chunks(n);

    for s in 0..next {
        each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
}

fn main() {}
