//! Tests every collective by name, at sizes around the edges, on ranks that divide nothing, compared with
//! results computed plainly; and every wrong argument.

use std::ops::{Add, Mul};

use crate::support::{layout, threads};
use half::bf16;
use roundelay::memory::MemoryBool;
use roundelay::{Communicator, DType, Element, Error, RedOp, Reduction};

/// Elements a block.
const COUNTS: [usize; 4] = [0, 1, 13, 1000];
const RANKS: [u32; 4] = [1, 2, 3, 5];

/// An element type whose results are exact here.
trait Number: Element + Add<Output = Self> + Mul<Output = Self> + PartialOrd {
    fn of(value: u32) -> Self;
    /// The value that fills outputs before a call.
    const POISON: Self;
}

macro_rules! numbers {
    ($($type:ty: $of:expr, $poison:expr;)*) => {
        $(impl Number for $type {
            fn of(value: u32) -> Self { $of(value) }
            const POISON: Self = $poison;
        })*
    };
}

numbers! {
    f32: |v| v as f32, f32::NAN;
    f64: f64::from, f64::NAN;
    bf16: |v| bf16::from_f32(v as f32), bf16::NAN;
    i32: |v| v as i32, i32::MIN;
    u8: |v| v as u8, 0xee;
    i64: i64::from, i64::MIN;
}

