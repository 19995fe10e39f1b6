//! Chooses how each message travels.
//!
//! A message may land if everything that touches its place before it is known to be over when the sender
//! lands it. What is known follows from messages: a rank that has waited for one knows that the phase of
//! its sender is over, and what the sender knew.

use super::order::{PhaseOrder, places};
use crate::device::protocol::DeviceProtocol;
use crate::num::{count, index};
use crate::places::PlaceNumbers;
use crate::plan::{OperationInput, PlanRegion};

/// The route of a message through memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageTravel {
    Packet,
    Staged,
    Landed,
    Pulled,
}

/// The known progress of each rank: 0 nothing, 1 it has entered the call, k + 2 its phase k is over.
pub(super) type PhaseKnowledge = Vec<u32>;

/// Adds what another knows.
pub(super) fn learn(known: &mut PhaseKnowledge, other: &[u32]) {
    for (k, o) in known.iter_mut().zip(other) {
        *k = (*k).max(*o);
    }
}

/// For each rank, pairs of its phases with a block barrier between them: the first must be over for all threads
/// before the second begins.
pub(super) type BarrierPairs = Vec<Vec<(u32, u32)>>;

/// Returns how each message travels, by wire and number, and the block barriers that this needs.
pub(super) fn travels(
    order: &PhaseOrder<'_>,
    protocol: DeviceProtocol,
) -> (Vec<Vec<MessageTravel>>, BarrierPairs) {
    let all = |travel: MessageTravel| -> Vec<Vec<MessageTravel>> {
        order.wires.iter().map(|w| vec![travel; w.messages.len()]).collect()
    };
    let mut barriers = vec![Vec::new(); order.plans.len()];
    let mut travels = match protocol {
        DeviceProtocol::Packet => return (all(MessageTravel::Packet), barriers),
        DeviceProtocol::Staged => return (all(MessageTravel::Staged), barriers),
        DeviceProtocol::Put
        | DeviceProtocol::Get
        | DeviceProtocol::Engine
        | DeviceProtocol::Multicast => all(MessageTravel::Staged),
    };
    let pulls = protocol.pulls();
    let land = LandingCheck::new(order, pulls);
    for (w, wire) in order.wires.iter().enumerate().filter(|(_, w)| w.source != w.target && !w.far)
    {
        for (i, &[from, to]) in wire.messages.iter().enumerate() {
            let out = &order.nodes[index(from.0)].op.outs[index(from.1)];
            let op = order.nodes[index(to.0)].op;
            let OperationInput::Message { pull, wire: None, .. } = &op.inputs[index(to.1)] else {
                continue;
            };
            let copied = out.wire.is_none() && op.inputs.len() == 1;
            let lands = copied && protocol.lands();
            let place = op.store.as_ref().filter(|s| lands && !s.dead);
            if let Some(needs) = place.and_then(|s| land.allowed(from.0, to.0, &s.region)) {
                barriers[index(wire.source)].extend(needs);
                travels[w][i] = MessageTravel::Landed;
            } else if pulls && out.wire.is_none() && out.pull.is_some() && pull.is_some() {
                travels[w][i] = MessageTravel::Pulled;
            }
        }
    }
    (travels, barriers)
}

/// An access to a place, a read or a write.
#[derive(Debug, Clone, Copy)]
struct PlaceAccess {
    /// Phase of the rank whose memory it is.
    when: u32,
    /// By which operation, and as which of its chunks.
    by: (u32, u32),
}

/// The accesses to each place, and the knowledge of ranks after each phase.
struct LandingCheck<'o> {
    order: &'o PhaseOrder<'o>,
    places: Vec<PlaceNumbers>,
    accesses: Vec<Vec<Vec<PlaceAccess>>>,
    known: Vec<Vec<PhaseKnowledge>>,
}

