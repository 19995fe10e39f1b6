//! A transfer with a word that it does not have.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to((r + 1) % n).send(data));
}

fn main() {}
