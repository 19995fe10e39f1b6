//! Proxies between ranks of several hosts, over sockets of this machine, with kernels that threads run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roundelay_algorithms::find;
use roundelay_compiler::device::DeviceProtocol;
use roundelay_compiler::plan::Plan;
use roundelay_compiler::{BufferPlacement, CompileOptions, ProvedPlans, Shape, compile};
use roundelay_tests::{CheckNeeds, SeededRandom, of_library, skip};

use super::call::ProxyCall;
use super::direct_slots::GpuDirect;
use super::emulated::{EmulatedArena, EmulatedGpu, EmulatedLaunch, FoldFunction, KernelExit};
use super::memory::ProxyMemory;
use super::threads::{MemoryOffer, ProxyThreads};
use crate::calls::LoweredProgram;
use roundelay::Communicator;
use roundelay::launch::JobSetup;
use roundelay_engine::{CallArgs, EngineCore, PlanCall};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{Error, ErrorLocation};

/// No wait that succeeds comes near it.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The content of buffers before a call, where nothing else is.
const POISON: u32 = 0xdead_beef;

/// Ranks on hosts, and how many lanes each has.
#[derive(Clone)]
pub(super) struct World {
    pub(super) hosts: Vec<u32>,
    pub(super) lanes: u32,
    /// The threads that serve them.
    pub(super) threads: u32,
    pub(super) slots: Slots,
}

/// The place of slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Slots {
    Host,
    /// Memory that devices write into, if there are some.
    Direct,
    /// The same, but this rank does not ask for it; or has memory that gives back other bytes than were written.
    AllBut(u32),
    SpoiltOn(u32),
    /// Memory that devices could write into, if there were some.
    WithoutDevices,
}

impl World {
    pub(super) fn new(hosts: &[u32], lanes: u32) -> Self {
        World { hosts: hosts.into(), lanes, threads: 1, slots: Slots::Host }
    }

    /// Returns what a rank offers.
    fn offer(&self, rank: u32, slots: u64) -> MemoryOffer<'static> {
        let ranks = self.ranks();
        // Probes need some.
        let direct = |spoils| Ok(ProxyMemory::plain_direct(ranks, (slots.max(1 << 12), spoils)));
        MemoryOffer {
            direct: match self.slots {
                Slots::Host => Err(GpuDirect::NotAsked),
                Slots::AllBut(other) if other == rank => Err(GpuDirect::NotAsked),
                Slots::SpoiltOn(other) => direct(other == rank),
                Slots::Direct | Slots::AllBut(_) | Slots::WithoutDevices => direct(false),
            },
            on_host: Box::new(move |_| Ok(ProxyMemory::plain(ranks, slots))),
            without_devices: self.slots == Slots::WithoutDevices,
        }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.hosts.len() as u32
    }

    fn join(&self) -> Vec<Communicator> {
        let label = |rank: u32| format!("host {}", self.hosts[rank as usize]);
        let setup = |rank| JobSetup::new().host_label(label(rank)).timeout(PATIENCE);
        Communicator::local_over(self.ranks(), setup).expect("ranks")
    }
}

/// A call: what is run, on how much, and how it is cut.
pub(super) struct Job {
    what: String,
    proved: ProvedPlans,
    pub(super) lowered: Vec<Arc<LoweredProgram>>,
    dtype: DType,
    pub(super) count: u64,
    blocks: u32,
    pass: u64,
    seed: u64,
    pub(super) timeout: Duration,
}

impl Job {
    fn new(
        hosts: &[u32],
        what: &str,
        (shape, placement, protocol): (Shape, BufferPlacement, DeviceProtocol),
        dice: &mut SeededRandom,
    ) -> Self {
        let (collective, name) = what.split_once('.').expect("collective.algorithm");
        let entry = find(collective, name).expect("the library has it");
        let (sources, program) = of_library(entry).expect("it resolves");
        let proved = compile(&program, &sources, &shape, &CompileOptions::default(), placement);
        let proved = proved.expect("it is proved");
        let ranks = 0..hosts.len() as u32;
        let lowered = ranks.map(|rank| LoweredProgram::new(&proved, rank, protocol, 1, hosts));
        let lowered = lowered.collect::<Result<_, _>>().expect("it is lowered");
        Job {
            what: format!("{what} {protocol} on {hosts:?}"),
            proved,
            lowered,
            dtype: [DType::F32, DType::I32][dice.below(2)],
            count: 1 + dice.below(500) as u64,
            blocks: 1 + dice.below(3) as u32,
            pass: 4 * (1 + dice.below(12) as u64),
            seed: dice.below(1 << 30) as u64,
            timeout: PATIENCE,
        }
    }

