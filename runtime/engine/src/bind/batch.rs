//! Makes a [`BoundPlan`] of a batch of messages: no plan, only bytes from rank to rank.
//!
//! Every direction of every peer is a lane, and all lanes run side by side. A lane waits for
//! nothing but its own connection: a sending one for room, which the peer's receiving lane makes, a
//! receiving one for the next message, which the peer's sending lane posts. So batches that match
//! complete in whatever order their messages were listed.
//!
//! **Pieces.** A message longer than a slot travels in pieces of a slot each, a function of its
//! length alone, so that both ends cut alike. A message without content is one empty piece.
//!
//! **Tags.** The messages of a batch travel on a channel of their own, which no plan uses
//! (`Layout::batch_channel`). In place of a call's digest they carry a tag, made of element type and length: a
//! receiver that expects another message detects that at the first piece.

use std::time::Duration;

use roundelay_compiler::plan::{
    BufferPlacement, CopyPolicy, KEPT_BYTES, MessageDirection, PlanHeader,
};

use super::bound::{BoundPlan, BoundStep, BufferPlace, NOWHERE, OutEnd, StepOperand, StepSegment};
use super::build::STREAM_BYTES;
use super::key::PlanKey;
use super::shape::{CallShape, PassDivision};
use super::transfer::{BatchShape, BatchTransfer, content};
use crate::tunables::{BATCH_FOREIGN_BYTES_MIN, BATCH_PIECES_MAX, POSTED_DIRECT_BYTES_MIN};
use roundelay_net::endpoints::{EndpointTable, RecvEnd, SendEnd};
use roundelay_net::group::RankGroup;
use roundelay_net::net::{ConnectionId, WaitPolicy};
use roundelay_support::backend::HostKernel;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{ByteCount, Error};

/// The number of pieces in flight on a connection: as many small messages may be sent before one is received.
const SLOTS: u32 = 8;

/// Makes steps of a batch, and opens the connections that it uses. Buffer `i` of the call is the
/// memory of message `i`.
pub(crate) fn bind_batch(
    batch: BatchShape,
    group: &mut RankGroup,
    endpoints: &mut EndpointTable,
    timeout: Duration,
) -> Result<BoundPlan, Error> {
    let (own, channel) = (group.rank(), group.layout().batch_channel());
    let peers = batch.transfers.iter().map(|t| t.peer);
    let deadline = WaitPolicy { timeout, watch: &mut |_| None, members: &[] };
    let connection = |peer| ConnectionId { peer, channel, path: 0 };
    endpoints.connect(group, peers.filter(|&peer| peer != own).map(connection), deadline)?;
    let slot_bytes = group.layout().slot_bytes;
    let mut builder = BatchBuilder { slot_bytes, bound: empty(batch) };
    let transfers = builder.bound.batch.as_ref().map(|b| b.transfers.clone()).unwrap_or_default();
    builder.check(&transfers)?;
    builder.own_part(own, &transfers)?;
    let remote = |t: &&BatchTransfer| t.peer != own;
    let mut connections: Vec<(u32, MessageDirection)> =
        transfers.iter().filter(remote).map(|t| (t.peer, t.dir)).collect();
    // Every rank begins with its neighbour, so that not all turn to one rank at once.
    let size = group.size();
    connections.sort_unstable_by_key(|&(peer, dir)| match dir {
        MessageDirection::Send => ((peer + size - own) % size, dir),
        MessageDirection::Recv => ((own + size - peer) % size, dir),
    });
    connections.dedup();
    for (peer, dir) in connections {
        let posted = group.local(peer).is_none();
        builder.bound.posted |= posted;
        let first = builder.bound.steps.len() as u32;
        let listed = transfers.iter().enumerate();
        let listed = listed.filter(|(_, t)| (t.peer, t.dir) == (peer, dir));
        match dir {
            MessageDirection::Send => {
                let sender = endpoints.sender(group, connection(peer))?;
                let end = SendEnd { sender, peer, channel, path: 0, messages: 0, posted };
                listed.for_each(|(i, t)| builder.send(i, t, &end));
                builder.bound.sends.push(end);
            }
            MessageDirection::Recv => {
                let receiver = endpoints.receiver(group, connection(peer))?;
                let end = RecvEnd { receiver, peer, channel, path: 0, posted };
                listed.for_each(|(i, t)| builder.receive(i, t, &end));
                builder.bound.froms.push(end);
            }
        }
        builder.bound.lanes.push(first..builder.bound.steps.len() as u32);
    }
    endpoints.try_reach();
    Ok(builder.bound)
}

