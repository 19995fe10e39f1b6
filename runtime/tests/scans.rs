//! Tests every scan of the library over memory and sockets, compared with sums of fresh numbers computed plainly, and
//! the order in which ranks are added.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::{everywhere, layout, threads};
use roundelay::{CallOptions, Communicator, Hints, RedOp};
use roundelay_tests::SeededRandom;

const SLOT: u64 = 4096;

/// Elements of a call: none, one, of one message, and of several slots.
const COUNTS: [usize; 5] = [0, 1, 17, 600, 5003];

/// Returns what a rank contributes.
fn given(seed: u64, rank: usize, count: usize) -> Vec<u64> {
    let mut dice = SeededRandom(seed ^ (rank as u64 + 1) << 40 ^ count as u64);
    (0..count).map(|_| dice.below(usize::MAX) as u64).collect()
}

/// Returns the reduction of the ranks before `end`; `None` if there are none.
fn before(seed: u64, end: usize, count: usize, op: RedOp) -> Option<Vec<u64>> {
    let combine = |a: u64, b: u64| match op {
        RedOp::Sum => a.wrapping_add(b),
        RedOp::Prod => a.wrapping_mul(b),
        RedOp::Min => a.min(b),
        RedOp::Max => a.max(b),
        RedOp::And => a & b,
        RedOp::Or => a | b,
        _ => a ^ b,
    };
    let all = (0..end).map(|rank| given(seed, rank, count));
    all.reduce(|sum, next| sum.into_iter().zip(next).map(|(a, b)| combine(a, b)).collect())
}

/// Calls every form, and compares each.
fn scans(comm: &mut Communicator, seed: u64, count: usize, op: RedOp) {
    let rank = comm.rank() as usize;
    let size = comm.size();
    let context = || format!("seed {seed}, rank {rank} of {size}, {count} by {op}");
    let (mine, poison) = (given(seed, rank, count), vec![0xeeee_eeee_dead_beef; count]);
    let (upto, less) = (before(seed, rank + 1, count, op), before(seed, rank, count, op));

    let mut data = mine.clone();
    comm.scan(&mut data, op).expect("scan");
    assert!(Some(&data) == upto.as_ref(), "scan, {}", context());
    let mut output = poison.clone();
    comm.scan_into(&mut output, &mine, op).expect("scan_into");
    assert!(Some(&output) == upto.as_ref(), "scan_into, {}", context());

    let mut data = mine.clone();
    comm.exscan(&mut data, op).expect("exscan");
    assert!(data == *less.as_ref().unwrap_or(&mine), "exscan, {}", context());
    let mut output = poison.clone();
    comm.exscan_into(&mut output, &mine, op).expect("exscan_into");
    assert!(output == *less.as_ref().unwrap_or(&poison), "exscan_into, {}", context());
    assert!(mine == given(seed, rank, count), "the input, {}", context());
}

#[test]
fn every_scan_is_right_on_fresh_numbers() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(now.as_nanos() as u64 >> 10);
    let ops = [RedOp::Sum, RedOp::Prod, RedOp::Min, RedOp::Max, RedOp::And, RedOp::Or, RedOp::Xor];
    for ranks in [1, 2, 3, 4, 5, 6, 7, 8, 9, 16] {
        everywhere(ranks, SLOT, |comm, _| {
            let names = ["linear", "binomial", "recursive_doubling"];
            for (at, name) in names.into_iter().enumerate() {
                let hints: Hints = format!("algorithm={name}").parse().expect("hints");
                comm.set_hints(hints).expect("hints");
                for (next, count) in COUNTS.into_iter().enumerate() {
                    scans(comm, seed, count, ops[(at * 3 + next + ranks as usize) % ops.len()]);
                }
            }
        });
    }
}

/// Returns a number of any magnitude, so that every order of additions rounds differently.
fn rough(rank: usize, i: usize) -> f32 {
    let mut dice = SeededRandom((rank * 100_003 + i) as u64);
    (dice.below(1 << 24) as f32 - 8_388_608.0) * 2f32.powi(dice.below(24) as i32)
}

/// Returns how many elements of a scan differ from the sum of one rank after the other.
fn differing(comm: &mut Communicator, hints: &str) -> usize {
    let (rank, hints) = (comm.rank() as usize, hints.parse::<Hints>().expect("hints"));
    let mine: Vec<f32> = (0..4000).map(|i| rough(rank, i)).collect();
    let mut comm = comm.with(CallOptions::new().hints(hints));
    let (mut upto, mut less) = (mine.clone(), mine.clone());
    comm.scan(&mut upto, RedOp::Sum).expect("scan");
    comm.exscan(&mut less, RedOp::Sum).expect("exscan");
    let in_order = |end: usize, i| (1..end).fold(rough(0, i), |sum, rank| sum + rough(rank, i));
    let differs = |i: &usize| {
        upto[*i].to_bits() != in_order(rank + 1, *i).to_bits()
            || rank > 0 && less[*i].to_bits() != in_order(rank, *i).to_bits()
    };
    (0..4000).filter(differs).count()
}

#[test]
fn deterministic_scans_add_one_rank_after_the_other() {
    let found = threads(layout(5, SLOT), |comm, _| {
        assert_eq!(differing(comm, "deterministic=true"), 0);
        assert_eq!(differing(comm, "algorithm=linear"), 0);
        differing(comm, "algorithm=recursive_doubling")
    });
    assert!(found[4] > 100, "another grouping is not seen: {found:?}");
}
