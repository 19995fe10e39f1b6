//! Assigns the operations of a plan to phases, and matches messages with those of the other side.
//!
//! Every operation gets a *key*: one more than the greatest key of those that it depends on, made even if
//! it has no message among its inputs and odd if it has. It depends on what touches the same memory before
//! it on its rank, on the senders of its messages, on consumptions that it waits for (a free slot, memory
//! that peers read), and comes no earlier than the message before on the same connection. A rank runs its
//! operations in the order of their keys, and those with the same key are the tasks of one phase.
//!
//! So a phase waits only for phases with lesser keys, of whatever rank: nothing waits for itself, and tasks
//! of one phase depend on nothing of each other's.

use std::collections::BTreeMap;

use crate::device::refusal::LoweringRefusal;
use crate::num::{count, index};
use crate::places::PlaceNumbers;
use crate::plan::{
    MessageDirection, OpRef, OperationInput, Plan, PlanBuffer, PlanOperation, RankPlan,
};
use crate::verify::plan::local_order;

/// One operation of one rank.
pub(super) struct OrderedOp<'a> {
    pub(super) rank: u32,
    pub(super) op: &'a PlanOperation,
    pub(super) key: u32,
    pub(super) phase: u32,
}

/// A connection: who sends what to whom.
pub(super) struct MessageWire {
    pub(super) source: u32,
    pub(super) target: u32,
    pub(super) channel: u16,
    /// True if the ranks are on different hosts.
    pub(super) far: bool,
    /// Index among the connections of the source, and of the target.
    pub(super) ends: [u32; 2],
    /// Operation and index of the out, operation and index of the input.
    pub(super) messages: Vec<[(u32, u32); 2]>,
}

/// All operations of all ranks, in phases.
pub(super) struct PhaseOrder<'a> {
    pub(super) plans: &'a [Plan],
    /// By rank, lane, operation.
    pub(super) nodes: Vec<OrderedOp<'a>>,
    pub(super) wires: Vec<MessageWire>,
    /// WireType of a connection of a rank.
    pub(super) wire_of: Vec<Vec<u32>>,
    /// Message number of each input and out of each operation, `u32::MAX` for a local input.
    pub(super) numbers: Vec<[Vec<u32>; 2]>,
    /// Operations of each phase of each rank.
    pub(super) phases: Vec<Vec<Vec<u32>>>,
    /// All phases, those that others wait for first.
    pub(super) sequence: Vec<(u32, u32)>,
}

/// The waits of an operation besides those for messages and memory.
#[derive(Clone, Copy)]
pub(super) struct WaitRules {
    /// Messages in flight on a connection, where they need slots.
    pub(super) slots: Option<u32>,
    /// True if peers read memory that they are offered.
    pub(super) drains: bool,
}

/// Numbers the memory of a rank.
pub(super) fn places(plan: &Plan) -> PlaceNumbers {
    let size = |b| plan.buffer_chunks(b).unwrap_or(0);
    let user = [PlanBuffer::Data, PlanBuffer::Input, PlanBuffer::Output].map(size);
    PlaceNumbers::of_sizes(user, plan.header.scratch.iter().copied())
}

impl<'a> PhaseOrder<'a> {
    pub(super) fn new(
        plans: &'a [Plan],
        waiting: WaitRules,
        is_far: &dyn Fn(u32, u32) -> bool,
    ) -> Result<Self, LoweringRefusal> {
        let mut order = PhaseOrder {
            plans,
            nodes: Vec::new(),
            wires: Vec::new(),
            wire_of: Vec::new(),
            numbers: Vec::new(),
            phases: Vec::new(),
            sequence: Vec::new(),
        };
        let first = order.list();
        order.connect(&first, is_far)?;
        let mut edges = Vec::new();
        for (plan, first) in plans.iter().zip(&first) {
            local(plan, first, &mut edges).ok_or_else(|| {
                LoweringRefusal(format!("the lanes of rank {} wait for each other", plan.part.rank))
            })?;
            if waiting.drains {
                order.drained(plan, first, &mut edges);
            }
        }
        for wire in &order.wires {
            for (i, [from, to]) in wire.messages.iter().enumerate() {
                edges.push((from.0, to.0, 1));
                if let Some(next) = wire.messages.get(i + 1) {
                    edges.push((from.0, next[0].0, 0));
                    edges.push((to.0, next[1].0, 0));
                }
                if let Some(later) = waiting.slots.and_then(|k| wire.messages.get(i + index(k))) {
                    edges.push((to.0, later[0].0, 1));
                }
            }
        }
        order.keys(&edges)?;
        order.group();
        Ok(order)
    }

