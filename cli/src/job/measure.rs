//! Time: batches of calls, each after a barrier. A batch takes as long as its slowest rank, and the
//! median of the batches counts.

use std::time::Instant;

use roundelay::{Communicator, Error};

/// Batches, where there are calls enough.
const BATCHES: u32 = 11;
/// More calls in a batch tell no more.
const MOST: u32 = 20_000;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Timed calls, if it was said.
    pub(crate) iters: Option<u32>,
    /// Calls before.
    pub(crate) warmup: u32,
    /// Seconds for the timed calls, if it was not said how many.
    pub(crate) budget: f64,
    /// Calls of a batch are a multiple of this.
    pub(crate) unit: u32,
}

/// Microseconds a call. All ranks measure together and get the same.
pub(crate) fn measure(
    comm: &mut Communicator,
    effort: Effort,
    mut call: impl FnMut(&mut Communicator) -> Result<(), Error>,
) -> Result<f64, Error> {
    for _ in 0..effort.warmup {
        call(comm)?;
    }
    let (batches, calls) = match effort.iters {
        Some(iters) => {
            let batches = iters.clamp(1, BATCHES);
            (batches, (iters / batches).max(1))
        }
        None => {
            let calls = (effort.budget
                / f64::from(BATCHES)
                / estimate(comm, effort.budget, &mut call)?) as u32;
            // Calls that take long fill the time with fewer batches.
            (if calls == 0 { 3 } else { BATCHES }, calls.clamp(1, MOST))
        }
    };
    let calls = calls.next_multiple_of(effort.unit.max(1));
    let mut times = Vec::with_capacity(batches as usize);
    for _ in 0..batches {
        times.push(batch(comm, calls, &mut call)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2] * 1e6)
}

/// Seconds a call, roughly; warms up as well.
fn estimate(
    comm: &mut Communicator,
    budget: f64,
    call: &mut impl FnMut(&mut Communicator) -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut calls = 1;
    loop {
        let each = batch(comm, calls, call)?.max(1e-9);
        if each * f64::from(calls) > budget / 16.0 || calls >= MOST {
            return Ok(each);
        }
        calls *= 4;
    }
}

/// Seconds a call of the slowest rank.
fn batch(
    comm: &mut Communicator,
    calls: u32,
    call: &mut impl FnMut(&mut Communicator) -> Result<(), Error>,
) -> Result<f64, Error> {
    comm.barrier()?;
    let began = Instant::now();
    for _ in 0..calls {
        call(comm)?;
    }
    let each = began.elapsed().as_secs_f64() / f64::from(calls);
    comm.max_f64(each)
}
