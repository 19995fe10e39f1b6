//! One rank's operations, round by round, with sends fused into the operations that made what they
//! send.

use std::collections::BTreeMap;

use roundelay_dsl::ast::TransferOp as Does;
use roundelay_dsl::diag::{Diagnostic, codes};

use super::deps::RankDependences;
use super::memory::memory;
use super::offer::{may_stay, single};
use super::place::PlaceMapping;
use super::place_set::PlaceSet;
use super::sites::SourceSites;
use super::slots::fusion_slots;
use crate::graph::ChunkTransfer;
use crate::instance::ProgramInstance;
use crate::num::{count, index, short};
use crate::places::PlaceNumbers;
use crate::plan::{
    BufferPlacement, ChunkSizes, ConnectionEnd, MessageDirection, OpRef, OperationInput,
    OperationOutput, OperationStore, PlanLane, PlanOperation, PlanRegion,
};
use crate::walk::SumLengths;

/// The most messages that an operation may carry away.
const MAX_OUTS: usize = 8;

/// Builds the lanes of one rank.
pub(super) struct LaneBuilder<'a> {
    instance: &'a ProgramInstance,
    lengths: &'a SumLengths,
    rank: u32,
    place: PlaceMapping,
    lanes: Vec<PlanLane>,
    conns: Vec<ConnectionEnd>,
    index: BTreeMap<(u32, u16, MessageDirection), u32>,
    /// For each connection that sends: lane and operation of its latest message, and the rounds in which its
    /// messages will be consumed.
    sent: Vec<Option<OpRef>>,
    consumed: Vec<Vec<u32>>,
    deps: RankDependences,
    /// Places of the program's own buffers, and those that the round at hand writes.
    places: PlaceNumbers,
    overwritten: PlaceSet,
    /// The slots that fusion counts on; see [`fusion_slots`].
    slots: usize,
    /// Results that no round writes, until they are copied: from where, to where.
    rest: Option<(PlanRegion, PlanRegion)>,
}

impl<'a> LaneBuilder<'a> {
    pub(super) fn new(
        instance: &'a ProgramInstance,
        lengths: &'a SumLengths,
        placement: BufferPlacement,
        rank: u32,
        transfers: &[&ChunkTransfer],
    ) -> Self {
        let places = PlaceNumbers::new(instance);
        let place = PlaceMapping::new(instance, placement, rank);
        let written = transfers.iter().filter(|t| t.dst == rank).map(|t| &t.to);
        let rest = place.rest(instance, written);
        LaneBuilder {
            instance,
            lengths,
            rank,
            place,
            rest,
            lanes: vec![PlanLane::default()],
            conns: Vec::new(),
            index: BTreeMap::new(),
            sent: Vec::new(),
            consumed: Vec::new(),
            deps: RankDependences::new(memory(instance, placement)),
            places,
            overwritten: PlaceSet::default(),
            slots: index(fusion_slots(instance.slots)),
        }
    }

    pub(super) fn into_parts(self) -> (Vec<PlanLane>, Vec<ConnectionEnd>) {
        (self.lanes, self.conns)
    }

    fn conn(&mut self, peer: u32, t: &ChunkTransfer, dir: MessageDirection) -> u32 {
        let (channel, path) = (t.lane, t.path);
        let next = count(self.conns.len());
        let i = *self.index.entry((peer, channel, dir)).or_insert(next);
        if i == next {
            self.conns.push(ConnectionEnd { peer, channel, path, dir, messages: 0 });
            self.sent.push(None);
            self.consumed.push(Vec::new());
        }
        i
    }

