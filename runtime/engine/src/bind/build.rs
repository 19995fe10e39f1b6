//! Makes a [`BoundPlan`] of a plan.

use std::time::Duration;

use roundelay_compiler::plan::{
    CACHED_VECTOR, ChunkSizes, ConnectionEnd, CopyPolicy, MessageDirection, OperationInput,
    OperationOutput, Plan, PlanBuffer, PlanOperation, PlanRegion,
};

use super::bound::{
    BoundPlan, BoundStep, BufferPlace, DrainedMessage, NOWHERE, OutEnd, StepOperand, StepSegment,
};
use super::check::{chunk_by_chunk, damaged, lanes_apart, places, references};
use super::key::{CallSizing, PlanKey};
use super::shape::{CallShape, PassDivision, digest};
use super::short::short;
use crate::tunables::{
    POSTED_DIRECT_BYTES_MIN, STREAM_SEARCH_OPERATIONS, UNSLOTTED_BYTES_MIN,
    UNSLOTTED_BYTES_MIN_CROWDED,
};
use roundelay_net::endpoints::{EndpointTable, RecvEnd, SendEnd};
use roundelay_net::group::RankGroup;
use roundelay_net::net::{ConnectionId, WaitPolicy};
use roundelay_support::backend::HostKernel;
use roundelay_support::digest::mix;
use roundelay_support::error::Error;

/// The index of the input among the buffers.
const INPUT: u32 = 1;

/// The size of calls from which on results that are not read again soon are streamed: they bypass the
/// caches.
pub(super) const STREAM_BYTES: u64 = CACHED_VECTOR;

/// Makes addresses of a plan, and opens the connections that it uses.
pub(crate) fn bind(
    plan: &Plan,
    key: PlanKey,
    sizing: CallSizing<'_>,
    kernel: HostKernel,
    group: &mut RankGroup,
    endpoints: &mut EndpointTable,
    timeout: Duration,
) -> Result<BoundPlan, Error> {
    references(plan, group)?;
    let slot_bytes = group.layout().slot_bytes;
    let CallSizing { counts, shares } = sizing;
    let shape =
        CallShape::new(&plan.header, group.rank(), key.count, sizing, key.dtype, slot_bytes)?;
    if !counts.is_empty() {
        chunk_by_chunk(plan, &shape)?;
    }
    if shape.passes() > 1 {
        lanes_apart(plan)?;
    }
    let part = &plan.part;
    let ops = || part.lanes.iter().flat_map(|lane| &lane.ops);
    let words = shares.map_or(&[][..], |s| s.list()).iter().map(|&s| u64::from(s));
    let digest = counts.iter().copied().chain(words).fold(digest(&key), mix);
    let mut bound = BoundPlan::new(key, shape, kernel, plan.header.clone());
    (bound.digest, bound.counts, bound.sites) = (digest, counts.to_vec(), part.sites.clone());
    bound.shares = shares.cloned();
    bound.widest = ops().map(|op| op.inputs.len().max(op.outs.len() + 1)).max().unwrap_or(0);
    let deadline = WaitPolicy { timeout, watch: &mut |_| None, members: &[] };
    let id = |c: &ConnectionEnd| ConnectionId { peer: c.peer, channel: c.channel, path: c.path };
    let used = used_connections(plan, &bound.shape);
    let wanted = part.conns.iter().zip(&used).filter(|(_, used)| **used);
    endpoints.connect(group, wanted.map(|(c, _)| id(c)), deadline)?;
    let crowded = group.layout().crowded;
    let mut builder = PlanBinder { plan, kernel, crowded, connections: Vec::new() };
    for (conn, used) in part.conns.iter().zip(used) {
        if !used {
            builder.connections.push(NOWHERE);
            continue;
        }
        let ConnectionEnd { peer, channel, path, .. } = *conn;
        let posted = group.local(peer).is_none();
        builder.connections.push(match conn.dir {
            MessageDirection::Send => {
                let sender = endpoints.sender(group, id(conn))?;
                let messages = conn.messages.into();
                bound.sends.push(SendEnd { sender, peer, channel, path, messages, posted });
                bound.sends.len() - 1
            }
            MessageDirection::Recv => {
                let receiver = endpoints.receiver(group, id(conn))?;
                bound.froms.push(RecvEnd { receiver, peer, channel, path, posted });
                bound.froms.len() - 1
            }
        } as u32);
    }
    bound.posted = bound.sends.iter().any(|s| s.posted) || bound.froms.iter().any(|f| f.posted);
    for (l, lane) in part.lanes.iter().enumerate() {
        let first = bound.steps.len() as u32;
        let pace = bound.shape.pace(lane.part);
        for (i, op) in lane.ops.iter().enumerate() {
            let Some(pace) = pace else { break };
            let step = builder.step(&mut bound, op, pace, (l, i))?;
            bound.steps.push(step);
        }
        bound.lanes.push(first..bound.steps.len() as u32);
        bound.parts.push(lane.part);
    }
    bound.short = short(&bound);
    Ok(bound)
}

