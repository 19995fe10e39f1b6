//! Plays the calls of a case, wherever their memory lies, and measures their time: batches of calls, each after a
//! barrier. A batch takes as long as its slowest rank, and the median of the batches counts. Calls before and after
//! those that are timed are checked.

use roundelay::trace::Trace;
use roundelay::{Error, internal};

use super::buffers::CallMemory;
use super::event::{Event, JobEvent, Say};
use super::order::Job;
use super::ready::Ready;
use super::rule::Rule;
use super::trial::Trial;
use crate::args::Verify;
use crate::values::median;

/// Batches, where there are calls enough.
const BATCHES: u32 = 11;
/// More calls in a batch tell no more.
const MOST: u32 = 20_000;
/// Calls with fewer bytes are checked several times before they are timed.
const SMALL: usize = 1 << 20;

/// The calls of a case on this rank, with the memory and the clock that they have.
pub(super) trait CaseCalls {
    /// The memory of a call.
    type Memory<'a>: CallMemory
    where
        Self: 'a;

    /// True if data is whole numbers, whose sums are exact.
    const WHOLE: bool;

    /// Returns the memory.
    fn memory(&mut self) -> Self::Memory<'_>;

    /// Makes one call, and returns when it is done.
    fn call(&mut self, turn: u64) -> Result<(), Error>;

    /// Prepares for batches in which so many roots take turns; calls of a batch are a multiple of what is returned.
    fn begin(&mut self, roots: u32) -> Result<u32, Error> {
        Ok(roots)
    }

    /// Makes so many calls, or a few more: the seconds that one took here.
    fn batch(&mut self, calls: u32) -> Result<f64, Error>;

    /// Makes a few calls more, traced, if they can be.
    fn traced(&mut self) -> Result<Option<Trace>, Error> {
        Ok(None)
    }
}

/// Returns the number of calls to be checked before those that are timed: several where they are small, one
/// with each root.
pub(crate) fn checks(bytes: usize, roots: u32) -> u64 {
    if bytes <= SMALL { u64::from(roots).max(3) } else { 1 }
}

/// Plays a case of a job, by its index: the microseconds of a call, and how many elements were wrong on all ranks.
pub(super) fn play<A, C: CaseCalls>(
    job: &Job,
    case: usize,
    ready: &Ready<A>,
    calls: &mut C,
    say: &mut Say<'_>,
) -> Result<(f64, u64), Error> {
    let (count, turn) = (job.cases[case].count, job.cases[case].turn);
    let (roots, (rank, ranks)) = (ready.roots(), calls.memory().rank());
    let lens = ready.lens(rank, ranks, count, job.dtype.size());
    let before = checks(lens[0].max(lens[1]), roots);
    let now = |say: &mut Say<'_>, what: &str| {
        if rank == 0 {
            say(Event::Job(JobEvent::Now { case, what: what.into() }));
        }
    };
    let checked = |calls: &mut C, turn: u64, say: &mut Say<'_>| {
        let rule = Rule {
            seed: job.seed.wrapping_add(turn.wrapping_mul(0x5851_f42d_4c95_7f2d)),
            ranks,
            dtype: job.dtype,
            op: job.op,
            wire: ready.wire,
            whole: C::WHOLE,
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let trial = Trial { ready, turn, count, rule, verify: job.verify };
        let input = trial.prepare(&mut calls.memory())?;
        calls.call(turn)?;
        let (wrong, words) = trial.verify(&mut calls.memory(), input)?;
        words.into_iter().for_each(|what| say(Event::Wrong(format!("rank {rank}, {what}"))));
        Ok::<u64, Error>(wrong)
    };
    let mut wrong = 0;
    let verified = job.verify != Verify::Off;
    if verified && turn.first {
        now(say, "calls that are verified");
        for turn in 0..before {
            wrong += checked(calls, turn, say)?;
        }
    }
    calls.memory().clear()?;
    now(say, "calls that are timed");
    let time = measure(job, roots, calls)?;
    if job.trace
        && let Some(trace) = calls.traced()?
    {
        say(Event::Trace(Box::new(trace)));
    }
    if verified && turn.last {
        now(say, "a last call is verified");
        // The last root of a turn: the first was checked before.
        let roots = u64::from(roots);
        wrong += checked(calls, before.next_multiple_of(roots) + roots - 1, say)?;
    }
    let wrong = calls.memory().comm().all_gather_u64(wrong)?.into_iter().sum();
    Ok((time, wrong))
}

/// Measures the microseconds of a call, with so many roots taking turns.
fn measure(job: &Job, roots: u32, calls: &mut impl CaseCalls) -> Result<f64, Error> {
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
