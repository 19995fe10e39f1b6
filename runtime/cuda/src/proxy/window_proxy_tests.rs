//! Windows between hosts, over sockets of this machine: streams are lists of steps that a thread performs, and devices
//! are memory in which another thread performs operations later.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use roundelay_tests::SeededRandom;

use super::emulated::KernelExit;
use super::tests::{PATIENCE, Rank, World, everywhere, long};
use super::window_proxy::{StreamSteps, WindowProxy, WindowTarget};
use super::window_slots::{ProxySlots, SLOT, SLOTS};
use crate::windows::RemoteWindow;
use roundelay_engine::window::{
    AtomicFetch, DeviceMemory, ExposedPart, MemorySpan, PartMemory, WindowRights,
};
use roundelay_support::dtype::DType;
use roundelay_support::error::Error;

/// Bytes of a part.
pub(super) const BYTES: usize = 12 << 20;

pub(super) type Job = Box<dyn FnOnce(&mut [u8], &[AtomicU64]) + Send>;

/// A device, whose thread does jobs in order, each a moment after it was given.
pub(super) struct Lazy {
    pub(super) jobs: Sender<Job>,
    /// The memory, and the signals that have come of each rank.
    pub(super) state: Arc<(Mutex<Vec<u8>>, Vec<AtomicU64>)>,
    /// True while the device does nothing.
    pub(super) hangs: Arc<AtomicBool>,
}

impl Lazy {
    pub(super) fn new(ranks: u32) -> Self {
        let words: Vec<_> = (0..ranks).map(|_| AtomicU64::new(0)).collect();
        let (state, (jobs, inbox)) =
            (Arc::new((Mutex::new(vec![0; BYTES]), words)), channel::<Job>());
        let (own, hangs) = (state.clone(), Arc::new(AtomicBool::new(false)));
        let stops = hangs.clone();
        std::thread::spawn(move || {
            while let Ok(job) = inbox.recv() {
                let since = Instant::now();
                while since.elapsed() < Duration::from_micros(100) || stops.load(Ordering::Acquire)
                {
                    std::thread::yield_now();
                }
                job(&mut own.0.lock().expect("no panic"), &own.1);
            }
        });
        Lazy { jobs, state, hangs }
    }

    pub(super) fn give(&self, job: impl FnOnce(&mut [u8], &[AtomicU64]) + Send + 'static) {
        self.jobs.send(Box::new(job)).expect("the device lives");
    }

    /// Does a job, and waits for it.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut [u8]) -> R + Send + 'static,
    ) -> Result<R, Error> {
        let (answer, answers) = channel();
        self.give(move |memory, _| answer.send(job(memory)).unwrap_or(()));
        answers.recv_timeout(PATIENCE).map_err(|_| Error::Work("the device hangs".into()))
    }
}

impl DeviceMemory for Lazy {
    unsafe fn put(&self, (offset, len): (u64, usize), from: *const u8) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let content = unsafe { std::slice::from_raw_parts(from, len) }.to_vec();
        let at = offset as usize;
        self.give(move |memory, _| memory[at..at + len].copy_from_slice(&content));
        Ok(())
    }

    unsafe fn get(&self, (offset, len): (u64, usize), to: *mut u8) -> Result<(), Error> {
        let at = offset as usize;
        let content = self.ask(move |memory| memory[at..at + len].to_vec())?;
        // SAFETY: the caller's promise.
        unsafe { to.copy_from_nonoverlapping(content.as_ptr(), len) };
        Ok(())
    }

    fn fetch(&self, offset: u64, fetch: AtomicFetch) -> Result<u64, Error> {
        self.ask(move |memory| {
            let word = &mut memory[offset as usize..][..8];
            let was = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            word.copy_from_slice(&after(was, fetch).to_le_bytes());
            was
        })
    }

    fn signal(&self, origin: u32, count: u64) -> Result<(), Error> {
        self.give(move |_, words| words[origin as usize].store(count, Ordering::Release));
        Ok(())
    }

    fn settle(&self) -> Result<(), Error> {
        self.ask(|_| ())
    }
}

/// Returns a word after an atomic operation.
pub(super) fn after(was: u64, fetch: AtomicFetch) -> u64 {
    match fetch {
        AtomicFetch::Add(value) => was.wrapping_add(value),
        AtomicFetch::Swap(from, to) if was == from => to,
        AtomicFetch::Swap(..) => was,
    }
}

/// Steps of a stream that are run later.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Tell(u64),
    Reach(u64, u32),
    Load(usize, u64, usize),
    Store(u64, usize, usize),
    /// Waits until this rank's device has that many signals of a peer.
    Await(u32, u64),
}

