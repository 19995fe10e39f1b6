//! A number where a truth value belongs.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| {
        if r & 1 {
            r.to((r + 1) % n).reduce(data);
        }
    });
}

fn main() {}
