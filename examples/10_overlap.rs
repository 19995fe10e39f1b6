//! Computing while a call runs: the ranks are processes bound to a core each, whose main thread computes while the
//! progress thread sums 1 MiB. Prints the times of both alone, one after the other, and at once.
//!
//! `cargo run --release -p roundelay-examples --example 10_overlap`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use roundelay::launch::RankLauncher;
use roundelay::{Communicator, Error, RedOp};

const ELEMENTS: usize = 256 << 10;
const ROUNDS: usize = 50;

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return rank(Communicator::from_env()?);
    }
    let program = std::env::current_exe().map_err(|e| Error::Start(e.to_string()))?;
    let outcome = RankLauncher::new(2).program(program).run(|_rank, line| println!("{line}"))?;
    assert!(outcome.cause.is_none(), "{:?}", outcome.cause);
    Ok(())
}

/// Computes for about as long as the call takes.
fn compute(steps: u64) -> u64 {
    (0..steps).fold(1, |x, step| black_box(x.wrapping_mul(31).wrapping_add(step)) ^ (x >> 7))
}

/// Returns the middle time of some rounds.
fn middle(mut round: impl FnMut() -> Result<(), Error>) -> Result<Duration, Error> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        round()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

fn rank(mut comm: Communicator) -> Result<(), Error> {
    let mut vector = comm.alloc::<f32>(ELEMENTS)?;
    vector.fill(1.0);
    comm.all_reduce(&mut vector, RedOp::Max)?;
    let call = middle(|| comm.all_reduce(&mut vector, RedOp::Max))?;
    let began = Instant::now();
    black_box(compute(1_000_000));
    let rate = 1e6 / began.elapsed().as_secs_f64();
    let steps = (rate * call.as_secs_f64()) as u64;
    let alone = middle(|| {
        black_box(compute(steps));
        Ok(())
    })?;
    let mut kept = Some(vector);
    let both = middle(|| {
        let work = comm.all_reduce_async(kept.take().expect("it comes back"), RedOp::Max);
        black_box(compute(steps));
        kept = Some(work.wait()?);
        Ok(())
    })?;
    assert!(kept.is_some_and(|vector| vector.iter().all(|&x| x == 1.0)));
    if comm.rank() == 0 {
        println!("the call alone {call:?}, computing alone {alone:?}, both at once {both:?}");
    }
    Ok(())
}