/// Returns true for each connection that is used: not for those of parts without elements.
fn used_connections(plan: &Plan, shape: &CallShape) -> Vec<bool> {
    let mut used = vec![plan.header.split.is_none(); plan.part.conns.len()];
    for lane in plan.part.lanes.iter().filter(|lane| shape.pace(lane.part).is_some()) {
        for op in &lane.ops {
            let received = op.inputs.iter().filter_map(|input| match input {
                OperationInput::Message { conn, .. } => Some(*conn),
                OperationInput::Local(_) => None,
            });
            received
                .chain(op.outs.iter().map(|out| out.conn))
                .for_each(|c| used[c as usize] = true);
        }
    }
    used
}

struct PlanBinder<'a> {
    plan: &'a Plan,
    kernel: HostKernel,
    /// True if ranks share cores.
    crowded: bool,
    /// The index of each connection end of the plan in `sends` or `froms`.
    connections: Vec<u32>,
}

impl PlanBinder<'_> {
    fn step(
        &mut self,
        bound: &mut BoundPlan,
        op: &PlanOperation,
        pace: PassDivision,
        at: (usize, usize),
    ) -> Result<BoundStep, Error> {
        let lens = lens(&bound.shape, pace, &op.sizes)?;
        let mut regions: Vec<Vec<(usize, u64)>> = Vec::new();
        let inputs = bound.operands.len() as u32;
        for input in &op.inputs {
            let mut operand = self.operand(bound, input, &lens, &mut regions)?;
            let before = &bound.operands[inputs as usize..];
            operand.ahead = before.iter().filter(|o| o.receiver == operand.receiver).count() as u32;
            bound.operands.push(operand);
        }
        let mut store = NOWHERE;
        if let Some(s) = &op.store {
            store = regions.len() as u32;
            regions.push(places(&bound.shape, &s.region, &lens)?);
            bound.writes_output |= mentions(&s.region, PlanBuffer::Output);
            if mentions(&s.region, PlanBuffer::Input) {
                return damaged("it writes to the input".into());
            }
        }
        let outs = bound.outs.len() as u32;
        for out in &op.outs {
            let out = self.out(bound, out, &lens, &mut regions)?;
            bound.outs.push(out);
        }
        let after = bound.after.len() as u32;
        bound.after.extend(&op.after);
        let drained = bound.drained.len() as u32;
        let refs = op.drained.iter();
        bound.drained.extend(refs.map(|r| DrainedMessage {
            send: self.connections[r.conn as usize],
            message: r.message,
        }));
        let segments = bound.segments.len() as u32;
        segment(bound, pace, &lens, &regions);
        let messages = |operand: &&StepOperand| operand.receiver != NOWHERE;
        let mut messages = bound.operands[inputs as usize..].iter().filter(messages);
        let lands = match (messages.next(), messages.next()) {
            (Some(only), None) => only.wire.is_none() && store != NOWHERE,
            _ => false,
        };
        Ok(BoundStep {
            inputs: inputs..bound.operands.len() as u32,
            outs: outs..bound.outs.len() as u32,
            after: after..bound.after.len() as u32,
            drained: drained..bound.drained.len() as u32,
            segments: segments..bound.segments.len() as u32,
            store,
            dead: op.store.as_ref().is_some_and(|s| s.dead),
            stream: self.is_last_use(&bound.shape, op, at),
            lands,
            tag: 0,
            pace,
            elements: lens.iter().sum(),
            site: op.site,
            round: op.round,
        })
    }

    fn operand(
        &self,
        bound: &mut BoundPlan,
        input: &OperationInput,
        lens: &[u64],
        regions: &mut Vec<Vec<(usize, u64)>>,
    ) -> Result<StepOperand, Error> {
        let shape = &bound.shape;
        let (size, place) = (shape.size as u32, regions.len() as u32);
        let none = StepOperand {
            receiver: NOWHERE,
            ahead: 0,
            place,
            wire: None,
            size,
            span: (0, 0),
            posted: false,
        };
        match input {
            OperationInput::Local(region) => {
                regions.push(places(shape, region, lens)?);
                bound.reads_input |= mentions(region, PlanBuffer::Input);
                Ok(none)
            }
            OperationInput::Message { conn, wire, pull } => {
                let RecvEnd { receiver, posted, .. } =
                    bound.froms[self.connections[*conn as usize] as usize];
                let size = self.wire_size(*wire)?;
                let none = StepOperand { receiver, wire: *wire, size, posted, ..none };
                let Some(region) = pull.as_ref().filter(|_| !posted) else {
                    return Ok(StepOperand { place: NOWHERE, ..none });
                };
                let at = places(shape, region, lens)?;
                let low = at.iter().map(|&(_, first)| first).min().unwrap_or(0);
                let ends = at.iter().zip(lens).map(|(&(_, first), len)| first + len);
                let span = (low * shape.size, ends.max().unwrap_or(0) * shape.size);
                regions.push(at);
                Ok(StepOperand { span, ..none })
            }
        }
    }

    fn out(
        &self,
        bound: &mut BoundPlan,
        out: &OperationOutput,
        lens: &[u64],
        regions: &mut Vec<Vec<(usize, u64)>>,
    ) -> Result<OutEnd, Error> {
        let shape = &bound.shape;
        let send = self.connections[out.conn as usize];
        let SendEnd { sender, posted, .. } = bound.sends[send as usize];
        let (mut buffer, mut before, mut place) = (NOWHERE, 0, NOWHERE);
        if let Some(region) = out.pull.as_ref().filter(|_| out.wire.is_none()) {
            let at = places(shape, region, lens)?;
            if let Some(piece) = region.pieces.first() {
                let index = shape.index(piece.buf).unwrap_or(0);
                if u64::from(out.origin) >= shape.chunks {
                    return Err(Error::Plan("an offer begins beyond the vector".into()));
                }
                before = shape.origin(index, out.origin.into()) * shape.size;
                buffer = index as u32;
            }
            if posted || self.plan.header.protocol != CopyPolicy::Staged {
                place = regions.len() as u32;
                regions.push(at);
            }
        }
        let size = self.wire_size(out.wire)?;
        let direct = match posted && place != NOWHERE {
            false => self.direct(&bound.shape, buffer),
            true => POSTED_DIRECT_BYTES_MIN,
        };
        let stays = !posted && buffer != NOWHERE && place != NOWHERE;
        let cma = match stays {
            true if self.crowded => UNSLOTTED_BYTES_MIN_CROWDED,
            true => UNSLOTTED_BYTES_MIN,
            false => usize::MAX,
        };
        bound.cma |= lens.iter().sum::<u64>() * bound.shape.size >= cma as u64;
        Ok(OutEnd {
            send,
            sender,
            wire: out.wire,
            size,
            buffer,
            direct,
            cma,
            before,
            place,
            posted,
        })
    }

    /// Returns the size from which on messages out of a buffer are offered for pulling.
    fn direct(&self, shape: &CallShape, buffer: u32) -> usize {
        if buffer == NOWHERE {
            return usize::MAX;
        }
        let (input, vector) = (buffer == INPUT, shape.elements * shape.size);
        let receives = self.plan.part.conns.iter().any(|conn| conn.dir == MessageDirection::Recv);
        let protocol = self.plan.header.protocol;
        let least = protocol.direct_from(input, vector, self.crowded, receives);
        usize::try_from(least).unwrap_or(usize::MAX)
    }

    fn wire_size(&self, wire: Option<roundelay_compiler::plan::WireType>) -> Result<u32, Error> {
        let size = self.kernel.wire_size(wire).map_err(|e| Error::Unsupported(e.to_string()))?;
        Ok(size as u32)
    }

    /// Returns true if the store of an operation is long and not read afterwards in this call, as far as a
    /// glance shows: not offered, and not read by operations that may come later.
    fn is_last_use(
        &self,
        shape: &CallShape,
        op: &PlanOperation,
        (lane, index): (usize, usize),
    ) -> bool {
        let lanes = &self.plan.part.lanes;
        let Some(store) = &op.store else { return false };
        if shape.elements * shape.size < STREAM_BYTES
            || lanes.iter().map(|l| l.ops.len()).sum::<usize>() > STREAM_SEARCH_OPERATIONS
            || op.outs.iter().any(|o| o.pull.is_some())
        {
            return false;
        }
        let mut others = lanes
            .iter()
            .enumerate()
            .flat_map(|(l, lane)| lane.ops.iter().enumerate().map(move |(i, o)| (l, i, o)));
        !others.any(|(l, i, other)| {
            let earlier = l == lane && i <= index
                || op.after.iter().any(|r| usize::from(r.lane) == l && r.op as usize >= i)
                || op.drained.iter().any(|m| other.outs.iter().any(|o| o.conn == m.conn));
            !earlier && reads(other).any(|region| region.overlaps(&store.region))
        })
    }
}

