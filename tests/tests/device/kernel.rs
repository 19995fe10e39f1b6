//! Models the warps of a kernel, step by step: a device program with its addresses put in.

use std::rc::Rc;

use roundelay_compiler::device::abi::mark;
use roundelay_compiler::device::{
    DeviceConnection, DeviceEvent, DeviceMessage, DeviceProgram, DeviceProtocol, DeviceTask,
    DeviceWait, TaskInput, TaskOutput,
};
use roundelay_compiler::plan::{MessageDirection, Plan, PlanBuffer, PlanRegion, WireType};

use super::memory::At;
use super::reference::{Arithmetic, Buffers, Cut};

/// One call: what all ranks run, on what, and what it gives.
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) programs: Vec<DeviceProgram>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) cut: Cut,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) blocks: usize,
    /// Elements of a chunk in a pass.
    pub(crate) pass: usize,
    pub(crate) passes: usize,
    pub(crate) groups: usize,
    /// The values that the user puts in, and those that must come out where the collective asks for something.
    pub(crate) before: Vec<Buffers>,
    pub(crate) after: Vec<Buffers>,
    pub(crate) asked: Vec<Vec<(PlanBuffer, u32)>>,
}

impl Call {
    /// Returns true if the end of the call proves that all ranks have entered it.
    pub(crate) fn proves(&self) -> bool {
        self.programs[0].synchronizes && self.cut.elements / self.cut.chunks > 0
    }

    /// Returns the number of cells of a half of the staging memory.
    pub(crate) fn half(&self) -> usize {
        self.programs[0].staging as usize * self.blocks * self.pass
    }
}

/// The place from which a value is read.
#[derive(Clone, Copy)]
pub(crate) struct Src {
    pub(crate) at: At,
    /// True if it is a packet.
    pub(crate) packet: bool,
}

/// The place to which a value goes.
#[derive(Clone, Copy)]
pub(crate) struct Dst {
    pub(crate) at: At,
    pub(crate) packet: bool,
    pub(crate) wire: Option<WireType>,
}

/// One element of a task.
pub(crate) struct Fold {
    pub(crate) inputs: Vec<Src>,
    pub(crate) outs: Vec<Dst>,
    pub(crate) epoch: u32,
}

/// The next step of a warp.
#[derive(Clone)]
pub(crate) enum Step {
    Wait { at: At, wanted: u64, acquire: bool },
    Fold(Rc<Fold>),
    BlockBarrier,
    Tell { at: At, value: u64, release: bool },
}

/// Blocks that a kernel of a test may have.
pub(crate) const BLOCKS: usize = 3;
/// Warps of a block.
pub(crate) const WARPS: usize = 3;

/// The layout of everything in the cells of all ranks.
#[derive(Clone)]
pub(crate) struct Layout {
    pub(crate) ranks: usize,
    pub(crate) channels: usize,
    /// Cells of a half: of slots, of packets.
    pub(crate) halves: [usize; 2],
    /// Cells of the slots of far links.
    pub(crate) far: usize,
    /// Cells of Data, Input, Output, and of each scratch buffer.
    pub(crate) sizes: Vec<usize>,
}

impl Layout {
    /// Returns the number of words of an arena.
    fn near(&self) -> usize {
        (2 * self.channels + 1) * self.ranks * BLOCKS
    }

    /// Returns the number of all words: those of far memory are two lists.
    fn words(&self) -> usize {
        3 * self.near()
    }

    fn staged(&self) -> usize {
        2 * (self.halves[0] + self.halves[1]) + self.far
    }

    pub(crate) fn per_rank(&self) -> usize {
        self.words() + self.staged() + self.sizes.iter().sum::<usize>()
    }

    /// Returns the word of far memory that the proxy of a rank writes, or its kernels do: 0 sent, 1 consumed.
    pub(crate) fn far_word(
        &self,
        rank: usize,
        said: bool,
        (kind, peer, channel, block): (usize, usize, usize, usize),
    ) -> At {
        let list = if said { 2 } else { 1 };
        self.word(rank, kind, peer, channel, block) + (list * self.near()) as At
    }

