//! A GPU whose kernels threads run, one a block: what kernels do with words and slots, in the same memory. What lies
//! between GPUs of one host is memory of all ranks here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi::{self, mark, reached};
use roundelay_compiler::device::{
    DeviceEvent, DeviceMessage, DeviceProgram, DeviceTask, TaskInput, TaskOutput,
};
use roundelay_compiler::plan::{ChunkSizes, MessageDirection, PlanBuffer, PlanRegion};

use super::call::ProxyCall;
use super::memory::ProxyMemory;

/// An arena is memory that the ranks of a host see: words, both halves of the staging memory, the user's buffers,
/// scratch.
pub(super) struct EmulatedArena {
    words: Vec<AtomicU64>,
    staging: Vec<AtomicU32>,
    /// Data, input, output, scratch buffers.
    pub(super) buffers: Vec<Vec<AtomicU32>>,
}

fn zeros(len: usize) -> Vec<AtomicU32> {
    (0..len).map(|_| AtomicU32::new(0)).collect()
}

impl EmulatedArena {
    /// Makes an arena with `half` elements in each half of the staging memory, and buffers of those lengths.
    pub(super) fn new(ranks: u32, half: usize, buffers: &[usize]) -> Self {
        EmulatedArena {
            words: (0..abi::words(ranks)).map(|_| AtomicU64::new(0)).collect(),
            staging: zeros(2 * half),
            buffers: buffers.iter().map(|&len| zeros(len)).collect(),
        }
    }

    /// Sets all words to those after `calls` calls.
    pub(super) fn remember(&self, calls: u32) {
        self.words.iter().for_each(|w| w.store(mark(calls, u32::MAX), Ordering::Relaxed));
    }
}

/// One rank's GPU.
pub(super) struct EmulatedGpu<'a> {
    pub(super) arenas: &'a [EmulatedArena],
    pub(super) far: Arc<ProxyMemory>,
    /// Set by proxies: kernels leave.
    pub(super) aborted: Arc<AtomicBool>,
    pub(super) patience: Duration,
}

/// The reason for which a kernel left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KernelExit {
    /// It was aborted.
    Aborted,
    /// It waited too long for this rank.
    Waited(u32),
}

/// A fold makes one element of two. Elements are bits of 32.
pub(super) type FoldFunction = fn(u32, u32) -> u32;

/// One launch.
pub(super) struct EmulatedLaunch<'a> {
    pub(super) program: &'a DeviceProgram,
    pub(super) call: &'a ProxyCall,
    pub(super) fold: FoldFunction,
    /// True if the call before has proved that all ranks had entered it; `proves` says so of this one.
    pub(super) synchronized: bool,
    pub(super) proves: bool,
}

impl EmulatedGpu<'_> {
    /// Waits until a word, which a rank or what it sends raises, has come to a value, as kernels do.
    pub(super) fn until(&self, word: &AtomicU64, value: u64, peer: u32) -> Result<(), KernelExit> {
        let since = Instant::now();
        while !reached(word.load(Ordering::Acquire), value) {
            if self.aborted.load(Ordering::Acquire) {
                return Err(KernelExit::Aborted);
            }
            if since.elapsed() > self.patience {
                return Err(KernelExit::Waited(peer));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Runs a kernel: all blocks side by side. Of blocks that leave the first reason is returned.
    pub(super) fn run(&self, launch: &EmulatedLaunch<'_>) -> Result<(), KernelExit> {
        std::thread::scope(|scope| {
            let block =
                |block| scope.spawn(move || EmulatedBlock { device: self, launch, block }.run());
            let blocks: Vec<_> = (0..launch.call.blocks).map(block).collect();
            let ends: Vec<_> = blocks.into_iter().map(|b| b.join().expect("no panic")).collect();
            ends.into_iter().collect()
        })
    }
}

struct EmulatedBlock<'a> {
    device: &'a EmulatedGpu<'a>,
    launch: &'a EmulatedLaunch<'a>,
    block: u32,
}

/// The place of an element.
#[derive(Clone, Copy)]
struct ElementPlace<'a>(&'a AtomicU32);

