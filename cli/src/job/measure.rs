//! Measures time: batches of calls, each after a barrier. A batch takes as long as its slowest rank, and the
//! median of the batches counts.

use std::time::Instant;

use roundelay::{Communicator, Error, internal};

/// Batches, where there are calls enough.
const BATCHES: u32 = 11;
/// More calls in a batch tell no more.
const MOST: u32 = 20_000;

/// The amount of measurement.
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

/// Measures the microseconds of a call. `batch` plays so many calls and gives the seconds that one took on
/// the slowest rank: the same on all ranks, which measure together.
pub(crate) fn measure<E>(
    effort: Effort,
    mut batch: impl FnMut(u32) -> Result<f64, E>,
) -> Result<f64, E> {
    let (batches, calls) = match effort.iters {
        Some(iters) => {
            let batches = iters.clamp(1, BATCHES);
            (batches, (iters / batches).max(1))
        }
        None => {
            let each = estimate(effort.budget, &mut batch)?;
            let calls = (effort.budget / f64::from(BATCHES) / each) as u32;
            // Calls that take long fill the time with fewer batches.
            (if calls == 0 { 3 } else { BATCHES }, calls.clamp(1, MOST))
        }
    };
    let calls = calls.next_multiple_of(effort.unit.max(1));
    let mut times = Vec::with_capacity(batches as usize);
    for _ in 0..batches {
        times.push(batch(calls)?);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2] * 1e6)
}

/// Estimates the seconds of a call; warms up as well.
fn estimate<E>(budget: f64, batch: &mut impl FnMut(u32) -> Result<f64, E>) -> Result<f64, E> {
    let mut calls = 1;
    loop {
        let each = batch(calls)?.max(1e-9);
        if each * f64::from(calls) > budget / 16.0 || calls >= MOST {
            return Ok(each);
        }
        calls *= 4;
    }
}

/// Measures the microseconds of a call, by the host's clock.
pub(crate) fn measure_host(
    comm: &mut Communicator,
    effort: Effort,
    mut call: impl FnMut(&mut Communicator) -> Result<(), Error>,
) -> Result<f64, Error> {
    for _ in 0..effort.warmup {
        call(comm)?;
    }
    measure(effort, |calls| {
        comm.barrier()?;
        let began = Instant::now();
        for _ in 0..calls {
            call(comm)?;
        }
        let each = began.elapsed().as_secs_f64() / f64::from(calls);
        internal::max_f64(comm, each)
    })
}
