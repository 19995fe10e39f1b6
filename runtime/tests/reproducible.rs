//! Tests `deterministic=batch_invariant`: the bits of an element depend on the contributions to it alone, whatever
//! slice of a tensor it is in, at whatever offset, over every transport and in every memory.

use half::{bf16, f16};

use crate::support::{everywhere, layout, threads};
use roundelay::{CallOptions, Communicator, Element, Hints, RedOp};
use roundelay_tests::SeededRandom;

/// Elements of the tensor of which slices are summed.
const TENSOR: usize = 5000;
/// Bytes of a slot: long slices take several passes.
const SLOT: u64 = 4 << 10;

fn hints(text: &str) -> Hints {
    text.parse().expect(text)
}

/// A type of which every order of additions rounds differently, with the reference for its sums.
trait SliceElement: Element + PartialEq + Copy {
    /// Returns an element of a rank's tensor.
    fn number(rank: usize, i: usize) -> Self;
    /// Returns the sum of the ranks' numbers in ascending order, rounded once.
    fn sum(numbers: &[Self]) -> Self;
    fn bits(self) -> u64;
}

fn word(rank: usize, i: usize) -> u64 {
    let mut x = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64 + 7);
    for _ in 0..3 {
        x ^= x >> 31;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    x
}

/// Returns a number between -2^(range - 1) and 2^(range - 1).
fn float(rank: usize, i: usize, range: u64) -> f64 {
    let x = word(rank, i);
    ((x >> 12) as f64 / (1u64 << 52) as f64 - 0.5) * 2f64.powi((x % range) as i32)
}