/// Makes a bound batch without steps. What plans say of the whole vector has no meaning here: the elements
/// are bytes, and the lengths are those of the messages.
fn empty(batch: BatchShape) -> BoundPlan {
    let key = PlanKey { hash: [0; 16], count: 0, dtype: DType::U8, op: RedOp::Sum };
    let lens: Vec<u64> = batch.transfers.iter().map(|t| t.bytes).collect();
    let (shape, kernel) = (CallShape::bytes(lens), HostKernel::copies(DType::U8));
    let mut bound = BoundPlan::new(key, shape, kernel, header(batch.name));
    (bound.widest, bound.agreed, bound.batch) = (2, true, Some(batch));
    bound
}

fn header(name: &str) -> PlanHeader {
    PlanHeader {
        hash: [0; 16],
        algorithm: String::new(),
        collective: name.into(),
        ranks: 0,
        root: 0,
        placement: BufferPlacement::OutOfPlace,
        chunks: 1,
        blocks: 1,
        input_chunks: 0,
        output_chunks: 0,
        scratch: Vec::new(),
        slots: SLOTS,
        pipeline: 1,
        message: 1,
        reduces: false,
        lossy: false,
        protocol: CopyPolicy::Auto,
        split: None,
    }
}

/// Returns the messages that a rank sends to itself, the first one sent with the first one received.
pub fn own_pairs(own: u32, transfers: &[BatchTransfer]) -> Result<Vec<(usize, usize)>, Error> {
    let mine = |dir| {
        let listed = transfers.iter().enumerate();
        listed.filter(move |(_, t)| (t.peer, t.dir) == (own, dir))
    };
    let (sent, received) =
        (mine(MessageDirection::Send).count(), mine(MessageDirection::Recv).count());
    if sent != received {
        return Err(Error::Usage(format!(
            "rank {own} sends {sent} messages to itself and receives {received}: what a rank \
             sends to itself it must receive in the same batch"
        )));
    }
    let pairs = mine(MessageDirection::Send).zip(mine(MessageDirection::Recv));
    let alike = pairs.map(|((from, send), (to, recv))| {
        match (send.dtype, send.bytes) == (recv.dtype, recv.bytes) {
            true => Ok((from, to)),
            false => Err(Error::Usage(format!(
                "rank {own} sends {} to itself, and receives {}: both must be alike",
                content(send.dtype, send.bytes),
                content(recv.dtype, recv.bytes)
            ))),
        }
    });
    alike.collect()
}

struct BatchBuilder {
    slot_bytes: u64,
    bound: BoundPlan,
}

impl BatchBuilder {
    fn check(&self, transfers: &[BatchTransfer]) -> Result<(), Error> {
        let all = transfers.iter().map(|t| u128::from(t.bytes.div_ceil(self.slot_bytes).max(1)));
        let pieces: u128 = all.sum();
        if pieces <= u128::from(BATCH_PIECES_MAX) {
            return Ok(());
        }
        Err(Error::Memory {
            what: "the messages of this call".into(),
            wanted: transfers.iter().fold(0, |sum, t| t.bytes.saturating_add(sum)),
            cause: format!(
                "in slots of {} they would take {pieces} pieces, and {BATCH_PIECES_MAX} is the most",
                ByteCount(self.slot_bytes)
            ),
            remedy: "start the ranks with larger slots (`--slot-bytes`)".into(),
            source: None,
        })
    }

