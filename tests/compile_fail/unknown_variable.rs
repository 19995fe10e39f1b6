//! A slip of the keyboard.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    chunks(n);

    let dist = 1;
    each(|r| r.to((r + dits) % n).reduce(data[r]));
    for s in 0..n - 1 {
        each(|r| r.to((r + 1) % n).copy(data[(r + 1 - s) % n]));
    }
}

fn main() {}
