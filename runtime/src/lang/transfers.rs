//! Ranks, and the transfers between them.

use half::{bf16, f16};

use super::places::{Axis, BufferRegion};

/// A rank: its number, or its coordinates.
pub trait RankIndex: Sized {
    /// Begins a transfer from this rank to another.
    fn to(self, _target: impl RankIndex) -> RankTransfer {
        RankTransfer(())
    }
}

impl RankIndex for i64 {}
impl<A: RankCoordinate, B: RankCoordinate> RankIndex for (A, B) {}
impl<A: RankCoordinate, B: RankCoordinate, C: RankCoordinate> RankIndex for (A, B, C) {}
impl<A, B, C, D> RankIndex for (A, B, C, D)
where
    A: RankCoordinate,
    B: RankCoordinate,
    C: RankCoordinate,
    D: RankCoordinate,
{
}

/// A coordinate of a rank: a number, or an axis, which is the coordinate of the rank at hand.
pub trait RankCoordinate {}

impl RankCoordinate for i64 {}
impl RankCoordinate for Axis {}

/// `r.to(p)`, a transfer whose source region is still to be given.
#[derive(Debug, Clone, Copy)]
pub struct RankTransfer(());

impl RankTransfer {
    /// Overwrites what the target has.
    pub fn copy(self, _from: impl Into<BufferRegion>) -> SourcedTransfer {
        SourcedTransfer(())
    }

    /// Combines with what the target has.
    pub fn reduce(self, _from: impl Into<BufferRegion>) -> SourcedTransfer {
        SourcedTransfer(())
    }
}

/// A transfer with its source region.
#[derive(Debug, Clone, Copy)]
pub struct SourcedTransfer(());

impl SourcedTransfer {
    /// Sets the place at the target, if it is another than the one read.
    #[allow(clippy::should_implement_trait, reason = "it is a word of the language")]
    pub fn into(self, _to: impl Into<BufferRegion>) -> SourcedTransfer {
        self
    }

    /// Sets the type on the wire: `wire::<bf16>()`. The plan is checked with its rounding.
    pub fn wire<W: WireType>(self) -> SourcedTransfer {
        self
    }
}

/// The types that elements may have on the wire.
pub trait WireType {}
impl WireType for f16 {}
impl WireType for bf16 {}
impl WireType for f32 {}
