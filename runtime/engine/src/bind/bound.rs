//! A plan with addresses.

use std::ops::Range;

use roundelay_compiler::plan::{OpRef, PathShares, Plan, PlanHeader, SourceLine, WireType};

use super::key::PlanKey;
use super::shape::{CallShape, PassDivision, digest};
use super::stats::CallStats;
use super::transfer::BatchShape;
use roundelay_net::endpoints::{RecvEnd, SendEnd};
use roundelay_support::backend::HostKernel;
use roundelay_support::waiting::AwaitedEvent;

/// The index that stands for no address in this rank's memory.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// A plan with addresses.
pub(crate) struct BoundPlan {
    pub(crate) key: PlanKey,
    /// Elements of each block, where they differ.
    pub(crate) counts: Vec<u64>,
    /// Shares of the parts of a split by bandwidth.
    pub(crate) shares: Option<PathShares>,
    /// The digest of the call, the same on all ranks that make it.
    pub(crate) digest: u64,
    pub(crate) shape: CallShape,
    pub(crate) kernel: HostKernel,
    /// Operations of each lane, as indices into `steps`.
    pub(crate) lanes: Vec<Range<u32>>,
    /// The part that each lane executes, where the plan is split by bandwidth.
    pub(crate) parts: Vec<Option<u16>>,
    pub(crate) steps: Vec<BoundStep>,
    pub(crate) operands: Vec<StepOperand>,
    pub(crate) outs: Vec<OutEnd>,
    pub(crate) after: Vec<OpRef>,
    pub(crate) drained: Vec<DrainedMessage>,
    pub(crate) segments: Vec<StepSegment>,
    pub(crate) places: Vec<BufferPlace>,
    pub(crate) sends: Vec<SendEnd>,
    /// Peer and channel of each receiving end, by receiver.
    pub(crate) froms: Vec<RecvEnd>,
    /// Largest number of inputs, and of outs and store, of a step.
    pub(crate) widest: usize,
    pub(crate) reads_input: bool,
    pub(crate) writes_output: bool,
    /// True if all ranks are known to hold parts of this plan.
    pub(crate) agreed: bool,
    /// True if any link is a socket.
    pub(crate) posted: bool,
    /// True if any message may stay in memory that peers read through the kernel.
    pub(crate) cma: bool,
    /// True if the operator has a meaning for this plan.
    pub(crate) reduces: bool,
    /// The transfers of a call, if all its messages are so short that they are in headers.
    pub(crate) short: Option<CallStats>,
    /// The parts of the plan that messages and errors need.
    pub(crate) header: PlanHeader,
    pub(crate) sites: Vec<SourceLine>,
    /// The messages that this was made of, if not of a plan.
    pub(crate) batch: Option<BatchShape>,
}

/// An operation.
#[derive(Debug, Clone)]
pub(crate) struct BoundStep {
    pub(crate) inputs: Range<u32>,
    pub(crate) outs: Range<u32>,
    pub(crate) after: Range<u32>,
    pub(crate) drained: Range<u32>,
    pub(crate) segments: Range<u32>,
    /// The index of the store among the places of each segment, or [`NOWHERE`].
    pub(crate) store: u32,
    pub(crate) dead: bool,
    /// True if the stored result is not read soon and too long for the caches.
    pub(crate) stream: bool,
    /// True if the only input is a message that can go straight to the store, if its link brings it bit by
    /// bit.
    pub(crate) lands: bool,
    /// The word that is mixed into the digest of its messages; 0 in plans.
    pub(crate) tag: u32,
    /// The division of its part into passes.
    pub(crate) pace: PassDivision,
    /// Elements over all passes.
    pub(crate) elements: u64,
    pub(crate) site: u32,
    pub(crate) round: u32,
}

/// An input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepOperand {
    /// The receiver, or [`NOWHERE`] for local memory.
    pub(crate) receiver: u32,
    /// Messages of the same connection that the operation takes before this one.
    pub(crate) ahead: u32,
    /// The index of the operand among the places of each segment (of the peer's memory for a message), or
    /// [`NOWHERE`].
    pub(crate) place: u32,
    /// Type and bytes of an element of the message.
    pub(crate) wire: Option<WireType>,
    pub(crate) size: u32,
    /// The lowest and the end of the highest byte of the peer's memory, from its base.
    pub(crate) span: (u64, u64),
    /// True if the message comes through a socket.
    pub(crate) posted: bool,
}

/// An outgoing message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutEnd {
    /// Index into [`BoundPlan::sends`].
    pub(crate) send: u32,
    pub(crate) sender: u32,
    pub(crate) wire: Option<WireType>,
    /// Bytes of an element of the message.
    pub(crate) size: u32,
    /// The buffer in which the content may stay, or [`NOWHERE`].
    pub(crate) buffer: u32,
    /// The size, in bytes, from which on it stays there if peers map it, or the link is a socket.
    pub(crate) direct: usize,
    /// The size from which on it stays there if peers can only read it through the kernel.
    pub(crate) cma: usize,
    /// The index among the places of each segment then, or [`NOWHERE`].
    pub(crate) place: u32,
    /// True if the link is a socket.
    pub(crate) posted: bool,
    /// The bytes before that buffer in the vector it is part of.
    pub(crate) before: u64,
}

