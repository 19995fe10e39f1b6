//! Runs calls: every warp of every block of every rank is an agent, and a seed decides who goes on.
//!
//! An element that was read and is to be written may stay under way for long: until something that must come
//! after it asks for it. That is an access of the same warp to the same memory, or of any warp of the
//! block after a block barrier, a release, or the kernel's end.

use std::rc::Rc;

use roundelay_compiler::device::abi::{YEAR, mark, reached, renews};
use roundelay_tests::SeededRandom;

use super::kernel::{Call, Fold, Layout, Step, WARPS, Writer};
use super::memory::{Eye, Memory, View, join};
use super::proxy::{Orders, Proxies};
use super::reference::Buffers;

/// The value of cells that hold nothing meaningful.
const POISON: u32 = 0x7fc0_dead;
/// The number of steps in a row without progress after which the machine checks whether any progress is possible.
const PATIENCE: usize = 400;

struct Warp {
    steps: Vec<Step>,
    next: usize,
    view: View,
    arrived: bool,
}

/// The calls that were made before, and what becomes of what they left.
#[derive(Clone, Copy)]
pub(crate) struct Past {
    /// Epoch of the first call.
    pub(crate) first: u32,
    /// True if calls renew words and packets.
    pub(crate) renews: bool,
}

/// No calls before.
pub(crate) const NONE: Past = Past { first: 1, renews: true };

/// An element under way.
struct Pending {
    warp: usize,
    /// Number of block barriers before.
    after: usize,
    fold: Rc<Fold>,
    /// Contents of packets.
    got: Vec<u64>,
}

struct Block {
    warps: Vec<Warp>,
    pending: Vec<Pending>,
    barriers: usize,
}

struct Rank {
    /// Call at hand.
    call: usize,
    blocks: Vec<Block>,
    /// The values that the rank's stream has seen, now and when each call began.
    view: View,
    began: Vec<Rc<View>>,
    synchronized: bool,
    speed: usize,
}

pub(crate) struct Machine<'c> {
    layout: Layout,
    calls: &'c [Call],
    past: Past,
    memory: Memory,
    ranks: Vec<Rank>,
    dice: SeededRandom,
    eye: Eye,
    /// Number of elements in ten that stay under way.
    lazy: usize,
    proxies: Proxies,
    /// The first plain access whose value depends on the schedule.
    race: Option<String>,
}

/// Runs calls one after the other on every rank; says what is wrong with what they give.
pub(crate) fn run(calls: &[Call], past: Past, seed: u64) -> Result<(), String> {
    run_with(calls, past, Orders::default(), seed)
}

/// Runs calls with proxies that keep some orders.
pub(crate) fn run_with(
    calls: &[Call],
    past: Past,
    orders: Orders,
    seed: u64,
) -> Result<(), String> {
    let mut machine = Machine::new(calls, past, seed);
    machine.proxies.orders = orders;
    for rank in 0..machine.ranks.len() {
        machine.begin(rank);
    }
    let mut idle = 0;
    while machine.ranks.iter().any(|r| r.call < calls.len()) {
        idle = if machine.some()? { 0 } else { idle + 1 };
        if idle > PATIENCE {
            machine.all()?;
            idle = 0;
        }
        if let Some(race) = machine.race.take() {
            return Err(race);
        }
    }
    Ok(())
}

fn layout(calls: &[Call]) -> Layout {
    let most = |f: &dyn Fn(&Call) -> usize| calls.iter().map(f).max().unwrap_or(0);
    let packets =
        |c: &Call| c.programs[0].protocol == roundelay_compiler::device::DeviceProtocol::Packet;
    let channels = calls
        .iter()
        .flat_map(|c| &c.programs)
        .flat_map(|p| &p.links)
        .map(|l| l.channel as usize + 1);
    let sizes = calls.iter().flat_map(|c| &c.before).map(|b| b.len()).max().unwrap_or(3);
    let size = |i: usize| {
        most(&|c: &Call| {
            c.before.iter().map(|b| b.values().nth(i).map_or(0, Vec::len)).max().unwrap_or(0)
        })
    };
    Layout {
        ranks: calls[0].plans.len(),
        channels: channels.max().unwrap_or(1),
        far: most(&|c: &Call| c.programs[0].far as usize * c.blocks * c.pass),
        halves: [false, true].map(|p| most(&|c: &Call| if packets(c) == p { c.half() } else { 0 })),
        sizes: (0..sizes).map(size).collect(),
    }
}

