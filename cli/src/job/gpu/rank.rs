//! Plays one rank of a job on GPUs.

use std::time::{Duration, Instant};

use roundelay::cuda::{CudaOptions, probe};
use roundelay::{Communicator, Error, Hints};

use super::super::measure::Effort;
use super::super::rank::{Say, checks};
use super::super::{Case, Event, How, Job, JobEvent, Verify};
use super::buffers::{View, room};
use super::library::Libraries;
use super::measure::measure_stream;
use super::piece::Ready;
use super::player::{Areas, Calls, Player};
use super::time_limit::TimeLimit;
use crate::peer::nccl::{self, Joined, Opened};
use crate::report::Failure;

/// The longest time that a GPU may take to be set up, and a case to be played, beside the timeout of single waits.
pub(crate) const SETUP: Duration = Duration::from_secs(120);

/// Plays all cases of a job.
pub(in super::super) fn work(
    job: &Job,
    comm: &mut Communicator,
    say: &mut Say<'_>,
) -> Result<Result<(), Error>, Failure> {
    let rank = comm.rank();
    let setup = TimeLimit::new(SETUP, rank, "the GPU's driver");
    let mut gpu = match comm.cuda(CudaOptions::default()) {
        Ok(gpu) => gpu,
        Err(error) => return Ok(Err(error)),
    };
    if let Err(error) = hints(job).and_then(|hints| gpu.set_hints(hints)) {
        return Ok(Err(error));
    }
    let mut ready = Vec::new();
    for piece in &job.pieces {
        match Ready::new(&mut gpu, piece, job.root)? {
            Ok(one) => ready.push(one),
            Err(error) => return Ok(Err(error)),
        }
    }
    drop(setup);
    Ok(cases(job, &mut gpu, &ready, say))
}

fn hints(job: &Job) -> Result<Hints, Error> {
    let text = job.gpu.as_ref().map_or("", |gpu| &gpu.hints);
    Ok(text.parse::<Hints>()?)
}

fn cases(
    job: &Job,
    gpu: &mut Communicator,
    ready: &[Ready],
    say: &mut Say<'_>,
) -> Result<(), Error> {
    let rank = gpu.rank();
    if rank == 0 {
        shared(gpu.size()).into_iter().for_each(|text| say(Event::Job(JobEvent::Remark(text))));
    }
    let rooms = rooms(job, gpu, ready);
    let buffers = [gpu.alloc_device::<u8>(rooms[0])?, gpu.alloc_device::<u8>(rooms[1])?];
    let areas = Areas::of(&buffers, 0)?;
    let inside = job.gpu.as_ref().map_or(&[][..], |gpu| &gpu.inside);
    let time_limit = TimeLimit::new(SETUP, rank, "NCCL");
    let opened = match inside.is_empty() {
        true => Err(String::new()),
        false => Opened::new(gpu)?,
    };
    drop(time_limit);
    if let (0, Ok(opened)) = (rank, &opened) {
        say(Event::Job(JobEvent::Remark(opened.words())));
    }
    let mut libraries = Libraries::new(&opened, inside, rooms, areas);
    let mut bench = Bench { job, player: Player::new(gpu)?, areas, input: Vec::new() };
    let time = SETUP + Duration::from_secs_f64(20.0 * job.budget.min(1e4));
    let (began, most) = (Instant::now(), job.gpu.as_ref().and_then(|gpu| gpu.seconds));
    for (index, case) in job.cases.iter().enumerate() {
        if let Some(most) = most
            && bench.player.gpu.max_f64(began.elapsed().as_secs_f64())? > most
        {
            break;
        }
        let _limit = TimeLimit::new(time, rank, "a case");
        let Some(ready) = ready.get(case.piece) else { continue };
        let calls = calls(job, case, ready);
        let came = match case.who {
            None => bench.ours(case, calls, say)?,
            Some(who) => bench.library(case, calls, &mut libraries, who, say)?,
        };
        if rank == 0 {
            say(Event::Job(came.of(index)));
        }
    }
    let _limit = TimeLimit::new(SETUP, rank, "NCCL's end");
    libraries.leave();
    Ok(())
}