fn reads(op: &PlanOperation) -> impl Iterator<Item = &PlanRegion> {
    let local = op.inputs.iter().filter_map(|input| match input {
        OperationInput::Local(region) => Some(region),
        OperationInput::Message { .. } => None,
    });
    local.chain(op.outs.iter().filter_map(|out| out.pull.as_ref()))
}

fn mentions(region: &PlanRegion, buf: PlanBuffer) -> bool {
    region.pieces.iter().any(|piece| piece.buf == buf)
}

fn lens(shape: &CallShape, pace: PassDivision, sizes: &ChunkSizes) -> Result<Vec<u64>, Error> {
    match sizes {
        ChunkSizes::Full(n) => Ok(vec![pace.ceil; *n as usize]),
        ChunkSizes::Of(sets) => {
            if sets.iter().any(|s| s.modulus == 0 || s.block == 0 && s.total > 0) {
                return damaged("it has a chunk set without chunks".into());
            }
            let mut chunks = sets.iter().flat_map(|s| s.iter()).map(u64::from);
            chunks
                .try_fold(Vec::new(), |mut lens, chunk| {
                    lens.push((chunk < shape.chunks).then(|| shape.len(chunk))?);
                    Some(lens)
                })
                .map_or_else(|| damaged("a size names a chunk that does not exist".into()), Ok)
        }
    }
}

/// Cuts the chunks of a step into segments. In one pass, chunks that lie together in every
/// operand are one segment; in several passes each chunk is, for each pass takes a part of each.
fn segment(bound: &mut BoundPlan, pace: PassDivision, lens: &[u64], regions: &[Vec<(usize, u64)>]) {
    let size = bound.shape.size;
    let mut k = 0;
    while k < lens.len() {
        let (first, mut elements) = (k, lens[k]);
        k += 1;
        while pace.passes == 1
            && k < lens.len()
            && regions.iter().all(|r| r[k] == (r[first].0, r[first].1 + elements))
        {
            elements += lens[k];
            k += 1;
        }
        if elements == 0 {
            continue;
        }
        let places = bound.places.len() as u32;
        bound.places.extend(regions.iter().map(|region| BufferPlace {
            buffer: region[first].0 as u32,
            offset: region[first].1 * size,
        }));
        bound.segments.push(StepSegment { elements, places });
    }
}
