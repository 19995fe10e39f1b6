//! Runs one rank of a job on GPUs.

use std::time::{Duration, Instant};

use roundelay::cuda::{CudaGraph, CudaOptions, probe};
use roundelay::{Algorithm, Communicator, Error, internal};

use super::super::event::{EventSink, JobEvent, KernelChoice, RankEvent};
use super::super::measure;
use super::super::order::{GpuSettings, JobCase, JobOrder};
use super::super::ready::ReadyAlgorithm;
use super::buffers::{AreaAddresses, CallAreas, GpuMemory, room};
use super::executor::{CallSettings, GpuExecutor};
use super::library::InsideLibraries;
use super::load::load;
use super::time_limit::TimeLimit;
use crate::peer::nccl::{self, NcclError, NcclRank, OpenedNccl};
use crate::report::VerbResult;
use crate::tunables::GPU_SETUP_TIMEOUT;

/// Runs all cases of a job.
pub(crate) fn work(
    job: &JobOrder,
    comm: &mut Communicator,
    emit: &mut EventSink<'_>,
) -> VerbResult {
    let rank = comm.rank();
    let setup = TimeLimit::new(GPU_SETUP_TIMEOUT, rank, "the GPU's driver");
    let mut gpu = comm.cuda(CudaOptions::default())?;
    let settings = job.gpu.clone().unwrap_or_default();
    gpu.set_hints(settings.hints.parse().map_err(Error::from)?)?;
    let load = |entry| load(&mut gpu, entry, job.root);
    let ready: Vec<ReadyAlgorithm<Algorithm>> =
        job.entries.iter().map(load).collect::<Result<_, _>>()?;
    drop(setup);
    Ok(cases(job, &settings, &mut gpu, &ready, emit)?)
}

fn cases(
    job: &JobOrder,
    settings: &GpuSettings,
    gpu: &mut Communicator,
    ready: &[ReadyAlgorithm<Algorithm>],
    emit: &mut EventSink<'_>,
) -> Result<(), Error> {
    let rank = gpu.rank();
    if rank == 0 {
        let (topology, _) = gpu.topology()?;
        let hosts = topology.hosts().max(1);
        shared(gpu.size().div_ceil(hosts))
            .into_iter()
            .for_each(|text| emit(RankEvent::Job(JobEvent::Remark(text))));
    }
    let rooms = rooms(job, gpu, ready);
    let buffers = [gpu.alloc_device::<u8>(rooms[0])?, gpu.alloc_device::<u8>(rooms[1])?];
    let areas = AreaAddresses::of(&buffers, 0)?;
    let inside = &settings.inside[..];
    let time_limit = TimeLimit::new(GPU_SETUP_TIMEOUT, rank, "NCCL");
    let opened = match inside.is_empty() {
        true => Err(NcclError::NotJoined),
        false => OpenedNccl::new(gpu)?,
    };
    drop(time_limit);
    if let (0, Ok(opened)) = (rank, &opened) {
        emit(RankEvent::Job(JobEvent::Remark(opened.words())));
    }
    let mut libraries = InsideLibraries::new(&opened, inside, rooms, areas);
    let mut bench = CaseExecutor { job, settings, executor: GpuExecutor::new(gpu)?, areas };
    let time = GPU_SETUP_TIMEOUT + Duration::from_secs_f64(20.0 * job.budget.min(1e4));
    let began = Instant::now();
    for (index, case) in job.cases.iter().enumerate() {
        if let Some(most) = settings.seconds
            && internal::max_f64(bench.executor.gpu, began.elapsed().as_secs_f64())? > most
        {
            break;
        }
        let _limit = TimeLimit::new(time, rank, "a case");
        let Some(ready) = ready.get(case.entry) else { continue };
        let calls = calls(job, case, ready);
        let came = match case.who {
            None => bench.ours(index, calls, emit)?,
            Some(who) => bench.library(index, calls, &mut libraries, who, emit)?,
        };
        // Every rank reports what is refused: each fails, whichever launcher started it.
        if rank == 0 || matches!(came, CaseOutcome::Refused(_)) {
            emit(RankEvent::Job(came.of(index)));
        }
    }
    let _limit = TimeLimit::new(GPU_SETUP_TIMEOUT, rank, "NCCL's end");
    libraries.leave();
    Ok(())
}

