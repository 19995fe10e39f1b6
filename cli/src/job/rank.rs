//! Runs one rank of a job.

use std::time::Instant;

use roundelay::plan::PlanCall;
use roundelay::trace::{RankTrace, SPANS};
use roundelay::{Communicator, Error};
use roundelay_compiler::{BufferPlacement, Plan, compile};

use super::argument::JobArgument;
use super::buffers::{HostBuffers, HostMemory};
use super::event::{EventSink, JobEvent, RankEvent};
use super::gpu;
use super::measure::{self, CaseCalls};
use super::order::{JobEntry, JobOrder};
use super::ready::ReadyAlgorithm;
use super::rule::FACTOR;
use crate::report::{FAILED, VerbError, VerbResult, print};

/// Calls of each size that are traced.
const TRACED: u32 = 3;

/// Does what the job asks of this process, which the launcher started, and reports.
pub(crate) fn rank(job: &str) -> VerbResult {
    let job = JobArgument::read(job)?;
    let mut emit = |event: RankEvent| {
        if let Ok(text) = serde_json::to_string(&event) {
            print(&text);
        }
    };
    let mut comm = Communicator::from_env().map_err(|error| give_up(&error, None, &mut emit))?;
    match work(&job, &mut comm, &mut emit) {
        Err(VerbError::Call(error)) => Err(give_up(&error, Some(&mut comm), &mut emit)),
        outcome => outcome,
    }
}

/// Runs all cases of a job. Rank 0 says what is done.
pub(super) fn work(
    job: &JobOrder,
    comm: &mut Communicator,
    emit: &mut EventSink<'_>,
) -> VerbResult {
    if job.gpu.is_some() {
        return gpu::work(job, comm, emit);
    }
    let (mut ready, mut room) = (Vec::new(), SPANS);
    for entry in &job.entries {
        ready.push(load(entry, job.root, comm.rank())?);
    }
    for (index, case) in job.cases.iter().enumerate() {
        let Some(ready) = ready.get(case.entry) else { continue };
        let lens = ready.lens(comm.rank(), comm.size(), case.count, job.dtype.size());
        let buffers = HostBuffers::new(comm, job.private, ready.in_place, lens);
        let Some(buffers) = agreed(comm, index, buffers, emit)? else { continue };
        let count = case.count;
        let mut calls = HostCalls { job, ready, count, comm, buffers, made: 0, room: &mut room };
        let (time_us, wrong) = measure::execute(job, index, ready, &mut calls, emit)?;
        if comm.rank() == 0 {
            emit(RankEvent::Job(JobEvent::Done { case: index, time_us, wrong, how: None }));
        }
    }
    Ok(())
}

/// Returns the buffers of a case if all ranks have theirs. If not, every rank reports that, and the case is left out.
fn agreed(
    comm: &mut Communicator,
    case: usize,
    buffers: Result<HostBuffers, Error>,
    emit: &mut EventSink<'_>,
) -> Result<Option<HostBuffers>, Error> {
    let lacking = comm.all_gather_u64(u64::from(buffers.is_err()))?;
    let Some(first) = lacking.iter().position(|&lacks| lacks != 0) else {
        return buffers.map(Some);
    };
    let elsewhere = || {
        let (what, cause) = (format!("a buffer on rank {first}"), "that rank had no more".into());
        let (remedy, source) = ("make smaller calls, or start fewer ranks there".into(), None);
        Error::Memory { what, wanted: 0, cause, remedy, source }
    };
    emit(RankEvent::Job(JobEvent::refused(case, &buffers.err().unwrap_or_else(elsewhere))));
    Ok(None)
}

fn give_up(error: &Error, comm: Option<&mut Communicator>, emit: &mut EventSink<'_>) -> VerbError {
    let lost = match error {
        Error::LostRank { lost, .. } => Some(*lost),
        _ => None,
    };
    emit(RankEvent::Error {
        code: error.code().to_string(),
        message: error.to_string(),
        aborted: matches!(error, Error::Aborted { .. }),
        lost,
        flight: comm.and_then(|comm| comm.flight().ok()).map(Box::new),
    });
    VerbError::Said(FAILED)
}

/// Compiles an algorithm for this rank.
fn load(entry: &JobEntry, root: Option<u32>, rank: u32) -> Result<ReadyAlgorithm<Plan>, VerbError> {
    let placement =
        if entry.in_place { BufferPlacement::InPlace } else { BufferPlacement::OutOfPlace };
    ReadyAlgorithm::new(entry, root, |s| {
        let plans = compile(s.program, s.sources, s.shape, &s.options, placement)
            .map_err(|found| VerbError::Input(Box::new(s.sources.clone()), found))?;
        let plan = plans.into_plans().into_iter().nth(rank as usize);
        plan.ok_or_else(|| VerbError::Usage(format!("rank {rank} is not one of {}", s.shape)))
    })
}

/// Calls of one size in the memory of the host.
struct HostCalls<'a> {
    job: &'a JobOrder,
    ready: &'a ReadyAlgorithm<Plan>,
    count: u64,
    comm: &'a mut Communicator,
    buffers: HostBuffers,
    /// Calls that were made in batches.
    made: u64,
    /// Spans that this rank may still keep.
    room: &'a mut usize,
}

impl CaseCalls for HostCalls<'_> {
    type CaseMemory<'m>
        = HostMemory<'m>
    where
        Self: 'm;

    const WHOLE: bool = false;

    fn memory(&mut self) -> HostMemory<'_> {
        HostMemory { comm: self.comm, buffers: &mut self.buffers }
    }

    fn call(&mut self, turn: u64) -> Result<(), Error> {
        let (count, &JobOrder { dtype, op, .. }) = (self.count, self.job);
        let call = PlanCall { count, dtype, op, factor: FACTOR, args: self.buffers.args() };
        self.comm.run(self.ready.algorithm(turn), call).map(|_| ())
    }

    fn batch(&mut self, calls: u32) -> Result<f64, Error> {
        let began = Instant::now();
        for _ in 0..calls {
            self.call(self.made)?;
            self.made += 1;
        }
        Ok(began.elapsed().as_secs_f64() / f64::from(calls))
    }

    fn traced(&mut self) -> Result<Option<RankTrace>, Error> {
        self.comm.start_trace(*self.room)?;
        (0..TRACED).try_for_each(|turn| self.call(turn.into()))?;
        let trace = self.comm.take_trace();
        *self.room -= trace.as_ref().map_or(0, |trace| trace.spans.len()).min(*self.room);
        Ok(trace)
    }
}