impl<'c> Machine<'c> {
    fn new(calls: &'c [Call], past: Past, seed: u64) -> Self {
        let layout = layout(calls);
        let memory = Memory::new(layout.ranks * layout.per_rank());
        let mut dice = SeededRandom(seed);
        let mut ranks = Vec::new();
        for _ in 0..layout.ranks {
            let speed = [1, 4, 30][dice.below(3)];
            let view = memory.view();
            ranks.push(Rank {
                call: 0,
                blocks: Vec::new(),
                view,
                began: Vec::new(),
                synchronized: true,
                speed,
            });
        }
        let lazy = [0, 3, 8][dice.below(3)];
        let proxies = Proxies::new(&layout, calls, past.first, &memory);
        let eye = Eye::Any;
        let mut machine =
            Machine { layout, calls, past, memory, ranks, dice, eye, lazy, proxies, race: None };
        if past.first != NONE.first {
            machine.remember();
        }
        machine
    }

    /// Writes words as old as they may be, and packets of calls that come when all epochs have been.
    fn remember(&mut self) {
        let all = self.layout.ranks;
        let mut view = self.memory.view();
        let newest = mark(self.past.first.wrapping_sub(YEAR), u32::MAX);
        for (rank, writer) in (0..all).flat_map(|r| (0..all).map(move |w| (r, w))) {
            for at in self.layout.signal_words(rank, writer) {
                self.memory.tell(at, newest, &mut view, None);
            }
        }
        // Without renewal they are older than half of all epochs.
        let age = if self.past.renews { YEAR } else { 3 * YEAR };
        let old = mark(self.past.first.wrapping_sub(age), u32::MAX);
        for at in (0..all).flat_map(|rank| self.layout.far_words(rank)) {
            self.memory.tell(at, old, &mut view, None);
        }
        for (rank, half) in (0..all).flat_map(|r| [(r, 0), (r, 1)]) {
            for at in self.layout.packets(rank, half) {
                let epoch = half + 2 * self.dice.below(2) as u32;
                let bits = mark(epoch, POISON);
                self.memory.tell(at, bits, &mut view, None);
            }
        }
        for rank in &mut self.ranks {
            join(&mut rank.view, &view);
        }
    }

    fn epoch(&self, rank: usize) -> u32 {
        self.past.first.wrapping_add(self.ranks[rank].call as u32)
    }

    /// Lets the user fill the buffers; then the kernel starts.
    fn begin(&mut self, rank: usize) {
        let Some(call) = self.calls.get(self.ranks[rank].call) else { return };
        self.fill(rank, &call.before[rank]);
        let epoch = self.epoch(rank);
        let of = &mut self.ranks[rank];
        of.began.push(Rc::new(of.view.clone()));
        for block in 0..call.blocks {
            let warps = (0..WARPS).map(|warp| {
                let writer = Writer {
                    layout: &self.layout,
                    call,
                    rank,
                    block,
                    warp,
                    epoch,
                    synchronized: of.synchronized,
                    steps: Vec::new(),
                };
                Warp { steps: writer.write(), next: 0, view: of.view.clone(), arrived: false }
            });
            let block = Block { warps: warps.collect(), pending: Vec::new(), barriers: 0 };
            of.blocks.push(block);
        }
    }

