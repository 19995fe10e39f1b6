//! Step graphs: every transfer of one instance, and what must wait for what.
//!
//! A step reads at its source and writes at its target. Edges are the data dependences that program
//! order implies, at the granularity of chunks: a read after the write that it sees, a write after
//! the reads of what it overwrites, a write after the write before it. The compiler runs at once
//! whatever no path orders.
//!
//! * `dependence`: why steps wait for each other, one by one or in joins.
//! * `step_graph`: the steps of an instance, and their dependences.
//! * `unroll`: makes the graph of an instance.
//! * `expanded`: what each step waits for, joins expanded.
//! * `steps`, `print`: the graph as data, as text and as DOT.

mod dependence;
mod expanded;
mod print;
mod step_graph;
mod steps;
mod unroll;

pub use crate::walk::ChunkTransfer;
pub use dependence::{DependenceKind, StepJoin};
pub(crate) use print::buf_name;
pub use print::{dot, region as region_text, text};
pub use step_graph::{StepGraph, StepId};
pub use steps::{Step, StepWait, ports, steps};
pub(crate) use unroll::asked;
pub use unroll::unroll;
