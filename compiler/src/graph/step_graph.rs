//! The step graph: the steps of an instance, and their dependences.

use std::sync::Arc;

use petgraph::graph::{DiGraph, NodeIndex};

use super::dependence::{DependenceKind, StepJoin};
use crate::instance::ProgramInstance;
use crate::walk::ChunkTransfer;

/// Index of a step.
pub type StepId = NodeIndex<u32>;

/// All steps of one instance.
#[derive(Debug, Clone)]
pub struct StepGraph {
    /// The program, the shape, what must hold.
    pub instance: Arc<ProgramInstance>,
    /// Steps in program order, and their dependences.
    pub graph: DiGraph<ChunkTransfer, DependenceKind, u32>,
    /// Further dependences, of many steps on many.
    pub joins: Vec<StepJoin>,
    /// Rounds of the program, the empty ones included.
    pub rounds: u32,
    /// Upper bound of the chunks in one message.
    pub message: u32,
    /// True if messages may be rounded to a narrower type.
    pub lossy: bool,
}