    fn plan(&self, rank: u32) -> &Plan {
        &self.proved.plans()[rank as usize]
    }

    pub(super) fn fold(&self) -> FoldFunction {
        match self.dtype {
            DType::F32 => |a, b| (f32::from_bits(a) + f32::from_bits(b)).to_bits(),
            _ => u32::wrapping_add,
        }
    }

    /// Elements of data, input, output, and of each scratch buffer.
    fn lengths(&self) -> Vec<usize> {
        let header = &self.plan(0).header;
        let elements = u64::from(header.blocks) * self.count;
        let of = |chunks: u32| (elements * u64::from(chunks) / u64::from(header.chunks)) as usize;
        let most = elements.div_ceil(header.chunks.into());
        let buffers = [header.chunks, header.input_chunks, header.output_chunks].map(of);
        let scratch = header.scratch.iter().map(|&c| (u64::from(c) * most) as usize);
        buffers.into_iter().chain(scratch).collect()
    }

    pub(super) fn call(&self, rank: u32, epoch: u32) -> Option<ProxyCall> {
        let header = &self.plan(0).header;
        let most = (u64::from(header.blocks) * self.count).div_ceil(header.chunks.into());
        Some(ProxyCall {
            part: self.lowered[rank as usize].far.clone()?,
            number: epoch ^ 1 << 30,
            is_captured: false,
            epoch,
            timeout: self.timeout,
            digest: self.seed,
            count: self.count,
            size: 4,
            blocks: self.blocks,
            pass: self.pass,
            passes: most.div_ceil(u64::from(self.blocks) * self.pass).max(1),
            unit: (4 * self.pass).next_multiple_of(16),
        })
    }

    /// Returns what a rank's data, or input, holds before the call.
    fn before(&self, rank: u32) -> Vec<u32> {
        let mut dice = SeededRandom(self.seed * 1000 + u64::from(rank));
        let [data, input, ..] = self.lengths()[..] else { return Vec::new() };
        let len = if self.is_in_place() { data } else { input };
        (0..len)
            .map(|_| match self.dtype {
                DType::F32 => ((dice.below(1 << 20) as f32 - 5e5) / 77.0).to_bits(),
                _ => dice.below(1 << 32) as u32,
            })
            .collect()
    }

    /// Returns true if its end proves that all ranks have entered it.
    pub(super) fn proves(&self) -> bool {
        let header = &self.plan(0).header;
        let elements = u64::from(header.blocks) * self.count;
        self.lowered[0].program.synchronizes && elements / u64::from(header.chunks) != 0
    }

    fn is_in_place(&self) -> bool {
        self.plan(0).header.placement == BufferPlacement::InPlace
    }

    /// Executes the same plan on the host.
    pub(super) fn on_host(&self, core: &mut EngineCore) -> Vec<u32> {
        let rank = core.rank();
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut input = bytes(&self.before(rank));
        let mut output = vec![0; 4 * self.lengths()[2]];
        let args = match self.is_in_place() {
            true => CallArgs::InPlace { data: &mut input[..] },
            false => CallArgs::OutOfPlace { input: &input[..], output: &mut output[..] },
        };
        let (count, dtype) = (self.count, self.dtype);
        let call = PlanCall { count, dtype, op: RedOp::Sum, factor: 1.0, args };
        core.run(self.plan(rank), call).expect("the host runs it");
        let result = if self.is_in_place() { input } else { output };
        result.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect()
    }
}

/// A rank and its part of the device.
pub(super) struct Rank<'a> {
    jobs: &'a [Job],
    arenas: &'a [EmulatedArena],
    pub(super) core: &'a mut EngineCore,
    pub(super) lanes: ProxyThreads,
    pub(super) device: EmulatedGpu<'a>,
}

