//! Tests blocks of unequal length, compared with what the collectives say plainly, and blocks of equal length
//! with the same collectives on lists.

use std::time::Duration;

use crate::support::{everywhere, layout, threads};
use roundelay::plan::plan_of;
use roundelay::{Communicator, Element, Error, RedOp, internal};
use roundelay_algorithms::{CatalogueEntry, of};
use roundelay_compiler::{BufferPlacement, CompileOptions, Plan, Shape};
use roundelay_dsl::diag::codes;
use roundelay_tests::SeededRandom;

/// Counts of all sizes, zeros among them, the same on all ranks.
fn counts(dice: &mut SeededRandom, n: usize) -> Vec<usize> {
    let most = [1, 3, 20, 700, 5000][dice.below(5)];
    (0..n).map(|_| if dice.below(4) == 0 { 0 } else { dice.below(most + 1) }).collect()
}

/// An element type with small whole numbers, so that every sum is exact.
trait Small: Element {
    fn of(x: usize) -> Self;
}

macro_rules! small {
    ($($type:ty: $x:ident => $make:expr;)*) => {
        $(impl Small for $type {
            fn of($x: usize) -> Self {
                $make
            }
        })*
    };
}

small! {
    u8: x => x as u8;
    i64: x => x as i64;
    f32: x => x as f32;
    half::bf16: x => half::bf16::from_f32(x as f32);
}

/// Returns what rank `r` contributes to element `i`.
fn word(r: usize, i: usize) -> usize {
    (i * 5 + r * 3) % 19
}

fn plans(entry: &CatalogueEntry, n: u32, schedule: &str) -> Option<Vec<Plan>> {
    let text = entry.text.trim_end().trim_end_matches('}');
    let text = format!("{text}\n    {schedule}\n}}\n");
    let plan = |rank| {
        let (shape, options) = (Shape::flat(n), CompileOptions::default());
        plan_of(entry.path, &text, &shape, &options, BufferPlacement::OutOfPlace, rank)
    };
    match plan(0) {
        Ok(first) => {
            Some(std::iter::once(first).chain((1..n).map(|r| plan(r).expect("a plan"))).collect())
        }
        // Not for this number of ranks, or what is split by bandwidth not on several channels.
        Err(error) => {
            let text = error.to_string();
            let split =
                schedule.contains("channels") && text.contains(&codes::WEIGHTED.to_string());
            let is_grid = text.contains("runs on a grid");
            assert!(split || is_grid || text.contains("requires"), "{error}");
            None
        }
    }
}

/// Makes one call in private or shared memory; returns the whole output.
fn run<T: Small>(
    comm: &mut Communicator,
    shared: bool,
    input: &[T],
    len: usize,
    call: impl Fn(&mut Communicator, &[T], &mut [T]),
) -> Vec<T> {
    let mut output = vec![T::of(77); len];
    if !shared {
        call(comm, input, &mut output);
        return output;
    }
    let mut from = comm.alloc::<T>(input.len()).expect("memory");
    let mut to = comm.alloc::<T>(len).expect("memory");
    from.copy_from_slice(input);
    call(comm, &from, &mut to);
    to.to_vec()
}

fn gathered<T: Small>(counts: &[usize]) -> Vec<T> {
    let block = |(r, &count): (usize, &usize)| (0..count).map(move |i| T::of(word(r, i)));
    counts.iter().enumerate().flat_map(block).collect()
}

fn summed<T: Small>(counts: &[usize], rank: usize) -> Vec<T> {
    let first: usize = counts[..rank].iter().sum();
    let sum = |i| (0..counts.len()).map(|r| word(r, i)).sum();
    (first..first + counts[rank]).map(|i| T::of(sum(i))).collect()
}

fn whole<T: Small>(counts: &[usize], rank: usize) -> Vec<T> {
    (0..counts.iter().sum()).map(|i| T::of(word(rank, i))).collect()
}

fn check_gather<T: Small>(comm: &mut Communicator, plan: &Plan, counts: &[usize], shared: bool) {
    let rank = comm.rank() as usize;
    let input: Vec<T> = (0..counts[rank]).map(|i| T::of(word(rank, i))).collect();
    let got = run(comm, shared, &input, counts.iter().sum(), |comm, input, output| {
        internal::run_cut(comm, plan, RedOp::Sum, counts, input, output).expect("a run");
    });
    let name = &plan.header.algorithm;
    assert!(got == gathered::<T>(counts), "{name} of {counts:?} x {}, rank {rank}", T::DTYPE);
}