/// Returns element `i` of what a rank brings: small, so that sums and products of five are exact in any type.
fn given<T: Number>(rank: usize, i: usize) -> T {
    let hash = (rank as u64 * 0x9e37_79b9 + i as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    T::of((hash >> 40) as u32 % 3 + 1)
}

fn block<T: Number>(rank: usize, from: usize, len: usize) -> Vec<T> {
    (from..from + len).map(|i| given(rank, i)).collect()
}

fn reduced<T: Number>(n: usize, from: usize, len: usize, op: RedOp) -> Vec<T> {
    let fold = |a: T, b: T| match op {
        RedOp::Sum => a + b,
        RedOp::Prod => a * b,
        RedOp::Max if b > a => b,
        RedOp::Min if b < a => b,
        _ => a,
    };
    let all = |i| (1..n).map(|r| given(r, i)).fold(given(0, i), fold);
    (from..from + len).map(all).collect()
}

fn poisoned<T: Number>(len: usize) -> Vec<T> {
    vec![T::POISON; len]
}

fn split<T>(memory: &mut [T], n: usize) -> Vec<&mut [T]> {
    let count = memory.len() / n;
    let mut rest = memory;
    (0..n)
        .map(|_| {
            let (first, others) = std::mem::take(&mut rest).split_at_mut(count);
            rest = others;
            first
        })
        .collect()
}

fn lists<T>(memory: &[T], n: usize) -> Vec<&[T]> {
    let count = memory.len() / n;
    (0..n).map(|r| &memory[r * count..(r + 1) * count]).collect()
}

fn reducing<T: Number>(comm: &mut Communicator, r: usize, count: usize, op: RedOp) {
    let n = comm.size() as usize;
    let sum = reduced::<T>(n, 0, count, op);

    let mut data = comm.alloc::<T>(count).expect("memory");
    data.copy_from_slice(&block(r, 0, count));
    comm.all_reduce(&mut data, op).expect("all_reduce");
    assert_eq!(data[..], sum[..], "all_reduce");

    let (input, mut output) = (block::<T>(r, 0, count), poisoned(count));
    comm.all_reduce_into(&mut output, &input, op).expect("all_reduce_into");
    assert_eq!(output, sum, "all_reduce_into");
    assert!(input == block(r, 0, count), "the input");

    for root in [0, n - 1] {
        let mut data: Vec<T> = block(r, 0, count);
        comm.reduce(&mut data, root as u32, op).expect("reduce");
        assert!(r != root || data == sum, "reduce");
        let mut output = poisoned(if r == root { count } else { 0 });
        comm.reduce_into(&mut output, &input, root as u32, op).expect("reduce_into");
        assert!(r != root || output == sum, "reduce_into");
    }

    let wanted = reduced::<T>(n, r * count, count, op);
    let (input, mut output) = (block::<T>(r, 0, n * count), poisoned(count));
    comm.reduce_scatter(&mut output, &input, op).expect("reduce_scatter");
    assert_eq!(output, wanted, "reduce_scatter");
    output.fill(T::POISON);
    comm.reduce_scatter_list(&mut output, &lists(&input, n), op).expect("reduce_scatter");
    assert_eq!(output, wanted, "reduce_scatter");
}

fn prefixes<T: Number>(comm: &mut Communicator, r: usize, count: usize, op: RedOp) {
    let before = |end| reduced::<T>(end, 0, count, op);
    let mine: Vec<T> = block(r, 0, count);

    let mut data = comm.alloc::<T>(count).expect("memory");
    data.copy_from_slice(&mine);
    comm.scan(&mut data, op).expect("scan");
    assert_eq!(data[..], before(r + 1)[..], "scan");
    let mut output = poisoned(count);
    comm.scan_into(&mut output, &mine, op).expect("scan_into");
    assert_eq!(output, before(r + 1), "scan_into");
    assert!(mine == block(r, 0, count), "the input");

    let mut data = mine.clone();
    comm.exscan(&mut data, op).expect("exscan");
    assert!(data == if r == 0 { mine.clone() } else { before(r) }, "exscan");
    // Rank 0 keeps the scan.
    if r > 0 {
        output.fill(T::POISON);
    }
    comm.exscan_into(&mut output, &mine, op).expect("exscan_into");
    assert!(output == before(r.max(1)), "exscan_into");
    assert!(mine == block(r, 0, count), "the input");
}

fn copying<T: Number>(comm: &mut Communicator, r: usize, count: usize) {
    let n = comm.size() as usize;
    let all: Vec<T> = (0..n).flat_map(|s| block(s, 0, count)).collect();
    let mine: Vec<T> = block(r, 0, count);

    let mut output = poisoned(n * count);
    comm.all_gather(&mut output, &mine).expect("all_gather");
    assert!(output == all, "all_gather");
    output.fill(T::POISON);
    comm.all_gather_list(&mut split(&mut output, n), &mine).expect("all_gather");
    assert!(output == all, "all_gather");

    let input: Vec<T> = block(r, 0, n * count);
    let wanted: Vec<T> = (0..n).flat_map(|s| block(s, r * count, count)).collect();
    output.fill(T::POISON);
    comm.all_to_all(&mut output, &input).expect("all_to_all");
    assert!(output == wanted, "all_to_all");
    output.fill(T::POISON);
    comm.all_to_all_list(&mut split(&mut output, n), &lists(&input, n)).expect("all_to_all");
    assert!(output == wanted, "all_to_all");

    for root in [0, n - 1] {
        let at = root as u32;
        let mut data: Vec<T> = if r == root { block(root, 0, count) } else { poisoned(count) };
        comm.broadcast(&mut data, at).expect("broadcast");
        assert!(data == block(root, 0, count), "broadcast");

        let mut output = poisoned(if r == root { n * count } else { 0 });
        comm.gather(&mut output, &mine, at).expect("gather");
        assert!(r != root || output == all, "gather");
        output.fill(T::POISON);
        let mut parts = if r == root { split(&mut output, n) } else { Vec::new() };
        comm.gather_list(&mut parts, &mine, at).expect("gather");
        assert!(r != root || output == all, "gather");

        let input: Vec<T> = if r == root { block(root, 0, n * count) } else { Vec::new() };
        let wanted: Vec<T> = block(root, r * count, count);
        let mut output = poisoned(count);
        comm.scatter(&mut output, &input, at).expect("scatter");
        assert!(output == wanted, "scatter");
        output.fill(T::POISON);
        let parts = if r == root { lists(&input, n) } else { Vec::new() };
        comm.scatter_list(&mut output, &parts, at).expect("scatter");
        assert!(output == wanted, "scatter");
    }
    comm.barrier().expect("barrier");
}

fn everything<T: Number>(ops: &[RedOp]) {
    for n in RANKS {
        threads(layout(n, 4096), |comm, r| {
            for count in COUNTS {
                for &op in ops {
                    reducing::<T>(comm, r, count, op);
                    prefixes::<T>(comm, r, count, op);
                }
                copying::<T>(comm, r, count);
            }
        });
    }
}

#[test]
fn floats() {
    everything::<f32>(&[RedOp::Sum, RedOp::Prod, RedOp::Min, RedOp::Max]);
}

#[test]
fn doubles_and_halves() {
    everything::<f64>(&[RedOp::Sum]);
    everything::<bf16>(&[RedOp::Max]);
}

#[test]
fn integers() {
    everything::<i32>(&[RedOp::Sum, RedOp::Min]);
    everything::<i64>(&[RedOp::Prod]);
    everything::<u8>(&[RedOp::Sum]);
}

#[test]
fn averages_and_factors() {
    for n in RANKS {
        threads(layout(n, 4096), |comm, r| {
            let wanted = vec![(n as f64 + 1.0) / 2.0; 100];
            let mine = vec![r as f64 + 1.0; 100];
            let mut data = mine.clone();
            comm.all_reduce(&mut data, RedOp::Avg).expect("all_reduce");
            assert_eq!(data, wanted);
            // Ranks that only send have no output to divide.
            for root in 0..n {
                let is_root = r as u32 == root;
                let mut output = vec![0.0; if is_root { 100 } else { 0 }];
                comm.reduce_into(&mut output, &mine, root, RedOp::Avg).expect("reduce_into");
                assert!(!is_root || output == wanted);
            }
            let mut output = vec![0.0; 50];
            let input = vec![1.0; 50 * n as usize];
            let factor = Reduction::premul_sum(r as f64);
            comm.reduce_scatter(&mut output, &input, factor).expect("reduce_scatter");
            assert_eq!(output, vec![f64::from(n * (n - 1) / 2); 50]);
            assert_eq!(input, vec![1.0; 50 * n as usize]);
        });
    }
}

#[test]
fn scans_have_no_averages_and_factors() {
    threads(layout(3, 4096), |comm, _| {
        let (mut data, input) = ([1.0f32; 8], [2.0f32; 8]);
        let refused = [
            comm.scan(&mut data, RedOp::Avg),
            comm.exscan(&mut data, Reduction::premul_sum(0.5)),
            comm.scan_into(&mut data, &input, Reduction::premul_sum(2.0)),
            comm.exscan_into(&mut data, &input, RedOp::Avg),
        ];
        for error in refused.map(|call| call.expect_err("it is refused")) {
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
            assert!(error.to_string().contains("of different numbers of ranks"), "{error}");
        }
        assert_eq!(data, [1.0; 8]);
        comm.all_reduce(&mut data, RedOp::Sum).expect("the communicator is as good as before");
        assert_eq!(data, [3.0; 8]);
    });
}

#[test]
fn a_list_is_served_again_and_again_in_sizes_that_change() {
    threads(layout(3, 1024), |comm, r| {
        for count in [7usize, 900, 3, 5000, 1] {
            let mut output = poisoned::<i32>(3 * count);
            comm.all_gather_list(&mut split(&mut output, 3), &block(r, 0, count)).expect("a call");
            let all: Vec<i32> = (0..3).flat_map(|s| block(s, 0, count)).collect();
            assert_eq!(output, all);
        }
    });
}

type Wrong = fn(&mut Communicator) -> Result<(), Error>;

/// Calls that are wrong on three ranks, as rank 0 makes them, with words that the error must have.
const WRONG: [(Wrong, &str); 20] = [
    (|c| c.broadcast(&mut [0u8; 2], 3), "broadcast: root 3 is not one of 3 ranks"),
    (|c| c.reduce(&mut [0u8; 2], 7, RedOp::Sum), "reduce: root 7 is not one of 3 ranks"),
    (|c| c.reduce_into(&mut [0u8; 2], &[0; 2], 3, RedOp::Sum), "roots go from 0 to 2"),
    (|c| c.gather(&mut [0u8; 3], &[0], 9), "root 9"),
    (|c| c.gather_list::<[u8], _>(&mut [], &[0u8], 3), "root 3"),
    (|c| c.scatter(&mut [0u8], &[0; 3], u32::MAX), "root 4294967295"),
    (|c| c.scatter_list::<_, [u8]>(&mut [0u8], &[], 3), "root 3"),
    (|c| c.all_reduce_into(&mut [0u8; 2], &[0; 3], RedOp::Sum), "2 elements and the input 3"),
    (|c| c.reduce_into(&mut [0u8; 4], &[0; 5], 0, RedOp::Sum), "4 elements and the input 5"),
    (|c| c.all_gather(&mut [0u8; 7], &[0; 2]), "7 elements, which are not 3 blocks of 2"),
    (|c| c.reduce_scatter(&mut [0u8; 2], &[0; 5], RedOp::Sum), "5 elements"),
    (|c| c.all_to_all(&mut [0u8; 4], &[0; 4]), "4 elements, which are not 3 equal blocks"),
    (|c| c.all_to_all(&mut [0u8; 6], &[0; 3]), "6 elements and the input 3"),
    (|c| c.gather(&mut [], &[0u8; 2], 0), "0 elements, which are not 3 blocks of 2"),
    (|c| c.scatter(&mut [0u8; 2], &[0; 4], 0), "4 elements"),
    (|c| c.all_gather_list(&mut [&mut [0u8][..]], &[0u8]), "1 outputs, and 3 ranks"),
    (
        |c| c.reduce_scatter_list(&mut [0u8], &[&[0][..], &[0], &[0, 0]], RedOp::Sum),
        "inputs[2] has 2",
    ),
    (
        |c| c.all_to_all_list(&mut [&mut [], &mut [], &mut []], &[&[0u8], &[0], &[0]]),
        "outputs[0] has 0",
    ),
    (|c| c.gather_list(&mut [&mut [0u8][..], &mut []], &[0u8], 0), "2 outputs, and 3 ranks"),
    (|c| c.scatter_list::<_, [u8]>(&mut [0u8], &[], 0), "0 inputs, and 3 ranks"),
];

#[test]
fn wrong_arguments_are_refused_before_anything_moves() {
    threads(layout(3, 1024), |comm, r| {
        if r == 0 {
            for (call, words) in WRONG {
                let error = call(comm).expect_err(words);
                assert!(matches!(error, Error::Usage(_)), "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
            let error =
                comm.all_reduce(&mut [MemoryBool::TRUE], RedOp::Sum).expect_err("no sum of bool");
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
        }
        // The others noticed nothing, and the communicator is as good as before.
        let mut data = [DType::ALL.len() as u64];
        comm.all_reduce(&mut data, RedOp::Sum).expect("a call");
        assert_eq!(data, [33]);
    });
}
