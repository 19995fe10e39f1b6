//! Clauses, and the statements that contain others.
#![allow(non_upper_case_globals, reason = "they are words of the language")]

use std::ops::{Range, RangeInclusive};

use roundelay_algorithms::CatalogueEntry;

use super::places::{Axis, BufferRegion, RegionBuffer};
use crate::prototype::Prototype;

/// Sets the number of chunks into which the whole vector is cut. A clause: it stands before what moves.
pub fn chunks(_count: i64) {}

/// Requires a condition on the ranks; for others the algorithm is refused. A clause.
pub fn requires(_condition: bool) {}

/// Declares that the algorithm tolerates the failure of this many ranks. A clause.
pub fn tolerates(_failures: i64) {}

/// The operator of the call, for [`commutative`].
pub const op: CallOperator = CallOperator(());

/// The operator of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallOperator(());

/// Requires, in `requires(commutative(op))`, that the operator commutes.
pub fn commutative(_op: CallOperator) -> bool {
    true
}

/// Adds a buffer of this many chunks on every rank: `let t = scratch(n);`. A clause.
pub fn scratch(_chunks: i64) -> RegionBuffer {
    RegionBuffer::ANY
}

/// Makes a round: what the closure states happens on all ranks at once, and every read sees the state before.
/// The closure has the rank, or on a grid its coordinates: `each(|(node, gpu)| …)`.
pub fn each<R, T>(_body: impl FnOnce(R) -> T) {}

/// Cuts the buffer into parts of equal size, or over paths in proportion to their bandwidth, that have
/// nothing to do with each other; in the closure, which has the number of the part, the buffer is the part.
/// `paths` makes one a path between the ranks.
pub fn split<T>(_buffer: RegionBuffer, _parts: impl PartCount, _body: impl FnOnce(i64) -> T) {}

/// The number of parts: a range, or [`paths`].
pub trait PartCount {}
impl PartCount for Range<i64> {}
impl PartCount for RangeInclusive<i64> {}
impl PartCount for AllPaths {}
impl PartCount for SharedPaths {}

/// The paths between the ranks.
#[derive(Debug, Clone, Copy)]
pub struct AllPaths(());

impl AllPaths {
    /// Divides in proportion to what the paths can do: `paths.by(bandwidth)`.
    pub fn by(self, _bandwidth: impl FnOnce(i64) -> i64) -> SharedPaths {
        SharedPaths(())
    }
}

/// The paths between the ranks, each with its share.
#[derive(Debug, Clone, Copy)]
pub struct SharedPaths(());

/// One part a path between the ranks.
pub const paths: AllPaths = AllPaths(());

/// Runs another algorithm as a part of this one: of the library, `run(reduce_scatter::ring)`, or one's own
/// that is named in `with(…)`.
pub fn run(_algorithm: impl UsedPart) -> RunPart {
    RunPart(())
}

/// The former name of [`run`].
#[doc(hidden)]
pub use self::run as play;

/// An algorithm that can run as a part.
pub trait UsedPart {}
impl UsedPart for CatalogueEntry {}
impl UsedPart for Prototype {}

/// A part, to which more is added.
#[derive(Debug, Clone, Copy)]
pub struct RunPart(());

impl RunPart {
    /// Gives one of its parameters this value, a number or a truth value: `.with("k", 4)`.
    pub fn with<T>(self, _parameter: &str, _value: T) -> RunPart {
        self
    }

    /// Runs it in every group along this axis at once.
    pub fn over(self, _axis: Axis) -> RunPart {
        self
    }

    /// Runs it on this region as its `data`, or `input`.
    pub fn on(self, _region: impl Into<BufferRegion>) -> RunPart {
        self
    }

    /// Runs it with this region as its `output`.
    #[allow(clippy::should_implement_trait, reason = "it is a word of the language")]
    pub fn into(self, _region: impl Into<BufferRegion>) -> RunPart {
        self
    }

    /// Runs it with this root, counted inside the group.
    pub fn root(self, _rank: i64) -> RunPart {
        self
    }

    /// Runs it on this path.
    pub fn via(self, _path: i64) -> RunPart {
        self
    }
}

/// Sets the schedule by which the algorithm runs; it stands last and never changes the result.
pub fn schedule() -> ScheduleFields {
    ScheduleFields(())
}

/// A schedule, to be filled.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleFields(());

impl ScheduleFields {
    /// Runs in at least this many pieces, so that one may run ahead of the next.
    pub fn pipeline(self, _pieces: i64) -> ScheduleFields {
        self
    }

    /// Makes copies side by side, each with a part of the data.
    pub fn channels(self, _copies: i64) -> ScheduleFields {
        self
    }

    /// Allows at most this many messages in flight between two ranks.
    pub fn slots(self, _messages: i64) -> ScheduleFields {
        self
    }

    /// Chooses how messages travel: [`auto`], [`staged`] or [`direct`].
    pub fn protocol(self, _protocol: ScheduleProtocol) -> ScheduleFields {
        self
    }
}

/// The way in which messages travel.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleProtocol(());

/// A choice by size.
pub const auto: ScheduleProtocol = ScheduleProtocol(());
/// Messages travel through buffers.
pub const staged: ScheduleProtocol = ScheduleProtocol(());
/// Peers read each other's memory.
pub const direct: ScheduleProtocol = ScheduleProtocol(());