#[derive(Default)]
pub(super) struct Recorded(Vec<Step>);

impl StreamSteps for Recorded {
    type Fault = std::convert::Infallible;

    fn publish(&mut self, number: u64) -> Result<(), Self::Fault> {
        self.0.push(Step::Tell(number));
        Ok(())
    }

    fn wait_until(&mut self, number: u64, peer: u32) -> Result<(), Self::Fault> {
        self.0.push(Step::Reach(number, peer));
        Ok(())
    }

    fn load(&mut self, slot: *mut u8, from: u64, bytes: usize) -> Result<(), Self::Fault> {
        self.0.push(Step::Load(slot.addr(), from, bytes));
        Ok(())
    }

    fn store(&mut self, to: u64, slot: *mut u8, bytes: usize) -> Result<(), Self::Fault> {
        self.0.push(Step::Store(to, slot.addr(), bytes));
        Ok(())
    }
}

/// A rank of a window.
pub(super) struct StepExecutor<'a, 'b> {
    pub(super) rank: &'a mut Rank<'b>,
    pub(super) slots: Arc<ProxySlots>,
    pub(super) beyond: RemoteWindow,
    pub(super) state: Arc<(Mutex<Vec<u8>>, Vec<AtomicU64>)>,
    pub(super) hangs: Arc<AtomicBool>,
    pub(super) gave_up: Arc<AtomicBool>,
    pub(super) steps: Recorded,
    pub(super) timeout: Duration,
}

impl<'a, 'b> StepExecutor<'a, 'b> {
    pub(super) fn new(rank: &'a mut Rank<'b>, ranks: u32) -> Self {
        let device = Lazy::new(ranks);
        let (state, hangs) = (device.state.clone(), device.hangs.clone());
        let (cut, block) = rank.core.cut_words().expect("words");
        block.give(WindowRights::ALL);
        let span = MemorySpan::new(std::ptr::null_mut(), BYTES as u64);
        let place = PartMemory::new(span, DType::U8, block);
        let exposed = ExposedPart::on_device(place, Box::new(device), Box::new(cut));
        let gave_up = Arc::new(AtomicBool::new(false));
        let over = gave_up.clone();
        let messenger = rank.core.messenger();
        let made = rank.lanes.start_window_proxy(
            &messenger,
            || Ok(ProxySlots::plain()),
            move || over.load(Ordering::Acquire),
        );
        made.expect("a courier");
        let beyond = RemoteWindow::open(rank.core, Arc::new(exposed)).expect("a window");
        let slots = rank.lanes.window_proxy().expect("it was made").slots().clone();
        let (steps, timeout) = (Recorded::default(), PATIENCE);
        StepExecutor { rank, slots, beyond, state, hangs, gave_up, steps, timeout }
    }

    pub(super) fn to(&self, peer: u32) -> WindowTarget {
        let remote = self.beyond.remote(peer).expect("another host").clone();
        WindowTarget { remote, dtype: DType::U8, timeout: self.timeout }
    }

    /// Puts something into the stream.
    pub(super) fn order<R>(&mut self, put: impl FnOnce(&mut WindowProxy, &mut Recorded) -> R) -> R {
        put(self.rank.lanes.window_proxy().expect("it was made"), &mut self.steps)
    }

    pub(super) fn put(&mut self, peer: u32, offset: usize, data: &[u8]) {
        let (to, from) = (self.to(peer), data.as_ptr().expose_provenance() as u64);
        let place = (offset as u64, from, data.len() as u64);
        self.order(|courier, steps| courier.put(steps, &to, place)).expect("in the stream");
    }

    pub(super) fn get(&mut self, peer: u32, offset: usize, into: &mut [u8]) {
        let (to, address) = (self.to(peer), into.as_mut_ptr().expose_provenance() as u64);
        let place = (offset as u64, address, into.len() as u64);
        self.order(|courier, steps| courier.get(steps, &to, place)).expect("in the stream");
    }

    pub(super) fn fetch(&mut self, peer: u32, offset: usize, fetch: AtomicFetch, result: &mut u64) {
        let (to, address) = (self.to(peer), (&raw mut *result).expose_provenance() as u64);
        let place = (offset as u64, address, fetch);
        self.order(|courier, steps| courier.fetch(steps, &to, place)).expect("in the stream");
    }

    pub(super) fn signal(&mut self, peer: u32) {
        let to = self.to(peer);
        self.order(|courier, steps| courier.signal(steps, &to)).expect("in the stream");
    }

    pub(super) fn flush(&mut self, peer: u32) {
        let to = self.to(peer);
        self.order(|courier, steps| courier.flush(steps, &to)).expect("in the stream");
    }

