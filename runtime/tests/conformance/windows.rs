//! Tests windows by every kind of link, in memory of the communicator and in private memory: content against a model,
//! signals without a stale read, words that all ranks change at once, what is started, rights that are withdrawn, what
//! devices do by themselves, and a peer that is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roundelay::error::AccessRefusal;
use roundelay::launch::{ProcessEnding, RankLauncher};
use roundelay::transport::Transport;
use roundelay::window::{Window, WindowAccess, WindowRights};
use roundelay::{Buffer, Communicator, Element, Error, RedOp};
use roundelay_tests::SeededRandom;
use rustix::process::{Signal, getpid, kill_process};

use crate::conformance::{Over, threads};
use crate::support::refusal;
use crate::support::scene::{self, Job, say};

const SLOT: u64 = 64 << 10;
/// The longest time that a put may take which nothing follows.
const LATE: Duration = Duration::from_secs(20);

/// The memory in which parts of windows lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The communicator's, which ranks of one host map.
    Shared,
    Private,
}

impl Memory {
    fn filled<T: Element>(self, comm: &Communicator, len: usize, x: T) -> Buffer<T> {
        match self {
            Memory::Private => vec![x; len].into(),
            Memory::Shared => {
                let mut buffer = comm.alloc::<T>(len).expect("memory");
                buffer.fill(x);
                buffer
            }
        }
    }
}

/// Returns how one rank reaches another's part.
fn access(over: Over, memory: Memory, own: u32, peer: u32) -> WindowAccess {
    let share = match over {
        Over::One(Transport::Shm) => true,
        Over::Mixed(_) => own % 2 == peer % 2,
        _ => false,
    };
    let is_mapped = own == peer || (share && memory == Memory::Shared);
    if is_mapped { WindowAccess::Mapped } else { WindowAccess::Served }
}

/// Returns true if a device puts and gets there by itself.
fn is_by_device(over: Over, memory: Memory, own: u32, peer: u32) -> bool {
    let has_devices = matches!(over, Over::One(Transport::Rdma) | Over::Mixed(Transport::Rdma));
    has_devices && access(over, memory, own, peer) == WindowAccess::Served
}

/// Returns the number of rounds: devices are emulated in software, in a machine that is.
fn rounds(over: Over, rounds: u64) -> u64 {
    if over.has_devices() { rounds.div_ceil(20) } else { rounds }
}

/// Runs a scene in both kinds of memory.
fn scenes(over: Over, ranks: u32, scene: impl Fn(&mut Communicator, u32, Memory) + Sync) {
    for memory in [Memory::Shared, Memory::Private] {
        threads(over, ranks, SLOT, |comm, rank| scene(comm, rank as u32, memory));
    }
}

fn window<T: Element>(comm: &mut Communicator, memory: Memory, len: usize, x: T) -> Window<T> {
    comm.window(memory.filled(comm, len, x)).expect("a window")
}

/// Each rank owns a stripe of every part: what it has put there is what it gets.
pub(crate) fn model(over: Over) {
    const LEN: usize = 70_000;
    for seed in 0..rounds(over, 4) {
        scenes(over, 4, |comm, r, memory| {
            let n = comm.size();
            let window = window(comm, memory, LEN, u32::MAX);
            for peer in 0..n {
                let known = window.attributes(peer).expect("attributes");
                assert_eq!((known.access, known.len), (access(over, memory, r, peer), LEN));
            }
            let stripe = LEN / n as usize;
            let begin = stripe * r as usize;
            let mut model = vec![vec![u32::MAX; stripe]; n as usize];
            let mut dice = SeededRandom(97 * seed + u64::from(r));
            for _ in 0..200 {
                let peer = dice.below(n as usize);
                let len = [0, 1, 2, 3, 100, 9000][dice.below(6)];
                let at = dice.below(stripe - len);
                if dice.below(2) == 0 {
                    let data: Vec<u32> = (0..len).map(|_| dice.below(1 << 30) as u32).collect();
                    window.put(&data, peer as u32, begin + at).expect("a put");
                    model[peer][at..at + len].copy_from_slice(&data);
                } else {
                    let mut data = vec![7; len];
                    window.get(&mut data, peer as u32, begin + at).expect("a get");
                    assert_eq!(data, model[peer][at..at + len]);
                }
            }
            (0..n).for_each(|peer| window.flush(peer).expect("a flush"));
            comm.barrier().expect("all have put");
            for peer in 0..n {
                let mut data = vec![0; stripe];
                window.get(&mut data, peer, begin).expect("a get");
                assert_eq!(data, model[peer as usize]);
            }
            let mut own = vec![0; LEN];
            window.read(0, &mut own).expect("its own part");
            assert_eq!(window.free(comm).expect("the buffer")[..], own);
        });
    }
}

