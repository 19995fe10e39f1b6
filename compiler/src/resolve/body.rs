//! The body of an algorithm while it is resolved.

use roundelay_dsl::span::{SourceId, Span};

use super::names::VariableNames;
use crate::program::{RankAxes, Slot};

/// The state that statements of one algorithm share.
pub(super) struct AlgorithmBody {
    pub(super) id: SourceId,
    pub(super) names: VariableNames,
    /// The first variable that is neither a size, the root, a coordinate nor a parameter.
    pub(super) fixed: Slot,
    pub(super) axes: RankAxes,
    pub(super) scratch: Vec<String>,
    /// Spans of the first use of `data`, and of `input` or `output`.
    pub(super) data: Option<Span>,
    pub(super) split_buffers: Option<Span>,
    pub(super) composed: bool,
    pub(super) collective: String,
    /// Statements with parts so far.
    pub(super) sites: u32,
    /// The blocks around a statement; and the most around any so far, in algorithms that are used too.
    pub(super) level: usize,
    pub(super) height: usize,
    /// Texts of the programs used.
    pub(super) used: Vec<SourceId>,
}
