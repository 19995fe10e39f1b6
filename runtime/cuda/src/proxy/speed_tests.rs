//! The time of messages of kernels between two hosts, over sockets of this machine: one thread a rank does what the
//! blocks of a kernel do with words and slots, and leaves the content where it lies.
//!
//! As a test it moves a little and counts. With `PROXY_SPEED=1` it prints `LABEL lanes L threads T BYTES MICROSECONDS` for each
//! size: half of the time of a message and its answer, the median; and the time of the processor that a rank's idle
//! threads take in a second.

#![expect(clippy::print_stderr, reason = "its result is what it prints, if asked")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roundelay_compiler::plan::MessageDirection;
use roundelay_emit::cuda::batch;

use super::peer_slots::{PeerSlots, SlotWord};
use super::queues::{BatchEnd, ProxyBatch};
use super::tests::{PATIENCE, Rank, World, everywhere, long};
use roundelay_tests::{runs_alone, until};

/// The blocks of one direction: what each has moved since the beginning.
struct KernelBlocks {
    dir: MessageDirection,
    slots: Arc<PeerSlots>,
    counts: Vec<u64>,
}

impl KernelBlocks {
    fn new(dir: MessageDirection, slots: &Arc<PeerSlots>) -> Self {
        KernelBlocks { dir, slots: slots.clone(), counts: vec![0; slots.blocks() as usize] }
    }

    /// Moves a message of that many bytes.
    fn carry(&mut self, bytes: u64, is_over: impl Fn() -> bool) {
        let blocks = self.slots.blocks();
        let mut left: Vec<Vec<u64>> = (0..blocks)
            .map(|block| {
                let mut pieces: Vec<u64> = batch::pieces(bytes, block, blocks).collect();
                pieces.reverse();
                pieces
            })
            .collect();
        let since = Instant::now();
        while left.iter().any(|pieces| !pieces.is_empty()) {
            let mut moved = false;
            for block in 0..blocks {
                let (pieces, count) = (&mut left[block as usize], &mut self.counts[block as usize]);
                let Some(&piece) = pieces.last() else { continue };
                let (number, slots) = (*count + 1, &self.slots);
                let head = slots.head(self.dir, block, number);
                let own = number << 32 | 77;
                let taken = slots.word(SlotWord::Taken, block);
                match self.dir {
                    MessageDirection::Send
                        if taken.load(Ordering::Acquire) + u64::from(batch::SLOTS) >= number =>
                    {
                        slots.bytes_of(self.dir, block, number).store(piece, Ordering::Relaxed);
                        head.store(own, Ordering::Release);
                    }
                    MessageDirection::Recv if head.load(Ordering::Acquire) == own => {
                        slots.word(SlotWord::Freed, block).store(number, Ordering::Release);
                    }
                    _ => continue,
                }
                (*count, moved) = (number, true);
                pieces.pop();
            }
            if !moved {
                assert!(!is_over() && since.elapsed() < PATIENCE, "{:?} of {bytes}", self.dir);
                std::thread::yield_now();
            }
        }
    }
}

/// Orders a message in each direction, and moves them: rank 0 first sends.
fn exchange(rank: &Rank<'_>, kernels: &mut [KernelBlocks; 2], bytes: u64) {
    let own = rank.core.rank();
    let end = |kernel: &KernelBlocks| BatchEnd {
        peer: 1 - own,
        dir: kernel.dir,
        slots: kernel.slots.clone(),
        messages: vec![bytes],
    };
    let ends = kernels.iter().map(end).collect();
    let batch = ProxyBatch { ends, is_captured: false, timeout: PATIENCE };
    rank.lanes.order_batch(&Arc::new(batch));
    for turn in 0..2 {
        kernels[usize::from(turn != own)].carry(bytes, || rank.lanes.failure().is_some());
    }
}

