//! Arms of operations, and what each would have to wait for.

use super::order::Order;
use super::ways::Travel;
use crate::device::{Arm, Event, Message, Source, Target};
use crate::plan::{Input, Op, Region};

/// A condition that an arm may have to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) event: Event,
    /// The rank and phase that tell; `None` for its entry.
    pub(super) told: (u32, Option<u32>),
    /// Told so many passes before.
    pub(super) earlier: u32,
    /// Message of `told` that tells it: wire, number, and whether it is its consumption.
    pub(super) by: Option<(u32, u32, bool)>,
}

/// An arm with its conditions.
pub(super) struct Draft {
    pub(super) arm: Arm,
    pub(super) conditions: Vec<Condition>,
    /// Where its message landed.
    pub(super) landed: Option<Region>,
}

/// Makes arms.
pub(super) struct Build<'o> {
    pub(super) order: &'o Order<'o>,
    pub(super) travels: &'o [Vec<Travel>],
    pub(super) slots: u32,
}

impl Build<'_> {
    /// The arm of an operation.
    pub(super) fn arm(&self, id: u32) -> Draft {
        let node = &self.order.nodes[id as usize];
        let op = node.op;
        let arm = Arm {
            waits: Vec::new(),
            inputs: Vec::new(),
            store: None,
            outs: Vec::new(),
            sizes: op.sizes.clone(),
            site: op.site,
            round: op.round,
        };
        let mut draft = Draft { arm, conditions: Vec::new(), landed: None };
        self.inputs(id, &mut draft);
        let pulled = self.outs(id, &mut draft);
        if draft.landed.is_none() {
            let keep = |store: &Region| pulled.iter().any(|p| p.overlaps(store));
            draft.arm.store =
                op.store.as_ref().filter(|s| !s.dead || keep(&s.region)).map(|s| s.region.clone());
            if let Some(store) = &draft.arm.store {
                self.drains(id, store, &mut draft.conditions);
            }
        }
        if draft.arm.store.is_none() && draft.arm.outs.is_empty() {
            draft.arm.inputs.clear();
        }
        draft
    }

    fn inputs(&self, id: u32, draft: &mut Draft) {
        let op = self.order.nodes[id as usize].op;
        for (k, input) in op.inputs.iter().enumerate() {
            let (conn, wire) = match input {
                Input::Local(region) => {
                    draft.arm.inputs.push(Source::Local(region.clone()));
                    continue;
                }
                Input::Message { conn, wire, .. } => (*conn, *wire),
            };
            let Some((w, number)) = self.order.message(id, 0, k) else { continue };
            let message = Message { link: conn, index: number };
            let travel = self.travels[w as usize][number as usize];
            if travel != Travel::Packet {
                draft.conditions.push(self.sent(w, number, message));
            }
            draft.arm.inputs.push(match travel {
                Travel::Packet => Source::Packet(message, wire),
                Travel::Staged => Source::Staged(message, wire),
                Travel::Landed => {
                    draft.landed = op.store.as_ref().map(|s| s.region.clone());
                    Source::Local(draft.landed.clone().unwrap_or(Region { pieces: Vec::new() }))
                }
                Travel::Pulled => Source::Pulled(message, self.offered(w, number)),
            });
        }
    }

    /// Adds the outs that move something; gives the regions that are pulled.
    fn outs(&self, id: u32, draft: &mut Draft) -> Vec<Region> {
        let mut pulled = Vec::new();
        let op: &Op = self.order.nodes[id as usize].op;
        for (k, out) in op.outs.iter().enumerate() {
            let Some((w, number)) = self.order.message(id, 1, k) else { continue };
            let message = Message { link: out.conn, index: number };
            draft.arm.outs.push(match self.travels[w as usize][number as usize] {
                Travel::Packet => Target::Packet(message, out.wire),
                Travel::Staged => {
                    draft.conditions.extend(self.room(w, number, message));
                    Target::Staged(message, out.wire)
                }
                Travel::Landed => {
                    let wire = &self.order.wires[w as usize];
                    let (to, _) = wire.messages[number as usize][1];
                    let place = self.order.nodes[to as usize].op.store.as_ref();
                    let peer = wire.target;
                    let event = Event::Entered { peer };
                    draft.conditions.push(Condition {
                        event,
                        told: (peer, None),
                        earlier: 0,
                        by: None,
                    });
                    Target::Landed(
                        message,
                        place.map_or(Region { pieces: Vec::new() }, |s| s.region.clone()),
                    )
                }
                Travel::Pulled => {
                    pulled.push(self.offered(w, number));
                    continue;
                }
            });
        }
        pulled
    }

    fn offered(&self, wire: u32, number: u32) -> Region {
        let (from, k) = self.order.wires[wire as usize].messages[number as usize][0];
        let out = &self.order.nodes[from as usize].op.outs[k as usize];
        out.pull.clone().unwrap_or(Region { pieces: Vec::new() })
    }

    /// The message has come.
    fn sent(&self, wire: u32, number: u32, message: Message) -> Condition {
        let [(from, _), _] = self.order.wires[wire as usize].messages[number as usize];
        let from = &self.order.nodes[from as usize];
        let told = (from.rank, Some(from.phase));
        Condition { event: Event::Sent(message), told, earlier: 0, by: Some((wire, number, false)) }
    }

    /// A message was consumed.
    fn consumed(&self, wire: u32, number: u32, event: Event) -> Condition {
        let [_, (to, _)] = self.order.wires[wire as usize].messages[number as usize];
        let to = &self.order.nodes[to as usize];
        let told = (to.rank, Some(to.phase));
        Condition { event, told, earlier: 0, by: Some((wire, number, true)) }
    }

    /// There is room: the message `slots` before was consumed, in this pass or one before.
    fn room(&self, wire: u32, number: u32, message: Message) -> Option<Condition> {
        let messages = self.order.wires[wire as usize].messages.len() as u32;
        let event = Event::Room(message);
        if let Some(before) = number.checked_sub(self.slots) {
            return Some(self.consumed(wire, before, event));
        }
        let earlier = (self.slots - number).div_ceil(messages);
        let before = number + earlier * messages - self.slots;
        Some(Condition { earlier, ..self.consumed(wire, before, event) })
    }

    /// Peers have read what the store overwrites.
    fn drains(&self, id: u32, store: &Region, conditions: &mut Vec<Condition>) {
        let node = &self.order.nodes[id as usize];
        for (conn, &w) in self.order.wire_of[node.rank as usize].iter().enumerate() {
            let wire = &self.order.wires[w as usize];
            if wire.ends[0] != conn as u32 || wire.source != node.rank {
                continue;
            }
            let last = wire.messages.iter().enumerate().rev().find(|(i, [from, _])| {
                self.travels[w as usize][*i] == Travel::Pulled
                    && self.order.nodes[from.0 as usize].phase < node.phase
                    && self.offered(w, *i as u32).overlaps(store)
            });
            if let Some((i, _)) = last {
                let message = Message { link: conn as u32, index: i as u32 };
                conditions.push(self.consumed(w, i as u32, Event::Consumed(message)));
            }
        }
    }

    /// What a rank waits for before it leaves: that peers have read its memory.
    pub(super) fn leave(&self, rank: u32) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for (conn, &w) in self.order.wire_of[rank as usize].iter().enumerate() {
            let wire = &self.order.wires[w as usize];
            if wire.ends[0] != conn as u32 || wire.source != rank {
                continue;
            }
            let last = self.travels[w as usize].iter().rposition(|t| *t == Travel::Pulled);
            if let Some(i) = last {
                let message = Message { link: conn as u32, index: i as u32 };
                conditions.push(self.consumed(w, i as u32, Event::Consumed(message)));
            }
        }
        conditions
    }
}
