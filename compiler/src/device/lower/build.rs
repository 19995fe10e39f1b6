//! Tasks of operations, and what each would have to wait for.

use super::order::PhaseOrder;
use super::travel::MessageTravel;
use crate::device::program::{DeviceEvent, DeviceMessage, DeviceTask, TaskInput, TaskOutput};
use crate::num::{count, index};
use crate::plan::{OperationInput, PlanOperation, PlanRegion};

/// A condition that a task may have to wait for.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitCondition {
    pub(super) event: DeviceEvent,
    /// The rank and phase that signal it; no phase for the rank's entry.
    pub(super) source: (u32, Option<u32>),
    /// The number of passes before this one in which it is signalled.
    pub(super) earlier: u32,
    /// The message whose arrival or consumption `source` signals: wire, number, and whether it is its consumption.
    pub(super) by: Option<(u32, u32, bool)>,
    /// True if this rank's proxy signals it, which no other signal implies.
    pub(super) proxy: bool,
}

/// A task with its conditions.
pub(super) struct TaskDraft {
    pub(super) task: DeviceTask,
    pub(super) conditions: Vec<WaitCondition>,
    /// The region in which its message landed.
    pub(super) landed: Option<PlanRegion>,
}

impl TaskDraft {
    /// Returns true if the task does anything.
    pub(super) fn works(&self) -> bool {
        !self.task.inputs.is_empty() || !self.conditions.is_empty()
    }
}

/// Makes tasks.
pub(super) struct TaskBuilder<'o> {
    pub(super) order: &'o PhaseOrder<'o>,
    pub(super) travels: &'o [Vec<MessageTravel>],
    pub(super) slots: u32,
}

