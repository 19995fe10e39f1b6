//! Plays one rank of a job on GPUs.

use std::time::{Duration, Instant};

use roundelay::cuda::{CudaGraph, CudaOptions, probe};
use roundelay::{Algorithm, Communicator, Error, internal};

use super::super::event::{Event, How, JobEvent, Say};
use super::super::measure;
use super::super::order::{Case, GpuSettings, Job};
use super::super::ready::Ready;
use super::buffers::{Areas, DeviceMemory, View, room};
use super::library::Libraries;
use super::load::load;
use super::player::{Calls, Player};
use super::time_limit::{SETUP, TimeLimit};
use crate::peer::nccl::{self, Joined, NcclError, Opened};
use crate::report::Outcome;

/// Plays all cases of a job.
pub(crate) fn work(job: &Job, comm: &mut Communicator, say: &mut Say<'_>) -> Outcome {
    let rank = comm.rank();
    let setup = TimeLimit::new(SETUP, rank, "the GPU's driver");
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let settings = job.gpu.clone().unwrap_or_default();
    gpu.set_hints(settings.hints.parse().map_err(Error::from)?)?;
    let load = |entry| load(&mut gpu, entry, job.root);
    let ready: Vec<Ready<Algorithm>> = job.entries.iter().map(load).collect::<Result<_, _>>()?;
    drop(setup);
    Ok(cases(job, &settings, &mut gpu, &ready, say)?)
}

fn cases(
    job: &Job,
    settings: &GpuSettings,
    gpu: &mut Communicator,
    ready: &[Ready<Algorithm>],
    say: &mut Say<'_>,
) -> Result<(), Error> {
    let rank = gpu.rank();
    if rank == 0 {
        let (topology, _) = gpu.topology()?;
        let hosts = topology.hosts().max(1);
        shared(gpu.size().div_ceil(hosts))
            .into_iter()
            .for_each(|text| say(Event::Job(JobEvent::Remark(text))));
    }
    let rooms = rooms(job, gpu, ready);
    let buffers = [gpu.alloc_device::<u8>(rooms[0])?, gpu.alloc_device::<u8>(rooms[1])?];
    let areas = Areas::of(&buffers, 0)?;
    let inside = &settings.inside[..];
    let time_limit = TimeLimit::new(SETUP, rank, "NCCL");
    let opened = match inside.is_empty() {
        true => Err(NcclError::NotJoined),
        false => Opened::new(gpu)?,
    };
    drop(time_limit);
    if let (0, Ok(opened)) = (rank, &opened) {
        say(Event::Job(JobEvent::Remark(opened.words())));
    }
    let mut libraries = Libraries::new(&opened, inside, rooms, areas);
    let mut bench = CasePlayer { job, settings, player: Player::new(gpu)?, areas };
    let time = SETUP + Duration::from_secs_f64(20.0 * job.budget.min(1e4));
    let began = Instant::now();
    for (index, case) in job.cases.iter().enumerate() {
        if let Some(most) = settings.seconds
            && internal::max_f64(bench.player.gpu, began.elapsed().as_secs_f64())? > most
        {
            break;
        }
        let _limit = TimeLimit::new(time, rank, "a case");
        let Some(ready) = ready.get(case.entry) else { continue };
        let calls = calls(job, case, ready);
        let came = match case.who {
            None => bench.ours(index, calls, say)?,
            Some(who) => bench.library(index, calls, &mut libraries, who, say)?,
        };
        // What is refused every rank reports: each fails, whoever started it.
        if rank == 0 || matches!(came, Came::Refused(_)) {
            say(Event::Job(came.of(index)));
        }
    }
    let _limit = TimeLimit::new(SETUP, rank, "NCCL's end");
    libraries.leave();
    Ok(())
}

fn calls<'a>(job: &Job, case: &Case, ready: &'a Ready<Algorithm>) -> Calls<'a> {
    let Job { dtype, op, .. } = *job;
    Calls { ready, count: case.count, dtype, op, protocol: case.protocol, blocks: case.blocks }
}

/// Says so if so many ranks of a host share a GPU.
pub(crate) fn shared(ranks: u32) -> Option<String> {
    let devices = probe().map_or(0, |machine| machine.devices.len());
    let few = devices > 0 && ranks as usize > devices;
    let gpus = if devices == 1 { "a GPU" } else { "GPUs" };
    few.then(|| {
        format!("note: {ranks} ranks share {gpus} ({devices}), and wait for each other's turns")
    })
}

/// Returns the bytes of areas that are large enough for all cases.
fn rooms(job: &Job, gpu: &Communicator, ready: &[Ready<Algorithm>]) -> [usize; 2] {
    let mut most = [room(0); 2];
    for case in &job.cases {
        let Some(ready) = ready.get(case.entry) else { continue };
        let lens = calls(job, case, ready).lens(gpu);
        most = [0, 1].map(|i| most[i].max(room(lens[i])));
    }
    most
}

/// The outcome of a case.
enum Came {
    Done(f64, u64, Option<How>),
    /// Ours was refused on all ranks.
    Refused(Error),
    /// A library has no result.
    Lacks(String),
}

impl Came {
    fn of(self, case: usize) -> JobEvent {
        match self {
            Came::Done(time_us, wrong, how) => JobEvent::Done { case, time_us, wrong, how },
            Came::Refused(error) => JobEvent::refused(case, &error),
            Came::Lacks(why) => JobEvent::Lacks { case, code: None, why },
        }
    }
}