impl<'o> LandingCheck<'o> {
    fn new(order: &'o PhaseOrder<'o>, pulls: bool) -> Self {
        let places: Vec<PlaceNumbers> = order.plans.iter().map(places).collect();
        let cells = places.iter().map(|p| vec![Vec::new(); p.per_rank]).collect();
        let mut land = LandingCheck { order, places, accesses: cells, known: Vec::new() };
        for (id, node) in order.nodes.iter().enumerate() {
            let (id, when) = (count(id), node.phase);
            for input in &node.op.inputs {
                if let OperationInput::Local(region) = input {
                    land.touch(node.rank, region, when, id);
                }
            }
            if let Some(store) = &node.op.store {
                land.touch(node.rank, &store.region, when, id);
            }
            for (k, out) in node.op.outs.iter().enumerate().filter(|_| pulls) {
                if let (Some(region), Some((wire, number))) = (&out.pull, order.message(id, 1, k)) {
                    let reader = order.wires[index(wire)].messages[index(number)][1].0;
                    land.touch(node.rank, region, when, reader);
                }
            }
        }
        land.known = known(order);
        land
    }

    fn touch(&mut self, rank: u32, region: &PlanRegion, when: u32, by: u32) {
        for (k, (buf, c)) in region.iter().enumerate() {
            let at = self.places[index(rank)].local(buf, c);
            self.accesses[index(rank)][at].push(PlaceAccess { when, by: (by, count(k)) });
        }
    }

    /// Decides if the message that `from` sends may land in the region where `to` stores it. Returns the
    /// block barriers of the sender that this takes, or `None` if it may not land.
    fn allowed(&self, from: u32, to: u32, region: &PlanRegion) -> Option<Vec<(u32, u32)>> {
        let (sender, receiver) = (&self.order.nodes[index(from)], &self.order.nodes[index(to)]);
        let mut own = vec![0; self.order.plans.len()];
        arrive(self.order, &self.known, from, &mut own);
        let before = &self.known[index(sender.rank)][..index(sender.phase)];
        let mut barriers = Vec::new();
        for (k, (buf, c)) in region.iter().enumerate() {
            let at = self.places[index(receiver.rank)].local(buf, c);
            let cell = &self.accesses[index(receiver.rank)][at];
            for access in cell.iter().filter(|a| a.when < receiver.phase) {
                let by = &self.order.nodes[index(access.by.0)];
                if access.by == (from, count(k)) {
                    // The task that lands reads the same elements just before.
                } else if by.rank == sender.rank {
                    if by.phase >= sender.phase {
                        return None;
                    }
                    barriers.push((by.phase, sender.phase));
                } else if own[index(by.rank)] < by.phase + 2 {
                    let since = before.partition_point(|k| k[index(by.rank)] < by.phase + 2);
                    if since == before.len() {
                        return None;
                    }
                    barriers.push((count(since), sender.phase));
                }
            }
        }
        Some(barriers)
    }
}

/// Returns the knowledge of each rank when each of its phases is over, if all messages are waited for.
fn known(order: &PhaseOrder<'_>) -> Vec<Vec<PhaseKnowledge>> {
    let n = order.plans.len();
    let mut known: Vec<Vec<PhaseKnowledge>> = vec![Vec::new(); n];
    for &(rank, phase) in &order.sequence {
        let mut now = known[index(rank)].last().cloned().unwrap_or_else(|| vec![0; n]);
        for &id in &order.phases[index(rank)][index(phase)] {
            arrive(order, &known, id, &mut now);
        }
        known[index(rank)].push(now);
    }
    known
}

/// Adds what the messages of an operation tell.
fn arrive(
    order: &PhaseOrder<'_>,
    known: &[Vec<PhaseKnowledge>],
    id: u32,
    now: &mut PhaseKnowledge,
) {
    let node = &order.nodes[index(id)];
    for k in 0..node.op.inputs.len() {
        let Some((wire, number)) = order.message(id, 0, k) else { continue };
        let wire = &order.wires[index(wire)];
        if wire.source != wire.target {
            let from = &order.nodes[index(wire.messages[index(number)][0].0)];
            let [s, phase] = [index(from.rank), index(from.phase)];
            learn(now, &known[s][phase]);
            now[s] = now[s].max(from.phase + 2);
        }
    }
}
