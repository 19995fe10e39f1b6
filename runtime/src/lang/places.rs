//! Buffers, chunks, and axes of ranks.
#![allow(non_upper_case_globals, reason = "they are words of the language")]

use std::cmp::Ordering;
use std::ops::{
    Add, BitAnd, BitOr, BitXor, Div, Index, Mul, Range, RangeFull, RangeInclusive, RangeTo,
    RangeToInclusive, Rem, Shl, Shr, Sub,
};

/// An axis of the ranks. As a number it is a coordinate: that of the rank in an [`each`](super::each), and that of
/// the group in the regions of a [`run`](super::run) over another axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Axis {
    /// Its length.
    pub size: i64,
}

macro_rules! as_number {
    ($($op:ident $method:ident),*) => {$(
        impl $op<i64> for Axis {
            type Output = i64;
            fn $method(self, _: i64) -> i64 {
                self.size
            }
        }
        impl $op<Axis> for i64 {
            type Output = i64;
            fn $method(self, _: Axis) -> i64 {
                self
            }
        }
        impl $op for Axis {
            type Output = i64;
            fn $method(self, _: Axis) -> i64 {
                self.size
            }
        }
    )*};
}
as_number!(Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor, Shl shl, Shr shr);

impl PartialEq<i64> for Axis {
    fn eq(&self, other: &i64) -> bool {
        self.size == *other
    }
}

impl PartialOrd<i64> for Axis {
    fn partial_cmp(&self, other: &i64) -> Option<Ordering> {
        self.size.partial_cmp(other)
    }
}

/// The root of a collective that has one.
pub const root: i64 = 0;

/// A buffer of every rank.
#[derive(Debug, Clone, Copy)]
pub struct RegionBuffer(());

impl RegionBuffer {
    pub(super) const ANY: RegionBuffer = RegionBuffer(());
}

/// Input and output in one, in place.
pub const data: RegionBuffer = RegionBuffer::ANY;
/// The buffer that a rank brings; it is only read.
pub const input: RegionBuffer = RegionBuffer::ANY;
/// The buffer that a rank ends with.
pub const output: RegionBuffer = RegionBuffer::ANY;

/// Some chunks of a buffer.
#[derive(Debug, Clone, Copy)]
pub struct BufferRegion(());

impl From<RegionBuffer> for BufferRegion {
    fn from(_: RegionBuffer) -> Self {
        BufferRegion(())
    }
}

/// Selects `cyclic(first, count)`: that many chunks from the first on, going on at 0 where the buffer ends.
pub fn cyclic(_first: i64, _count: i64) -> ChunkBlocks {
    ChunkBlocks(())
}

/// Chunks, or blocks of chunks at a stride.
#[derive(Debug, Clone, Copy)]
pub struct ChunkBlocks(());

impl ChunkBlocks {
    /// Selects blocks at this distance from each other.
    #[must_use]
    pub fn by(self, _stride: i64) -> ChunkBlocks {
        self
    }

    /// Selects this many chunks each.
    #[must_use]
    pub fn take(self, _chunks: i64) -> ChunkBlocks {
        self
    }
}

/// Ranges whose chunks stand apart: `(a..b).by(2).take(1)`.
pub trait StridedRange {
    /// Selects blocks at this distance from each other.
    #[must_use]
    fn by(self, stride: i64) -> ChunkBlocks;
}

macro_rules! indices {
    ($($index:ty),*) => {$(
        impl Index<$index> for RegionBuffer {
            type Output = BufferRegion;
            fn index(&self, _: $index) -> &BufferRegion {
                &BufferRegion(())
            }
        }
    )*};
}
indices!(
    i64,
    Range<i64>,
    RangeInclusive<i64>,
    RangeTo<i64>,
    RangeToInclusive<i64>,
    RangeFull,
    ChunkBlocks,
    Axis
);

macro_rules! strides {
    ($($range:ty),*) => {$(
        impl StridedRange for $range {
            fn by(self, _: i64) -> ChunkBlocks {
                ChunkBlocks(())
            }
        }
    )*};
}
strides!(Range<i64>, RangeInclusive<i64>, RangeTo<i64>, RangeToInclusive<i64>);