    /// Lowers what the rank does in one round.
    pub(super) fn round(
        &mut self,
        round: &[&ChunkTransfer],
        sites: &mut SourceSites<'_>,
    ) -> Result<(), Diagnostic> {
        let number = round[0].round;
        let mut incoming: Vec<&ChunkTransfer> = Vec::new();
        let mut sends: Vec<&ChunkTransfer> = Vec::new();
        self.overwritten.clear();
        for t in round {
            if t.dst == self.rank {
                self.places.ranges(&t.to).for_each(|range| self.overwritten.insert(range));
                incoming.push(t);
            } else {
                sends.push(t);
            }
        }
        // Local work whose source is overwritten in this round goes through a message to oneself.
        let through: Vec<bool> =
            incoming.iter().map(|t| t.src == self.rank && self.is_overwritten(&t.from)).collect();
        let looped: Vec<&ChunkTransfer> =
            incoming.iter().zip(&through).filter(|(_, th)| **th).map(|(t, _)| *t).collect();
        sends.extend(looped.iter());
        // Both ends order the messages of a round by the region written, then by key.
        sends.sort_by(|a, b| (&a.to, &a.key).cmp(&(&b.to, &b.key)));
        for t in sends {
            self.send(t, number, sites);
        }
        let mut order: Vec<(&ChunkTransfer, bool)> = incoming.into_iter().zip(through).collect();
        order.sort_by(|a, b| (&a.0.to, &a.0.key).cmp(&(&b.0.to, &b.0.key)));
        // What needs no message is done while messages are on their way.
        let waits =
            |group: &[(&ChunkTransfer, bool)]| group.iter().any(|(t, th)| t.src != t.dst || *th);
        let mut groups: Vec<_> = order.chunk_by(|a, b| a.0.to == b.0.to).collect();
        groups.sort_by_key(|group| waits(group));
        for group in groups {
            if waits(group) {
                self.copy_rest(sites);
            }
            self.write(group, sites)?;
        }
        for (t, _) in &order {
            self.place.wrote(&t.to);
        }
        Ok(())
    }

    fn is_overwritten(&self, region: &PlanRegion) -> bool {
        self.places.ranges(region).any(|range| self.overwritten.overlaps(range))
    }

    fn lane(&mut self, t: &ChunkTransfer) -> usize {
        let lane = index(t.lane);
        while self.lanes.len() <= lane {
            self.lanes.push(PlanLane::default());
        }
        self.lanes[lane].part = t.part;
        lane
    }

    /// Returns the region that the peer may read in place; `None` if it may not.
    fn offer(&self, t: &ChunkTransfer, local: &PlanRegion) -> Option<PlanRegion> {
        let overwritten = || self.is_overwritten(&t.from);
        may_stay(self.instance, t, local, overwritten).then(|| local.clone())
    }

    fn send(&mut self, t: &ChunkTransfer, round: u32, sites: &mut SourceSites<'_>) {
        let conn = self.conn(t.dst, t, MessageDirection::Send);
        let message = self.conns[index(conn)].messages;
        let from = self.place.read(&t.from);
        let sizes = self.lengths.of(t);
        let pull = self.offer(t, &from);
        let origin = pull.as_ref().map_or(0, |local| self.place.origin(&t.from, local));
        let out = OperationOutput { conn, wire: t.wire, pull, origin };
        let lane = self.lane(t);
        let at = match self.fusible(&from, &sizes, short(lane), conn, round) {
            Some(at) => {
                self.lanes[lane].ops[index(at.op)].outs.push(out.clone());
                at
            }
            None => {
                let op = PlanOperation {
                    inputs: vec![OperationInput::Local(from.clone())],
                    store: None,
                    outs: vec![out.clone()],
                    sizes,
                    after: Vec::new(),
                    drained: Vec::new(),
                    site: sites.of(t.span),
                    round,
                };
                self.push(lane, op)
            }
        };
        if let Some(region) = &out.pull {
            self.deps.offered(region, conn, message);
        }
        self.conns[index(conn)].messages += 1;
        self.sent[index(conn)] = Some(at);
        self.consumed[index(conn)].push(round);
    }