fn calls<'a>(
    job: &JobOrder,
    case: &JobCase,
    ready: &'a ReadyAlgorithm<Algorithm>,
) -> CallSettings<'a> {
    let JobOrder { dtype, op, .. } = *job;
    CallSettings {
        ready,
        count: case.count,
        dtype,
        op,
        protocol: case.protocol,
        blocks: case.blocks,
    }
}

/// Reports when several ranks of a host share a GPU.
pub(crate) fn shared(ranks: u32) -> Option<String> {
    let devices = probe().map_or(0, |machine| machine.devices.len());
    let few = devices > 0 && ranks as usize > devices;
    let gpus = if devices == 1 { "a GPU" } else { "GPUs" };
    few.then(|| {
        format!("note: {ranks} ranks share {gpus} ({devices}), and wait for each other's turns")
    })
}

/// Returns the bytes of areas that are large enough for all cases.
fn rooms(job: &JobOrder, gpu: &Communicator, ready: &[ReadyAlgorithm<Algorithm>]) -> [usize; 2] {
    let mut most = [room(0); 2];
    for case in &job.cases {
        let Some(ready) = ready.get(case.entry) else { continue };
        let lens = calls(job, case, ready).lens(gpu);
        most = [0, 1].map(|i| most[i].max(room(lens[i])));
    }
    most
}

/// The outcome of a case.
enum CaseOutcome {
    Done(f64, u64, Option<KernelChoice>),
    /// Ours was refused on all ranks.
    Refused(Error),
    /// A library has no result.
    Lacks(String),
}

impl CaseOutcome {
    fn of(self, case: usize) -> JobEvent {
        match self {
            CaseOutcome::Done(time_us, wrong, how) => JobEvent::Done { case, time_us, wrong, how },
            CaseOutcome::Refused(error) => JobEvent::refused(case, &error),
            CaseOutcome::Lacks(why) => JobEvent::Lacks { case, code: None, why },
        }
    }
}

/// Puts the call of a turn into the stream.
type LaunchCall<'a> = dyn FnMut(&mut Communicator, u64) -> Result<(), Error> + 'a;

struct CaseExecutor<'a> {
    job: &'a JobOrder,
    settings: &'a GpuSettings,
    executor: GpuExecutor<'a>,
    areas: AreaAddresses,
}

