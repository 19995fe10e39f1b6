//! A call of a plan: what is left of an operation once its form is known.

use roundelay_compiler::plan::BufferPlacement;

use roundelay_support::dtype::{DType, RedOp};

/// One call of a plan, on buffers of any kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlanCall<I, O> {
    /// Element count, in the unit of the plan's collective: the vector has `blocks * count` elements.
    pub count: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// The operator that reduces contributions; of no meaning where the collective only copies.
    pub op: RedOp,
    /// The factor by which this rank's elements are multiplied first, for [`RedOp::PremulSum`].
    pub factor: f64,
    /// The buffers.
    pub args: CallArgs<I, O>,
}

/// The buffers of a call: bytes of this host, or addresses on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallArgs<I, O> {
    /// The buffer of a plan in place: the whole vector.
    InPlace {
        /// The vector, read and written.
        data: O,
    },
    /// The buffers of a plan out of place. A buffer that this rank's part of the plan never touches may be
    /// empty.
    OutOfPlace {
        /// The input, which is never written.
        input: I,
        /// The output, which is written.
        output: O,
    },
}

impl<I, O> CallArgs<I, O> {
    /// Returns the placement of a plan that takes these buffers.
    #[inline]
    pub fn placement(&self) -> BufferPlacement {
        match self {
            CallArgs::InPlace { .. } => BufferPlacement::InPlace,
            CallArgs::OutOfPlace { .. } => BufferPlacement::OutOfPlace,
        }
    }
}

/// The blocks of a call: in one buffer, or in a buffer each.
#[derive(Debug)]
pub enum CallBlocks<B, L> {
    /// All of them, one after the other.
    One(B),
    /// A buffer for each.
    Each(L),
}

impl<B, L: ExactSizeIterator> CallBlocks<B, L> {
    /// Returns the number of buffers in the list, if it is one.
    pub fn listed(&self) -> u64 {
        match self {
            CallBlocks::One(_) => 0,
            CallBlocks::Each(list) => list.len() as u64,
        }
    }
}