    /// Lists the operations; gives the first of each lane of each rank.
    fn list(&mut self) -> Vec<Vec<u32>> {
        let mut first = Vec::new();
        for plan in self.plans {
            let mut lanes = Vec::new();
            for lane in &plan.part.lanes {
                lanes.push(count(self.nodes.len()));
                let rank = plan.part.rank;
                self.nodes.extend(lane.ops.iter().map(|op| OrderedOp {
                    rank,
                    op,
                    key: 0,
                    phase: 0,
                }));
            }
            first.push(lanes);
        }
        first
    }

    /// Finds both ends of each message: the i-th sent on a connection is the i-th received.
    fn connect(
        &mut self,
        first: &[Vec<u32>],
        is_far: &dyn Fn(u32, u32) -> bool,
    ) -> Result<(), LoweringRefusal> {
        let mut known: BTreeMap<(u32, u32, u16), u32> = BTreeMap::new();
        let mut ends: Vec<[Vec<(u32, u32)>; 2]> = Vec::new();
        for (plan, first) in self.plans.iter().zip(first) {
            let part = &plan.part;
            let mut of = Vec::new();
            for (end, c) in part.conns.iter().enumerate() {
                let sends = c.dir == MessageDirection::Send;
                let (source, target) =
                    if sends { (part.rank, c.peer) } else { (c.peer, part.rank) };
                let next = count(self.wires.len());
                let id = *known.entry((source, target, c.channel)).or_insert(next);
                if id == next {
                    let ends = [u32::MAX; 2];
                    let (channel, messages) = (c.channel, Vec::new());
                    let far = is_far(source, target);
                    self.wires.push(MessageWire { source, target, channel, far, ends, messages });
                }
                self.wires[index(id)].ends[usize::from(!sends)] = count(end);
                of.push(id);
            }
            ends.resize_with(self.wires.len(), Default::default);
            for (lane, first) in part.lanes.iter().zip(first) {
                for (i, op) in lane.ops.iter().enumerate() {
                    let id = first + count(i);
                    let mut number = |conn: u32, side: usize, k: usize| {
                        let list = &mut ends[index(of[index(conn)])][side];
                        list.push((id, count(k)));
                        count(list.len()) - 1
                    };
                    let inputs = op.inputs.iter().enumerate().map(|(k, input)| match input {
                        OperationInput::Message { conn, .. } => number(*conn, 1, k),
                        OperationInput::Local(_) => u32::MAX,
                    });
                    let inputs = inputs.collect();
                    let outs = op.outs.iter().enumerate().map(|(k, out)| number(out.conn, 0, k));
                    let outs = outs.collect();
                    self.numbers.push([inputs, outs]);
                }
            }
            self.wire_of.push(of);
        }
        for (wire, [sent, received]) in self.wires.iter_mut().zip(ends) {
            if sent.len() != received.len() || wire.ends.contains(&u32::MAX) {
                let (a, b) = (wire.source, wire.target);
                return Err(LoweringRefusal(format!(
                    "rank {a} sends {} messages to rank {b}, which receives {}",
                    sent.len(),
                    received.len()
                )));
            }
            wire.messages = sent.into_iter().zip(received).map(|(a, b)| [a, b]).collect();
        }
        Ok(())
    }

    /// Adds the edges from consumptions to the stores that wait for them.
    fn drained(&self, plan: &Plan, first: &[u32], edges: &mut Vec<(u32, u32, u32)>) {
        for (lane, first) in plan.part.lanes.iter().zip(first) {
            for (i, op) in lane.ops.iter().enumerate() {
                for m in &op.drained {
                    let wire = self.wire_of[index(plan.part.rank)][index(m.conn)];
                    let messages = &self.wires[index(wire)].messages;
                    if let Some([_, to]) = messages.get(index(m.message)) {
                        edges.push((to.0, first + count(i), 1));
                    }
                }
            }
        }
    }

