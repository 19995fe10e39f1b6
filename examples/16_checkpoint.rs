//! Checkpoints that drain while the workers go on: each puts its shard into a window of a server's, which lets a
//! version count only once all of it is there. A worker is killed in the middle of a drain; the others go on from the
//! last version that is whole.
//!
//! Ranks are processes, each on a host of its own as far as they know, so what is put goes through sockets. The
//! server's program sleeps in the meantime. Prints how much of the time of a drain the workers did not wait for.
//!
//! `cargo run --release -p roundelay-examples --example 16_checkpoint`

#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use roundelay::window::Window;
use roundelay::{Communicator, Error, RedOp};

const WORKERS: u32 = 3;
const SERVER: u32 = 0;
/// The worker that is killed.
const VICTIM: u32 = 2;
/// Elements of a worker's shard of the model.
const SHARD: usize = 1 << 20;
/// Steps between two checkpoints.
const STEPS: u64 = 8;
/// The version in whose drain the victim is killed.
const LAST: u64 = 5;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Error> {
    if Communicator::is_launched()? {
        return run_rank(Communicator::from_env()?);
    }
    supervise();
    Ok(())
}

/// Starts the ranks, and kills the victim when it says that its drain is under way.
fn supervise() {
    let store = format!("local:checkpoint-{}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .env("ROUNDELAY_RANK", rank.to_string())
            .env("ROUNDELAY_SIZE", (1 + WORKERS).to_string())
            .env("ROUNDELAY_STORE", &store)
            .env("ROUNDELAY_HOST", format!("host{rank}"));
        if rank == VICTIM {
            command.stdout(Stdio::piped());
        }
        command.spawn().expect("a process")
    };
    let mut ranks: Vec<Child> = (0..=WORKERS).map(start).collect();
    let mut victim = ranks.remove(VICTIM as usize);
    let mut line = String::new();
    let said = victim.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    assert!(matches!(said, Some(Ok(1..))), "rank {VICTIM} ended before it was killed");
    victim.kill().and_then(|()| victim.wait()).expect("its end");
    println!("rank {VICTIM} was killed while it drained version {LAST}");
    for mut rank in ranks {
        assert!(rank.wait().expect("its end").success(), "a rank failed");
    }
}

fn run_rank(mut comm: Communicator) -> Result<(), Error> {
    let workers: Vec<u32> = (0..=WORKERS).filter(|&rank| rank != SERVER).collect();
    let is_server = comm.rank() == SERVER;
    let part = comm.split(if is_server { &[] } else { &workers })?;
    // Two versions of all shards: the next one leaves the last one alone.
    let room = if is_server { 2 * WORKERS as usize * SHARD } else { 0 };
    let window = comm.window(comm.alloc::<f32>(room)?)?;
    let (known, digests) = match part {
        None => (serve(&window), Vec::new()),
        Some(part) => (0, train(part, &window)),
    };
    let mut whole = vec![0.0f32; WORKERS as usize * SHARD];
    if is_server {
        window.read(place(known, 0), &mut whole)?;
    }
    drop(window);
    restore(&mut comm, known, whole, &digests)
}

/// Returns where a worker's shard lies in a version.
fn place(version: u64, worker: u32) -> usize {
    ((version % 2) as usize * WORKERS as usize + worker as usize) * SHARD
}

/// Counts versions as they become whole, until a worker is lost; returns the last.
fn serve(window: &Window<f32>) -> u64 {
    let mut known = 0;
    let error = loop {
        // A worker's signal comes after its shard.
        let arrived = (1..=WORKERS).try_for_each(|worker| window.wait_signal(worker));
        if let Err(error) = arrived {
            break error;
        }
        known += 1;
        // Only now may they write over the version before.
        if let Err(error) = (1..=WORKERS).try_for_each(|worker| window.signal(worker)) {
            break error;
        }
    };
    println!("version {known} is the last that is whole: {error}");
    known
}

/// Trains until a worker is lost. Returns the digests of all shards, by version.
fn train(part: Communicator, window: &Window<f32>) -> Vec<Vec<u64>> {
    let me = part.rank();
    let shard = (0..SHARD).map(|i| (i as f32 * 0.1 + me as f32).sin()).collect();
    let mut worker = Worker {
        part,
        window,
        shard,
        copy: vec![0.0; SHARD],
        digests: Vec::new(),
        times: Times::default(),
    };
    let error = (1..).map(|version| worker.version(version)).find_map(Result::err);
    if me == 0 {
        worker.times.print();
        println!("worker {me}: {}", error.map_or(String::new(), |error| error.to_string()));
    }
    worker.digests
}

struct Worker<'a> {
    part: Communicator,
    window: &'a Window<f32>,
    shard: Vec<f32>,
    /// The shard as it was when its drain began.
    copy: Vec<f32>,
    digests: Vec<Vec<u64>>,
    times: Times,
}

