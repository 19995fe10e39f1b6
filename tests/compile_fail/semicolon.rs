//! A statement without its end.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| {
        if r > 0 {
            r.to(0).reduce(data)
        }
    });
}

fn main() {}