    /// Adds the rank's messages to itself: copies, in a lane of their own.
    fn own_part(&mut self, own: u32, transfers: &[BatchTransfer]) -> Result<(), Error> {
        let first = self.bound.steps.len() as u32;
        for (from, to) in own_pairs(own, transfers)? {
            let send = &transfers[from];
            for (offset, len) in self.pieces(send.bytes) {
                self.local();
                let buffers = [from, to];
                self.step(send, to, &buffers, (offset, len), 1);
            }
        }
        let end = self.bound.steps.len() as u32;
        if end > first {
            self.bound.lanes.push(first..end);
        }
        Ok(())
    }

    fn send(&mut self, index: usize, transfer: &BatchTransfer, end: &SendEnd) {
        let direct = match end.posted {
            true => POSTED_DIRECT_BYTES_MIN,
            false if transfer.bytes >= KEPT_BYTES => 1,
            false => usize::MAX,
        };
        let far = !end.posted && transfer.bytes >= BATCH_FOREIGN_BYTES_MIN;
        let cma = if far { 1 } else { usize::MAX };
        self.bound.cma |= far;
        for (offset, len) in self.pieces(transfer.bytes) {
            self.local();
            self.bound.outs.push(OutEnd {
                send: self.bound.sends.len() as u32,
                sender: end.sender,
                wire: None,
                size: 1,
                buffer: index as u32,
                direct,
                cma,
                place: 0,
                before: 0,
                posted: end.posted,
            });
            self.step(transfer, index, &[index], (offset, len), NOWHERE);
        }
    }

    fn receive(&mut self, index: usize, transfer: &BatchTransfer, end: &RecvEnd) {
        for (offset, len) in self.pieces(transfer.bytes) {
            self.bound.operands.push(StepOperand {
                receiver: end.receiver,
                ahead: 0,
                // A piece lies as far from the beginning of the peer's memory as of this rank's.
                place: if end.posted { NOWHERE } else { 0 },
                wire: None,
                size: 1,
                span: (offset, offset + len),
                posted: end.posted,
            });
            self.step(transfer, index, &[index], (offset, len), 0);
            // A message that lands is written before its tag is compared, and not all bytes are a `bool`.
            let lands = transfer.dtype != DType::Bool;
            if let Some(step) = self.bound.steps.last_mut() {
                step.lands = lands;
            }
        }
    }

    /// Returns the pieces of a message: first byte and length.
    fn pieces(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let slot = self.slot_bytes;
        (0..bytes.div_ceil(slot).max(1)).map(move |k| (k * slot, slot.min(bytes - k * slot)))
    }

    /// Adds an operand in this rank's memory, at the first place of its step.
    fn local(&mut self) {
        self.bound.operands.push(StepOperand {
            receiver: NOWHERE,
            ahead: 0,
            place: 0,
            wire: None,
            size: 1,
            span: (0, 0),
            posted: false,
        });
    }

    /// Adds the step of the operand, and perhaps the message, that were listed last. A piece lies at the same
    /// offset in all these buffers; `store` is the place of the result among them.
    fn step(
        &mut self,
        transfer: &BatchTransfer,
        index: usize,
        buffers: &[usize],
        (offset, len): (u64, u64),
        store: u32,
    ) {
        let bound = &mut self.bound;
        let segments = bound.segments.len() as u32;
        if len > 0 {
            bound.segments.push(StepSegment { elements: len, places: bound.places.len() as u32 });
            bound.places.extend(buffers.iter().map(|&b| BufferPlace { buffer: b as u32, offset }));
        }
        let outs = bound.outs.len() as u32;
        let inputs = bound.operands.len() as u32;
        let out = u32::from(store == NOWHERE);
        bound.steps.push(BoundStep {
            pace: PassDivision::ONCE,
            inputs: inputs - 1..inputs,
            outs: outs - out..outs,
            after: 0..0,
            drained: 0..0,
            segments: segments..bound.segments.len() as u32,
            store,
            dead: false,
            stream: transfer.bytes >= STREAM_BYTES,
            lands: false,
            tag: transfer.tag(),
            elements: len,
            site: 0,
            round: index as u32,
        });
    }
}
