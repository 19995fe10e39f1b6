//! The roundelay compiler: programs, step graphs, proofs and plans.
//!
//! The way through, a line a stage, is [`compile`]:
//!
//! ```text
//! text -parse-> AST -resolve-> Program -unroll-> StepGraph -verify-> Verified<StepGraph> -lower-> plans -verify-> Proved
//! ```
//!
//! The compiler reads no clock, no environment and no hash order: the same text and shape give the
//! same plan bytes on every rank. `clippy.toml` lists the functions that it must not call for that.
//!
//! The modules in the order in which one may use another (`tests/floors.rs`):
//!
//! | modules | hold |
//! |---|---|
//! | [`num`], `budget`, `cells`, [`chunks`], `ranks`, `shape` | numbers, limits, and sets of places, chunks and ranks |
//! | [`plan`], [`program`] | what is made of an algorithm, and what it is read as |
//! | `eval`, `bounds`, `advice` | values and ranges of expressions, and what their findings suggest |
//! | [`all_n`] | proofs for every rank count: formulas, obligations, refutations |
//! | [`postcondition`], [`samples`] | what a declared collective asks for, and the rank counts that stand for all |
//! | `resolve`, `embed` | text and syntax tree to program; algorithms that a binary carries |
//! | `scope`, [`collective`], [`instance`], [`walk`], `instantiate`, [`values`] | a program at one shape, round by round |
//! | [`cost`] | the predicted time of a call |
//! | `places`, [`interpret`], [`graph`] | the memory of all ranks, runs on data, the step graph |
//! | [`verify`], [`lower`], [`tolerance`] | proofs, and the plans of ranks |
//! | [`blame`], `compile` | the statement at fault, and the way from a program to proved plans |
//! | [`device`] | device programs; `roundelay-emit` writes their CUDA source, and drawings |
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]
#![cfg_attr(not(test), deny(clippy::as_conversions))]

mod advice;
pub mod all_n;
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
mod eval;
pub mod graph;
pub mod instance;
mod instantiate;
pub mod interpret;
pub mod lower;
pub mod num;
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
pub mod values;
pub mod verify;
pub mod walk;

pub use compile::{
    CheckReport, ProofMethod, ProvedPlans, UNROLL, by_symmetry, check, compile, tolerant,
};
pub use embed::{EmbedError, EmbeddedAlgorithm, ResolvedPrograms};
pub use eval::{ArithmeticError, operate};
pub use instance::{CompileOptions, ProgramInstance};
pub use lower::project;
pub use plan::{BufferPlacement, Plan, UnprovedPlan};
pub use program::Program;
pub use resolve::{LibrarySource, NoLibrary, resolve, resolve_tree};
pub use shape::{MAX_RANKS, Shape, ShapeError};
pub use verify::Verified;
