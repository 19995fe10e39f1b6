//! Plays one rank of a job.

use std::sync::Arc;

use roundelay::trace::SPANS;
use roundelay::{Call, Communicator, Error};
use roundelay_compiler::collective::Spec;
use roundelay_compiler::{Instance, Placement, Plan, Shape, compile};

use super::buffers::{Buffers, digest_of};
use super::data::{FACTOR, Rule};
use super::handed::Handed;
use super::many::{fill_all, judge_all, threads};
use super::measure::{Effort, measure_host};
use super::places::Places;
use super::sample::share;
use super::{Event, Job, JobEntry, JobEvent, Verify, gpu};
use crate::load::load_one;
use crate::report::{FAILED, Failure, Outcome, print};

/// Calls with fewer bytes are checked several times before they are timed.
const SMALL: usize = 1 << 20;

/// Calls of each size that are traced.
const TRACED: u32 = 3;

/// The function that takes a rank's events.
pub(super) type Say<'a> = dyn FnMut(Event) + 'a;

/// Does what the job asks of this process, which the launcher started, and reports.
pub(crate) fn rank(job: &str) -> Outcome {
    let job = Handed::read(job).map_err(Failure::Usage)?;
    let mut say = |event: Event| {
        if let Ok(text) = serde_json::to_string(&event) {
            print(&text);
        }
    };
    let mut comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return Err(give_up(&error, None, &mut say)),
    };
    match work(&job, &mut comm, &mut say)? {
        Ok(()) => Ok(()),
        Err(error) => Err(give_up(&error, Some(&mut comm), &mut say)),
    }
}