impl<'a> Rank<'a> {
    fn new(
        world: &'a World,
        jobs: &'a [Job],
        arenas: &'a [EmulatedArena],
        core: &'a mut EngineCore,
    ) -> Self {
        let call = |job: &Job, rank| job.call(rank, 0);
        let slots = |job: &Job| {
            let units = u64::from(job.lowered[0].program.far) * u64::from(job.blocks);
            call(job, core.rank()).map_or(0, |call| units * call.unit)
        };
        let slots = jobs.iter().map(slots).max().unwrap_or(0);
        let offer = world.offer(core.rank(), slots);
        let aborted = Arc::new(AtomicBool::new(false));
        let abort = aborted.clone();
        let lanes = ProxyThreads::connect(core, offer, (world.lanes, world.threads), move || {
            abort.store(true, Ordering::Release);
        });
        let lanes = lanes.expect("lanes");
        let far = lanes.memory().clone();
        let direct = lanes.direct().clone();
        let reached = lanes.connections.iter().all(|connection| connection.one_sided().is_some());
        match (world.slots, reached) {
            (Slots::Host, _) => assert_eq!(direct, GpuDirect::NotAsked),
            (Slots::Direct, true) | (Slots::WithoutDevices, _) => {
                assert_eq!(direct, GpuDirect::Used);
            }
            (_, true) => assert_ne!(direct, GpuDirect::Used),
            (_, false) => skip(CheckNeeds::Rdma, "slots that devices write: all goes by hosts"),
        }
        // All are connected.
        core.words(0).expect("all are there");
        let device = EmulatedGpu { arenas, far, aborted, patience: 2 * PATIENCE };
        Rank { jobs, arenas, core, lanes, device }
    }

    /// Launches the calls `range` of a stream; nothing is run yet.
    pub(super) fn launch(&self, epochs: impl Iterator<Item = (usize, u32)>) {
        for (at, epoch) in epochs {
            // The kernel alone knows the epoch.
            let call = self.jobs[at].call(self.core.rank(), epoch);
            call.iter()
                .for_each(|call| self.lanes.order_call(&ProxyCall { epoch: 0, ..call.clone() }));
        }
    }

    /// Runs a call that was launched; returns the result.
    pub(super) fn run(
        &self,
        at: usize,
        epoch: u32,
        synchronized: bool,
    ) -> Result<Vec<u32>, KernelExit> {
        self.run_as(at, epoch, synchronized, None)
    }

    /// Runs a call that was launched, or captured by another number.
    fn run_as(
        &self,
        at: usize,
        epoch: u32,
        synchronized: bool,
        number: Option<u32>,
    ) -> Result<Vec<u32>, KernelExit> {
        let (rank, job) = (self.core.rank(), &self.jobs[at]);
        let buffers = &self.arenas[rank as usize].buffers;
        for place in buffers.iter().flatten() {
            place.store(POISON, Ordering::Relaxed);
        }
        let first = if job.is_in_place() { 0 } else { 1 };
        for (place, value) in buffers[first].iter().zip(job.before(rank)) {
            place.store(value, Ordering::Relaxed);
        }
        let program = &job.lowered[rank as usize].program;
        // Ranks without far links run as many passes.
        let call = job.lowered.iter().zip(0..).find_map(|(_, r)| job.call(r, epoch));
        let mut call = call.expect("some rank has far links");
        call.number = number.unwrap_or(call.number);
        let proves = job.proves();
        let fold = job.fold();
        self.device.run(&EmulatedLaunch { program, call: &call, fold, synchronized, proves })?;
        let last = if job.is_in_place() { 0 } else { 2 };
        let len = job.lengths()[last];
        Ok(buffers[last].iter().take(len).map(|p| p.load(Ordering::Relaxed)).collect())
    }
}

/// Makes memory that ranks of a host share, large enough for all jobs.
fn arenas(world: &World, jobs: &[Job]) -> Vec<EmulatedArena> {
    let mut lengths: Vec<usize> = Vec::new();
    let mut half = 0;
    for job in jobs {
        let own = job.lengths();
        lengths.resize(lengths.len().max(own.len()), 0);
        lengths.iter_mut().zip(own).for_each(|(all, own)| *all = own.max(*all));
        let unit = (4 * job.pass).next_multiple_of(16) / 4;
        let units = u64::from(job.lowered[0].program.staging) * u64::from(job.blocks);
        half = half.max((units * unit) as usize);
    }
    (0..world.ranks()).map(|_| EmulatedArena::new(world.ranks(), half, &lengths)).collect()
}