    /// Returns the operation that stored exactly this region last, if the message can leave with it: it is on
    /// the same lane, in an earlier round, and no message of the connection left later. So that slots suffice
    /// whatever the peers do, the message whose slot is reused must be consumed in an earlier round too.
    fn fusible(
        &self,
        from: &PlanRegion,
        sizes: &ChunkSizes,
        lane: u16,
        conn: u32,
        round: u32,
    ) -> Option<OpRef> {
        let at = self.deps.writer(from)?;
        let op = self.lanes[index(lane)].ops.get(index(at.op))?;
        let consumed = &self.consumed[index(conn)];
        let free = consumed.len() < self.slots || consumed[consumed.len() - self.slots] < op.round;
        let fits = at.lane == lane
            && op.round < round
            && op.store.as_ref().is_some_and(|s| s.region == *from)
            && op.sizes == *sizes
            && op.outs.len() < MAX_OUTS
            && self.sent[index(conn)].is_none_or(|last| last.lane == lane && last.op < at.op)
            && free;
        fits.then_some(at)
    }

    /// Adds one operation for all writes of a round into one region.
    fn write(
        &mut self,
        group: &[(&ChunkTransfer, bool)],
        sites: &mut SourceSites<'_>,
    ) -> Result<(), Diagnostic> {
        let first = group[0].0;
        let copied = group.iter().any(|(t, _)| t.op == Does::Copy);
        let mut operands: Vec<(u32, bool, OperationInput)> =
            Vec::with_capacity(group.len() + usize::from(!copied));
        let own = self.lengths.of(first);
        for (t, through) in group {
            // Of chunks of the vector, the proof of the rounds showed that they are of one class.
            let size = self.lengths.of(t);
            if size != own && !matches!((&own, &size), (ChunkSizes::Of(_), ChunkSizes::Of(_))) {
                return Err(unlike(t));
            }
            let input = if t.src == self.rank && !through {
                OperationInput::Local(self.place.read(&t.from))
            } else {
                let conn = self.conn(t.src, t, MessageDirection::Recv);
                self.conns[index(conn)].messages += 1;
                let pull =
                    (t.wire.is_none() && t.src != t.dst && single(&t.from)).then(|| t.from.clone());
                OperationInput::Message { conn, wire: t.wire, pull }
            };
            operands.push((t.src, true, input));
        }
        if !copied {
            operands.push((self.rank, false, OperationInput::Local(self.place.read(&first.to))));
        }
        // In order of source rank; the old value before what the rank itself adds.
        operands.sort_by_key(|o| (o.0, o.1));
        let lane = self.lane(first);
        let op = PlanOperation {
            inputs: operands.into_iter().map(|o| o.2).collect(),
            store: Some(OperationStore { region: self.place.write(&first.to), dead: false }),
            outs: Vec::new(),
            sizes: own,
            after: Vec::new(),
            drained: Vec::new(),
            site: sites.of(first.span),
            round: first.round,
        };
        self.push(lane, op);
        Ok(())
    }

    fn push(&mut self, lane: usize, mut op: PlanOperation) -> OpRef {
        let at = OpRef { lane: short(lane), op: count(self.lanes[lane].ops.len()) };
        self.deps.order(at, &mut op);
        self.lanes[lane].ops.push(op);
        at
    }

    /// Copies the results that no round writes, before the first wait for a message, or else at the end:
    /// their source is never written, nor is their target read.
    pub(super) fn copy_rest(&mut self, sites: &mut SourceSites<'_>) {
        let Some((from, to)) = self.rest.take() else { return };
        let chunks = to.pieces.iter().map(|p| p.set).collect();
        let op = PlanOperation {
            inputs: vec![OperationInput::Local(from)],
            store: Some(OperationStore { region: to, dead: false }),
            outs: Vec::new(),
            sizes: ChunkSizes::Of(chunks),
            after: Vec::new(),
            drained: Vec::new(),
            site: sites.of(self.instance.program.header),
            round: u32::MAX,
        };
        self.push(0, op);
    }
}

/// Returns the diagnostic for operands of one sum of which it is not known that they have the same number of
/// elements.
fn unlike(t: &ChunkTransfer) -> Diagnostic {
    Diagnostic::error(
        codes::SIZES,
        "operands of one sum come from scratch and from the vector, whose chunks may differ in bytes",
    )
    .label(t.span, "here")
    .help("move the operands to scratch first, or sum them in separate `each`")
}
