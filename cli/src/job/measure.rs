//! Runs the calls of a case, wherever their memory lies, and measures their time: batches of calls, each after a
//! barrier. A batch takes as long as its slowest rank, and the median of the batches counts. Calls before and after
//! those that are timed are checked.

use roundelay::trace::RankTrace;
use roundelay::{Error, internal};

use super::buffers::CallMemory;
use super::event::{EventSink, JobEvent, RankEvent};
use super::order::JobOrder;
use super::ready::ReadyAlgorithm;
use super::rule::ElementRule;
use super::trial::CallTrial;
use crate::args::VerifyScope;
use crate::values::median;

/// Batches, where there are calls enough.
const BATCHES: u32 = 11;
/// More calls in a batch add no precision.
const MOST: u32 = 20_000;
/// Calls with fewer bytes are checked several times before they are timed.
const SMALL: usize = 1 << 20;

/// The calls of a case on this rank, with the memory and the clock that they have.
pub(super) trait CaseCalls {
    /// The memory of a call.
    type CaseMemory<'a>: CallMemory
    where
        Self: 'a;

    /// True if data is whole numbers, whose sums are exact.
    const WHOLE: bool;

    /// Returns the memory.
    fn memory(&mut self) -> Self::CaseMemory<'_>;

    /// Makes one call, and returns when it is done.
    fn call(&mut self, turn: u64) -> Result<(), Error>;

    /// Prepares for batches in which `roots` roots take turns; calls of a batch are a multiple of what is returned.
    fn begin(&mut self, roots: u32) -> Result<u32, Error> {
        Ok(roots)
    }

    /// Makes at least `calls` calls, and returns the seconds that one took here.
    fn batch(&mut self, calls: u32) -> Result<f64, Error>;

    /// Makes a few calls more, traced, if they can be.
    fn traced(&mut self) -> Result<Option<RankTrace>, Error> {
        Ok(None)
    }
}

/// Returns the number of calls to be checked before those that are timed: several where they are small, one
/// with each root.
pub(crate) fn checks(bytes: usize, roots: u32) -> u64 {
    if bytes <= SMALL { u64::from(roots).max(3) } else { 1 }
}

/// Runs a case of a job, by its index: the microseconds of a call, and how many elements were wrong on all ranks.
pub(super) fn execute<A, C: CaseCalls>(
    job: &JobOrder,
    case: usize,
    ready: &ReadyAlgorithm<A>,
    calls: &mut C,
    emit: &mut EventSink<'_>,
) -> Result<(f64, u64), Error> {
    let (count, turn) = (job.cases[case].count, job.cases[case].turn);
    let (roots, (rank, ranks)) = (ready.roots(), calls.memory().rank());
    let lens = ready.lens(rank, ranks, count, job.dtype.size());
    let before = checks(lens[0].max(lens[1]), roots);
    let now = |emit: &mut EventSink<'_>, what: &str| {
        if rank == 0 {
            emit(RankEvent::Job(JobEvent::Now { case, what: what.into() }));
        }
    };
    let checked = |calls: &mut C, turn: u64, emit: &mut EventSink<'_>| {
        let rule = ElementRule {
            seed: job.seed.wrapping_add(turn.wrapping_mul(0x5851_f42d_4c95_7f2d)),
            ranks,
            dtype: job.dtype,
            op: job.op,
            wire: ready.wire,
            whole: C::WHOLE,
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let trial = CallTrial { ready, turn, count, rule, verify: job.verify };
        let input = trial.prepare(&mut calls.memory())?;
        calls.call(turn)?;
        let (wrong, words) = trial.verify(&mut calls.memory(), input)?;
        words.into_iter().for_each(|what| emit(RankEvent::Wrong(format!("rank {rank}, {what}"))));
        Ok::<u64, Error>(wrong)
    };
    let mut wrong = 0;
    let verified = job.verify != VerifyScope::Off;
    if verified && turn.first {
        now(emit, "calls that are verified");
        for turn in 0..before {
            wrong += checked(calls, turn, emit)?;
        }
    }
    calls.memory().clear()?;
    now(emit, "calls that are timed");
    let time = measure(job, roots, calls)?;
    if job.trace
        && let Some(trace) = calls.traced()?
    {
        emit(RankEvent::Trace(Box::new(trace)));
    }
    if verified && turn.last {
        now(emit, "a last call is verified");
        // The last root of a turn: the first was checked before.
        let roots = u64::from(roots);
        wrong += checked(calls, before.next_multiple_of(roots) + roots - 1, emit)?;
    }
    let wrong = calls.memory().comm().all_gather_u64(wrong)?.into_iter().sum();
    Ok((time, wrong))
}

/// Measures the microseconds of a call, with `roots` roots taking turns.
fn measure(job: &JobOrder, roots: u32, calls: &mut impl CaseCalls) -> Result<f64, Error> {
    let unit = calls.begin(roots)?.max(1);
    if job.warmup > 0 {
        calls.batch(job.warmup.next_multiple_of(roots))?;
    }
    // All ranks go by the slowest.
    let mut batch = |some: u32| {
        calls.memory().comm().barrier()?;
        let each = calls.batch(some)?;
        internal::max_f64(calls.memory().comm(), each)
    };
    let (batches, some) = match job.iters {
        Some(iters) => {
            let batches = iters.clamp(1, BATCHES);
            (batches, (iters / batches).max(1))
        }
        None => {
            let each = estimate(job.budget, &mut batch)?;
            let some = (job.budget / f64::from(BATCHES) / each) as u32;
            // Calls that take long fill the time with fewer batches.
            (if some == 0 { 3 } else { BATCHES }, some.clamp(1, MOST))
        }
    };
    let some = some.next_multiple_of(unit);
    let times: Result<Vec<f64>, Error> = (0..batches).map(|_| batch(some)).collect();
    Ok(median(times?).unwrap_or_default() * 1e6)
}

/// Estimates the seconds of a call; warms up as well.
fn estimate(budget: f64, batch: &mut impl FnMut(u32) -> Result<f64, Error>) -> Result<f64, Error> {
    let mut calls = 1;
    loop {
        let each = batch(calls)?.max(1e-9);
        if each * f64::from(calls) > budget / 16.0 || calls >= MOST {
            return Ok(each);
        }
        calls *= 4;
    }
}