fn check_scatter<T: Small>(comm: &mut Communicator, plan: &Plan, counts: &[usize], shared: bool) {
    let rank = comm.rank() as usize;
    let got = run(comm, shared, &whole::<T>(counts, rank), counts[rank], |comm, input, output| {
        internal::run_cut(comm, plan, RedOp::Sum, counts, input, output).expect("a run");
    });
    let name = &plan.header.algorithm;
    assert!(got == summed::<T>(counts, rank), "{name} of {counts:?} x {}, rank {rank}", T::DTYPE);
}

/// All algorithms of the library but those that keep blocks in scratch, also with chunks finer than blocks and many
/// passes.
#[test]
fn the_library_runs_blocks_of_any_lengths() {
    for n in 1..=6u32 {
        for collective in ["all_gather", "reduce_scatter"] {
            let all: Vec<Vec<Plan>> = of(collective)
                .filter(|entry| !entry.text.contains("\n    scratch "))
                .flat_map(|entry| {
                    ["", "schedule { channels 2 pipeline 3 }", "schedule { protocol direct }"]
                        .map(|schedule| plans(entry, n, schedule))
                })
                .flatten()
                .collect();
            assert!(all.len() >= 6, "{collective} on {n} ranks: {}", all.len());
            threads(layout(n, 512), |comm, rank| {
                let mut dice = SeededRandom(u64::from(n));
                for (salt, plans) in all.iter().enumerate() {
                    let plan = &plans[rank];
                    for round in 0..8 {
                        let (counts, shared) = (counts(&mut dice, n as usize), round % 2 == 0);
                        let gather = collective == "all_gather";
                        match ((salt + round) % 4, gather) {
                            (0, true) => check_gather::<u8>(comm, plan, &counts, shared),
                            (1, true) => check_gather::<i64>(comm, plan, &counts, shared),
                            (2, true) => check_gather::<f32>(comm, plan, &counts, shared),
                            (_, true) => check_gather::<half::bf16>(comm, plan, &counts, shared),
                            (0, false) => check_scatter::<u8>(comm, plan, &counts, shared),
                            (1, false) => check_scatter::<i64>(comm, plan, &counts, shared),
                            (2, false) => check_scatter::<f32>(comm, plan, &counts, shared),
                            (_, false) => check_scatter::<half::bf16>(comm, plan, &counts, shared),
                        }
                    }
                }
            });
        }
    }
}

/// Returns a slice for each block of a buffer.
fn cut_mut<'a>(mut rest: &'a mut [i64], counts: &[usize]) -> Vec<&'a mut [i64]> {
    let cut = |&count: &usize| {
        let (block, others) = std::mem::take(&mut rest).split_at_mut(count);
        rest = others;
        block
    };
    counts.iter().map(cut).collect()
}

/// Cuts a slice like [`cut_mut`].
fn cut<'a>(mut rest: &'a [i64], counts: &[usize]) -> Vec<&'a [i64]> {
    let cut = |&count: &usize| {
        let (block, others) = rest.split_at(count);
        rest = others;
        block
    };
    counts.iter().map(cut).collect()
}

/// Checks that blocks of equal length give what lists of such buffers give.
fn check_lists(comm: &mut Communicator, rank: usize, count: usize) {
    let counts = vec![count; comm.size() as usize];
    let total = count * counts.len();
    let input: Vec<i64> = whole(&counts, rank);
    let (mut by_counts, mut by_lists) = (vec![-1; total], vec![-2; total]);
    comm.all_gather_v(&mut by_counts, &input[..count], &counts).expect("a gather");
    comm.all_gather_list(&mut cut_mut(&mut by_lists, &counts), &input[..count]).expect("a gather");
    assert_eq!(by_lists, by_counts);
    let (mut by_counts, mut by_lists) = (vec![-1; count], vec![-2; count]);
    comm.reduce_scatter_v(&mut by_counts, &input, &counts, RedOp::Sum).expect("a sum");
    let blocks = cut(&input, &counts);
    comm.reduce_scatter_list(&mut by_lists, &blocks, RedOp::Sum).expect("a sum");
    assert_eq!(by_lists, by_counts);
    let (mut by_counts, mut by_lists) = (vec![-1; total], vec![-2; total]);
    comm.all_to_all_v(&mut by_counts, &counts, &input, &counts).expect("a call");
    comm.all_to_all_list(&mut cut_mut(&mut by_lists, &counts), &blocks).expect("a call");
    assert_eq!(by_lists, by_counts);
}

