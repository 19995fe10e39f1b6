//! Step graphs: every transfer of one instance, and what must wait for what.
//!
//! A step reads at its source and writes at its target. Edges are the data dependences that program
//! order implies, at the granularity of chunks: a read after the write that it sees, a write after
//! the reads of what it overwrites, a write after the write before it. The compiler runs at once
//! whatever no path orders.

mod join;
mod print;
mod steps;
mod unroll;

use std::sync::Arc;

use petgraph::graph::{DiGraph, NodeIndex};

use crate::instance::Instance;
use crate::num::index;
use crate::plan::Buf;
pub use crate::walk::Transfer;
pub use join::Join;
pub(crate) use print::region as region_text;
pub use print::{dot, text};
pub use steps::{After, Step, ports, steps};
pub(crate) use unroll::asked;
pub use unroll::unroll;

/// Index of a step.
pub type StepId = NodeIndex<u32>;

/// The reason for which one step waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dep {
    /// Its source was written by the other.
    Flow,
    /// Its target is read by the other first.
    Anti,
    /// Its target was written by the other before.
    Output,
}

/// All steps of one instance.
#[derive(Debug, Clone)]
pub struct StepGraph {
    /// The program, the shape, what must hold.
    pub instance: Arc<Instance>,
    /// Steps in program order, and their dependences.
    pub graph: DiGraph<Transfer, Dep, u32>,
    /// Further dependences, of many steps on many.
    pub joins: Vec<Join>,
    /// Rounds of the program, the empty ones included.
    pub rounds: u32,
    /// Upper bound of the chunks in one message.
    pub message: u32,
    /// True if messages may be rounded to a narrower type.
    pub lossy: bool,
}

/// Returns the name of a buffer in messages.
pub(crate) fn buf_name(instance: &Instance, buf: Buf) -> String {
    match buf {
        Buf::Data => "data".into(),
        Buf::Input => "input".into(),
        Buf::Output => "output".into(),
        Buf::Scratch(i) => {
            let buffer = instance.scratch.buffers.get(index(i));
            buffer.map_or("scratch".into(), |buffer| buffer.name.clone())
        }
    }
}
