//! The key of a bound plan, and the sizes that ranks compare.

use roundelay_compiler::plan::PathShares;

use roundelay_support::dtype::{DType, RedOp};

/// The key by which bound plans are distinguished.
#[derive(Debug, Clone, Copy)]
pub struct PlanKey {
    pub(crate) hash: [u8; 16],
    pub(crate) count: u64,
    pub(crate) dtype: DType,
    pub(crate) op: RedOp,
}

impl PartialEq for PlanKey {
    /// Compares words in the order in which calls most often differ, as every call compares them.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let hash = |key: &PlanKey| u128::from_ne_bytes(key.hash);
        self.count == other.count
            && hash(self) == hash(other)
            && self.dtype == other.dtype
            && self.op == other.op
    }
}

/// The sizes that a caller gives beyond the count; part of what ranks compare.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallSizing<'a> {
    /// Elements of each block; none where all have the call's count.
    pub(crate) counts: &'a [u64],
    /// Shares of the parts, for a plan that is split by bandwidth; even ones if none are given.
    pub(crate) shares: Option<&'a PathShares>,
}
