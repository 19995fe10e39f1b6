//! Binding: a plan, an element count and a type become addresses and lengths.
//!
//! Everything that can be computed before a call is computed here, once, and kept: which bytes each
//! operation touches, in how many passes the plan is played, which connection ends it uses. What
//! remains for the data path is adding base addresses. Everything that could make the data path
//! touch memory it should not is checked here too, whoever made the plan (`check.rs`).
//!
//! The number of passes is a function of what all ranks have in common (header, count, type and slot
//! size), so that all ranks cut messages alike.

mod build;
mod check;
mod shape;

pub(crate) use build::bind;
pub(crate) use shape::{Shape, digest, mix};

use std::ops::Range;

use roundelay_compiler::plan::{Header, OpRef, Site, Wire};

use crate::backend::Kernel;
use crate::dtype::{DType, RedOp};

/// No address in this rank's memory.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// What tells one bound plan from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) hash: [u8; 16],
    pub(crate) count: u64,
    pub(crate) dtype: DType,
    pub(crate) op: RedOp,
}

/// A plan with addresses.
pub(crate) struct Bound {
    pub(crate) key: Key,
    /// The same on all ranks that make the same call.
    pub(crate) digest: u64,
    pub(crate) shape: Shape,
    pub(crate) kernel: Kernel,
    /// Operations of each lane, as indices into `steps`.
    pub(crate) lanes: Vec<Range<u32>>,
    pub(crate) steps: Vec<Step>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) outs: Vec<OutEnd>,
    pub(crate) after: Vec<OpRef>,
    pub(crate) drained: Vec<Drained>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) places: Vec<At>,
    pub(crate) sends: Vec<SendEnd>,
    /// Peer and channel of each receiving end, by receiver.
    pub(crate) froms: Vec<RecvEnd>,
    /// Largest number of inputs, and of outs and store, of a step.
    pub(crate) widest: usize,
    pub(crate) reads_input: bool,
    pub(crate) writes_output: bool,
    /// Whether all ranks are known to hold parts of this plan.
    pub(crate) agreed: bool,
    /// Whether the operator has a meaning for this plan.
    pub(crate) reduces: bool,
    /// What messages and errors need of the plan.
    pub(crate) header: Header,
    pub(crate) sites: Vec<Site>,
}

/// An operation.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) inputs: Range<u32>,
    pub(crate) outs: Range<u32>,
    pub(crate) after: Range<u32>,
    pub(crate) drained: Range<u32>,
    pub(crate) segments: Range<u32>,
    /// Which place of each segment the store is, or [`NOWHERE`].
    pub(crate) store: u32,
    pub(crate) dead: bool,
    /// Whether the stored result is not read soon and too long for the caches.
    pub(crate) stream: bool,
    /// Elements over all passes.
    pub(crate) elements: u64,
    pub(crate) site: u32,
    pub(crate) round: u32,
}

/// An input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand {
    /// The receiver, or [`NOWHERE`] for local memory.
    pub(crate) receiver: u32,
    /// Messages of the same connection that the operation takes before this one.
    pub(crate) ahead: u32,
    /// Which place of each segment it is (of the peer's memory for a message), or [`NOWHERE`].
    pub(crate) place: u32,
    /// Type and bytes of an element of the message.
    pub(crate) wire: Option<Wire>,
    pub(crate) size: u32,
    /// The lowest and the end of the highest byte of the peer's memory, from its base.
    pub(crate) span: (u64, u64),
}

/// An outgoing message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutEnd {
    /// Index into [`Bound::sends`].
    pub(crate) send: u32,
    pub(crate) sender: u32,
    pub(crate) wire: Option<Wire>,
    /// Bytes of an element of the message.
    pub(crate) size: u32,
    /// The buffer that may be offered for pulling, or [`NOWHERE`].
    pub(crate) buffer: u32,
    /// From which size on, in bytes, messages are offered.
    pub(crate) direct: usize,
    /// What lies before that buffer in the vector it is part of, in bytes.
    pub(crate) before: u64,
}

/// A message that the peer must have consumed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    /// Index into [`Bound::sends`].
    pub(crate) send: u32,
    pub(crate) message: u32,
}

/// A sending end that the plan uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendEnd {
    pub(crate) sender: u32,
    pub(crate) peer: u32,
    pub(crate) channel: u16,
    /// Messages a pass.
    pub(crate) messages: u64,
}

/// A receiving end that the plan uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecvEnd {
    pub(crate) receiver: u32,
    pub(crate) peer: u32,
    pub(crate) channel: u16,
}

/// Elements that lie together in every operand of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) elements: u64,
    /// Its first place.
    pub(crate) places: u32,
}

/// A place in one of this rank's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// Index of the buffer: 0 data, 1 input, 2 output, then scratch buffers.
    pub(crate) buffer: u32,
    /// Bytes from its base.
    pub(crate) offset: u64,
}

impl Bound {
    /// `collective.algorithm`.
    pub(crate) fn name(&self) -> String {
        format!("{}.{}", self.header.collective, self.header.algorithm)
    }

    /// The call in words.
    pub(crate) fn describe(&self) -> String {
        let Key { hash, count, dtype, op } = &self.key;
        let hash: String = hash[..4].iter().map(|b| format!("{b:02x}")).collect();
        format!("{} of {count} x {dtype} with {op} (plan {hash})", self.name())
    }

    /// Elements that a step moves in a pass.
    pub(crate) fn elements(&self, step: &Step, pass: u32) -> u64 {
        if self.shape.passes == 1 {
            return step.elements;
        }
        let segments = &self.segments[step.segments.start as usize..step.segments.end as usize];
        segments.iter().map(|s| self.shape.piece(s.elements, pass).1).sum()
    }
}