    fn fill(&mut self, rank: usize, buffers: &Buffers) {
        let view = &mut self.ranks[rank].view;
        for (buf, values) in buffers
            .iter()
            .filter(|(b, _)| !matches!(b, roundelay_compiler::plan::PlanBuffer::Scratch(_)))
        {
            for (i, x) in values.iter().enumerate() {
                let at = self.layout.buffer(rank, *buf, i);
                self.memory.store(at, x.to_bits().into(), view, &mut self.dice);
            }
        }
    }

    /// Ends a rank's call, all of whose warps have ended: looks at what the call gave.
    fn end(&mut self, rank: usize) -> Result<(), String> {
        let of = &mut self.ranks[rank];
        for block in std::mem::take(&mut of.blocks) {
            for warp in &block.warps {
                join(&mut of.view, &warp.view);
            }
        }
        let call = &self.calls[of.call];
        if call.plans[0].header.collective == "barrier" {
            self.barrier(rank)?;
        }
        let of = &mut self.ranks[rank];
        for &(buf, chunk) in &call.asked[rank] {
            let first = call.cut.place(buf, chunk);
            for i in first..first + call.cut.length(chunk as usize) {
                let wanted = call.after[rank][&buf][i].to_bits();
                let at = self.layout.buffer(rank, buf, i);
                let is = self.memory.certain(at, &of.view);
                if is != Some(wanted.into()) {
                    return Err(format!(
                        "call {} ({}): rank {rank}'s {buf:?} element {i} is {is:x?}, not {wanted:x}",
                        of.call, call.name
                    ));
                }
            }
        }
        if self.past.renews && renews(self.epoch(rank)) {
            self.renew(rank);
        }
        let of = &mut self.ranks[rank];
        of.synchronized = call.proves();
        of.call += 1;
        // The buffers are the user's again.
        let mut waste = call.before[rank].clone();
        waste.values_mut().flatten().for_each(|x| *x = f32::from_bits(POISON));
        self.fill(rank, &waste);
        self.begin(rank);
        Ok(())
    }

    /// Runs what the last block of a call does if the call renews.
    fn renew(&mut self, rank: usize) {
        let epoch = self.epoch(rank);
        let view = &mut self.ranks[rank].view;
        for at in self.layout.packets(rank, epoch & 1) {
            self.memory.tell(at, mark(epoch & 1 ^ 1, 0), view, None);
        }
        let released = Rc::new(view.clone());
        for peer in (0..self.layout.ranks).filter(|&peer| peer != rank) {
            for at in self.layout.signal_words(peer, rank) {
                self.memory.tell(at, mark(epoch, u32::MAX), view, Some(released.clone()));
            }
        }
        for at in self.layout.far_words(rank) {
            self.memory.tell(at, mark(epoch, u32::MAX), view, Some(released.clone()));
        }
    }

    /// Checks that whatever all ranks did before the barrier is seen after it.
    fn barrier(&self, rank: usize) -> Result<(), String> {
        let Rank { call, view, .. } = &self.ranks[rank];
        let seen = |began: &Rc<View>| view.iter().zip(began.iter()).all(|(a, b)| a >= b);
        match self.ranks.iter().position(|r| !r.began.get(*call).is_some_and(seen)) {
            None => Ok(()),
            Some(other) => {
                Err(format!("rank {rank} is through the barrier before rank {other} is seen there"))
            }
        }
    }

    /// Runs a few steps of some warp, or one element that was under way.
    fn some(&mut self) -> Result<bool, String> {
        if self.dice.below(4) == 0 {
            let (memory, dice) = (&mut self.memory, &mut self.dice);
            return Ok(self.proxies.some(&self.layout, memory, dice));
        }
        let total: usize =
            self.ranks.iter().filter(|r| !r.blocks.is_empty()).map(|r| r.speed).sum();
        let mut pick = self.dice.below(total);
        let mut rank = 0;
        for (i, r) in self.ranks.iter().enumerate().filter(|(_, r)| !r.blocks.is_empty()) {
            rank = i;
            if pick < r.speed {
                break;
            }
            pick -= r.speed;
        }
        let block = self.dice.below(self.ranks[rank].blocks.len());
        let pending = self.ranks[rank].blocks[block].pending.len();
        if pending > 0 && self.dice.below(8) == 0 {
            let i = self.dice.below(pending);
            self.deliver(rank, block, i);
            return Ok(true);
        }
        let warp = self.dice.below(WARPS);
        let mut moved = false;
        for _ in 0..1 + self.dice.below(12) {
            if !self.step(rank, block, warp) {
                break;
            }
            moved = true;
        }
        if moved && self.ended(rank) {
            self.end(rank)?;
        }
        Ok(moved)
    }

