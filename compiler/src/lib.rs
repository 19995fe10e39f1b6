//! The roundelay compiler: programs, step graphs, proofs and plans.
//!
//! The way through, a line a stage, is [`compile`]:
//!
//! ```text
//! text -parse-> AST -resolve-> Program -unroll-> StepGraph -verify-> Verified<StepGraph> -lower-> plans -verify-> Proved
//! ```
//!
//! The compiler reads no clock, no environment and no hash order: the same text and shape give the
//! same plan bytes on every rank.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod advice;
pub mod blame;
mod bounds;
mod budget;
mod cells;
pub mod chunks;
pub mod collective;
mod compile;
pub mod cost;
pub mod device;
mod embed;
pub mod emit;
mod eval;
pub mod graph;
pub mod instance;
mod instantiate;
pub mod interpret;
pub mod lower;
mod num;
mod places;
pub mod plan;
pub mod postcondition;
pub mod program;
mod ranks;
mod resolve;
pub mod samples;
mod scope;
mod shape;
pub mod tolerance;
pub mod verify;
pub mod walk;

pub use compile::{Checked, Method, Proved, UNROLL, by_symmetry, check, compile, tolerant};
pub use embed::{EmbedError, Embedded, ResolvedPrograms};
pub use eval::{ArithmeticError, operate};
pub use instance::{Instance, Options};
pub use lower::project;
pub use plan::{Placement, Plan, UnprovedPlan};
pub use program::Program;
pub use resolve::{Library, NoLibrary, resolve, resolve_tree};
pub use shape::{Shape, ShapeError};
pub use verify::Verified;
