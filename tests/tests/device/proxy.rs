//! Models proxies: what carries messages of far links, in a memory as weak as that of the kernels.
//!
//! Every rank has a thread for each of its blocks' far links; what it has seen goes along with each message.

use std::rc::Rc;

use roundelay_compiler::device::abi::mark;
use roundelay_compiler::plan::MessageDirection;
use roundelay_tests::SeededRandom;

use super::kernel::{BLOCKS, Call, Layout};
use super::memory::{Eye, Memory, View, join};

/// The orders that proxies keep: all of them, but for tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orders {
    /// A message is read only after its signal was acquired.
    pub(crate) acquire: bool,
    /// A message that has landed is signalled with all that its sender knew.
    pub(crate) release: bool,
    /// A message lands where the receiver has consumed what was there.
    pub(crate) credit: bool,
    /// A message lands in calls that the receiver has entered.
    pub(crate) entered: bool,
}

impl Default for Orders {
    fn default() -> Self {
        Orders { acquire: true, release: true, credit: true, entered: true }
    }
}

/// The messages of one block over one far link in one call.
#[derive(Clone, Copy)]
struct Carrier {
    epoch: u32,
    block: usize,
    /// Rank, and the other's words there: kind 0 is `sent`, 1 is `consumed`.
    from: End,
    to: End,
    slots: u64,
    /// Cells of a slot.
    cells: usize,
    messages: u64,
    carried: u64,
}

#[derive(Clone, Copy)]
struct End {
    rank: usize,
    peer: usize,
    channel: usize,
    /// First cell of the block's slots.
    cell: usize,
}

pub(crate) struct Proxies {
    pub(crate) orders: Orders,
    carriers: Vec<Carrier>,
    /// By rank and block.
    views: Vec<View>,
}

impl Proxies {
    pub(crate) fn new(layout: &Layout, calls: &[Call], first: u32, memory: &Memory) -> Self {
        let mut carriers = Vec::new();
        for (call, epoch) in calls.iter().zip((0..).map(|i| first.wrapping_add(i))) {
            for (rank, program) in call.programs.iter().enumerate() {
                let sends =
                    program.links.iter().filter(|l| l.far && l.dir == MessageDirection::Send);
                for (link, block) in sends.flat_map(|l| (0..call.blocks).map(move |b| (l, b))) {
                    let peer = link.peer as usize;
                    let back = call.programs[peer].links.iter().find(|l| {
                        (l.peer as usize, l.channel, l.dir)
                            == (rank, link.channel, MessageDirection::Recv)
                    });
                    let Some(back) = back else { continue };
                    let slot = (link.chunks as usize) * call.pass;
                    let end = |rank, peer, base: u32| End {
                        rank,
                        peer,
                        channel: link.channel.into(),
                        cell: (base as usize * call.blocks
                            + block * link.slots as usize * link.chunks as usize)
                            * call.pass,
                    };
                    carriers.push(Carrier {
                        epoch,
                        block,
                        from: end(rank, peer, link.base),
                        to: end(peer, rank, back.base),
                        slots: link.slots.into(),
                        cells: slot,
                        messages: u64::from(link.messages) * call.passes as u64,
                        carried: 0,
                    });
                }
            }
        }
        let views = vec![memory.view(); layout.ranks * BLOCKS];
        Proxies { orders: Orders::default(), carriers, views }
    }

    /// Carries some message, if it can be carried.
    pub(crate) fn some(
        &mut self,
        layout: &Layout,
        memory: &mut Memory,
        dice: &mut SeededRandom,
    ) -> bool {
        match self.carriers.len() {
            0 => false,
            all => self.carry(dice.below(all), layout, memory, dice, Eye::Any),
        }
    }

    /// Carries whatever can be carried.
    pub(crate) fn all(
        &mut self,
        layout: &Layout,
        memory: &mut Memory,
        dice: &mut SeededRandom,
    ) -> bool {
        let all = 0..self.carriers.len();
        let mut moved = false;
        for i in all {
            moved |= self.carry(i, layout, memory, dice, Eye::Newest);
        }
        moved
    }

    fn carry(
        &mut self,
        i: usize,
        layout: &Layout,
        memory: &mut Memory,
        dice: &mut SeededRandom,
        eye: Eye,
    ) -> bool {
        let Carrier { epoch, block, from, to, slots, cells, messages, carried } = self.carriers[i];
        let orders = self.orders;
        if carried == messages {
            return false;
        }
        let number = carried + 1;
        let word = |end: End, said, kind| {
            layout.far_word(end.rank, said, (kind, end.peer, end.channel, block))
        };
        let [sender, receiver] = [from, to].map(|end| end.rank * BLOCKS + block);
        // The word is of this call, or of none: its epoch is compared, not its age.
        let signalled = |memory: &Memory,
                         at,
                         view: &mut View,
                         wanted: u64,
                         acquire,
                         dice: &mut SeededRandom| {
            let seen = match acquire {
                true => memory.acquire(at, wanted, view, dice, eye),
                false => memory.load(at, view, dice, eye),
            };
            seen >> 32 == u64::from(epoch) && seen >= wanted
        };
        let wanted = mark(epoch, number as u32);
        let handed = word(from, true, 0);
        if !signalled(memory, handed, &mut self.views[sender], wanted, orders.acquire, dice) {
            return false;
        }
        let arrived = layout.arrived(to.rank, block);
        let view = &mut self.views[receiver];
        if orders.entered && !signalled(memory, arrived, view, mark(epoch, 1), true, dice) {
            return false;
        }
        if let (true, Some(read @ 1..)) = (orders.credit, number.checked_sub(slots)) {
            let freed = mark(epoch, read as u32);
            if !signalled(memory, word(to, true, 1), view, freed, true, dice) {
                return false;
            }
        }
        let slot = (carried % slots.max(1)) as usize * cells;
        let content: Vec<u64> = (0..cells)
            .map(|cell| {
                let at = layout.far_cell(from.rank, from.cell + slot + cell);
                memory.load(at, &mut self.views[sender], dice, eye)
            })
            .collect();
        self.land(layout, memory, (i, slot), &content, wanted);
        let view = &mut self.views[sender];
        let released = Rc::new(view.clone());
        memory.tell(word(from, false, 1), wanted, view, Some(released));
        self.carriers[i].carried = number;
        true
    }

    /// Brings a message to its receiver, with what its sender's proxy has seen.
    fn land(
        &mut self,
        layout: &Layout,
        memory: &mut Memory,
        (i, slot): (usize, usize),
        content: &[u64],
        wanted: u64,
    ) {
        let Carrier { block, from, to, .. } = self.carriers[i];
        let sent = self.views[from.rank * BLOCKS + block].clone();
        let view = &mut self.views[to.rank * BLOCKS + block];
        join(view, &sent);
        for (cell, bits) in content.iter().enumerate() {
            let at = layout.far_cell(to.rank, to.cell + slot + cell);
            memory.tell(at, *bits, view, None);
        }
        let landed = layout.far_word(to.rank, false, (0, to.peer, to.channel, block));
        let released = self.orders.release.then(|| Rc::new(view.clone()));
        memory.tell(landed, wanted, view, released);
    }
}