    /// Returns the word by which a block signals its entry to its proxy.
    pub(crate) fn arrived(&self, rank: usize, block: usize) -> At {
        self.entered(rank, rank, block) + (2 * self.near()) as At
    }

    /// Returns the words of far memory that say what was sent and consumed, by proxies and by kernels.
    pub(crate) fn far_words(&self, rank: usize) -> impl Iterator<Item = At> {
        let all = 2 * self.ranks * self.channels * BLOCKS;
        [1, 2].into_iter().flat_map(move |list| {
            let first = self.at(rank, list * self.near());
            first..first + all as At
        })
    }

    /// Returns a cell of the slots of a rank's far links.
    pub(crate) fn far_cell(&self, rank: usize, cell: usize) -> At {
        self.at(rank, self.words() + 2 * (self.halves[0] + self.halves[1]) + cell)
    }

    fn at(&self, rank: usize, cell: usize) -> At {
        (rank * self.per_rank() + cell) as At
    }

    /// Returns the word in the memory of `rank` that `writer` writes: 0 sent, 1 consumed.
    fn word(&self, rank: usize, kind: usize, writer: usize, channel: usize, block: usize) -> At {
        let of = (kind * self.ranks + writer) * self.channels + channel;
        self.at(rank, of * BLOCKS + block)
    }

    pub(crate) fn entered(&self, rank: usize, writer: usize, block: usize) -> At {
        self.at(rank, (2 * self.ranks * self.channels + writer) * BLOCKS + block)
    }

    pub(crate) fn buffer(&self, rank: usize, buf: PlanBuffer, element: usize) -> At {
        let i = match buf {
            PlanBuffer::Data => 0,
            PlanBuffer::Input => 1,
            PlanBuffer::Output => 2,
            PlanBuffer::Scratch(i) => 3 + i as usize,
        };
        let before: usize = self.sizes[..i].iter().sum();
        self.at(rank, self.words() + self.staged() + before + element)
    }

    /// Returns the words that a rank writes in the memory of another one.
    pub(crate) fn signal_words(&self, rank: usize, writer: usize) -> impl Iterator<Item = At> {
        let links = (0..2 * self.channels).map(move |of| (of / self.channels, of % self.channels));
        let links = links.map(move |(kind, channel)| self.word(rank, kind, writer, channel, 0));
        let all = links.chain([self.entered(rank, writer, 0)]);
        all.flat_map(|first| (0..BLOCKS as At).map(move |block| first + block))
    }

    /// Returns the cells of a half of a rank's packets.
    pub(crate) fn packets(&self, rank: usize, half: u32) -> std::ops::Range<At> {
        let first = self.staging(rank, true, half, 0);
        first..first + self.halves[1] as At
    }

    /// Returns true if it is a cell of a buffer.
    pub(crate) fn is_buffer(&self, at: At) -> bool {
        at as usize % self.per_rank() >= self.words() + self.staged()
    }

    fn staging(&self, rank: usize, packets: bool, epoch: u32, cell: usize) -> At {
        let first = if packets { 2 * self.halves[0] } else { 0 };
        let half = self.halves[usize::from(packets)];
        self.at(rank, self.words() + first + (epoch as usize & 1) * half + cell)
    }
}

/// Writes the steps of one warp.
pub(crate) struct Writer<'c> {
    pub(crate) layout: &'c Layout,
    pub(crate) call: &'c Call,
    pub(crate) rank: usize,
    pub(crate) block: usize,
    pub(crate) warp: usize,
    pub(crate) epoch: u32,
    /// True if the call before proved that all had entered it.
    pub(crate) synchronized: bool,
    pub(crate) steps: Vec<Step>,
}

