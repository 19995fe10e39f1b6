//! One rank of a job.

use std::sync::Arc;

use roundelay::{Call, Communicator, Error};
use roundelay_compiler::collective::Spec;
use roundelay_compiler::{Instance, Options, Placement, Plan, Shape, compile};

use super::buffers::{Buffers, digest};
use super::data::{FACTOR, Rule, fill, judge};
use super::measure::{Effort, measure};
use super::places::{Part, Places};
use super::{Event, Job, Piece};
use crate::args::Target;
use crate::load::load_one;
use crate::report::{FAILED, Failure, Outcome, print};

/// Calls with fewer bytes are checked several times before they are timed.
const SMALL: usize = 1 << 20;

/// Does what the job asks of this process, and reports.
pub(crate) fn rank(job: &str) -> Outcome {
    let job: Job =
        serde_json::from_str(job).map_err(|e| Failure::Usage(format!("not a job: {e}")))?;
    let mut comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return Err(give_up(&error)),
    };
    let mut ready = Vec::new();
    for piece in &job.pieces {
        ready.push(Ready::new(&job, piece, comm.rank())?);
    }
    for (case, c) in job.cases.iter().enumerate() {
        let Some(ready) = ready.get(c.piece) else { continue };
        let count = usize::try_from(c.count).unwrap_or(usize::MAX);
        let done = ready.play(&job, &mut comm, count);
        let (time_us, wrong) = done.map_err(|error| give_up(&error))?;
        if comm.rank() == 0 {
            say(&Event::Done { case, time_us, wrong });
        }
    }
    Ok(())
}

fn say(event: &Event) {
    if let Ok(text) = serde_json::to_string(event) {
        print(&text);
    }
}

fn give_up(error: &Error) -> Failure {
    say(&Event::Error {
        code: error.code().to_string(),
        message: error.to_string(),
        aborted: matches!(error, Error::Aborted { .. }),
    });
    Failure::Said(FAILED)
}

/// An algorithm, compiled.
struct Ready<'a> {
    piece: &'a Piece,
    plan: Plan,
    spec: Spec,
}

impl<'a> Ready<'a> {
    fn new(job: &Job, piece: &'a Piece, rank: u32) -> Result<Self, Failure> {
        let target = Target {
            target: piece.target.clone(),
            algorithm: piece.algorithm.clone(),
            root: job.root,
        };
        let (sources, program) = load_one(&target)?;
        let shape: Shape = job.shape.parse().map_err(Failure::Usage)?;
        let options = Options { root: job.root, ..Options::default() };
        let placement = if piece.in_place { Placement::InPlace } else { Placement::OutOfPlace };
        let found = |found| Failure::Input(Box::new(sources.clone()), found);
        let instance = Arc::new(Instance::new(&program, &shape, &options).map_err(found)?);
        let plans = compile(&program, &sources, &shape, &options, placement).map_err(found)?;
        let plan = plans.into_plans().into_iter().nth(rank as usize);
        let plan =
            plan.ok_or_else(|| Failure::Usage(format!("rank {rank} is not one of {shape}")))?;
        Ok(Ready { piece, plan, spec: instance.spec.clone() })
    }

    /// Plays calls of one size: the time of one, and how many elements were wrong on all ranks.
    fn play(&self, job: &Job, comm: &mut Communicator, count: usize) -> Result<(f64, u64), Error> {
        let places = Places {
            kind: &self.spec.kind,
            custom: self.spec.custom.as_deref(),
            ranks: comm.size(),
            root: job.root,
            rank: comm.rank(),
            count,
        };
        let size = job.dtype.size();
        let lengths =
            [places.data(), places.input(), places.output()].map(|n| n.saturating_mul(size));
        let in_place = self.piece.in_place;
        let mut buffers = Buffers::new(comm, job.private, in_place, lengths)?;
        let (before, after) = (places.before(in_place), places.after(in_place));
        let mut wrong = 0;
        let mut check = |comm: &mut Communicator, buffers: &mut Buffers, turn: u64| {
            let rule = Rule {
                seed: job.seed.wrapping_add(turn.wrapping_mul(0x5851_f42d_4c95_7f2d)),
                ranks: comm.size(),
                dtype: job.dtype,
                op: job.op,
                wire: self.piece.wire,
            };
            wrong += self.checked(job, comm, buffers, &rule, count, (&before, &after))?;
            Ok::<(), Error>(())
        };
        let turns = if lengths[0] <= SMALL { 3 } else { 1 };
        for turn in 0..turns {
            check(comm, &mut buffers, turn)?;
        }
        buffers.set(0);
        let effort = Effort { iters: job.iters, warmup: job.warmup, budget: job.budget };
        let time = measure(comm, effort, |comm| self.call(job, comm, &mut buffers, count))?;
        check(comm, &mut buffers, turns)?;
        let wrong = comm.all_gather_u64(wrong)?.into_iter().sum();
        Ok((time, wrong))
    }

    fn call(
        &self,
        job: &Job,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        count: usize,
    ) -> Result<(), Error> {
        let (dtype, op) = (job.dtype, job.op);
        let call = Call { count: count as u64, dtype, op, factor: FACTOR, args: buffers.args() };
        comm.run(&self.plan, call).map(|_| ())
    }

    /// One call on fresh data, with everything about it checked: the number of wrong elements here.
    fn checked(
        &self,
        job: &Job,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        rule: &Rule,
        count: usize,
        (before, after): (&[Part], &[Part]),
    ) -> Result<u64, Error> {
        let rank = comm.rank();
        buffers.poison();
        fill(rule, rank, before, buffers.source().get_mut());
        let input = buffers.input_digest();
        self.call(job, comm, buffers, count)?;
        let (mut wrong, first) = judge(rule, after, buffers.result());
        let say_wrong = |what: String| say(&Event::Wrong(format!("rank {rank}, {what}")));
        if let Some(first) = first {
            say_wrong(first);
        }
        if !buffers.intact() {
            wrong += 1;
            say_wrong("guard bytes beside a buffer were overwritten".into());
        }
        if buffers.input_digest() != input {
            wrong += 1;
            say_wrong("the input was overwritten".into());
        }
        if self.piece.bitwise {
            let digests = comm.all_gather_u64(digest(buffers.result()))?;
            if let Some(other) = digests.iter().position(|d| *d != digests[0])
                && rank == 0
            {
                wrong += 1;
                say_wrong(format!("the result differs in bits from that of rank {other}"));
            }
        }
        Ok(wrong)
    }
}