/// The collectives by name, and the same on lists.
#[test]
fn gather_and_scatter_by_name() {
    for n in [1u32, 2, 5] {
        everywhere(n, 4096, |comm, rank| {
            let mut dice = SeededRandom(900 + u64::from(n));
            for _ in 0..8 {
                let counts = counts(&mut dice, n as usize);
                let input: Vec<f32> = (0..counts[rank]).map(|i| Small::of(word(rank, i))).collect();
                let mut output = vec![-1.0f32; counts.iter().sum()];
                comm.all_gather_v(&mut output, &input, &counts).expect("a gather");
                assert_eq!(output, gathered::<f32>(&counts));

                let input: Vec<i64> = whole(&counts, rank);
                let mut output = vec![-1i64; counts[rank]];
                comm.reduce_scatter_v(&mut output, &input, &counts, RedOp::Sum).expect("a sum");
                assert_eq!(output, summed::<i64>(&counts, rank));
                comm.reduce_scatter_v(&mut output, &input, &counts, RedOp::Avg).expect("a mean");
                let sums = summed::<i64>(&counts, rank);
                let mean = sums.iter().map(|x| x / i64::from(n));
                assert_eq!(output, mean.collect::<Vec<i64>>());
                check_lists(comm, rank, counts[0]);
            }
        });
    }
}

#[test]
fn every_block_to_its_owner() {
    for n in [1usize, 2, 3, 6] {
        everywhere(n as u32, 256, |comm, rank| {
            let mut dice = SeededRandom(500 + n as u64);
            for _ in 0..15 {
                let counts: Vec<Vec<usize>> = (0..n).map(|_| counts(&mut dice, n)).collect();
                let element = |from: usize, to: usize, i| (from * 40 + to * 5 + i) as i64;
                let block = |a: usize, b: usize| -> Vec<i64> {
                    (0..counts[a][b]).map(|i| element(a, b, i)).collect()
                };
                let inputs: Vec<Vec<i64>> = (0..n).map(|b| block(rank, b)).collect();
                let wanted: Vec<Vec<i64>> = (0..n).map(|a| block(a, rank)).collect();
                let received: Vec<usize> = (0..n).map(|a| counts[a][rank]).collect();
                let mut output = vec![-1; received.iter().sum()];
                let input = inputs.concat();
                comm.all_to_all_v(&mut output, &received, &input, &counts[rank]).expect("a call");
                assert_eq!(output, wanted.concat());
            }
        });
    }
}

/// Returns the error of each rank if rank 1 makes another call than the others.
fn different(
    warm: bool,
    most: &(dyn Fn(&mut Communicator) -> Result<(), Error> + Sync),
    odd: &(dyn Fn(&mut Communicator) -> Result<(), Error> + Sync),
) -> Vec<String> {
    let warmed = std::sync::Barrier::new(3);
    let errors = threads(layout(3, 1024), |comm, rank| {
        comm.set_timeout(Duration::from_secs(20));
        if warm {
            let first = most(comm);
            // The end of the communicator would overtake a rank that is still in the first call.
            warmed.wait();
            first.expect("a call");
        }
        let result = if rank == 1 { odd(comm) } else { most(comm) };
        // Who has nothing to do with rank 1 in this call hears of it in the next.
        result.and_then(|()| comm.barrier()).expect_err("rank 1 differs")
    });
    errors.iter().for_each(|error| assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}"));
    errors.iter().map(Error::to_string).collect()
}

fn gather(counts: &'static [usize]) -> impl Fn(&mut Communicator) -> Result<(), Error> + Sync {
    move |comm| {
        let input = vec![1u32; counts[comm.rank() as usize]];
        let mut output = vec![0; counts.iter().sum()];
        comm.all_gather_v(&mut output, &input, counts)
    }
}

