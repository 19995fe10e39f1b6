//! Binds plans: turns a plan, an element count and a type into addresses and lengths.
//!
//! Everything that can be computed before a call is computed here, once, and kept: which bytes each
//! operation touches, in how many passes the plan is played, which connection ends it uses. What
//! remains for the data path is adding base addresses. Everything that could make the data path
//! touch memory it should not is checked here too, whoever made the plan (`check.rs`).
//!
//! The number of passes is a function of what all ranks have in common (header, count, type and slot
//! size), so that all ranks cut messages alike.

mod batch;
mod bound;
mod build;
mod check;
mod key;
mod shape;
mod short;
mod stats;
mod transfer;

pub(crate) use batch::bind_batch;
pub use batch::own_pairs;
pub(crate) use bound::{At, Blocked, NOWHERE, Operand, OutEnd};
pub use bound::{Bound, Segment, Step};
pub(crate) use build::bind;
pub(crate) use check::references;
pub use key::Key;
pub(crate) use key::Sizing;
pub use shape::{Shape, digest};
pub use stats::Stats;
pub(crate) use transfer::BatchShape;
pub use transfer::{Transfer, tagged};