    /// Gives every operation its key.
    fn keys(&mut self, edges: &[(u32, u32, u32)]) -> Result<(), LoweringRefusal> {
        let n = self.nodes.len();
        let mut waiting = vec![0u32; n];
        let mut next: Vec<Vec<(u32, u32)>> = vec![Vec::new(); n];
        for &(a, b, weight) in edges.iter().filter(|e| e.0 != e.1) {
            waiting[index(b)] += 1;
            next[index(a)].push((b, weight));
        }
        let mut ready: Vec<u32> = (0..count(n)).filter(|&v| waiting[index(v)] == 0).collect();
        let mut done = 0;
        while let Some(v) = ready.pop() {
            done += 1;
            let node = &mut self.nodes[index(v)];
            let odd = node.op.inputs.iter().any(|i| matches!(i, OperationInput::Message { .. }));
            node.key += u32::from((node.key % 2 == 1) != odd);
            let key = node.key;
            for &(w, weight) in &next[index(v)] {
                let later = &mut self.nodes[index(w)].key;
                *later = (*later).max(key + weight);
                waiting[index(w)] -= 1;
                if waiting[index(w)] == 0 {
                    ready.push(w);
                }
            }
        }
        if done == n {
            return Ok(());
        }
        let stuck = (0..n).find(|&v| waiting[v] > 0).unwrap_or(0);
        let OrderedOp { rank, op, .. } = &self.nodes[stuck];
        Err(LoweringRefusal(format!("rank {rank} waits for itself in step {}", op.round)))
    }

    /// Groups the operations with one key into one phase.
    fn group(&mut self) {
        let mut sequence: Vec<(u32, u32, u32)> = Vec::new();
        self.phases = vec![Vec::new(); self.plans.len()];
        let mut all: Vec<(u32, u32, u32)> = Vec::with_capacity(self.nodes.len());
        all.extend(self.nodes.iter().enumerate().map(|(id, v)| (v.rank, v.key, count(id))));
        all.sort_unstable();
        for phase in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (rank, key, _) = phase[0];
            let phases = &mut self.phases[index(rank)];
            sequence.push((key, rank, count(phases.len())));
            for &(_, _, id) in phase {
                self.nodes[index(id)].phase = count(phases.len());
            }
            phases.push(phase.iter().map(|p| p.2).collect());
        }
        sequence.sort_unstable();
        self.sequence = sequence.into_iter().map(|(_, rank, phase)| (rank, phase)).collect();
    }

    /// Returns the wire and number of an operation's input (side 0) or out (side 1), if it is a message.
    pub(super) fn message(&self, id: u32, side: usize, k: usize) -> Option<(u32, u32)> {
        let node = &self.nodes[index(id)];
        let conn = match side {
            0 => match node.op.inputs[k] {
                OperationInput::Message { conn, .. } => conn,
                OperationInput::Local(_) => return None,
            },
            _ => node.op.outs[k].conn,
        };
        let wire = self.wire_of[index(node.rank)][index(conn)];
        Some((wire, self.numbers[index(id)][side][k]))
    }
}

/// Adds the edges between operations of a rank that touch the same memory.
fn local(plan: &Plan, first: &[u32], edges: &mut Vec<(u32, u32, u32)>) -> Option<()> {
    let part: &RankPlan = &plan.part;
    let places = places(plan);
    let mut writer = vec![u32::MAX; places.per_rank];
    let mut readers: Vec<Vec<u32>> = vec![Vec::new(); places.per_rank];
    for OpRef { lane, op: i } in local_order(part)? {
        let op = &part.lanes[index(lane)].ops[index(i)];
        let id = first[index(lane)] + i;
        let from = edges.len();
        for input in &op.inputs {
            let OperationInput::Local(region) = input else { continue };
            for (buf, c) in region.iter() {
                let at = places.local(buf, c);
                edges.push((writer[at], id, 1));
                readers[at].push(id);
            }
        }
        for (buf, c) in op.store.iter().flat_map(|s| s.region.iter()) {
            let at = places.local(buf, c);
            edges.push((writer[at], id, 1));
            edges.extend(readers[at].drain(..).map(|r| (r, id, 1)));
            writer[at] = id;
        }
        for a in &op.after {
            edges.push((first[index(a.lane)] + a.op, id, 1));
        }
        let mut own = edges.split_off(from);
        own.retain(|e| e.0 != u32::MAX);
        own.sort_unstable();
        own.dedup();
        edges.append(&mut own);
    }
    Some(())
}
