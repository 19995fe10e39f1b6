//! The language in Rust's clothes: what the functions marked `#[algorithm]` are written in.
//!
//! The macros read such a function and make the same syntax tree of it that a file would give; it is never
//! run. These items are what it is checked against by Rust, and what editors complete and explain. They
//! are in scope inside it without `use`. `docs/rust.md` has the whole language, beside that of files.
//!
//! Numbers are `i64` and truth values `bool`. In an algorithm `/` rounds down and `%` is the mathematical
//! modulus, whatever Rust's would give.

mod functions;
mod places;
mod statements;
mod transfers;

pub use functions::*;
pub use places::*;
pub use roundelay_algorithms::library::*;
pub use statements::*;
pub use transfers::*;

pub use half::{bf16, f16};

/// The number of ranks, whatever it is when the algorithm runs.
pub type Ranks = i64;
