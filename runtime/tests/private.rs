//! Tests memory that ranks keep to themselves, in messages of all lengths: through slots, read by the kernel,
//! through pipes. The way of a message is found while calls go on, so there are many of them.

use crate::support::{layout, threads};
use roundelay::transport::SegmentLayout;
use roundelay::{Communicator, RedOp};
use roundelay_tests::SeededRandom;

/// Returns what rank `r` contributes to element `i` of a call; sums of all ranks' are exact.
fn word(call: usize, r: usize, i: usize) -> u32 {
    ((i * 7 + i / 1021 + r * 31 + call * 101) % 8191) as u32
}

fn vector(call: usize, r: usize, len: usize) -> Vec<u32> {
    (0..len).map(|i| word(call, r, i)).collect()
}

/// Makes one call of each kind, whose blocks have `len` elements; everything is compared.
fn calls(comm: &mut Communicator, call: usize, len: usize) {
    let (n, own) = (comm.size() as usize, comm.rank() as usize);
    let whole = n * len;
    let context = || format!("call {call} of blocks of {len}, rank {own} of {n}");

    let mut output = vec![u32::MAX; whole];
    comm.all_gather(&mut output, &vector(call, own, len)).expect("all_gather");
    let right: Vec<u32> = (0..n).flat_map(|r| vector(call, r, len)).collect();
    assert!(output == right, "all_gather, {}", context());

    output.fill(u32::MAX);
    comm.all_to_all(&mut output, &vector(call, own, whole)).expect("all_to_all");
    let block = |r| (own * len..(own + 1) * len).map(move |i| word(call, r, i));
    assert!(output == (0..n).flat_map(block).collect::<Vec<_>>(), "all_to_all, {}", context());

    let sum = |i| (0..n).map(|r| word(call, r, i)).sum::<u32>();
    let mut data = vector(call, own, whole);
    comm.all_reduce(&mut data, RedOp::Sum).expect("all_reduce");
    assert!(data == (0..whole).map(sum).collect::<Vec<_>>(), "all_reduce, {}", context());

    let mut part = vec![u32::MAX; len];
    comm.reduce_scatter(&mut part, &vector(call, own, whole), RedOp::Sum).expect("reduce_scatter");
    let right: Vec<u32> = (own * len..(own + 1) * len).map(sum).collect();
    assert!(part == right, "reduce_scatter, {}", context());

    let root = call % n;
    let mut data = if own == root { vector(call, root, whole) } else { vec![u32::MAX; whole] };
    comm.broadcast(&mut data, root as u32).expect("broadcast");
    assert!(data == vector(call, root, whole), "broadcast, {}", context());
}

#[test]
fn private_memory_comes_right_whichever_way_it_comes() {
    for n in 2..=4u32 {
        // Ranks that share cores have no pipes, and the machine of a test may have few cores.
        for crowded in [false, n == 4] {
            let layout = SegmentLayout { crowded, ..layout(n, 64 << 10) };
            threads(layout, |comm, _| {
                let mut dice = SeededRandom(u64::from(n));
                for call in 0..60 {
                    let most = [3000, 10_000, 50_000][dice.below(3)];
                    // Some are longer than a pipe, which they go through a part at a time.
                    let more = if call % 20 == 7 { 600_000 } else { 0 };
                    calls(comm, call, 1 + more + dice.below(most));
                }
            });
        }
    }
}
