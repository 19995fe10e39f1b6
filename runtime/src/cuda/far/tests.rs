//! Lanes between ranks of several hosts, over sockets of this machine, with kernels that threads play.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roundelay_algorithms::find;
use roundelay_compiler::device::Protocol;
use roundelay_compiler::plan::Plan;
use roundelay_compiler::{Options, Placement, Proved, Shape, compile};
use roundelay_tests::{Dice, of_library};

use super::call::FarCall;
use super::emulated::{Arena, Device, Fold, Launch, Left};
use super::lanes::Lanes;
use super::memory::FarMemory;
use crate::bootstrap::Setup;
use crate::comm::Communicator;
use crate::cuda::program::Lowered;
use crate::dtype::{DType, RedOp};
use crate::engine::{Args, Call, Core};
use crate::error::Error;

/// No wait that succeeds comes near it.
const PATIENCE: Duration = Duration::from_secs(60);
/// What buffers hold before a call where nothing else is.
const POISON: u32 = 0xdead_beef;

/// Ranks on hosts, and how many lanes each has.
#[derive(Clone)]
struct World {
    hosts: Vec<u32>,
    lanes: u32,
    timeout: Duration,
}

impl World {
    fn new(hosts: &[u32], lanes: u32) -> Self {
        World { hosts: hosts.into(), lanes, timeout: PATIENCE }
    }

    fn ranks(&self) -> u32 {
        self.hosts.len() as u32
    }

    fn join(&self) -> Vec<Communicator> {
        let label = |rank: u32| format!("host {}", self.hosts[rank as usize]);
        let setup = |rank| Setup::new().host_label(label(rank)).timeout(self.timeout);
        Communicator::local_over(self.ranks(), setup).expect("ranks")
    }
}

/// A call: what is played, on how much, and how it is cut.
struct Job {
    what: String,
    proved: Proved,
    lowered: Vec<Arc<Lowered>>,
    dtype: DType,
    count: u64,
    blocks: u32,
    pass: u64,
    seed: u64,
}