    /// Runs every warp once, with everything delivered and seen.
    fn all(&mut self) -> Result<(), String> {
        self.eye = Eye::Newest;
        let mut moved = self.proxies.all(&self.layout, &mut self.memory, &mut self.dice);
        for rank in 0..self.ranks.len() {
            for block in 0..self.ranks[rank].blocks.len() {
                while !self.ranks[rank].blocks[block].pending.is_empty() {
                    self.deliver(rank, block, 0);
                    moved = true;
                }
                for warp in 0..WARPS {
                    moved |= self.step(rank, block, warp);
                }
            }
            if !self.ranks[rank].blocks.is_empty() && self.ended(rank) {
                self.end(rank)?;
                moved = true;
            }
        }
        self.eye = Eye::Any;
        if moved { Ok(()) } else { Err("no rank can go on".into()) }
    }

    fn ended(&self, rank: usize) -> bool {
        self.ranks[rank]
            .blocks
            .iter()
            .all(|b| b.pending.is_empty() && b.warps.iter().all(|w| w.next == w.steps.len()))
    }

    /// Runs one step of a warp; returns false if it cannot be done.
    fn step(&mut self, rank: usize, block: usize, warp: usize) -> bool {
        let of = &mut self.ranks[rank].blocks[block];
        let me = &mut of.warps[warp];
        let Some(step) = me.steps.get(me.next).cloned() else {
            let own = of.pending.iter().position(|p| p.warp == warp);
            if let Some(i) = own {
                self.deliver(rank, block, i);
            }
            return own.is_some();
        };
        match step {
            Step::Wait { at, wanted, acquire } => {
                let (dice, eye) = (&mut self.dice, self.eye);
                let seen = match acquire {
                    true => self.memory.acquire(at, wanted, &mut me.view, dice, eye),
                    false => self.memory.load(at, &mut me.view, dice, eye),
                };
                if !reached(seen, wanted) {
                    return false;
                }
            }
            Step::BlockBarrier => {
                me.arrived = true;
                if of.warps.iter().any(|w| !w.arrived) {
                    return false;
                }
                let mut all = of.warps[0].view.clone();
                of.warps.iter().for_each(|w| join(&mut all, &w.view));
                for w in &mut of.warps {
                    w.view.clone_from(&all);
                    w.arrived = false;
                    w.next += 1;
                }
                of.barriers += 1;
                return true;
            }
            Step::Tell { at, value, release } => {
                let mut released = None;
                if release {
                    self.settle(rank, block, warp);
                    released =
                        Some(Rc::new(self.ranks[rank].blocks[block].warps[warp].view.clone()));
                }
                let me = &mut self.ranks[rank].blocks[block].warps[warp];
                self.memory.tell(at, value, &mut me.view, released);
            }
            Step::Fold(fold) => return self.fold(rank, block, warp, fold),
        }
        self.ranks[rank].blocks[block].warps[warp].next += 1;
        true
    }

    /// Delivers what is under way of the warp, and of all warps from before the last block barrier.
    fn settle(&mut self, rank: usize, block: usize, warp: usize) {
        let of = &self.ranks[rank].blocks[block];
        let (mut i, barriers) = (0, of.barriers);
        while let Some(p) = self.ranks[rank].blocks[block].pending.get(i) {
            if p.warp == warp || p.after < barriers {
                self.deliver(rank, block, i);
                i = 0;
            } else {
                i += 1;
            }
        }
    }

