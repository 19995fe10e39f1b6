//! Binds plans: turns a plan, an element count and a type into addresses and lengths.
//!
//! Everything that can be computed before a call is computed here, once, and kept: the bytes that each
//! operation accesses, the number of passes, the connection ends. What remains for the data path is
//! adding base addresses. Everything that could make the data path access memory outside the buffers
//! is checked here too, whatever the origin of the plan.
//!
//! | file | holds |
//! |---|---|
//! | `bound.rs` | [`BoundPlan`], a plan with addresses: lanes, steps, operands, segments |
//! | `key.rs`, `stats.rs` | the key of a bound plan, and the counts of a call |
//! | `shape.rs` | the sizes of a call: elements, parts, passes |
//! | `check.rs` | the checks of a plan |
//! | `build.rs` | binds a plan, and opens its connections |
//! | `short.rs` | calls whose messages all travel in headers |
//! | `transfer.rs`, `batch.rs` | batches of messages, which are bound without a plan |
//!
//! **Invariant:** the number of passes is a function of what all ranks have in common (header, count,
//! type and slot size), so that all ranks cut messages alike.
//!
//! **Invariant:** a bound plan owns no memory of a call: one is executed at any addresses, again and
//! again.

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
pub(crate) use bound::{
    BoundPlan, BoundStep, BufferPlace, LaneCondition, NOWHERE, OutEnd, StepOperand,
};
pub(crate) use build::bind;
pub(crate) use check::references;
pub(crate) use key::CallSizing;
pub use key::PlanKey;
pub use shape::digest;
pub use stats::CallStats;
pub(crate) use transfer::BatchShape;
pub use transfer::{BatchTransfer, tagged};