/// Runs something on all ranks, a thread each.
pub(super) fn everywhere<R: Send>(
    world: &World,
    jobs: &[Job],
    body: impl Fn(&mut Rank<'_>) -> R + Sync,
) -> Vec<R> {
    let (arenas, body) = (&arenas(world, jobs), &body);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = world
            .join()
            .into_iter()
            .map(|mut comm| {
                scope.spawn(move || {
                    // As ranks open their GPUs.
                    let all: Vec<u32> = (0..world.ranks()).collect();
                    let mut part = comm.split(&all).expect("a part").expect("of all");
                    let core = roundelay::internal::core(&mut part).expect("at home");
                    let mut rank = Rank::new(world, jobs, arenas, core);
                    let result = body(&mut rank);
                    if rank.device.aborted.load(Ordering::Acquire) {
                        rank.lanes.stop();
                    }
                    drop(rank);
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Runs all jobs as one stream, launched ahead, from a call on; and compares with the host.
pub(super) fn all_alike(world: &World, jobs: &[Job], first: u32) {
    let found = everywhere(world, jobs, |rank| {
        if first > 0 {
            rank.device.far.remember(first);
            rank.arenas[rank.core.rank() as usize].remember(first);
        }
        let epochs: Vec<u32> = (0..jobs.len() as u32).map(|k| first.wrapping_add(k + 1)).collect();
        rank.launch(epochs.iter().copied().enumerate());
        let (mut synchronized, mut results) = (false, Vec::new());
        for (at, &epoch) in epochs.iter().enumerate() {
            match rank.run(at, epoch, synchronized) {
                Ok(result) => results.push(result),
                Err(left) => {
                    let why = rank.lanes.failure();
                    return vec![format!("{}: {left:?} {why:?}", jobs[at].what)];
                }
            }
            synchronized = jobs[at].proves();
        }
        let differs = |(job, result): (&Job, &Vec<u32>)| {
            let wanted = job.on_host(rank.core);
            (*result != wanted).then(|| format!("{}: wrong on rank {}", job.what, rank.core.rank()))
        };
        jobs.iter().zip(&results).filter_map(differs).collect()
    });
    let wrong: Vec<String> = found.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Algorithms for any ranks.
const FLAT: [(&str, BufferPlacement); 7] = [
    ("all_reduce.ring", BufferPlacement::InPlace),
    ("all_reduce.two_shot", BufferPlacement::InPlace),
    ("all_reduce.one_shot", BufferPlacement::OutOfPlace),
    ("all_gather.direct", BufferPlacement::OutOfPlace),
    ("reduce_scatter.ring", BufferPlacement::OutOfPlace),
    ("broadcast.chain", BufferPlacement::InPlace),
    ("all_to_all.direct", BufferPlacement::OutOfPlace),
];
/// Those for a grid of hosts.
const GRID: [(&str, BufferPlacement); 2] = [
    ("all_reduce.two_level", BufferPlacement::InPlace),
    ("all_reduce.multipath_two_level", BufferPlacement::InPlace),
];
/// The protocols that pass between hosts.
const PROTOCOLS: [DeviceProtocol; 3] =
    [DeviceProtocol::Staged, DeviceProtocol::Put, DeviceProtocol::Get];

fn jobs(
    hosts: &[u32],
    algorithms: &[(&str, BufferPlacement)],
    shape: &Shape,
    calls: usize,
    dice: &mut SeededRandom,
) -> Vec<Job> {
    let job = |k: usize| {
        let (what, placement) = algorithms[k % algorithms.len()];
        let how = (shape.clone(), placement, PROTOCOLS[dice.below(3)]);
        Job::new(hosts, what, how, dice)
    };
    (0..calls).map(job).collect()
}

/// Runs flat algorithms on several worlds.
pub(super) fn flat(slots: Slots) {
    for (seed, hosts, lanes) in
        [(1, &[0, 1][..], 2), (2, &[0, 1, 2], 1), (3, &[0, 0, 1], 2), (4, &[0, 1, 1, 0], 3)]
    {
        let shape = Shape::flat(hosts.len() as u32);
        let jobs = jobs(hosts, &FLAT, &shape, 21, &mut SeededRandom(seed));
        for threads in [1, lanes] {
            all_alike(&World { slots, threads, ..World::new(hosts, lanes) }, &jobs, 0);
        }
    }
}

/// Runs algorithms for grids.
pub(super) fn grids(slots: Slots) {
    for (seed, a_host, lanes) in [(5, 2, 2), (6, 4, 1)] {
        let hosts: Vec<u32> = (0..2 * a_host).map(|rank| rank / a_host).collect();
        let shape = Shape { axes: vec![2, a_host] };
        let jobs = jobs(&hosts, &GRID, &shape, 9, &mut SeededRandom(seed));
        all_alike(&World { slots, ..World::new(&hosts, lanes) }, &jobs, 0);
    }
}

#[test]
fn flat_algorithms_are_bit_exact_between_hosts() {
    flat(Slots::Host);
}

#[test]
fn grids_of_hosts_are_bit_exact() {
    grids(Slots::Host);
}

/// Runs calls that use slots again in every pass and every call, launched far ahead.
pub(super) fn many_calls(slots: Slots) {
    let mut dice = SeededRandom(7);
    let hosts = [0, 1];
    let mut jobs = jobs(&hosts, &FLAT, &Shape::flat(2), 42, &mut dice);
    for job in &mut jobs {
        (job.blocks, job.pass) = (1 + dice.below(2) as u32, 4);
    }
    all_alike(&World { slots, ..World::new(&hosts, 2) }, &jobs, 0);
}

#[test]
fn many_calls_on_the_same_slots() {
    many_calls(Slots::Host);
}

/// The numbers of calls begin again at 0.
#[test]
fn calls_go_on_after_the_last_number() {
    let hosts = [0, 0, 1];
    let jobs = jobs(&hosts, &FLAT, &Shape::flat(3), 9, &mut SeededRandom(8));
    all_alike(&World::new(&hosts, 2), &jobs, u32::MAX - 5);
}

/// Has kernels enter captured calls as often as their graph is launched, of which no host knows, among others.
pub(super) fn captured(slots: Slots) {
    let hosts = [0, 1, 1];
    let jobs = jobs(&hosts, &FLAT, &Shape::flat(3), 4, &mut SeededRandom(11));
    let differ = everywhere(&World { slots, ..World::new(&hosts, 2) }, &jobs, |rank| {
        let own = rank.core.rank();
        // Two calls in a graph, by the numbers that they were captured with.
        let captured = |at: usize, epoch: u32| {
            let call = jobs[at].call(own, epoch)?;
            Some(ProxyCall { number: 7 + at as u32, is_captured: true, ..call })
        };
        for call in [0, 1].iter().filter_map(|&at| captured(at, 0)) {
            rank.lanes.order_call(&call);
        }
        let (mut epoch, mut wrong, mut synchronized) = (0, Vec::new(), false);
        for round in 0..4 {
            for (at, job) in jobs.iter().enumerate().take(3) {
                epoch += 1;
                let number = match at {
                    2 => {
                        rank.launch([(2, epoch)].into_iter());
                        None
                    }
                    at => captured(at, epoch).map(|call| call.number),
                };
                if round == 2 && at == 0 {
                    // Lanes have gone to sleep.
                    sees_no_end(rank.core, Duration::from_millis(5));
                }
                let result = rank.run_as(at, epoch, synchronized, number);
                synchronized = job.proves();
                if result != Ok(job.on_host(rank.core)) {
                    wrong.push((round, at, rank.lanes.failure()));
                }
            }
        }
        wrong
    });
    assert!(differ.iter().all(Vec::is_empty), "{differ:?}");
}

#[test]
fn captured_calls_are_carried_again_and_again() {
    captured(Slots::Host);
}

/// Returns a call that goes through many passes.
pub(super) fn long(hosts: &[u32]) -> Vec<Job> {
    let how = (Shape::flat(hosts.len() as u32), BufferPlacement::InPlace, DeviceProtocol::Staged);
    let job = Job::new(hosts, "all_reduce.ring", how, &mut SeededRandom(10));
    vec![Job { count: 100_000, blocks: 2, pass: 16, ..job }]
}

/// Waits until a rank sees that the group has ended.
pub(super) fn sees_the_end(core: &mut EngineCore) {
    let since = Instant::now();
    while core.hear(None).is_ok() && since.elapsed() < PATIENCE {}
}

/// Waits for that long, in which nothing is wrong.
fn sees_no_end(core: &mut EngineCore, time: Duration) {
    let since = Instant::now();
    while since.elapsed() < time {
        core.hear(None).expect("nothing is wrong");
        std::thread::yield_now();
    }
}

/// The end of a rank's kernel, and the error of its lanes.
pub(super) type Ended = (Result<(), KernelExit>, Option<Error>);

/// Returns the place, what was awaited and the remark of the timeout by which rank 0 blames rank 1, whose kernel was
/// aborted.
pub(super) fn late(ends: &[Option<Ended>]) -> (&ErrorLocation, &str, &str) {
    let (left, failure) = ends[0].as_ref().expect("of rank 0");
    assert_eq!(*left, Err(KernelExit::Aborted));
    let Some(Error::Timeout { location, awaited, peer: 1, remark, .. }) = failure else {
        panic!("{failure:?}");
    };
    (location, awaited, remark)
}