fn calls<'a>(job: &Job, case: &Case, ready: &'a Ready) -> Calls<'a> {
    let Job { dtype, op, .. } = *job;
    Calls { ready, count: case.count, dtype, op, protocol: case.protocol, blocks: case.blocks }
}

/// Says so if ranks share a GPU.
pub(crate) fn shared(ranks: u32) -> Option<String> {
    let devices = probe().map_or(0, |machine| machine.devices.len());
    let few = devices > 0 && ranks as usize > devices;
    let gpus = if devices == 1 { "a GPU" } else { "GPUs" };
    few.then(|| {
        format!("note: {ranks} ranks share {gpus} ({devices}), and wait for each other's turns")
    })
}

/// Returns the bytes of areas that are large enough for all cases.
fn rooms(job: &Job, gpu: &Communicator, ready: &[Ready]) -> [usize; 2] {
    let mut most = [room(0); 2];
    for case in &job.cases {
        let Some(ready) = ready.get(case.piece) else { continue };
        let lens = calls(job, case, ready).lens(gpu);
        most = [0, 1].map(|i| most[i].max(room(lens[i])));
    }
    most
}

/// The outcome of a case.
enum Came {
    Done(f64, u64, Option<How>),
    Lacks(String),
}

impl Came {
    fn of(self, case: usize) -> JobEvent {
        match self {
            Came::Done(time_us, wrong, how) => JobEvent::Done { case, time_us, wrong, how },
            Came::Lacks(why) => JobEvent::Lacks { case, why },
        }
    }
}

/// Puts the call of a turn into the stream.
type Put<'a> = dyn FnMut(&mut Communicator, u64) -> Result<(), Error> + 'a;

struct Bench<'a> {
    job: &'a Job,
    player: Player<'a>,
    areas: Areas,
    input: Vec<u8>,
}