impl Job {
    fn new(
        hosts: &[u32],
        what: &str,
        (shape, placement, protocol): (Shape, Placement, Protocol),
        dice: &mut Dice,
    ) -> Self {
        let (collective, name) = what.split_once('.').expect("collective.algorithm");
        let entry = find(collective, name).expect("the library has it");
        let (sources, program) = of_library(entry).expect("it resolves");
        let proved = compile(&program, &sources, &shape, &Options::default(), placement);
        let proved = proved.expect("it is proved");
        let ranks = 0..hosts.len() as u32;
        let lowered = ranks.map(|rank| Lowered::new(&proved, rank, protocol, 1, hosts));
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
        }
    }

    fn plan(&self, rank: u32) -> &Plan {
        &self.proved.plans()[rank as usize]
    }

    fn fold(&self) -> Fold {
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

    fn call(&self, rank: u32, epoch: u32) -> Option<FarCall> {
        let header = &self.plan(0).header;
        let most = (u64::from(header.blocks) * self.count).div_ceil(header.chunks.into());
        Some(FarCall {
            part: self.lowered[rank as usize].far.clone()?,
            epoch,
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
        let mut dice = Dice(self.seed * 1000 + u64::from(rank));
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
    fn proves(&self) -> bool {
        let header = &self.plan(0).header;
        let elements = u64::from(header.blocks) * self.count;
        self.lowered[0].program.synchronizes && elements / u64::from(header.chunks) != 0
    }

    fn is_in_place(&self) -> bool {
        self.plan(0).header.placement == Placement::InPlace
    }

    /// Plays the same plan on the host.
    fn on_host(&self, core: &mut Core) -> Vec<u32> {
        let rank = core.rank();
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let mut input = bytes(&self.before(rank));
        let mut output = vec![0; 4 * self.lengths()[2]];
        let args = match self.is_in_place() {
            true => Args::InPlace { data: &mut input[..] },
            false => Args::OutOfPlace { input: &input[..], output: &mut output[..] },
        };
        let (count, dtype) = (self.count, self.dtype);
        let call = Call { count, dtype, op: RedOp::Sum, factor: 1.0, args };
        core.run(self.plan(rank), call).expect("the host plays it");
        let result = if self.is_in_place() { input } else { output };
        result.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect()
    }
}

/// What one rank has of its device.
struct Rank<'a> {
    world: &'a World,
    jobs: &'a [Job],
    arenas: &'a [Arena],
    core: &'a mut Core,
    lanes: Lanes,
    device: Device<'a>,
}

impl<'a> Rank<'a> {
    fn new(world: &'a World, jobs: &'a [Job], arenas: &'a [Arena], core: &'a mut Core) -> Self {
        let call = |job: &Job, rank| job.call(rank, 0);
        let slots = |job: &Job| {
            let units = u64::from(job.lowered[0].program.far) * u64::from(job.blocks);
            call(job, core.rank()).map_or(0, |call| units * call.unit)
        };
        let slots = jobs.iter().map(slots).max().unwrap_or(0);
        let far = Arc::new(FarMemory::plain(world.ranks(), slots));
        let aborted = Arc::new(AtomicBool::new(false));
        let abort = aborted.clone();
        let lanes = Lanes::connect(core, far.clone(), world.lanes, move || {
            abort.store(true, Ordering::Release);
        });
        let lanes = lanes.expect("lanes");
        let device = Device { arenas, far, aborted, patience: 2 * world.timeout };
        Rank { world, jobs, arenas, core, lanes, device }
    }

    /// Launches the calls `range` of a stream; nothing is played yet.
    fn launch(&self, epochs: impl Iterator<Item = (usize, u32)>) {
        for (at, epoch) in epochs {
            self.lanes.order(epoch, self.jobs[at].call(self.core.rank(), epoch).as_ref());
        }
    }

    /// Plays a call that was launched; returns the result.
    fn play(&self, at: usize, epoch: u32, synchronized: bool) -> Result<Vec<u32>, Left> {
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
        // Ranks without far links play as many passes.
        let call = job.lowered.iter().zip(0..).find_map(|(_, r)| job.call(r, epoch));
        let call = call.expect("some rank has far links");
        let proves = job.proves();
        let fold = job.fold();
        self.device.play(&Launch { program, call: &call, fold, synchronized, proves })?;
        let last = if job.is_in_place() { 0 } else { 2 };
        let len = job.lengths()[last];
        Ok(buffers[last].iter().take(len).map(|p| p.load(Ordering::Relaxed)).collect())
    }
}

/// Makes memory that ranks of a host share, large enough for all jobs.
fn arenas(world: &World, jobs: &[Job]) -> Vec<Arena> {
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
    (0..world.ranks()).map(|_| Arena::new(world.ranks(), half, &lengths)).collect()
}

/// Runs something on all ranks, a thread each.
fn everywhere<R: Send>(
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
                    let core = comm.core().expect("at home");
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

/// Plays all jobs as one stream, launched ahead, from a call on; and compares with the host.
fn all_alike(world: &World, jobs: &[Job], first: u32) {
    let found = everywhere(world, jobs, |rank| {
        if first > 0 {
            rank.device.far.remember(first);
            rank.arenas[rank.core.rank() as usize].remember(first);
        }
        let epochs: Vec<u32> = (0..jobs.len() as u32).map(|k| first.wrapping_add(k + 1)).collect();
        rank.launch(epochs.iter().copied().enumerate());
        let (mut synchronized, mut results) = (false, Vec::new());
        for (at, &epoch) in epochs.iter().enumerate() {
            match rank.play(at, epoch, synchronized) {
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
            (*result != wanted)
                .then(|| format!("{}: wrong on rank {}", job.what, rank.core.rank()))
        };
        jobs.iter().zip(&results).filter_map(differs).collect()
    });
    let wrong: Vec<String> = found.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const FLAT: [(&str, Placement); 8] = [
    ("all_reduce.ring", Placement::InPlace),
    ("all_reduce.two_shot", Placement::InPlace),
    ("all_reduce.one_shot", Placement::OutOfPlace),
    ("all_gather.direct", Placement::OutOfPlace),
    ("reduce_scatter.ring", Placement::OutOfPlace),
    ("broadcast.chain", Placement::InPlace),
    ("all_to_all.direct", Placement::OutOfPlace),
    ("barrier.dissemination", Placement::InPlace),
];

#[test]
fn flat_algorithms_are_bit_exact_between_two_hosts() {
    let mut dice = Dice(1);
    let world = World::new(&[0, 1], 2);
    let jobs: Vec<Job> = (0..24)
        .map(|k| {
            let (what, placement) = FLAT[k % 7];
            let how = (Shape::flat(2), placement, Protocol::Staged);
            Job::new(&world.hosts, what, how, &mut dice)
        })
        .collect();
    all_alike(&world, &jobs, 0);
}
