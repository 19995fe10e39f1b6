//! `data` beside `input` and `output`.

use roundelay::algorithm;

#[algorithm(all_reduce)]
fn wrong(n: Ranks) {
    each(|r| r.to(r).copy(input).into(output));
    each(|r| r.to((r + 1) % n).reduce(data));
}

fn main() {}