/// Puts the call of a turn into the stream.
type Put<'a> = dyn FnMut(&mut Communicator, u64) -> Result<(), Error> + 'a;

struct CasePlayer<'a> {
    job: &'a Job,
    settings: &'a GpuSettings,
    player: Player<'a>,
    areas: Areas,
}

impl CasePlayer<'_> {
    fn ours(&mut self, case: usize, calls: Calls<'_>, say: &mut Say<'_>) -> Result<Came, Error> {
        let view = calls.view(self.player.gpu, self.areas);
        let args = calls.args(&view);
        let (protocol, blocks) = match self.player.tried(calls, &args) {
            Ok(how) => how,
            // All ranks refuse it, and the communicator stays usable.
            Err(error @ (Error::Unsupported(_) | Error::Usage(_))) => {
                return Ok(Came::Refused(error));
            }
            Err(error) => return Err(error),
        };
        let how = How { protocol: protocol.name().into(), blocks };
        let stream = self.player.stream.clone();
        let mut put = |gpu: &mut Communicator, turn: u64| {
            gpu.call(calls.ready.algorithm(turn), args, &stream)
        };
        let (time, wrong) = self.played(case, calls, view, &mut put, say)?;
        Ok(Came::Done(time, wrong, Some(how)))
    }

    fn library(
        &mut self,
        case: usize,
        calls: Calls<'_>,
        libraries: &mut Libraries<'_>,
        who: usize,
        say: &mut Say<'_>,
    ) -> Result<Came, Error> {
        let Calls { ready, dtype, op, .. } = calls;
        libraries.join(ready.kind(), self.player.gpu)?;
        let (joined, areas) = match libraries.at(who) {
            Ok(at) => at,
            Err(why) => return Ok(Came::Lacks(why.to_string())),
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
            let elsewhere = NcclError::Elsewhere { rank: other, what: "was refused" };
            let why = refused.unwrap_or(elsewhere);
            let said = why.to_string();
            libraries.refused(who, why);
            return Ok(Came::Lacks(said));
        }
        player.gpu.synchronize(&player.stream)?;
        let mut put = |_: &mut Communicator, turn: u64| {
            call(turn).map_err(|why| Error::Cuda {
                rank,
                device: device.clone(),
                what: why.to_string(),
                source: None,
            })
        };
        let (time, wrong) = self.played(case, calls, view, &mut put, say)?;
        Ok(Came::Done(time, wrong, None))
    }

    /// Checks and times the calls of a case: the time of one, and how many elements were wrong on all ranks.
    fn played(
        &mut self,
        case: usize,
        calls: Calls<'_>,
        view: View,
        put: &mut Put<'_>,
        say: &mut Say<'_>,
    ) -> Result<(f64, u64), Error> {
        let (player, captured) = (&mut self.player, self.settings.graph);
        let mut made = DeviceCalls { player, view, put, captured, graph: None, made: 0 };
        measure::play(self.job, case, calls.ready, &mut made, say)
    }
}

/// Calls of one size on a GPU.
struct DeviceCalls<'a, 'g, 'p> {
    player: &'a mut Player<'g>,
    view: View,
    put: &'a mut Put<'p>,
    /// Calls to be captured into one graph.
    captured: Option<u32>,
    /// The graph, and how many calls it has.
    graph: Option<(CudaGraph, u32)>,
    /// Calls that were made in batches.
    made: u64,
}

impl measure::CaseCalls for DeviceCalls<'_, '_, '_> {
    type Memory<'m>
        = DeviceMemory<'m>
    where
        Self: 'm;

    const WHOLE: bool = true;

    fn memory(&mut self) -> DeviceMemory<'_> {
        self.player.at(self.view)
    }

    fn call(&mut self, turn: u64) -> Result<(), Error> {
        (self.put)(self.player.gpu, turn)?;
        self.player.gpu.synchronize(&self.player.stream)
    }

    fn begin(&mut self, roots: u32) -> Result<u32, Error> {
        let Some(together) = self.captured.map(|calls| calls.next_multiple_of(roots)) else {
            return Ok(roots);
        };
        let (put, Player { gpu, stream, .. }) = (&mut self.put, &mut *self.player);
        // What a call sets up when it is first made is not captured.
        (0..roots).try_for_each(|turn| put(gpu, turn.into()))?;
        gpu.synchronize(stream)?;
        let graph =
            gpu.capture(stream, |gpu| (0..together).try_for_each(|turn| put(gpu, turn.into())))?;
        self.graph = Some((graph, together));
        Ok(together)
    }

    /// Makes calls between two events on the stream.
    fn batch(&mut self, calls: u32) -> Result<f64, Error> {
        let Player { gpu, stream, .. } = &mut *self.player;
        let began = gpu.work(stream)?;
        let calls = match &self.graph {
            Some((graph, together)) => {
                let launches = calls.div_ceil(*together);
                (0..launches).try_for_each(|_| graph.launch(stream))?;
                launches * together
            }
            None => {
                for _ in 0..calls {
                    (self.put)(gpu, self.made)?;
                    self.made += 1;
                }
                calls
            }
        };
        let ended = gpu.work(stream)?;
        gpu.synchronize(stream)?;
        Ok(ended.since_us(&began)? / 1e6 / f64::from(calls.max(1)))
    }
}
