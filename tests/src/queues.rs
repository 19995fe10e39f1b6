//! Runs plans as they wait: lanes side by side, queues of bounded length between ranks. No content is moved.
//! It shares nothing with the proofs but the form of a plan.

use std::collections::{BTreeMap, VecDeque};

use roundelay_compiler::Plan;
use roundelay_compiler::plan::{ChunkSizes, MessageDirection, OperationInput, PlanOperation};

use crate::SeededRandom;

/// A sender, a receiver and a channel.
type Key = (u32, u32, u16);

/// The messages on the way from a rank to another one.
#[derive(Default)]
struct MessageQueue {
    /// Chunks of each message that was sent and not taken.
    messages: VecDeque<u32>,
    /// Messages taken so far.
    taken: u32,
}

/// A run of all ranks' plans.
struct PlanRun<'p> {
    plans: &'p [Plan],
    slots: usize,
    queues: BTreeMap<Key, MessageQueue>,
    /// Operations done, by rank and lane.
    done: Vec<Vec<usize>>,
}

/// Runs the plans, in an order by dice of what is possible, with a bounded number of messages between two ranks.
///
/// # Errors
/// The operations that wait for ever, or the messages that do not match.
pub fn execute(plans: &[Plan], slots: u32, dice: &mut SeededRandom) -> Result<(), String> {
    let done = plans.iter().map(|p| vec![0; p.part.lanes.len()]).collect();
    let mut p = PlanRun { plans, slots: slots as usize, queues: BTreeMap::new(), done };
    loop {
        let mut ready: Vec<(usize, usize)> = Vec::new();
        let mut left = Vec::new();
        for (rank, plan) in plans.iter().enumerate() {
            for (lane, list) in plan.part.lanes.iter().enumerate() {
                let Some(op) = list.ops.get(p.done[rank][lane]) else { continue };
                match p.waits(rank, op) {
                    None => ready.push((rank, lane)),
                    Some(what) => left.push(format!("rank {rank} lane {lane}: {what}")),
                }
            }
        }
        if ready.is_empty() {
            let rest: usize = p.queues.values().map(|q| q.messages.len()).sum();
            return match (left.is_empty(), rest) {
                (true, 0) => Ok(()),
                (true, _) => Err(format!("{rest} messages are never taken")),
                (false, _) => Err(left.join("; ")),
            };
        }
        // One lane may run ahead of all others, or all of them step by step.
        let turns = 1 + dice.below(4);
        for _ in 0..turns {
            let (rank, lane) = ready[dice.below(ready.len())];
            while let Some(op) = plans[rank].part.lanes[lane].ops.get(p.done[rank][lane]) {
                if p.waits(rank, op).is_some() {
                    break;
                }
                p.step(rank, op)?;
                p.done[rank][lane] += 1;
                if dice.below(3) == 0 {
                    break;
                }
            }
        }
    }
}

impl PlanRun<'_> {
    fn key(&self, rank: usize, conn: u32) -> Key {
        let part = &self.plans[rank].part;
        let end = &part.conns[conn as usize];
        match end.dir {
            MessageDirection::Send => (part.rank, end.peer, end.channel),
            MessageDirection::Recv => (end.peer, part.rank, end.channel),
        }
    }

    /// Returns the messages on the way of a connection, and the messages taken.
    fn queue(&self, rank: usize, conn: u32) -> (usize, u32) {
        let queue = self.queues.get(&self.key(rank, conn));
        queue.map_or((0, 0), |q| (q.messages.len(), q.taken))
    }

    /// Returns what an operation waits for, if it waits.
    fn waits(&self, rank: usize, op: &PlanOperation) -> Option<String> {
        for a in &op.after {
            if self.done[rank][usize::from(a.lane)] <= a.op as usize {
                return Some(format!("lane {} operation {}", a.lane, a.op));
            }
        }
        for m in &op.drained {
            if self.queue(rank, m.conn).1 <= m.message {
                return Some(format!(
                    "message {} on connection {} is not taken",
                    m.message, m.conn
                ));
            }
        }
        let mut needed: BTreeMap<u32, usize> = BTreeMap::new();
        for input in &op.inputs {
            if let OperationInput::Message { conn, .. } = input {
                *needed.entry(*conn).or_default() += 1;
            }
        }
        for (conn, count) in needed {
            if self.queue(rank, conn).0 < count {
                return Some(format!("{count} messages on connection {conn}"));
            }
        }
        let full = op.outs.iter().find(|out| self.queue(rank, out.conn).0 >= self.slots);
        full.map(|out| format!("a slot of connection {}", out.conn))
    }

    /// Takes an operation's messages and sends its own.
    fn step(&mut self, rank: usize, op: &PlanOperation) -> Result<(), String> {
        let chunks = match &op.sizes {
            ChunkSizes::Of(sets) => sets.iter().map(|set| set.total).sum(),
            ChunkSizes::Full(chunks) => *chunks,
        };
        for input in &op.inputs {
            let OperationInput::Message { conn, .. } = input else { continue };
            let key = self.key(rank, *conn);
            let queue = self.queues.entry(key).or_default();
            queue.taken += 1;
            match queue.messages.pop_front() {
                Some(sent) if sent == chunks => {}
                sent => return Err(format!("{chunks} chunks wanted on {key:?}, {sent:?} sent")),
            }
        }
        for out in &op.outs {
            let key = self.key(rank, out.conn);
            self.queues.entry(key).or_default().messages.push_back(chunks);
        }
        Ok(())
    }
}