    fn fold(&mut self, rank: usize, block: usize, warp: usize, fold: Rc<Fold>) -> bool {
        let of = &mut self.ranks[rank].blocks[block];
        let view = &mut of.warps[warp].view;
        let mut got = Vec::new();
        for src in fold.inputs.iter().filter(|s| s.packet) {
            let x = self.memory.load(src.at, view, &mut self.dice, self.eye);
            if x >> 32 != u64::from(fold.epoch) {
                return false;
            }
            got.push(x);
        }
        let barriers = of.barriers;
        let before = |p: &Pending| p.warp == warp || p.after < barriers;
        if of.pending.iter().any(|p| before(p) && conflict(&p.fold, &fold)) {
            self.settle(rank, block, warp);
        }
        let lazy = self.dice.below(10) < self.lazy;
        let of = &mut self.ranks[rank].blocks[block];
        of.pending.push(Pending { warp, after: of.barriers, fold, got });
        of.warps[warp].next += 1;
        if !lazy {
            let last = of.pending.len() - 1;
            self.deliver(rank, block, last);
        }
        true
    }

    /// Reads and writes element i of those under way, or one that must come before it.
    fn deliver(&mut self, rank: usize, block: usize, i: usize) {
        let call = self.ranks[rank].call;
        let of = &mut self.ranks[rank].blocks[block];
        let p = &of.pending[i];
        let first = of.pending[..i]
            .iter()
            .position(|b| (b.warp == p.warp || b.after < p.after) && conflict(&b.fold, &p.fold));
        if let Some(first) = first {
            self.deliver(rank, block, first);
            let of = &self.ranks[rank].blocks[block];
            if i - 1 < of.pending.len() {
                self.deliver(rank, block, i - 1);
            }
            return;
        }
        let p = of.pending.remove(i);
        let view = &mut of.warps[p.warp].view;
        let mut packets = p.got.iter();
        let arithmetic = self.calls[call].arithmetic;
        let mut sum: Option<f32> = None;
        for src in &p.fold.inputs {
            let bits = match src.packet {
                true => packets.next().copied().unwrap_or(0),
                false => {
                    if self.memory.certain(src.at, view).is_none() {
                        self.race = Some(format!("rank {rank} reads what is being written"));
                    }
                    self.memory.load(src.at, view, &mut self.dice, self.eye)
                }
            };
            let x = f32::from_bits(bits as u32);
            sum = Some(sum.map_or(x, |sum| arithmetic.add(sum, x)));
        }
        let sum = sum.unwrap_or(f32::from_bits(POISON));
        for dst in &p.fold.outs {
            let bits = u64::from(arithmetic.round(sum, dst.wire).to_bits());
            let tag = if dst.packet { u64::from(p.fold.epoch) << 32 } else { 0 };
            // A rank that writes to staging memory knows without a fence that it was read: the rank that read it has
            // ended that call.
            match self.layout.is_buffer(dst.at) {
                true => self.memory.store(dst.at, bits, view, &mut self.dice),
                false => self.memory.tell(dst.at, tag | bits, view, None),
            }
        }
        let written: Vec<(u32, u32)> =
            p.fold.outs.iter().map(|d| (d.at, view[d.at as usize])).collect();
        if p.after < of.barriers {
            for w in &mut of.warps {
                for &(at, number) in &written {
                    w.view[at as usize] = w.view[at as usize].max(number);
                }
            }
        }
    }
}

/// Returns true if one of them writes what the other one touches.
fn conflict(a: &Fold, b: &Fold) -> bool {
    let reads = |f: &Fold, at| f.inputs.iter().any(|s| s.at == at);
    let writes = |f: &Fold, at| f.outs.iter().any(|d| d.at == at);
    a.outs.iter().any(|d| reads(b, d.at) || writes(b, d.at))
        || b.outs.iter().any(|d| reads(a, d.at))
}