macro_rules! floats {
    ($($type:ident, $wide:ident, $range:literal, $of:expr, $to:expr;)*) => {$(
        impl SliceElement for $type {
            fn number(rank: usize, i: usize) -> Self {
                let of: fn(f64) -> $type = $of;
                of(float(rank, i, $range))
            }
            fn sum(numbers: &[Self]) -> Self {
                let (of, to): (fn($wide) -> $type, fn($type) -> $wide) = $to;
                of(numbers[1..].iter().fold(to(numbers[0]), |sum, x| sum + to(*x)))
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    )*};
}

floats! {
    f32, f32, 24, |x| x as f32, (|x| x, |x| x);
    f64, f64, 50, |x| x, (|x| x, |x| x);
    f16, f32, 8, f16::from_f64, (f16::from_f32, f16::to_f32);
    bf16, f32, 8, bf16::from_f64, (bf16::from_f32, bf16::to_f32);
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl SliceElement for $type {
            fn number(rank: usize, i: usize) -> Self {
                word(rank, i) as $type
            }
            fn sum(numbers: &[Self]) -> Self {
                numbers.iter().fold(0, |sum, x| sum.wrapping_add(*x))
            }
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

integers!(i32 u8);

fn slice<T: SliceElement>(rank: usize, from: usize, len: usize) -> Vec<T> {
    (from..from + len).map(|i| T::number(rank, i)).collect()
}

fn expected<T: SliceElement>(ranks: usize, i: usize) -> u64 {
    T::sum(&(0..ranks).map(|rank| T::number(rank, i)).collect::<Vec<T>>()).bits()
}

fn assert_bits<T: SliceElement>(found: &[T], from: usize, ranks: usize, call: &str) {
    for (at, x) in found.iter().enumerate() {
        let wanted = expected::<T>(ranks, from + at);
        assert!(x.bits() == wanted, "{call} of {} on {ranks}: element {}", T::DTYPE, from + at);
    }
}

/// Sums `slices` slices of the tensor of one type, by every collective that adds.
fn sum_slices<T: SliceElement>(comm: &mut Communicator, rank: usize, slices: usize) {
    let ranks = comm.size() as usize;
    let mut dice = SeededRandom(ranks as u64 + 99);
    let hint = || CallOptions::new().hints(hints("deterministic=batch_invariant"));
    for call in 0..slices {
        let most = [16, 200, TENSOR][dice.below(20).saturating_sub(17)];
        let len = 1 + dice.below(most);
        let from = dice.below(TENSOR - len + 1);
        match call % 5 {
            0 | 1 => {
                let mut data = slice::<T>(rank, from, len);
                comm.with(hint()).all_reduce(&mut data, RedOp::Sum).expect("a sum");
                assert_bits(&data, from, ranks, "all_reduce");
            }
            2 => {
                let mut data = comm.alloc::<T>(len).expect("memory");
                data.copy_from_slice(&slice::<T>(rank, from, len));
                comm.with(hint()).all_reduce(&mut data, RedOp::Sum).expect("a sum");
                assert_bits(&data, from, ranks, "all_reduce of the communicator's memory");
            }
            3 => {
                let root = dice.below(ranks);
                let mut data = slice::<T>(rank, from, len);
                comm.with(hint()).reduce(&mut data, root as u32, RedOp::Sum).expect("a sum");
                if rank == root {
                    assert_bits(&data, from, ranks, "reduce");
                }
            }
            _ => {
                let block = len / ranks;
                let mut part = slice::<T>(rank + 50, 0, block);
                let input = slice::<T>(rank, from, block * ranks);
                comm.with(hint()).reduce_scatter(&mut part, &input, RedOp::Sum).expect("a sum");
                assert_bits(&part, from + rank * block, ranks, "reduce_scatter");
                let mut all = slice::<T>(rank + 50, 0, block * ranks);
                comm.with(hint()).all_gather(&mut all, &part).expect("all blocks");
                assert_bits(&all, from, ranks, "reduce_scatter and all_gather");
            }
        }
    }
}

/// Slices of one tensor at 500 lengths and offsets.
fn slices_agree(ranks: u32) {
    everywhere(ranks, SLOT, |comm, rank| {
        sum_slices::<f32>(comm, rank, 500);
        sum_slices::<bf16>(comm, rank, 200);
        sum_slices::<f16>(comm, rank, 50);
        sum_slices::<f64>(comm, rank, 50);
        sum_slices::<i32>(comm, rank, 50);
        sum_slices::<u8>(comm, rank, 50);
    });
}

#[test]
fn slices_have_the_bits_of_the_tensor_on_two_ranks() {
    slices_agree(2);
}

#[test]
fn slices_have_the_bits_of_the_tensor_on_three_ranks() {
    slices_agree(3);
}

#[test]
fn slices_have_the_bits_of_the_tensor_on_four_ranks() {
    slices_agree(4);
}

#[test]
fn without_the_hint_slices_differ_from_the_tensor() {
    threads(layout(4, SLOT), |comm, rank| {
        comm.set_hints(hints("algorithm=all_reduce.ring")).expect("hints");
        let mut whole = slice::<f32>(rank, 0, TENSOR);
        comm.all_reduce(&mut whole, RedOp::Sum).expect("a sum");
        let mut half = slice::<f32>(rank, 0, TENSOR / 2);
        comm.all_reduce(&mut half, RedOp::Sum).expect("a sum");
        let differ = half.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert!(differ > 100, "only {differ}: the tests above would not notice another order");
    });
}

/// A chain that ends at the last rank adds in ascending order: the bits of `f32`, but not of `bf16`, whose partial sums
/// it rounds at each stop.
#[test]
fn where_partial_sums_are_rounded_is_a_part_of_the_order() {
    fn differing<T: SliceElement>(comm: &mut Communicator, rank: usize) -> usize {
        let mut data = slice::<T>(rank, 0, TENSOR);
        comm.reduce(&mut data, 3, RedOp::Sum).expect("a sum");
        (0..TENSOR).filter(|&i| rank == 3 && data[i].bits() != expected::<T>(4, i)).count()
    }
    threads(layout(4, SLOT), |comm, rank| {
        comm.set_hints(hints("algorithm=reduce.chain")).expect("hints");
        assert_eq!(differing::<f32>(comm, rank), 0);
        assert!(differing::<bf16>(comm, rank) > 100 || rank != 3);
        comm.set_hints(hints("deterministic=batch_invariant")).expect("hints");
        assert_eq!(differing::<bf16>(comm, rank), 0);
    });
}

/// The first of two zeros is the greatest: which one that is depends on the order.
#[test]
fn maxima_keep_the_zero_of_the_lowest_rank() {
    threads(layout(3, SLOT), |comm, rank| {
        comm.set_hints(hints("deterministic=batch_invariant")).expect("hints");
        for len in [3, 4000] {
            let zero = |rank: usize, i: usize| if word(rank, i) & 1 == 0 { 0f32 } else { -0f32 };
            let mut data: Vec<f32> = (0..len).map(|i| zero(rank, i)).collect();
            comm.all_reduce(&mut data, RedOp::Max).expect("maxima");
            for (i, x) in data.iter().enumerate() {
                assert_eq!(x.to_bits(), zero(0, i).to_bits(), "element {i} of {len}");
            }
        }
    });
}

#[test]
fn algorithms_whose_order_depends_on_the_place_are_refused() {
    let ring = include_str!("../../algorithms/all_reduce/ring.algo");
    let two_shot = include_str!("../../algorithms/all_reduce/two_shot.algo");
    threads(layout(3, SLOT), |comm, rank| {
        comm.set_hints(hints("deterministic=batch_invariant")).expect("hints");
        let ring = comm.load_text("ring.algo", ring).expect("a ring");
        let mut data = slice::<f32>(rank, 0, 100);
        let refused = |error: roundelay::Error| {
            let text = error.to_string();
            let has = ["depends on the place of an element", "ring.algo:", "data[0] is"];
            assert!(has.iter().all(|part| text.contains(part)), "{text}");
        };
        refused(comm.run_algorithm(&ring, &mut data, RedOp::Sum).expect_err("a ring"));
        comm.install(&ring).expect("installed");
        refused(comm.all_reduce(&mut data, RedOp::Sum).expect_err("a ring"));
        assert!(data == slice::<f32>(rank, 0, 100), "nothing was moved");
        // Integers have one result in every order.
        comm.all_reduce(&mut [1u32; 9], RedOp::Sum).expect("a sum");
        let two_shot = comm.load_text("two_shot.algo", two_shot).expect("two shots");
        comm.install(&two_shot).expect("installed");
        comm.all_reduce(&mut data, RedOp::Sum).expect("a sum");
        assert_bits(&data, 0, 3, "an installed algorithm");
        comm.uninstall("all_reduce").expect("uninstalled");
        comm.set_hints(Hints::default()).expect("hints");
        comm.run_algorithm(&ring, &mut data, RedOp::Sum).expect("a sum without the hint");
    });
}