/// The rounds of signals to parts that are served are fewer, but if this variable says how many.
const SOAK: &str = "TEST_WINDOW_ROUNDS";

/// A signal is seen after the puts before it.
pub(crate) fn signals(over: Over) {
    scenes(over, 2, |comm, r, memory| {
        let other = 1 - r;
        let window = window(comm, memory, 24, 0u64);
        let soak = std::env::var(SOAK).ok().and_then(|rounds| rounds.parse().ok());
        let rounds: u64 = match access(over, memory, r, other) {
            WindowAccess::Mapped => 1_000_000,
            _ => soak.unwrap_or(rounds(over, 5000)),
        };
        for round in 1..=rounds {
            // Three lines, so that a signal could come before one of them.
            if r == 0 {
                window.put(&[round; 24], other, 0).expect("a put");
                window.signal(other).expect("a signal");
                window.wait_signal(other).expect("an answer");
            } else {
                window.wait_signal(other).expect("a signal");
                let mut seen = [0; 24];
                window.read(0, &mut seen).expect("its own part");
                assert_eq!(seen, [round; 24], "a stale read");
                window.signal(other).expect("an answer");
            }
        }
        assert!(!window.take_signal(other).expect("a look"), "every signal was taken");
    });
}

/// A short put arrives though nothing follows it and its rank waits for nothing.
pub(crate) fn arrives(over: Over) {
    for memory in [Memory::Shared, Memory::Private] {
        let has_come = AtomicBool::new(false);
        threads(over, 2, SLOT, |comm, rank| {
            let window = window(comm, memory, 4, 0u32);
            let until = Instant::now() + LATE;
            if rank == 0 {
                window.put(&[1; 4], 1, 0).expect("a put");
                while !has_come.load(Ordering::Acquire) && Instant::now() < until {
                    std::thread::yield_now();
                }
            } else {
                let mut seen = [0; 4];
                while seen != [1; 4] {
                    assert!(Instant::now() < until, "it has not come: {seen:?}");
                    window.read(0, &mut seen).expect("its own part");
                }
                has_come.store(true, Ordering::Release);
            }
            comm.barrier().expect("both have seen it");
            window.free(comm).expect("the buffer");
        });
    }
}

/// Words are added to, swapped and used as locks; elements are accumulated.
pub(crate) fn atomics(over: Over) {
    scenes(over, 4, |comm, r, memory| {
        let n = u64::from(comm.size());
        let words = window(comm, memory, 4, 0u64);
        let floats = window(comm, memory, 40_000, 0.0f32);
        let mut seen = Vec::new();
        let each = match access(over, memory, 0, 1) {
            WindowAccess::Mapped => 2000,
            _ => rounds(over, 100),
        };
        let own = u64::from(r);
        for i in 0..each {
            seen.push(words.fetch_add(1, 0, 0).expect("an addition"));
            words.accumulate(&[1, i * n + own], RedOp::Sum, 0, 1).expect("an accumulate");
            words.accumulate(&[i * n + own], RedOp::Max, 0, 3).expect("an accumulate");
            while words.compare_swap(0, 1 + own, 1, 0).expect("a swap") != 0 {
                std::thread::yield_now();
            }
            // It holds the lock that this word is.
            let mut count = [0];
            words.get(&mut count, 1, 1).expect("a get");
            words.put(&[count[0] + 1], 1, 1).expect("a put");
            words.flush(1).expect("it is there");
            assert_eq!(words.compare_swap(1 + own, 0, 1, 0).expect("a swap"), 1 + own);
        }
        assert!(seen.is_sorted_by(|a, b| a < b), "each rank sees it grow");
        for _ in 0..20 {
            floats.accumulate(&vec![1.0; 40_000], RedOp::Sum, 2, 0).expect("an accumulate");
        }
        (0..4).for_each(|peer| floats.flush(peer).expect("a flush"));
        (0..4).for_each(|peer| words.flush(peer).expect("a flush"));
        comm.barrier().expect("all are done");
        let (words, floats) =
            (words.free(comm).expect("words"), floats.free(comm).expect("floats"));
        match r {
            0 => assert_eq!(words[..], [each * n, each * n, (0..each * n).sum(), each * n - 1]),
            1 => assert_eq!(words[..], [0, each * n, 0, 0]),
            2 => assert!(floats.iter().all(|&x| x == 20.0 * n as f32)),
            _ => assert!(floats.iter().all(|&x| x == 0.0)),
        }
    });
}