impl Writer<'_> {
    fn program(&self) -> &DeviceProgram {
        &self.call.programs[self.rank]
    }

    pub(crate) fn write(mut self) -> Vec<Step> {
        let program = &self.call.programs[self.rank];
        let first = self.warp == 0;
        let greets = |peer: usize| program.greets.contains(&(peer as u32));
        if first && program.is_far() {
            let at = self.layout.arrived(self.rank, self.block);
            self.steps.push(Step::Tell { at, value: mark(self.epoch, 1), release: false });
        }
        let near =
            |p: &usize| *p != program.rank as usize && !program.elsewhere.contains(&(*p as u32));
        for peer in (0..self.layout.ranks).filter(near) {
            // Both are one word of block 0: a block that is greeted must not go on without the release.
            let announces = self.block == 0 && !self.call.proves();
            if first && (greets(peer) || announces) {
                self.signal_entered(peer, greets(peer));
            }
        }
        self.enter();
        for t in 0..self.call.passes {
            for (i, phase) in program.phases.iter().enumerate() {
                for (j, task) in phase.tasks.iter().enumerate() {
                    self.task(t, i, j, task);
                }
                if phase.block_barrier {
                    self.steps.push(Step::BlockBarrier);
                }
                for s in phase.signals.iter().filter(|_| first) {
                    let (at, value) = self.signal_word(t, s.message);
                    self.steps.push(Step::Tell { at, value, release: s.release });
                }
            }
        }
        if first {
            self.waits(self.call.passes - 1, &program.leave);
        }
        self.steps
    }

    fn signal_entered(&mut self, peer: usize, release: bool) {
        let at = self.layout.entered(peer, self.rank, self.block);
        self.steps.push(Step::Tell { at, value: mark(self.epoch, 1), release });
    }

    /// Peers whose staging memory is written have ended the call before the last.
    fn enter(&mut self) {
        if self.synchronized {
            return;
        }
        let outs = self.program().phases.iter().flat_map(|p| &p.tasks).flat_map(|a| &a.outs);
        let mut peers: Vec<usize> = outs
            .filter_map(|out| match out {
                TaskOutput::Packet(m, _) | TaskOutput::Staged(m, _) => {
                    Some(self.link(*m).peer as usize)
                }
                TaskOutput::Landed(..) => None,
            })
            .collect();
        peers.sort_unstable();
        peers.dedup();
        let elsewhere = self.program().elsewhere.clone();
        let near = |p: &usize| *p != self.rank && !elsewhere.contains(&(*p as u32));
        for peer in peers.into_iter().filter(near) {
            let at = self.layout.entered(self.rank, peer, 0);
            let wanted = mark(self.epoch.wrapping_sub(1), 0);
            self.steps.push(Step::Wait { at, wanted, acquire: false });
        }
    }

    fn link(&self, m: DeviceMessage) -> DeviceConnection {
        self.program().links[m.link as usize]
    }

    fn mark(&self, number: u64) -> u64 {
        mark(self.epoch, number as u32)
    }

    fn number(&self, t: usize, m: DeviceMessage) -> u64 {
        t as u64 * u64::from(self.link(m).messages) + u64::from(m.index) + 1
    }

    fn signal_word(&self, t: usize, m: DeviceMessage) -> (At, u64) {
        let link = self.link(m);
        let kind = usize::from(link.dir == MessageDirection::Recv);
        let channel = link.channel as usize;
        let at = match link.far {
            true => {
                let word = (kind, link.peer as usize, channel, self.block);
                self.layout.far_word(self.rank, true, word)
            }
            false => self.layout.word(link.peer as usize, kind, self.rank, channel, self.block),
        };
        (at, self.mark(self.number(t, m)))
    }

    fn waits(&mut self, t: usize, waits: &[DeviceWait]) {
        for w in waits {
            let (kind, m, wanted) = match w.event {
                DeviceEvent::Entered { peer } => {
                    let at = self.layout.entered(self.rank, peer as usize, self.block);
                    self.steps.push(Step::Wait {
                        at,
                        wanted: mark(self.epoch, 1),
                        acquire: w.acquire,
                    });
                    continue;
                }
                DeviceEvent::Sent(m) => (0, m, self.mark(self.number(t, m))),
                DeviceEvent::Consumed(m) => (1, m, self.mark(self.number(t, m))),
                DeviceEvent::Room(m) => {
                    let slots = u64::from(self.link(m).slots);
                    match self.number(t, m) {
                        n if n <= slots => continue,
                        n => (1, m, self.mark(n - slots)),
                    }
                }
            };
            let link = self.link(m);
            let writer = link.peer as usize;
            let word = (kind, writer, link.channel as usize, self.block);
            let at = match link.far {
                true => self.layout.far_word(self.rank, false, word),
                false => self.layout.word(self.rank, kind, word.1, word.2, word.3),
            };
            self.steps.push(Step::Wait { at, wanted, acquire: w.acquire });
        }
    }

    /// Returns the cell of chunk k of a message, on its receiver.
    fn slot(&self, t: usize, m: DeviceMessage, k: usize) -> At {
        let link = self.link(m);
        let receiver =
            if link.dir == MessageDirection::Send { link.peer as usize } else { self.rank };
        let [base, slots, chunks] = [link.base, link.slots, link.chunks].map(|x| x as usize);
        let slot = (self.number(t, m) as usize - 1) % slots;
        let index = base * self.call.blocks + (self.block * slots + slot) * chunks + k;
        if link.far {
            return self.layout.far_cell(self.rank, index * self.call.pass);
        }
        let packets = self.program().protocol == DeviceProtocol::Packet;
        self.layout.staging(receiver, packets, self.epoch, index * self.call.pass)
    }

    /// Returns the first element of this block and pass in the k-th chunk of a region.
    fn place(&self, t: usize, rank: usize, region: &PlanRegion, k: usize) -> At {
        let Some((buf, c)) = region.iter().nth(k) else { panic!("a region is too short") };
        let from = (t * self.call.blocks + self.block) * self.call.pass;
        self.layout.buffer(rank, buf, self.call.cut.place(buf, c) + from)
    }

    fn task(&mut self, t: usize, phase: usize, j: usize, task: &DeviceTask) {
        // The block's warps in groups of equal size, the last with the rest.
        let groups = self.call.groups.clamp(1, WARPS);
        let group = |warp: usize| (warp / (WARPS / groups)).min(groups - 1);
        if group(self.warp) != j % groups {
            return;
        }
        let members: Vec<usize> = (0..WARPS).filter(|&w| group(w) == j % groups).collect();
        self.waits(t, &task.waits);
        if task.inputs.is_empty() {
            return;
        }
        let from = (t * self.call.blocks + self.block) * self.call.pass;
        for (k, length) in self.call.cut.lengths(&task.sizes).into_iter().enumerate() {
            let part = length.saturating_sub(from).min(self.call.pass);
            // Which warp runs an element differs from task to task.
            let turn = 7 * phase + 3 * j + k;
            for e in 0..part {
                if members[(e + turn) % members.len()] == self.warp {
                    self.element(t, task, k, e as At);
                }
            }
        }
    }

    fn element(&mut self, t: usize, task: &DeviceTask, k: usize, e: At) {
        let inputs = task.inputs.iter().map(|s| match s {
            TaskInput::Local(region) => {
                Src { at: self.place(t, self.rank, region, k) + e, packet: false }
            }
            TaskInput::Packet(m, _) => Src { at: self.slot(t, *m, k) + e, packet: true },
            TaskInput::Staged(m, _) => Src { at: self.slot(t, *m, k) + e, packet: false },
            TaskInput::Pulled(m, region) => {
                let peer = self.link(*m).peer as usize;
                Src { at: self.place(t, peer, region, k) + e, packet: false }
            }
        });
        let plain = |at: At| Dst { at, packet: false, wire: None };
        let store = task.store.iter().map(|region| plain(self.place(t, self.rank, region, k) + e));
        let outs = task.outs.iter().map(|o| match o {
            TaskOutput::Packet(m, wire) => {
                Dst { at: self.slot(t, *m, k) + e, packet: true, wire: *wire }
            }
            TaskOutput::Staged(m, wire) => {
                Dst { at: self.slot(t, *m, k) + e, packet: false, wire: *wire }
            }
            TaskOutput::Landed(m, region) => {
                plain(self.place(t, self.link(*m).peer as usize, region, k) + e)
            }
        });
        let mut inputs: Vec<Src> = inputs.collect();
        if self.program().protocol == DeviceProtocol::Multicast {
            let first = e as usize % inputs.len();
            inputs.rotate_left(first);
        }
        let fold = Fold { inputs, outs: store.chain(outs).collect(), epoch: self.epoch };
        self.steps.push(Step::Fold(Rc::new(fold)));
    }
}