#[test]
fn messages_of_kernels_take_their_time() {
    let is_timed = std::env::var_os("PROXY_SPEED").is_some();
    let label = std::env::var("LABEL").unwrap_or_default();
    let sizes: &[u64] = match is_timed {
        true => &[8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20],
        false => &[8, 70_000, 5 << 20],
    };
    for (lanes, threads) in [(1, 1), (2, 1), (2, 2), (8, 1), (8, 2), (8, 8)] {
        let world = World { threads, ..World::new(&[0, 1], lanes) };
        let jobs = long(&world.hosts);
        everywhere(&world, &jobs, |rank| {
            let own = rank.core.rank();
            let slots = rank.lanes.peer_slots(1 - own, || Ok(PeerSlots::plain(2)));
            let slots = slots.expect("plain memory");
            let mut kernels = [MessageDirection::Send, MessageDirection::Recv]
                .map(|dir| KernelBlocks::new(dir, &slots));
            for &bytes in sizes {
                let times = match (is_timed, bytes) {
                    (false, _) => 2,
                    (true, ..=65536) => 1000,
                    (true, _) => ((512 << 20) / bytes).clamp(6, 100),
                };
                let mut all: Vec<f64> = Vec::new();
                for _ in 0..times {
                    let began = Instant::now();
                    exchange(rank, &mut kernels, bytes);
                    all.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
                }
                all.sort_by(f64::total_cmp);
                if is_timed && own == 0 {
                    eprintln!(
                        "{label} lanes {lanes} threads {threads} {bytes} {:.3}",
                        all[all.len() / 2]
                    );
                }
            }
            let moved = |kernel: &KernelBlocks| kernel.counts.iter().sum::<u64>();
            assert_eq!(moved(&kernels[0]), moved(&kernels[1]), "as many pieces as came");
            assert!(moved(&kernels[0]) > 0);
            if is_timed {
                rank.core.words(0).expect("all are done");
                let time = || {
                    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
                    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
                };
                std::thread::sleep(Duration::from_millis(200));
                let before = time();
                std::thread::sleep(Duration::from_secs(1));
                if own == 0 {
                    eprintln!(
                        "{label} lanes {lanes} threads {threads} idle {:.3}",
                        (time() - before) / 2.0
                    );
                }
                rank.core.words(1).expect("all are done");
            }
        });
    }
}

/// Returns the number of proxy threads of a rank in this process.
fn proxy_threads(rank: u32) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads");
    let names = tasks.flatten().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
    names.filter(|name| name.trim() == format!("roundelay-far-{rank}")).count()
}

#[test]
fn one_thread_serves_all_lanes_and_has_helpers_while_messages_are_long() {
    // Threads of this process are counted by name.
    let test = "one_thread_serves_all_lanes_and_has_helpers_while_messages_are_long";
    if !runs_alone(module_path!(), test) {
        return;
    }
    for threads in [1, 4] {
        let world = World { threads, ..World::new(&[0, 1], 4) };
        let jobs = long(&world.hosts);
        everywhere(&world, &jobs, |rank| {
            let own = rank.core.rank();
            let slots = rank.lanes.peer_slots(1 - own, || Ok(PeerSlots::plain(2)));
            let slots = slots.expect("plain memory");
            let mut kernels = [MessageDirection::Send, MessageDirection::Recv]
                .map(|dir| KernelBlocks::new(dir, &slots));
            for _ in 0..30 {
                exchange(rank, &mut kernels, 8);
                assert_eq!(proxy_threads(own), 1, "one lane needs no helper");
            }
            let mut most = 1;
            for _ in 0..8 {
                exchange(rank, &mut kernels, 64 << 20);
                most = most.max(proxy_threads(own));
            }
            assert!(most <= threads as usize, "{most} threads");
            rank.core.words(0).expect("all are done");
            let missing = || format!("{} threads of rank {own}", proxy_threads(own));
            until(PATIENCE, missing, || proxy_threads(own) == 1);
            // The lanes are back, and go on.
            exchange(rank, &mut kernels, 300_000);
            rank.core.words(1).expect("all are done");
            if threads > 1 {
                assert!(most > 1, "long messages had no helper");
            }
        });
    }
}