/// Started operations keep their memory, their order, and tell of refusals.
pub(crate) fn started(over: Over) {
    // Longer than a piece.
    const LEN: usize = 3 << 20;
    scenes(over, 2, |comm, own, memory| {
        let other = 1 - own;
        let window = window(comm, memory, LEN, own);
        let got = window.get_async(vec![9; LEN], other, 0).wait().expect("a get");
        assert!(got.iter().all(|&x| x == other), "what was there");
        comm.barrier().expect("both have got");
        let mut works = Vec::new();
        for i in 0..8u32 {
            let data = vec![i + 10 * own; LEN / 8];
            works.push(window.put_async(data, other, i as usize * (LEN / 8)));
        }
        let added = window.accumulate_async(vec![1u32; LEN], RedOp::Sum, other, 0);
        let flushed = window.flush_async(other);
        window.signal(other).expect("a signal after all of it");
        window.wait_signal(other).expect("a signal");
        let mut mine = vec![0; LEN];
        window.read(0, &mut mine).expect("its own part");
        let wanted = |at: usize| (at / (LEN / 8)) as u32 + 10 * other + 1;
        assert!((0..LEN).all(|at| mine[at] == wanted(at)), "a signal came too soon");
        for (i, work) in (0..).zip(works) {
            assert_eq!(work.wait().expect("a put")[0], i + 10 * own);
        }
        assert_eq!(added.wait().expect("an accumulate").len(), LEN);
        flushed.wait().expect("a flush");
        let beyond = window.put_async(vec![1], other, LEN).wait();
        assert_eq!(refusal(beyond), AccessRefusal::Bounds { bytes: 4 * LEN as u64 });
        window.withdraw(WindowRights::WRITE).expect("nothing is under way");
        comm.barrier().expect("both have withdrawn");
        let refused = window.put_async(vec![1], other, 0).wait().map(drop);
        let refused = refused.and_then(|()| window.flush_async(other).wait());
        assert!(matches!(refusal(refused), AccessRefusal::Rights { needed: "write", .. }));
        comm.barrier().expect("both were refused");
        window.free(comm).expect("the buffer");
    });
}

/// The longest time that a device may take until it puts by itself.
const GRANTED: Duration = Duration::from_secs(60);

/// Puts until a device does it; returns how many it has done.
fn until_by_device(window: &Window<u32>, peer: u32, at: usize) -> u64 {
    let began = Instant::now();
    loop {
        window.put(&[7; 3], peer, at).expect("a put");
        window.flush(peer).expect("a flush");
        let done = window.attributes(peer).expect("attributes").by_device;
        if done > 0 {
            return done;
        }
        assert!(began.elapsed() < GRANTED, "no device ever puts");
    }
}

/// Devices put and get by themselves if they join two ranks, and not otherwise.
pub(crate) fn devices(over: Over) {
    const LEN: usize = 300_000;
    scenes(over, 2, |comm, own, memory| {
        let other = 1 - own;
        let window = window(comm, memory, LEN, own);
        let is_by_device = is_by_device(over, memory, own, other);
        let mut done = if is_by_device { until_by_device(&window, other, LEN - 3) } else { 0 };
        comm.barrier().expect("both are there");
        let mut counts = |operations: u64, what: &str| {
            done += if is_by_device { operations } else { 0 };
            let counted = window.attributes(other).expect("attributes").by_device;
            assert_eq!(counted, done, "{over:?}, {memory:?}: {what}");
        };
        let shared = comm.alloc::<u32>(LEN / 2).expect("memory");
        for (i, len) in (1..).zip([1, 3, 4096, LEN / 2]) {
            let data = vec![i + 10 * own; len];
            window.put(&data, other, i as usize).expect("a put");
            counts(1, "a put");
            let mut got = vec![0; len];
            window.get(&mut got, other, i as usize).expect("a get");
            assert_eq!(got, data);
            counts(1, "a get");
        }
        window.put(&shared, other, 0).expect("a put from memory that devices know");
        counts(1, "a put of the communicator's memory");
        // What follows an accumulate goes its way until it is known to be there.
        window.accumulate(&[1], RedOp::Sum, other, 0).expect("an accumulate");
        window.put(&[5; 3], other, 0).expect("a put");
        counts(0, "a put behind an accumulate");
        window.flush(other).expect("a flush");
        window.put(&[6; 3], other, 0).expect("a put");
        counts(1, "a put behind a flush");
        let mut got = [0; 3];
        window.get(&mut got, other, 0).expect("a get");
        assert_eq!(got, [6; 3]);
        window.signal(other).expect("a signal");
        window.wait_signal(other).expect("a signal");
        window.read(0, &mut got).expect("its own part");
        assert_eq!(got, [6; 3]);
        window.free(comm).expect("the buffer");
    });
}