/// Plays all cases of a job. Rank 0 says what is done.
///
/// # Errors
///
/// A [`Failure`] if the job makes no sense, inside it an [`Error`] if a call failed.
pub(super) fn work(
    job: &Job,
    comm: &mut Communicator,
    say: &mut Say<'_>,
) -> Result<Result<(), Error>, Failure> {
    if job.gpu.is_some() {
        return gpu::work(job, comm, say);
    }
    let (mut ready, mut room) = (Vec::new(), SPANS);
    for piece in &job.pieces {
        ready.push(Ready::new(job, piece, comm.rank())?);
    }
    for (case, c) in job.cases.iter().enumerate() {
        let Some(ready) = ready.get(c.piece) else { continue };
        // A case that comes again, in turn with others, was checked.
        let check = !job.cases[..case].contains(c);
        match ready.play(job, comm, (case, c.count, check), &mut room, say) {
            Ok((time_us, wrong)) if comm.rank() == 0 => {
                say(Event::Job(JobEvent::Done { case, time_us, wrong, how: None }));
            }
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

fn give_up(error: &Error, comm: Option<&mut Communicator>, say: &mut Say<'_>) -> Failure {
    say(Event::Error {
        code: error.code().to_string(),
        message: error.to_string(),
        aborted: matches!(error, Error::Aborted { .. }),
        flight: comm.and_then(|comm| comm.flight().ok()).map(Box::new),
    });
    Failure::Said(FAILED)
}

/// An algorithm, compiled.
struct Ready<'a> {
    piece: &'a JobEntry,
    /// One; or one for each root, if it turns.
    plans: Vec<Rooted>,
}

/// A plan for one root.
struct Rooted {
    root: u32,
    plan: Plan,
    spec: Spec,
    axes: Vec<u32>,
}

impl Rooted {
    fn new(piece: &JobEntry, shape: &Shape, root: u32, rank: u32) -> Result<Self, Failure> {
        let target = piece.target(root);
        let (sources, program) = load_one(&target)?;
        let options = target.options();
        let placement = if piece.in_place { Placement::InPlace } else { Placement::OutOfPlace };
        let found = |found| Failure::Input(Box::new(sources.clone()), found);
        let instance = Arc::new(Instance::new(&program, shape, &options).map_err(found)?);
        let plans = compile(&program, &sources, shape, &options, placement).map_err(found)?;
        let plan = plans.into_plans().into_iter().nth(rank as usize);
        let plan =
            plan.ok_or_else(|| Failure::Usage(format!("rank {rank} is not one of {shape}")))?;
        let axes = instance.shape.axes.clone();
        Ok(Rooted { root, plan, spec: instance.spec.clone(), axes })
    }

    fn places(&self, comm: &Communicator, count: usize) -> Places<'_> {
        Places {
            kind: &self.spec.kind,
            axes: &self.axes,
            ranks: comm.size(),
            root: self.root,
            rank: comm.rank(),
            count,
        }
    }
}

/// Returns the number of calls to be checked before those that are timed: several where they are small, one
/// with each root.
pub(crate) fn checks(bytes: usize, roots: usize) -> u64 {
    if bytes <= SMALL { roots.max(3) as u64 } else { 1 }
}

impl<'a> Ready<'a> {
    fn new(job: &Job, piece: &'a JobEntry, rank: u32) -> Result<Self, Failure> {
        let shape: Shape = piece.shape.parse().map_err(Failure::Usage)?;
        let first = Rooted::new(piece, &shape, job.root.unwrap_or(0), rank)?;
        let mut plans = vec![first];
        if job.root.is_none() && plans[0].spec.kind.rooted() {
            for root in 1..u32::try_from(shape.ranks()).unwrap_or(1) {
                plans.push(Rooted::new(piece, &shape, root, rank)?);
            }
        }
        Ok(Ready { piece, plans })
    }

    /// Returns the plan of a call, by the number of calls before it.
    fn turn(&self, calls: u64) -> &Rooted {
        &self.plans[(calls % self.plans.len() as u64) as usize]
    }

    /// Plays calls of one size, some of them checked if asked to: the time of one, and how many elements were
    /// wrong on all ranks.
    fn play(
        &self,
        job: &Job,
        comm: &mut Communicator,
        (case, count, check): (usize, u64, bool),
        room: &mut usize,
        say: &mut Say<'_>,
    ) -> Result<(f64, u64), Error> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let places = self.plans[0].places(comm, count);
        let size = job.dtype.size();
        let lengths =
            [places.data(), places.input(), places.output()].map(|n| n.saturating_mul(size));
        let mut buffers = Buffers::new(comm, job.private, self.piece.in_place, lengths)?;
        let mut wrong = 0;
        let check = check && job.verify != Verify::Off;
        let before = if check { checks(lengths[0], self.plans.len()) } else { 0 };
        let now = |comm: &Communicator, what: &str, say: &mut Say<'_>| {
            if comm.rank() == 0 {
                say(Event::Job(JobEvent::Now { case, what: what.into() }));
            }
        };
        if check {
            now(comm, "calls that are verified", say);
        }
        for turn in 0..before {
            wrong += self.checked(job, comm, &mut buffers, (count, turn), say)?;
        }
        buffers.set(0);
        now(comm, "calls that are timed", say);
        let effort = Effort {
            iters: job.iters,
            warmup: job.warmup,
            budget: job.budget,
            unit: self.plans.len() as u32,
        };
        let mut calls = 0;
        let time = measure_host(comm, effort, |comm| {
            calls += 1;
            self.call(job, comm, &mut buffers, count, self.turn(calls - 1))
        })?;
        if job.trace {
            self.trace(job, comm, &mut buffers, count, room, say)?;
        }
        // The last root of a turn: the first was checked before.
        let last = before.next_multiple_of(self.plans.len() as u64) + self.plans.len() as u64 - 1;
        if check {
            now(comm, "a last call is verified", say);
            wrong += self.checked(job, comm, &mut buffers, (count, last), say)?;
        }
        let wrong = comm.all_gather_u64(wrong)?.into_iter().sum();
        Ok((time, wrong))
    }

    /// Makes a few calls more, traced; `room` is how many spans this rank may still keep.
    fn trace(
        &self,
        job: &Job,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        count: usize,
        room: &mut usize,
        say: &mut Say<'_>,
    ) -> Result<(), Error> {
        comm.start_trace(*room)?;
        for call in 0..TRACED {
            self.call(job, comm, buffers, count, self.turn(call.into()))?;
        }
        if let Some(trace) = comm.take_trace() {
            *room -= trace.spans.len().min(*room);
            say(Event::Trace(Box::new(trace)));
        }
        Ok(())
    }

    fn call(
        &self,
        job: &Job,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        count: usize,
        rooted: &Rooted,
    ) -> Result<(), Error> {
        let (dtype, op) = (job.dtype, job.op);
        let call = Call { count: count as u64, dtype, op, factor: FACTOR, args: buffers.args() };
        comm.run(&rooted.plan, call).map(|_| ())
    }

    /// Makes one call on fresh data, and checks everything about it; returns the number of wrong elements
    /// here. Where all ranks must have the same bits each compares its share with the reference, and their
    /// digests say the rest; if anything is wrong, each compares all.
    fn checked(
        &self,
        job: &Job,
        comm: &mut Communicator,
        buffers: &mut Buffers,
        (count, turn): (usize, u64),
        say: &mut Say<'_>,
    ) -> Result<u64, Error> {
        let rank = comm.rank();
        let rule = Rule {
            seed: job.seed.wrapping_add(turn.wrapping_mul(0x5851_f42d_4c95_7f2d)),
            ranks: comm.size(),
            dtype: job.dtype,
            op: job.op,
            wire: self.piece.wire,
            whole: false,
        };
        let rooted = self.turn(turn);
        let places = rooted.places(comm, count);
        let threads = threads(comm.size());
        buffers.poison();
        let before = places.before(self.piece.in_place);
        fill_all(&rule, rank, &before, buffers.source().get_mut(), threads);
        let (size, header) = (job.dtype.size(), &rooted.plan.header);
        let [inputs, results] = match self.piece.in_place {
            true => [0, header.chunks],
            false => [header.input_chunks, header.output_chunks],
        };
        let kept = job.verify.ranges(buffers.input().len() / size, inputs as usize, rule.seed);
        let input = digest_of(buffers.input(), &kept, size);
        self.call(job, comm, buffers, count, rooted)?;
        let after = places.after(self.piece.in_place);
        let result = buffers.result();
        let elements = result.len() / size;
        let ranges = job.verify.ranges(elements, results as usize, rule.seed);
        let together = self.piece.bitwise && job.verify == Verify::Full;
        let own = match together {
            true => vec![share(elements, rank, comm.size())],
            false => ranges.clone(),
        };
        let (mut wrong, mut first) = judge_all(&rule, &after, result, &own, threads);
        let mut differs = None;
        if self.piece.bitwise {
            let digests = comm.all_gather_u64(digest_of(result, &ranges, size))?;
            differs = digests.iter().position(|d| *d != digests[0]);
        }
        if together
            && (comm.all_gather_u64(wrong)?.iter().any(|&wrong| wrong > 0) || differs.is_some())
        {
            (wrong, first) = judge_all(&rule, &after, result, &ranges, threads);
        }
        let mut say_wrong = |what: String| say(Event::Wrong(format!("rank {rank}, {what}")));
        if let Some(first) = first {
            say_wrong(first);
        }
        if !buffers.intact() {
            wrong += 1;
            say_wrong("guard bytes beside a buffer were overwritten".into());
        }
        if digest_of(buffers.input(), &kept, size) != input {
            wrong += 1;
            say_wrong("the input was overwritten".into());
        }
        if let Some(other) = differs.filter(|_| rank == 0) {
            wrong += 1;
            say_wrong(format!("the result differs in bits from that of rank {other}"));
        }
        Ok(wrong)
    }
}