impl<'a> EmulatedBlock<'a> {
    fn own(&self) -> &'a EmulatedArena {
        &self.device.arenas[self.launch.program.rank as usize]
    }

    fn run(&self) -> Result<(), KernelExit> {
        let EmulatedLaunch { program, call, .. } = self.launch;
        let (n, rank) = (program.header.ranks, program.rank);
        if program.is_far() {
            let word = self.device.far.kernel_word(abi::entered(n, rank, self.block));
            word.store(mark(call.epoch, call.number), Ordering::Relaxed);
        }
        let near = |peer: &u32| *peer != rank && !program.elsewhere.contains(peer);
        let entered = |peer: u32, block| {
            &self.device.arenas[peer as usize].words[abi::entered(n, rank, block) as usize]
        };
        if !self.launch.proves && self.block == 0 {
            for peer in (0..n).filter(near).filter(|peer| !program.greets.contains(peer)) {
                entered(peer, 0).store(mark(call.epoch, 1), Ordering::Relaxed);
            }
        }
        for &peer in &program.greets {
            entered(peer, self.block).store(mark(call.epoch, 1), Ordering::Release);
        }
        if !self.launch.synchronized {
            for peer in (0..n).filter(near) {
                let word = &self.own().words[abi::entered(n, peer, 0) as usize];
                self.until(word, mark(call.epoch.wrapping_sub(1), 0), peer)?;
            }
        }
        for pass in 0..call.passes {
            for phase in &program.phases {
                for task in &phase.tasks {
                    self.task(task, pass)?;
                }
                for signal in &phase.signals {
                    let link = &program.links[signal.message.link as usize];
                    let (value, channel) = (self.number(signal.message, pass), link.channel.into());
                    let word = match (link.far, link.dir) {
                        (true, MessageDirection::Send) => {
                            self.device.far.kernel_word(abi::sent(link.peer, channel, self.block))
                        }
                        (true, MessageDirection::Recv) => self
                            .device
                            .far
                            .kernel_word(abi::consumed(n, link.peer, channel, self.block)),
                        (false, dir) => {
                            let at = match dir {
                                MessageDirection::Send => abi::sent(rank, channel, self.block),
                                MessageDirection::Recv => {
                                    abi::consumed(n, rank, channel, self.block)
                                }
                            };
                            &self.device.arenas[link.peer as usize].words[at as usize]
                        }
                    };
                    word.store(value, Ordering::Release);
                }
            }
        }
        let last = call.passes - 1;
        program.leave.iter().try_for_each(|wait| self.wait(wait.event, last))
    }

    /// Returns the mark of a message of a pass.
    fn number(&self, message: DeviceMessage, pass: u64) -> u64 {
        let link = &self.launch.program.links[message.link as usize];
        let number = pass * u64::from(link.messages) + u64::from(message.index) + 1;
        mark(self.launch.call.epoch, number as u32)
    }

    fn wait(&self, event: DeviceEvent, pass: u64) -> Result<(), KernelExit> {
        let program = self.launch.program;
        let n = program.header.ranks;
        let (kind, message) = match event {
            DeviceEvent::Entered { peer } => {
                let word = &self.own().words[abi::entered(n, peer, self.block) as usize];
                return self.until(word, mark(self.launch.call.epoch, 1), peer);
            }
            DeviceEvent::Sent(message) => (0, message),
            DeviceEvent::Consumed(message) | DeviceEvent::Room(message) => (1, message),
        };
        let link = &program.links[message.link as usize];
        let mut value = self.number(message, pass);
        if let DeviceEvent::Room(_) = event {
            match (value as u32).checked_sub(link.slots) {
                None | Some(0) => return Ok(()),
                Some(number) => value = mark(self.launch.call.epoch, number),
            }
        }
        let channel = link.channel.into();
        let at = match kind {
            0 => abi::sent(link.peer, channel, self.block),
            _ => abi::consumed(n, link.peer, channel, self.block),
        };
        let word = match link.far {
            true => self.device.far.proxy_word(at),
            false => &self.own().words[at as usize],
        };
        self.until(word, value, link.peer)
    }

    fn until(&self, word: &AtomicU64, value: u64, peer: u32) -> Result<(), KernelExit> {
        self.device.until(word, value, peer)
    }

    fn task(&self, task: &DeviceTask, pass: u64) -> Result<(), KernelExit> {
        task.waits.iter().try_for_each(|wait| self.wait(wait.event, pass))?;
        if !task.moves() {
            return Ok(());
        }
        let EmulatedLaunch { program, call, fold, .. } = self.launch;
        let header = &program.header;
        let (elements, chunks) = (u64::from(header.blocks) * call.count, u64::from(header.chunks));
        let (least, rest) = (elements / chunks, elements % chunks);
        let begin = |c: u64| c * least + c * rest / chunks;
        let most = least + u64::from(rest != 0);
        let lengths: Vec<u64> = match &task.sizes {
            ChunkSizes::Full(all) => vec![most; *all as usize],
            ChunkSizes::Of(sets) => {
                let chunks = sets.iter().flat_map(|set| set.iter()).map(u64::from);
                chunks.map(|c| begin(c + 1) - begin(c)).collect()
            }
        };
        let from = (pass * u64::from(call.blocks) + u64::from(self.block)) * call.pass;
        let in_region = |rank: u32, region: &PlanRegion, k: usize, e: u64| {
            let mut list = region.pieces.iter().flat_map(|p| p.set.iter().map(move |c| (p.buf, c)));
            let (buf, chunk) = list.nth(k).expect("as many chunks as sizes");
            let chunk = u64::from(chunk);
            let (buffer, at) = match buf {
                PlanBuffer::Data => (0, begin(chunk)),
                PlanBuffer::Input => (1, begin(chunk)),
                PlanBuffer::Output => (2, begin(chunk)),
                PlanBuffer::Scratch(s) => (3 + usize::from(s), chunk * most),
            };
            let arena = &self.device.arenas[rank as usize];
            ElementPlace(&arena.buffers[buffer][(at + from + e) as usize])
        };
        for (k, &length) in lengths.iter().enumerate() {
            for e in 0..length.saturating_sub(from).min(call.pass) {
                let operand = |input: &TaskInput| match input {
                    TaskInput::Local(region) => in_region(program.rank, region, k, e),
                    TaskInput::Staged(message, None) => self.slot(*message, pass, k, e),
                    TaskInput::Pulled(message, region) => {
                        in_region(program.links[message.link as usize].peer, region, k, e)
                    }
                    other => panic!("{other:?} is not emulated"),
                };
                let values = task.inputs.iter().map(|i| operand(i).0.load(Ordering::Relaxed));
                let value = values.reduce(fold).expect("an operand");
                if let Some(region) = &task.store {
                    in_region(program.rank, region, k, e).0.store(value, Ordering::Relaxed);
                }
                for out in &task.outs {
                    let place = match out {
                        TaskOutput::Staged(message, None) => self.slot(*message, pass, k, e),
                        TaskOutput::Landed(message, region) => {
                            in_region(program.links[message.link as usize].peer, region, k, e)
                        }
                        other => panic!("{other:?} is not emulated"),
                    };
                    place.0.store(value, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Returns the place of an element in the slot of a message.
    fn slot(&self, message: DeviceMessage, pass: u64, k: usize, e: u64) -> ElementPlace<'a> {
        let EmulatedLaunch { program, call, .. } = self.launch;
        let link = &program.links[message.link as usize];
        let number = pass * u64::from(link.messages) + u64::from(message.index);
        let turn = u64::from(self.block) * u64::from(link.slots) + number % u64::from(link.slots);
        let chunk = u64::from(link.base) * u64::from(call.blocks)
            + turn * u64::from(link.chunks)
            + k as u64;
        let at = chunk * call.unit + 4 * e;
        if link.far {
            let place = self.device.far.emulated_place(at, 4).expect("it lies among the slots");
            // SAFETY: four bytes of memory that lives as long as the device, used as an atomic by this block, and by a
            // proxy as the words say.
            return ElementPlace(unsafe { AtomicU32::from_ptr(place.cast()) });
        }
        let receiver = if link.dir == MessageDirection::Send { link.peer } else { program.rank };
        let staging = &self.device.arenas[receiver as usize].staging;
        let half = (call.epoch & 1) as usize * staging.len() / 2;
        ElementPlace(&staging[half + (at / 4) as usize])
    }
}