impl TaskBuilder<'_> {
    /// Makes the task of an operation.
    pub(super) fn task(&self, id: u32) -> TaskDraft {
        let node = &self.order.nodes[index(id)];
        let op = node.op;
        let task = DeviceTask {
            waits: Vec::new(),
            inputs: Vec::new(),
            store: None,
            outs: Vec::new(),
            sizes: op.sizes.clone(),
            site: op.site,
            round: op.round,
        };
        let mut draft = TaskDraft { task, conditions: Vec::new(), landed: None };
        self.inputs(id, &mut draft);
        let pulled = self.outs(id, &mut draft);
        if draft.landed.is_none() {
            let keep = |store: &PlanRegion| pulled.iter().any(|p| p.overlaps(store));
            draft.task.store =
                op.store.as_ref().filter(|s| !s.dead || keep(&s.region)).map(|s| s.region.clone());
            if let Some(store) = &draft.task.store {
                self.drains(id, store, &mut draft.conditions);
            }
        }
        if draft.task.store.is_none() && draft.task.outs.is_empty() {
            draft.task.inputs.clear();
        }
        draft
    }

    fn inputs(&self, id: u32, draft: &mut TaskDraft) {
        let op = self.order.nodes[index(id)].op;
        for (k, input) in op.inputs.iter().enumerate() {
            let (conn, wire) = match input {
                OperationInput::Local(region) => {
                    draft.task.inputs.push(TaskInput::Local(region.clone()));
                    continue;
                }
                OperationInput::Message { conn, wire, .. } => (*conn, *wire),
            };
            let Some((w, number)) = self.order.message(id, 0, k) else { continue };
            let message = DeviceMessage { link: conn, index: number };
            let travel = self.travels[index(w)][index(number)];
            if travel != MessageTravel::Packet {
                draft.conditions.push(self.sent(w, number, message));
            }
            draft.task.inputs.push(match travel {
                MessageTravel::Packet => TaskInput::Packet(message, wire),
                MessageTravel::Staged => TaskInput::Staged(message, wire),
                MessageTravel::Landed => {
                    draft.landed = op.store.as_ref().map(|s| s.region.clone());
                    TaskInput::Local(
                        draft.landed.clone().unwrap_or(PlanRegion { pieces: Vec::new() }),
                    )
                }
                MessageTravel::Pulled => TaskInput::Pulled(message, self.offered(w, number)),
            });
        }
    }

    /// Adds the outs that move something; gives the regions that are pulled.
    fn outs(&self, id: u32, draft: &mut TaskDraft) -> Vec<PlanRegion> {
        let mut pulled = Vec::new();
        let op: &PlanOperation = self.order.nodes[index(id)].op;
        for (k, out) in op.outs.iter().enumerate() {
            let Some((w, number)) = self.order.message(id, 1, k) else { continue };
            let message = DeviceMessage { link: out.conn, index: number };
            draft.task.outs.push(match self.travels[index(w)][index(number)] {
                MessageTravel::Packet => TaskOutput::Packet(message, out.wire),
                MessageTravel::Staged => {
                    draft.conditions.extend(self.room(w, number, message));
                    TaskOutput::Staged(message, out.wire)
                }
                MessageTravel::Landed => {
                    let wire = &self.order.wires[index(w)];
                    let (to, _) = wire.messages[index(number)][1];
                    let place = self.order.nodes[index(to)].op.store.as_ref();
                    let peer = wire.target;
                    let event = DeviceEvent::Entered { peer };
                    draft.conditions.push(WaitCondition {
                        event,
                        source: (peer, None),
                        earlier: 0,
                        by: None,
                        proxy: false,
                    });
                    TaskOutput::Landed(
                        message,
                        place.map_or(PlanRegion { pieces: Vec::new() }, |s| s.region.clone()),
                    )
                }
                MessageTravel::Pulled => {
                    pulled.push(self.offered(w, number));
                    continue;
                }
            });
        }
        pulled
    }

    fn offered(&self, wire: u32, number: u32) -> PlanRegion {
        let (from, k) = self.order.wires[index(wire)].messages[index(number)][0];
        let out = &self.order.nodes[index(from)].op.outs[index(k)];
        out.pull.clone().unwrap_or(PlanRegion { pieces: Vec::new() })
    }

    /// Returns the condition that a message has come.
    fn sent(&self, wire: u32, number: u32, message: DeviceMessage) -> WaitCondition {
        let [(from, _), _] = self.order.wires[index(wire)].messages[index(number)];
        let from = &self.order.nodes[index(from)];
        let source = (from.rank, Some(from.phase));
        WaitCondition {
            event: DeviceEvent::Sent(message),
            source,
            earlier: 0,
            by: Some((wire, number, false)),
            proxy: self.order.wires[index(wire)].far,
        }
    }

    /// Returns the condition that a message was consumed.
    fn consumed(&self, wire: u32, number: u32, event: DeviceEvent) -> WaitCondition {
        let [_, (to, _)] = self.order.wires[index(wire)].messages[index(number)];
        let to = &self.order.nodes[index(to)];
        let source = (to.rank, Some(to.phase));
        let by = Some((wire, number, true));
        WaitCondition { event, source, earlier: 0, by, proxy: false }
    }

    /// Returns the condition that this rank's proxy has taken a message; it implies nothing of the peer.
    fn taken(&self, wire: u32, event: DeviceEvent) -> WaitCondition {
        let source = (self.order.wires[index(wire)].source, None);
        WaitCondition { event, source, earlier: 0, by: None, proxy: true }
    }

    /// Returns the condition that there is room: the message `slots` before was consumed, in this pass or one
    /// before.
    fn room(&self, wire: u32, number: u32, message: DeviceMessage) -> Option<WaitCondition> {
        let messages = count(self.order.wires[index(wire)].messages.len());
        let event = DeviceEvent::Room(message);
        if self.order.wires[index(wire)].far {
            return Some(self.taken(wire, event));
        }
        if let Some(before) = number.checked_sub(self.slots) {
            return Some(self.consumed(wire, before, event));
        }
        let earlier = (self.slots - number).div_ceil(messages);
        let before = number + earlier * messages - self.slots;
        Some(WaitCondition { earlier, ..self.consumed(wire, before, event) })
    }

    /// Adds the conditions that peers have read the memory that the store overwrites.
    fn drains(&self, id: u32, store: &PlanRegion, conditions: &mut Vec<WaitCondition>) {
        let node = &self.order.nodes[index(id)];
        for (conn, &w) in self.order.wire_of[index(node.rank)].iter().enumerate() {
            let wire = &self.order.wires[index(w)];
            if wire.ends[0] != count(conn) || wire.source != node.rank {
                continue;
            }
            let last = wire.messages.iter().enumerate().rev().find(|(i, [from, _])| {
                self.travels[index(w)][*i] == MessageTravel::Pulled
                    && self.order.nodes[index(from.0)].phase < node.phase
                    && self.offered(w, count(*i)).overlaps(store)
            });
            if let Some((i, _)) = last {
                let message = DeviceMessage { link: count(conn), index: count(i) };
                conditions.push(self.consumed(w, count(i), DeviceEvent::Consumed(message)));
            }
        }
    }

    /// Returns the conditions that a rank waits for before it leaves: that peers have read its memory.
    pub(super) fn leave(&self, rank: u32) -> Vec<WaitCondition> {
        let mut conditions = Vec::new();
        for (conn, &w) in self.order.wire_of[index(rank)].iter().enumerate() {
            let wire = &self.order.wires[index(w)];
            if wire.ends[0] != count(conn) || wire.source != rank {
                continue;
            }
            if wire.far && !wire.messages.is_empty() {
                let message =
                    DeviceMessage { link: count(conn), index: count(wire.messages.len()) - 1 };
                conditions.push(self.taken(w, DeviceEvent::Consumed(message)));
                continue;
            }
            let last = self.travels[index(w)].iter().rposition(|t| *t == MessageTravel::Pulled);
            if let Some(i) = last {
                let message = DeviceMessage { link: count(conn), index: count(i) };
                conditions.push(self.consumed(w, count(i), DeviceEvent::Consumed(message)));
            }
        }
        conditions
    }
}