    pub(super) fn await_signal(&mut self, peer: u32, count: u64) {
        self.steps.0.push(Step::Await(peer, count));
    }

    /// Waits for a word, as a kernel does.
    pub(super) fn until(&self, word: &AtomicU64, value: u64, peer: u32) -> Result<(), KernelExit> {
        self.rank.device.until(word, value, peer)
    }

    /// Runs what is in the stream.
    pub(super) fn run(&mut self) -> Result<(), KernelExit> {
        let steps = std::mem::take(&mut self.steps.0);
        steps.into_iter().try_for_each(|step| self.step(step))
    }

    pub(super) fn step(&self, step: Step) -> Result<(), KernelExit> {
        let at = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
        match step {
            Step::Tell(number) => self.slots.reached().store(number, Ordering::Release),
            Step::Reach(number, peer) => return self.until(self.slots.done(), number, peer),
            // SAFETY: memory of the test that lives until the stream was run, and a slot that is the stream's.
            Step::Load(slot, from, bytes) => unsafe {
                at(slot).copy_from_nonoverlapping(at(from as usize), bytes);
            },
            // SAFETY: as above.
            Step::Store(to, slot, bytes) => unsafe {
                at(to as usize).copy_from_nonoverlapping(at(slot), bytes);
            },
            Step::Await(peer, count) => {
                return self.until(&self.state.1[peer as usize], count, peer);
            }
        }
        Ok(())
    }

    pub(super) fn content(&self) -> Vec<u8> {
        self.state.0.lock().expect("no panic").clone()
    }

    pub(super) fn all_here(&mut self) {
        self.rank.core.words(0).expect("all are there");
    }
}

/// Runs ranks on a host each.
pub(super) fn hosts<R: Send>(
    ranks: u32,
    body: impl Fn(&mut StepExecutor<'_, '_>) -> R + Sync,
) -> Vec<R> {
    let world = World::new(&(0..ranks).collect::<Vec<_>>(), 1);
    let jobs = long(&world.hosts);
    everywhere(&world, &jobs, |rank| {
        // Slots are exposed as addresses.
        let mut executor = StepExecutor::new(rank, ranks);
        executor.slots.slot(0).expose_provenance();
        body(&mut executor)
    })
}

