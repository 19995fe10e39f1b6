//! Three algorithms as Rust functions. `cargo build` proves them; change an index and see.
//!
//! This is a package that uses roundelay: all it needs are `roundelay` with the feature
//! `macros`, and `roundelay-cli` for a command line with its own algorithms (`main.rs`).
#![forbid(unsafe_code)]

use roundelay::{algorithm, algorithm_fn};

/// The rank at place p of a ring that goes up over the even ranks and comes back down over the odd ones:
/// 0 2 4 5 3 1. No message goes further than two ranks, the one that closes the ring included.
#[algorithm_fn]
fn seat(p: i64, n: i64) -> i64 {
    if 2 * p < n { 2 * p } else { 2 * (n - p) - 1 }
}

/// A ring in an order of its own.
#[algorithm(all_reduce, with(seat))]
pub fn zigzag(n: Ranks) {
    chunks(n);

    // Here `each` counts places, not ranks: each place is one rank's.
    for s in 0..n - 1 {
        each(|p| seat(p, n).to(seat((p + 1) % n, n)).reduce(data[(p - s) % n]));
    }
    for s in 0..n - 1 {
        each(|p| seat(p, n).to(seat((p + 1) % n, n)).copy(data[(p + 1 - s) % n]));
    }
}

/// Two rounds with bf16 on the wire: half the bytes, for sums that can bear it. Each rank sums one chunk
/// in the element type of the call.
#[algorithm(all_reduce)]
pub fn quantised(n: Ranks) {
    chunks(n);

    each(|r| {
        for p in 0..n {
            if p != r {
                r.to(p).reduce(data[p]).wire::<bf16>();
            }
        }
    });
    each(|r| {
        for p in 0..n {
            if p != r {
                r.to(p).copy(data[r]).wire::<bf16>();
            }
        }
    });
}

/// Between nodes first, then inside: each rank sends to its fellow of each node all that is meant for that
/// node, in one message, and the fellows hand it out.
#[algorithm(all_to_all)]
pub fn rows_first(node: Axis, gpu: Axis) {
    let t = scratch(node.size * gpu.size); // from each node, one block for each GPU here

    let g = gpu.size;
    let n = node.size * g;
    each(|(i, j)| {
        for k in 0..node.size {
            (i, j).to((k, j)).copy(input[cyclic(k * g, g)]).into(t[cyclic(i * g, g)]);
        }
    });
    each(|(i, j)| {
        for k in 0..g {
            (i, j).to((i, k)).copy(t[(k..n).by(g)]).into(output[(j..n).by(g)]);
        }
    });
}

/// The guide; its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
pub struct Guide;
