//! Ranks, and the transfers between them.

use half::{bf16, f16};

use super::places::Region;

/// A rank: its number, or its coordinates.
pub trait Rank: Sized {
    /// Begins a transfer from this rank to another.
    fn to(self, _target: impl Rank) -> Transfer {
        Transfer(())
    }
}

impl Rank for i64 {}
impl Rank for (i64, i64) {}
impl Rank for (i64, i64, i64) {}
impl Rank for (i64, i64, i64, i64) {}

/// `r.to(p)`, a transfer whose source region is still to be given.
#[derive(Debug, Clone, Copy)]
pub struct Transfer(());

impl Transfer {
    /// Overwrites what the target has.
    pub fn copy(self, _from: impl Into<Region>) -> Moved {
        Moved(())
    }

    /// Combines with what the target has.
    pub fn reduce(self, _from: impl Into<Region>) -> Moved {
        Moved(())
    }
}

/// A transfer with its source region.
#[derive(Debug, Clone, Copy)]
pub struct Moved(());

impl Moved {
    /// Sets the place at the target, if it is another than the one read.
    #[allow(clippy::should_implement_trait, reason = "it is a word of the language")]
    pub fn into(self, _to: impl Into<Region>) -> Moved {
        self
    }

    /// Sets the type on the wire: `wire::<bf16>()`. The plan is checked with its rounding.
    pub fn wire<W: Wire>(self) -> Moved {
        self
    }
}

/// The types that elements may have on the wire.
pub trait Wire {}
impl Wire for f16 {}
impl Wire for bf16 {}
impl Wire for f32 {}