impl Bench<'_> {
    fn ours(&mut self, case: &Case, calls: Calls<'_>, say: &mut Say<'_>) -> Result<Came, Error> {
        let view = calls.view(self.player.gpu, self.areas);
        let args = calls.args(&view);
        let tries = self.job.gpu.as_ref().is_some_and(|gpu| gpu.tries);
        let (protocol, blocks) = match self.player.tried(calls, &args) {
            Ok(how) => how,
            Err(why @ (Error::Unsupported(_) | Error::Usage(_))) if tries => {
                return Ok(Came::Lacks(why.to_string()));
            }
            Err(error) => return Err(error),
        };
        let how = How { protocol: protocol.name().into(), blocks };
        let stream = self.player.stream.clone();
        let mut put = |gpu: &mut Communicator, turn: u64| {
            gpu.call(calls.ready.algorithm(turn), args, &stream)
        };
        let (time, wrong) = self.played(case, calls, &view, &mut put, say)?;
        Ok(Came::Done(time, wrong, Some(how)))
    }

    fn library(
        &mut self,
        case: &Case,
        calls: Calls<'_>,
        libraries: &mut Libraries<'_>,
        who: usize,
        say: &mut Say<'_>,
    ) -> Result<Came, Error> {
        let Calls { ready, dtype, op, .. } = calls;
        libraries.join(ready.kind(), self.player.gpu)?;
        let (joined, areas) = match libraries.at(who) {
            Ok(at) => at,
            Err(why) => return Ok(Came::Lacks(why)),
        };
        if let Some(why) = Joined::lacks(ready.kind(), dtype, op, ready.in_place) {
            return Ok(Came::Lacks(why));
        }
        let player = &mut self.player;
        let view = calls.view(player.gpu, areas);
        let (input, output) = view.addresses();
        let (count, stream) = (calls.count as usize, player.stream.raw());
        let (rank, device) = (player.gpu.rank(), player.gpu.device()?.name.clone());
        let call = |turn: u64| {
            let (kind, root) = (ready.kind(), ready.root(turn));
            joined.call(&nccl::Call { kind, count, dtype, op, root, input, output, stream })
        };
        // What it refuses, it refuses at once.
        let refused = call(0).err();
        let all = player.gpu.all_gather_u64(u64::from(refused.is_some()))?;
        if let Some(other) = all.iter().position(|&refused| refused != 0) {
            let why = refused.unwrap_or_else(|| format!("rank {other} was refused"));
            libraries.refused(who, &why);
            return Ok(Came::Lacks(why));
        }
        player.gpu.synchronize(&player.stream)?;
        let mut put = |_: &mut Communicator, turn: u64| {
            call(turn).map_err(|what| Error::Cuda { rank, device: device.clone(), what })
        };
        let (time, wrong) = self.played(case, calls, &view, &mut put, say)?;
        Ok(Came::Done(time, wrong, None))
    }

    /// Checks and times the calls of a case: the time of one, and how many elements were wrong on all ranks.
    fn played(
        &mut self,
        case: &Case,
        calls: Calls<'_>,
        view: &View,
        put: &mut Put<'_>,
        say: &mut Say<'_>,
    ) -> Result<(f64, u64), Error> {
        let roots = calls.ready.roots();
        let before = checks(view.lens[0].max(view.lens[1]), roots);
        let mut wrong = 0;
        let verified = self.job.verify != Verify::Off;
        if case.turn.first && verified {
            for turn in 0..before {
                wrong += self.checked(calls, view, turn, put, say)?;
            }
        }
        view.clear(self.player.gpu)?;
        let time = self.timed(roots as u32, put)?;
        if case.turn.last && verified {
            // The last root of a turn: the first was checked before.
            let last = before.next_multiple_of(roots as u64) + roots as u64 - 1;
            wrong += self.checked(calls, view, last, put, say)?;
        }
        let wrong = self.player.gpu.all_gather_u64(wrong)?.into_iter().sum();
        Ok((time, wrong))
    }

    /// Measures the microseconds of a call, with `roots` taking turns.
    fn timed(&mut self, roots: u32, put: &mut Put<'_>) -> Result<f64, Error> {
        let job = self.job;
        let graph = job.gpu.as_ref().and_then(|gpu| gpu.graph);
        let together = graph.map(|calls| calls.next_multiple_of(roots));
        let effort = Effort {
            iters: job.iters,
            warmup: job.warmup.next_multiple_of(roots),
            budget: job.budget,
            unit: together.unwrap_or(roots),
        };
        let (gpu, stream) = (&mut *self.player.gpu, self.player.stream.clone());
        let Some(together) = together else {
            let mut turn = 0;
            return measure_stream(gpu, &stream, effort, |gpu, some| {
                for _ in 0..some {
                    put(gpu, turn)?;
                    turn += 1;
                }
                Ok(some)
            });
        };
        // What a call sets up when it is first made is not captured.
        (0..roots).try_for_each(|turn| put(gpu, turn.into()))?;
        gpu.synchronize(&stream)?;
        let graph =
            gpu.capture(&stream, |gpu| (0..together).try_for_each(|turn| put(gpu, turn.into())))?;
        measure_stream(gpu, &stream, effort, |_, some| {
            let launches = some.div_ceil(together);
            (0..launches).try_for_each(|_| graph.launch(&stream))?;
            Ok(launches * together)
        })
    }

    /// Makes one call on fresh data, and checks everything about it; returns the number of wrong elements here.
    fn checked(
        &mut self,
        calls: Calls<'_>,
        view: &View,
        turn: u64,
        put: &mut Put<'_>,
        say: &mut Say<'_>,
    ) -> Result<u64, Error> {
        let player = &mut self.player;
        let seed = self.job.seed.wrapping_add(turn.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let rule = calls.rule(player.gpu, seed, true);
        player.prepare(calls, view, turn, &rule, &mut self.input)?;
        put(player.gpu, turn)?;
        player.gpu.synchronize(&player.stream)?;
        let (wrong, words) = player.verify(calls, view, turn, &rule, &self.input)?;
        let rank = player.gpu.rank();
        words.into_iter().for_each(|what| say(Event::Wrong(format!("rank {rank}, {what}"))));
        Ok(wrong)
    }
}
