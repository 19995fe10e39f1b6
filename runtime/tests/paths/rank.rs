//! Runs each rank: the same call again and again, every result compared with what it must be.

use std::io::Write;
use std::time::Instant;

use roundelay::plan::plan_of;
use roundelay::{Communicator, Error, RedOp};
use roundelay_compiler::plan::BufferPlacement;
use roundelay_compiler::{CompileOptions, Shape};

/// The variable with the order of ranks: algorithm of all_reduce, paths of its plan, elements, calls, seconds
/// at most.
pub(crate) const ORDER: &str = "TEST_PATHS_ORDER";

/// Returns element `at` of what a rank brings to a call: small whole numbers, so that sums are exact.
fn brought(rank: usize, call: usize, at: usize) -> f32 {
    ((at.wrapping_mul(31) ^ (rank * 7 + call)) % 64) as f32
}

/// Runs the calls, and tells every one on a line: its number, microseconds, and how it was divided.
pub(crate) fn run(order: &str) -> Result<(), Error> {
    let words: Vec<&str> = order.split(' ').collect();
    let number = |at: usize| words.get(at).and_then(|w| w.parse::<usize>().ok()).unwrap_or(0);
    let (name, paths, count, calls) = (words[0], number(1) as u32, number(2), number(3));
    let mut comm = Communicator::from_env()?;
    let (ranks, rank) = (comm.size(), comm.rank());
    let entry = roundelay_algorithms::find("all_reduce", name).expect("in the library");
    let options = CompileOptions { paths, ..CompileOptions::default() };
    let shape = Shape::flat(ranks);
    let plan = plan_of(entry.path, entry.text, &shape, &options, BufferPlacement::InPlace, rank)?;
    let mut data = vec![0.0f32; count];
    say(&format!("rank {rank} of {ranks}"));
    let checks = words.last() != Some(&"unchecked");
    for call in 0..calls {
        if checks || call == 0 {
            for (at, x) in data.iter_mut().enumerate() {
                *x = brought(rank as usize, call, at);
            }
        }
        if !checks {
            comm.all_gather_u64(0)?;
        }
        let began = Instant::now();
        comm.run_in_place(&plan, RedOp::Sum, &mut data)?;
        let micros = began.elapsed().as_micros();
        if checks {
            let sum = |at: usize| (0..ranks as usize).map(|r| brought(r, call, at)).sum::<f32>();
            let wrong = data.iter().enumerate().find(|&(at, &x)| x != sum(at));
            assert!(wrong.is_none(), "rank {rank}, call {call}: element {wrong:?}");
        }
        let divided = comm.balance()?.unwrap_or_default();
        say(&format!("call {call} {micros} {divided}"));
    }
    say("done");
    Ok(())
}

pub(crate) fn say(text: &str) {
    // The reader may have gone.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