pub(super) fn bytes(dice: &mut SeededRandom, len: usize) -> Vec<u8> {
    let mut word = dice.below(1 << 30) as u64 | 1;
    let mut next = || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Rank 0 does anything with the part of rank 1, all of it in its stream before that is run; a model says what must
/// come of it.
#[test]
fn what_a_stream_does_in_a_far_window_is_what_a_model_does() {
    const LENGTHS: [usize; 9] =
        [0, 1, 8, 100, 8 << 10, (8 << 10) + 8, 1 << 20, (3 << 20) + 16, BYTES];
    for seed in 1..4 {
        hosts(2, |executor| {
            if executor.rank.core.rank() == 1 {
                executor.all_here();
                return;
            }
            let (mut dice, mut model) = (SeededRandom(seed), vec![0u8; BYTES]);
            let mut sources: Vec<Vec<u8>> = Vec::new();
            let mut copies: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            let mut words: Vec<(Box<u64>, u64)> = Vec::new();
            for _ in 0..60 {
                let len = LENGTHS[dice.below(LENGTHS.len())];
                let at = dice.below((BYTES - len + 1).min(1 << 20));
                match dice.below(4) {
                    0 => {
                        let content = bytes(&mut dice, len);
                        model[at..at + len].copy_from_slice(&content);
                        executor.put(1, at, &content);
                        sources.push(content);
                    }
                    1 => {
                        let mut copy = vec![0; len];
                        executor.get(1, at, &mut copy);
                        copies.push((copy, model[at..at + len].to_vec()));
                    }
                    2 => executor.flush(1),
                    _ => {
                        let at = dice.below(4) * 8;
                        let word = &mut model[at..at + 8];
                        let was = u64::from_le_bytes((&*word).try_into().expect("8 bytes"));
                        let fetch = match dice.below(2) {
                            0 => AtomicFetch::Add(dice.below(1 << 20) as u64),
                            _ => AtomicFetch::Swap([was, !was][dice.below(2)], 77),
                        };
                        word.copy_from_slice(&after(was, fetch).to_le_bytes());
                        let mut result = Box::new(!was);
                        executor.fetch(1, at, fetch, &mut result);
                        words.push((result, was));
                    }
                }
            }
            let mut all = vec![0; BYTES];
            executor.get(1, 0, &mut all);
            assert_eq!(executor.run(), Ok(()), "{:?}", executor.rank.lanes.failure());
            assert!(all == model, "the part differs");
            assert!(copies.iter().all(|(got, wanted)| got == wanted), "something else was got");
            assert!(words.iter().all(|(result, was)| **result == *was), "{words:?}");
            assert!(words.len() > 5 && copies.len() > 5 && sources.len() > 5);
            executor.all_here();
        });
    }
}

/// Returns how many values of `rounds` of put and signal were not those that were signalled; `early` streams publish
/// a put before its data is in its slot.
pub(super) fn stale(rounds: u64, early: bool) -> usize {
    let stale = hosts(2, |executor| {
        let own = executor.rank.core.rank();
        let (other, mut stale) = (1 - own, 0);
        for round in 1..=rounds {
            // No rank is two rounds ahead of the one that reads what it put.
            let at = (round % 2) as usize * 4096;
            let data = (round << 8 | u64::from(own)).to_le_bytes().repeat(1 + (round % 9) as usize);
            executor.put(other, at, &data);
            executor.signal(other);
            if early {
                let steps = &mut executor.steps.0;
                let (mut tells, others): (Vec<_>, Vec<_>) =
                    steps.drain(..).partition(|step| matches!(step, Step::Tell(_)));
                if let Some(Step::Tell(last)) = tells.last().copied() {
                    tells.push(Step::Reach(last, other));
                }
                executor.steps.0 = [tells, others].concat();
            }
            executor.await_signal(other, 2 * round - 1);
            assert_eq!(executor.run(), Ok(()), "{:?}", executor.rank.lanes.failure());
            let wanted = (round << 8 | u64::from(other)).to_le_bytes();
            let content = executor.content();
            let seen = &content[at..at + data.len()];
            stale += usize::from(seen.chunks(8).any(|word| word != wanted));
            executor.signal(other);
            executor.await_signal(other, 2 * round);
            executor.run().expect("the other's");
        }
        executor.all_here();
        stale
    });
    stale.into_iter().sum()
}

#[test]
fn a_signal_is_seen_after_what_was_put_before_it() {
    assert_eq!(stale(300, false), 0);
    assert!(stale(30, true) > 0, "the check is blind");
}

/// More than there are slots: none is filled again before its content has gone.
#[test]
fn slots_are_filled_again_only_when_they_are_empty() {
    let wrong = |hasty: bool| {
        let ends = hosts(2, |executor| {
            let content: Vec<u8> = (0..BYTES).map(|at| (at / SLOT as usize) as u8 + 1).collect();
            assert!(content.len() as u64 > SLOT * SLOTS);
            if executor.rank.core.rank() == 0 {
                executor.put(1, 0, &content);
                if hasty {
                    executor.steps.0.retain(|step| !matches!(step, Step::Reach(..)));
                }
                executor.flush(1);
                executor.run().expect("it comes to its end");
            }
            executor.all_here();
            executor.rank.core.rank() == 1 && executor.content() != content
        });
        ends[1]
    };
    assert!(!wrong(false));
    assert!((0..10).any(|_| wrong(true)), "the check is blind");
}

/// Two ranks that change the same words of a third one lose nothing.
#[test]
fn atomic_operations_of_several_hosts_are_one_after_the_other() {
    const CHANGES: usize = 100;
    let all = hosts(3, |executor| {
        let mut results = vec![0u64; CHANGES];
        if executor.rank.core.rank() > 0 {
            for result in &mut results {
                executor.fetch(0, 16, AtomicFetch::Add(1), result);
            }
            executor.run().expect("it comes to its end");
        }
        executor.all_here();
        results
    });
    let mut seen = all[1..].concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * CHANGES as u64).collect::<Vec<_>>());
}

/// Orders of errands are few, and each is known by its number.
#[test]
fn errands_are_counted_in_one_order() {
    hosts(2, |executor| {
        let other = 1 - executor.rank.core.rank();
        let data = vec![1; 2 * SLOT as usize + 1];
        executor.put(other, 0, &data);
        executor.signal(other);
        let tells: Vec<u64> = (executor.steps.0.iter())
            .filter_map(|step| if let Step::Tell(number) = step { Some(*number) } else { None })
            .collect();
        assert_eq!(tells, [1, 2, 3, 4]);
        let slots: BTreeMap<usize, usize> = (executor.steps.0.iter())
            .filter_map(|step| match step {
                Step::Load(slot, _, bytes) => Some((*slot, *bytes)),
                _ => None,
            })
            .collect();
        assert_eq!(slots.len(), 3, "each has its own");
        assert_eq!(slots.values().sum::<usize>(), data.len());
        executor.run().expect("nothing to wait for");
        executor.await_signal(other, 1);
        executor.run().expect("the other's");
        assert_eq!(executor.content()[..data.len()], data);
        executor.all_here();
    });
}