#[test]
fn a_rank_with_other_counts_is_named() {
    for warm in [false, true] {
        let texts = different(warm, &gather(&[3, 0, 500]), &gather(&[3, 500, 0]));
        assert!(texts.iter().all(|t| t.contains("rank 1")), "{texts:?}");
        // The rank that saw it first says what it calls.
        let calls = ["[3, 0, 500] x u32", "[3, 500, 0] x u32"].map(|c| format!("direct of {c}"));
        let says = |t: &String| calls.iter().any(|call| t.contains(call));
        assert!(texts.iter().all(says), "{texts:?}");
        different(warm, &gather(&[4, 4, 4]), &gather(&[4, 0, 8]));
        different(warm, &gather(&[0, 4, 4]), &|comm| comm.barrier());
    }
}

#[test]
fn blocks_that_are_not_expected_are_told() {
    let exchange = |third: usize| {
        move |comm: &mut Communicator| {
            let sent = [1, 2, third];
            let received = [[1, 1, 1], [2, 2, 2], [9, 9, 9]][comm.rank() as usize];
            let mut output = vec![0; received.iter().sum()];
            comm.all_to_all_v(&mut output, &received, &vec![1u8; 3 + third], &sent)
        }
    };
    let texts = different(true, &exchange(9), &exchange(8));
    let wanted = "rank 2, all_to_all_v, step 4 (`receive 9 bytes (9 x u8) from rank 1`): rank 1 \
                  sends 8 bytes (8 x u8) instead";
    assert!(texts[2].starts_with(wanted), "{texts:?}");
    // All ranks make this call: one that makes another fails long before the deadline.
    let texts =
        different(true, &exchange(9), &|comm| comm.all_reduce(&mut [1.0f32; 9], RedOp::Sum));
    assert!(texts.iter().any(|t| t.contains("do not make the same call")), "{texts:?}");
}

#[test]
fn wrong_counts_are_refused_and_do_no_harm() {
    threads(layout(2, 1024), |comm, rank| {
        let mut out = [0u8; 8];
        let own = [2, 6][rank];
        let mut refused = |comm: &mut Communicator, input: usize, counts: &[usize], text: &str| {
            let error = comm.all_gather_v(&mut out, &vec![0u8; input], counts).expect_err(text);
            assert_eq!((error.code(), error.to_string()), (codes::USAGE, text.into()));
        };
        refused(comm, own, &[8], "1 counts were given to 2 ranks: one for each is needed");
        refused(
            comm,
            8,
            &[2, 6],
            &format!("the input has 8 elements, and the counts ask for {own}"),
        );
        let counts = [[2, 7], [3, 6]][rank];
        refused(comm, own, &counts, "the output has 8 elements, and the counts ask for 9");
        refused(comm, own, &[usize::MAX, 6], "the sum of the counts exceeds the address space");
        let error = comm.all_to_all_v(&mut [0; 2], &[1, 1], &[0u8; 3], &[1, 1]).expect_err("short");
        assert_eq!(error.to_string(), "the input has 3 elements, and the counts ask for 2");
        let error =
            comm.all_to_all_list::<[u8], [u8]>(&mut [], &[&[0u8; 3][..]]).expect_err("short");
        let text = "all_to_all_list: there are 1 inputs, and 2 ranks: one is needed for each";
        assert_eq!(error.to_string(), text);
        comm.barrier().expect("still usable");
    });
}

/// Block b of a rank goes to the place of block a of another: no lengths but equal ones fit.
#[test]
fn algorithms_that_need_equal_blocks_are_refused() {
    let entry = of("all_to_all").next().expect("an algorithm");
    let plans = plans(entry, 2, "").expect("plans");
    // Who is refused ends the job, also the calls that others are in.
    let both_are_over = std::sync::Barrier::new(2);
    let errors = threads(layout(2, 1024), |comm, rank| {
        let (counts, mut output) = ([1, 2], [0u8; 3]);
        let equal =
            internal::run_cut(comm, &plans[rank], RedOp::Sum, &[1, 1], &[1u8; 2], &mut output[..2]);
        equal.expect("equal blocks are fine");
        both_are_over.wait();
        internal::run_cut(comm, &plans[rank], RedOp::Sum, &counts, &[0u8; 3], &mut output)
            .expect_err("unfit")
    });
    for error in errors {
        assert_eq!(error.code(), codes::UNSUPPORTED, "{error}");
        assert!(
            error.to_string().contains("choose an algorithm that only moves `data`"),
            "{error}"
        );
    }
}
