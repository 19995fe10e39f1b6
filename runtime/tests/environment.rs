//! Tests that ranks come to the same bits where one rank's thread has another floating-point environment: subnormal
//! numbers switched off, as programs linked with `-ffast-math` have them, or another rounding.

use std::arch::asm;

use crate::support::{layout, threads};
use half::{bf16, f16};
use roundelay::{Communicator, Element, RedOp};

/// Flush-to-zero and subnormal operands taken as zero, then each other rounding.
const CHANGES: [u32; 5] = [0x8040, 0x0040, 0x2000, 0x4000, 0x6000];

fn control() -> u32 {
    let mut word = 0_u32;
    // SAFETY: writes four bytes at the address of `word`.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word) };
    word
}

fn set_control(word: u32) {
    // SAFETY: reads four bytes at the address of `word`; callers set no reserved bit.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word) };
}

/// Runs all operators on one type, and adds the bits of their results.
fn all_reduced<T: Element + Copy>(
    comm: &mut Communicator,
    given: &[T],
    bits: fn(T) -> u64,
    out: &mut Vec<u64>,
) {
    for op in [RedOp::Sum, RedOp::Avg, RedOp::Prod, RedOp::Max, RedOp::Min] {
        let mut data = given.to_vec();
        comm.all_reduce(&mut data, op).expect("a result");
        out.extend(data.into_iter().map(bits));
    }
}

/// The elements of a rank: subnormal numbers, numbers whose sums and products are, and some whose sums round.
struct Operands {
    single: [f32; 5],
    double: [f64; 4],
    half: [f16; 4],
    brain: [bf16; 4],
}

impl Operands {
    /// To be made in the default environment: it computes.
    fn new(rank: usize) -> Self {
        let own = rank as u32 + 1;
        let wide = f64::from(own);
        let bits = own as u16;
        Operands {
            single: [1e-40 * own as f32, 2e-38 / own as f32, 0.1 + own as f32, f32::NAN, 3e-20],
            double: [5e-310 * wide, 4e-308 / wide, 0.1 + wide, 3e-160],
            half: [3, 0x0400 / bits, 0x3c01 + bits, 0x1001].map(f16::from_bits),
            brain: [3, 0x0080 / bits, 0x3f81 + bits, 0x2001].map(bf16::from_bits),
        }
    }
}

/// Returns the bits of every result of a rank.
fn results(comm: &mut Communicator, given: &Operands) -> Vec<u64> {
    let mut out = Vec::new();
    let single = |v: f32| if v.is_nan() { 1 } else { v.to_bits().into() };
    all_reduced(comm, &given.single, single, &mut out);
    all_reduced(comm, &given.double, f64::to_bits, &mut out);
    all_reduced(comm, &given.half, |v| v.to_bits().into(), &mut out);
    all_reduced(comm, &given.brain, |v| v.to_bits().into(), &mut out);
    out
}

#[test]
fn ranks_have_the_same_bits_whatever_the_thread_of_one_has_set() {
    for algorithm in ["one_shot", "recursive_doubling", "ring", "two_shot"] {
        let job = |changed: Option<u32>| {
            threads(layout(2, 64 << 10), |comm, rank| {
                comm.set_hints(format!("algorithm={algorithm}").parse().expect("hints"))
                    .expect("hints");
                let given = Operands::new(rank);
                let own = control();
                let bits = changed.filter(|_| rank == 1).unwrap_or(0);
                set_control(own | bits);
                let found = results(comm, &given);
                let left = control();
                set_control(own);
                assert_eq!(left & 0xffc0, own & 0xffc0 | bits, "the thread's state is restored");
                found
            })
        };
        let wanted = job(None);
        assert_eq!(wanted[0], wanted[1], "{algorithm}");
        for bits in CHANGES {
            let found = job(Some(bits));
            assert_eq!(found[0], wanted[0], "{algorithm}, rank 0 where rank 1 has {bits:#x}");
            assert_eq!(found[1], wanted[0], "{algorithm}, rank 1 with {bits:#x}");
        }
    }
}