/// Nothing is written or read once the right was withdrawn, by any rank.
pub(crate) fn withdrawn(over: Over) {
    const LEN: usize = 100_000;
    for right in [WindowRights::WRITE, WindowRights::READ] {
        scenes(over, 2, |comm, own, memory| {
            let window = window(comm, memory, LEN, 0u32);
            comm.barrier().expect("both begin");
            if own == 0 {
                let mut data = vec![1u32; LEN];
                let mut work = || match right {
                    WindowRights::READ => window.get(&mut data, 1, 0),
                    _ => window.put(&data, 1, 0).and_then(|()| window.flush(1)),
                };
                for _ in 0..4 {
                    work().expect("it may");
                }
                window.signal(1).expect("a signal");
                let refused =
                    refusal(Err::<(), _>((0..).find_map(|_| work().err()).expect("an end")));
                let (needed, has) = match right {
                    WindowRights::READ => ("read", "write + atomics"),
                    _ => ("write", "read + atomics"),
                };
                assert_eq!(refused, AccessRefusal::Rights { needed, has: has.into() });
                // What is left may be done.
                match right {
                    WindowRights::READ => window.put(&[9], 1, 0).expect("it may still write"),
                    _ => window.get(&mut [0], 1, 0).expect("it may still read"),
                }
                window.flush(1).expect("a flush");
                comm.barrier().expect("its last access is over");
            } else {
                window.wait_signal(0).expect("a signal");
                window.withdraw(right).expect("no rank does that any more");
                window.write(0, &[9; LEN]).expect("its own part");
                comm.barrier().expect("the last access is over");
                let mut mine = vec![0; LEN];
                window.read(0, &mut mine).expect("its own part");
                assert!(mine.iter().all(|&x| x == 9), "it was written after the withdrawal");
            }
            window.free(comm).expect("the buffer");
        });
    }
}

/// Runs a rank of a launched job; not a test by itself.
#[test]
fn rank_process() {
    scene::rank(is_killed);
}

/// Rank 1 is killed while the others work on its part; `by_device` if devices are to do so.
fn is_killed(scene: &str) -> Result<(), Error> {
    const LEN: usize = 50_000;
    let mut comm = Communicator::from_env()?;
    say(&format!("pid {}", getpid().as_raw_nonzero()));
    let window = comm.window(Buffer::from(vec![0u32; LEN + 5]))?;
    if comm.rank() != 1 && scene == "by_device" {
        until_by_device(&window, 1, LEN + 2);
    }
    comm.barrier()?;
    let mut data = vec![1u32; LEN];
    if comm.rank() == 1 {
        // It works meanwhile.
        while window.fetch_add(0, 1, 0)? < 10 {
            std::thread::yield_now();
        }
        kill_process(getpid(), Signal::KILL).expect("a signal");
    }
    window.fetch_add(5, 1, 0)?;
    loop {
        match comm.rank() {
            0 => window.put(&data, 1, 2)?,
            _ => window.get(&mut data, 1, 2)?,
        }
    }
}

/// A peer that is killed ends operations on its part, and is named.
pub(crate) fn killed(over: Over) {
    // Of several hosts rank 1 may share one with another rank.
    let is_by_device = over == Over::One(Transport::Rdma);
    let scene = if is_by_device { "by_device" } else { "served" };
    let long = Duration::from_secs(600);
    let launcher = RankLauncher::new(3).hosts(over.hosts()).hints(over.hints());
    let launcher = launcher.timeout(long).grace(Duration::from_secs(30));
    let job = Job::run(scene::scene(launcher, module_path!(), scene));
    assert_eq!(job.outcome.endings[1], ProcessEnding::Signalled(9), "{:?}", job.said);
    for rank in [0, 2] {
        let said = job.said[rank].last().expect("an error");
        let is_lost = said.starts_with("RL0704") && said.contains("rank 1 is gone");
        assert!(is_lost, "{over:?}, rank {rank}: {said}");
    }
    assert!(job.took < long, "it took the deadline: {:?}", job.said);
}
