//! No mistake: this must compile, or nothing is learnt of the others.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn ring(n: Ranks) {
    chunks(n);

    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).reduce(data[(r - s) % n]));
    }
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
}

fn main() {
    println!("{}", ring.name());
}