impl CaseExecutor<'_> {
    fn ours(
        &mut self,
        case: usize,
        calls: CallSettings<'_>,
        emit: &mut EventSink<'_>,
    ) -> Result<CaseOutcome, Error> {
        let view = calls.view(self.executor.gpu, self.areas);
        let args = calls.args(&view);
        let (protocol, blocks) = match self.executor.tried(calls, &args) {
            Ok(how) => how,
            // All ranks refuse it, and the communicator stays usable.
            Err(error @ (Error::Unsupported(_) | Error::Usage(_))) => {
                return Ok(CaseOutcome::Refused(error));
            }
            Err(error) => return Err(error),
        };
        let how = KernelChoice { protocol: protocol.name().into(), blocks };
        let stream = self.executor.stream.clone();
        let mut put = |gpu: &mut Communicator, turn: u64| {
            gpu.call(calls.ready.algorithm(turn), args, &stream)
        };
        let (time, wrong) = self.executed(case, calls, view, &mut put, emit)?;
        Ok(CaseOutcome::Done(time, wrong, Some(how)))
    }

    fn library(
        &mut self,
        case: usize,
        calls: CallSettings<'_>,
        libraries: &mut InsideLibraries<'_>,
        who: usize,
        emit: &mut EventSink<'_>,
    ) -> Result<CaseOutcome, Error> {
        let CallSettings { ready, dtype, op, .. } = calls;
        libraries.join(ready.kind(), self.executor.gpu)?;
        let (joined, areas) = match libraries.at(who) {
            Ok(at) => at,
            Err(why) => return Ok(CaseOutcome::Lacks(why.to_string())),
        };
        if let Some(why) = NcclRank::lacks(ready.kind(), dtype, op, ready.in_place) {
            return Ok(CaseOutcome::Lacks(why));
        }
        let executor = &mut self.executor;
        let view = calls.view(executor.gpu, areas);
        let (input, output) = view.addresses();
        let (count, stream) = (calls.count as usize, executor.stream.raw());
        let (rank, device) = (executor.gpu.rank(), executor.gpu.device()?.name.clone());
        let call = |turn: u64| {
            let (kind, root) = (ready.kind(), ready.root(turn));
            joined.call(&nccl::NcclCall { kind, count, dtype, op, root, input, output, stream })
        };
        // What it refuses, it refuses at once.
        let refused = call(0).err();
        let all = executor.gpu.all_gather_u64(u64::from(refused.is_some()))?;
        if let Some(other) = all.iter().position(|&refused| refused != 0) {
            let elsewhere = NcclError::Elsewhere { rank: other, what: "was refused" };
            let why = refused.unwrap_or(elsewhere);
            let said = why.to_string();
            libraries.refused(who, why);
            return Ok(CaseOutcome::Lacks(said));
        }
        executor.gpu.synchronize(&executor.stream)?;
        let mut put = |_: &mut Communicator, turn: u64| {
            call(turn).map_err(|why| Error::Cuda {
                rank,
                device: device.clone(),
                what: why.to_string(),
                source: None,
            })
        };
        let (time, wrong) = self.executed(case, calls, view, &mut put, emit)?;
        Ok(CaseOutcome::Done(time, wrong, None))
    }

    /// Checks and times the calls of a case: the time of one, and how many elements were wrong on all ranks.
    fn executed(
        &mut self,
        case: usize,
        calls: CallSettings<'_>,
        view: CallAreas,
        put: &mut LaunchCall<'_>,
        emit: &mut EventSink<'_>,
    ) -> Result<(f64, u64), Error> {
        let (executor, captured) = (&mut self.executor, self.settings.graph);
        let mut made = DeviceCalls { executor, view, put, captured, graph: None, made: 0 };
        measure::execute(self.job, case, calls.ready, &mut made, emit)
    }
}

/// Calls of one size on a GPU.
struct DeviceCalls<'a, 'g, 'p> {
    executor: &'a mut GpuExecutor<'g>,
    view: CallAreas,
    put: &'a mut LaunchCall<'p>,
    /// Calls to be captured into one graph.
    captured: Option<u32>,
    /// The graph, and how many calls it has.
    graph: Option<(CudaGraph, u32)>,
    /// Calls that were made in batches.
    made: u64,
}

impl measure::CaseCalls for DeviceCalls<'_, '_, '_> {
    type CaseMemory<'m>
        = GpuMemory<'m>
    where
        Self: 'm;

    const WHOLE: bool = true;

    fn memory(&mut self) -> GpuMemory<'_> {
        self.executor.at(self.view)
    }

    fn call(&mut self, turn: u64) -> Result<(), Error> {
        (self.put)(self.executor.gpu, turn)?;
        self.executor.gpu.synchronize(&self.executor.stream)
    }

    fn begin(&mut self, roots: u32) -> Result<u32, Error> {
        let Some(together) = self.captured.map(|calls| calls.next_multiple_of(roots)) else {
            return Ok(roots);
        };
        let (put, GpuExecutor { gpu, stream, .. }) = (&mut self.put, &mut *self.executor);
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
        let GpuExecutor { gpu, stream, .. } = &mut *self.executor;
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