/// A message that the peer must have consumed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainedMessage {
    /// Index into [`BoundPlan::sends`].
    pub(crate) send: u32,
    pub(crate) message: u32,
}

/// Elements that lie together in every operand of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSegment {
    pub(crate) elements: u64,
    /// Its first place.
    pub(crate) places: u32,
}

/// A place in one of this rank's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    /// Index of the buffer: 0 data, 1 input, 2 output, then scratch buffers.
    pub(crate) buffer: u32,
    /// Bytes from its base.
    pub(crate) offset: u64,
}

impl BoundPlan {
    /// Makes a plan without operations yet.
    pub(super) fn new(
        key: PlanKey,
        shape: CallShape,
        kernel: HostKernel,
        header: PlanHeader,
    ) -> Self {
        BoundPlan {
            key,
            counts: Vec::new(),
            shares: None,
            digest: 0,
            shape,
            kernel,
            lanes: Vec::new(),
            parts: Vec::new(),
            steps: Vec::new(),
            operands: Vec::new(),
            outs: Vec::new(),
            after: Vec::new(),
            drained: Vec::new(),
            segments: Vec::new(),
            places: Vec::new(),
            sends: Vec::new(),
            froms: Vec::new(),
            widest: 0,
            reads_input: false,
            writes_output: false,
            agreed: false,
            posted: false,
            cma: false,
            reduces: header.reduces,
            short: None,
            header,
            sites: Vec::new(),
            batch: None,
        }
    }

    /// Describes a call of a plan without elements: ranks compare it, and nothing is executed.
    pub(crate) fn without_elements(key: PlanKey, kernel: HostKernel, plan: &Plan) -> Self {
        let shape = CallShape::bytes(vec![0; 3]);
        BoundPlan {
            digest: digest(&key),
            ..BoundPlan::new(key, shape, kernel, plan.header.clone())
        }
    }

    /// Returns `collective.algorithm`, or the name of a batch.
    pub(crate) fn name(&self) -> String {
        match &self.batch {
            Some(batch) => batch.name.into(),
            None => format!("{}.{}", self.header.collective, self.header.algorithm),
        }
    }

    /// Returns the number of elements, or of those of each block.
    pub(crate) fn extent(&self) -> String {
        match self.counts.as_slice() {
            [] => self.key.count.to_string(),
            counts if counts.len() <= 16 => format!("{counts:?}"),
            counts => format!("{:?} and {} more", &counts[..16], counts.len() - 16),
        }
    }

    /// Describes the call in words.
    pub(crate) fn describe(&self) -> String {
        if self.batch.is_some() {
            return self.name();
        }
        let PlanKey { hash, dtype, op, .. } = &self.key;
        let hash: String = hash[..4].iter().map(|b| format!("{b:02x}")).collect();
        format!("{} of {} x {dtype} with {op} (plan {hash})", self.name(), self.extent())
    }

    /// Returns the number of passes in which a lane is executed.
    #[inline]
    pub(crate) fn passes(&self, lane: usize) -> u32 {
        let steps = &self.lanes[lane];
        if steps.is_empty() { 0 } else { self.steps[steps.start as usize].pace.passes }
    }

    /// Returns the inputs and the outgoing messages of a step.
    #[inline(always)]
    pub(crate) fn operands_of(&self, step: &BoundStep) -> (&[StepOperand], &[OutEnd]) {
        (
            &self.operands[step.inputs.start as usize..step.inputs.end as usize],
            &self.outs[step.outs.start as usize..step.outs.end as usize],
        )
    }

    /// Returns the connection ends that it uses.
    #[inline]
    pub(crate) fn ends(&self) -> (&[SendEnd], &[RecvEnd]) {
        (&self.sends, &self.froms)
    }

    /// Returns what a blocked lane of a rank waits for, and the rank it waits for.
    pub(crate) fn awaited(&self, blocked: LaneCondition, own: u32) -> (AwaitedEvent, u32) {
        let to = |send: u32| self.sends.get(send as usize).map_or(own, |s| s.peer);
        match blocked {
            LaneCondition::Message(receiver) => {
                let from = self.froms.iter().find(|f| f.receiver == receiver);
                (AwaitedEvent::Message, from.map_or(own, |f| f.peer))
            }
            LaneCondition::Room(send) => (AwaitedEvent::Room, to(send)),
            LaneCondition::Drained(send) => (AwaitedEvent::Drained, to(send)),
            LaneCondition::After(_) => (AwaitedEvent::Lane, own),
        }
    }

    /// Returns the elements that a step moves in a pass.
    pub(crate) fn elements(&self, step: &BoundStep, pass: u32) -> u64 {
        if step.pace.passes == 1 {
            return step.elements;
        }
        let segments = &self.segments[step.segments.start as usize..step.segments.end as usize];
        segments.iter().map(|s| step.pace.piece(s.elements, pass).1).sum()
    }
}

/// The condition that a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneCondition {
    /// An operation of another lane.
    After(OpRef),
    /// A message, by receiver.
    Message(u32),
    /// Room for a message, by index into the sends.
    Room(u32),
    /// The end of the peer's reads of this rank's memory, by index into the sends.
    Drained(u32),
}