impl Worker<'_> {
    /// Drains a version of the shard while it makes the steps towards the next one.
    fn version(&mut self, version: u64) -> Result<(), Error> {
        let Worker { part, window, shard, copy, digests, times } = self;
        let at = place(version, part.rank());
        copy.copy_from_slice(shard);
        digests.push(part.all_gather_u64(digest(copy))?);
        // The version before is whole: the one before that may go.
        if version > 1 {
            window.wait_signal(SERVER)?;
        }
        // The first is drained while no rank computes, to know how long that takes.
        if version == 1 {
            let drain = || window.put(copy, SERVER, at).and_then(|()| window.flush(SERVER));
            times.drain = timed(drain)?;
            window.signal(SERVER)?;
            times.alone = timed(|| steps(part, shard))?;
            return Ok(());
        }
        let put = window.put_async(std::mem::take(copy), SERVER, at);
        if version == LAST && part.rank() + 1 == VICTIM {
            println!("draining");
            loop {
                std::thread::park();
            }
        }
        // It comes after the shard.
        window.signal(SERVER)?;
        let flushed = window.flush_async(SERVER);
        let beside = timed(|| steps(part, shard))?;
        let began = Instant::now();
        *copy = put.wait()?;
        flushed.wait()?;
        times.beside.push(beside);
        times.waits.push(began.elapsed());
        Ok(())
    }
}

/// Makes the steps between two checkpoints: computes on the shard, and agrees with the others after each.
fn steps(part: &mut Communicator, shard: &mut [f32]) -> Result<(), Error> {
    for _ in 0..STEPS {
        let mut sum = 0.0;
        for x in shard.iter_mut() {
            *x = *x * 0.999 + (*x * 3.0).sin() * 1e-3;
            sum += *x * *x;
        }
        let mut norm = [sum];
        part.all_reduce(&mut norm, RedOp::Avg)?;
        let scale = 1.0 - 1e-9 * norm[0];
        shard.iter_mut().for_each(|x| *x *= scale);
    }
    Ok(())
}

/// Goes on with those who are left from what the server has kept.
fn restore(
    comm: &mut Communicator,
    known: u64,
    mut whole: Vec<f32>,
    digests: &[Vec<u64>],
) -> Result<(), Error> {
    comm.shrink(TIMEOUT)?;
    assert_eq!((comm.size(), comm.generation()), (WORKERS, 1));
    let mut version = [known];
    comm.broadcast(&mut version, SERVER)?;
    comm.broadcast(&mut whole, SERVER)?;
    let version = version[0];
    if comm.rank() != SERVER {
        // All workers know the digests of all shards, that of the victim's too.
        let kept: Vec<u64> = whole.chunks(SHARD).map(digest).collect();
        assert_eq!(kept, digests[version as usize - 1], "version {version} is another one");
        assert!(version + 1 == LAST, "version {version} in place of {}", LAST - 1);
    }
    // Two workers share what three had.
    let workers: Vec<u32> = (0..comm.size()).filter(|&rank| rank != SERVER).collect();
    let is_server = comm.rank() == SERVER;
    if let Some(mut part) = comm.split(if is_server { &[] } else { &workers })? {
        let own = whole.len() / workers.len();
        let mut shard = whole[part.rank() as usize * own..][..own].to_vec();
        steps(&mut part, &mut shard)?;
        assert!(shard.iter().all(|x| x.is_finite()));
    } else {
        println!("restored version {version} on {} workers, who go on", workers.len());
    }
    Ok(())
}

/// Returns a digest of the bits of a shard.
fn digest(shard: &[f32]) -> u64 {
    let fold = |hash: u64, x: &f32| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3);
    shard.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

fn timed(work: impl FnOnce() -> Result<(), Error>) -> Result<Duration, Error> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}

/// The times of a worker.
#[derive(Default)]
struct Times {
    /// A drain with nothing beside it.
    drain: Duration,
    /// The steps between two checkpoints with nothing beside them.
    alone: Duration,
    /// The same beside a drain, and what was then still to be waited for.
    beside: Vec<Duration>,
    waits: Vec<Duration>,
}

impl Times {
    fn print(&self) {
        let Times { drain, alone, .. } = *self;
        let mean = |times: &[Duration]| times.iter().sum::<Duration>() / times.len().max(1) as u32;
        let (beside, wait) = (mean(&self.beside), mean(&self.waits));
        let share = |cost: Duration| {
            100.0 * (1.0 - cost.as_secs_f64() / drain.as_secs_f64()).clamp(0.0, 1.0)
        };
        println!(
            "a drain alone {drain:.1?}, {STEPS} steps alone {alone:.1?}, beside a drain {beside:.1?}; then it waited \
             {wait:.1?}: {:.0} % of the drain hidden, {:.0} % counting that the steps took longer",
            share(wait),
            share(wait + beside.saturating_sub(alone)),
        );
    }
}
