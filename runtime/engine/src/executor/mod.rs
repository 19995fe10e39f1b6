//! Executes bound plans on host memory: the data path.
//!
//! | file | holds |
//! |---|---|
//! | `execution.rs` | [`PlanExecution`], the execution of a bound plan in one call, and the memory that calls reuse |
//! | `short.rs` | runs a call ahead whose messages all travel in headers |
//! | `host.rs` | lanes: which step may go, where its messages are, how it ends |
//! | `fold.rs` | moves the data of a step: inputs, folded, to the store and the messages |
//! | `idle.rs` | what a rank does while none of its lanes can go |
//! | `watchdog.rs` | decides when a wait of a call has failed, and where the rank was |
//!
//! The order is that of a call: `short` runs ahead, `host` takes over, and calls `fold` for each step and
//! `idle` between them. It waits and blames by the means of the progress engine ([`progress`](crate::progress)), and is no
//! client of it: nothing of that is called while messages come.
//!
//! **Invariant:** no lock, no allocation and no system call while messages come without long waits.
//!
//! **Invariant:** an access is checked before the call: `bind` checked each place against the size of its
//! buffer, and the engine each buffer against its memory.

mod execution;
mod fold;
mod host;
mod idle;
mod short;
mod watchdog;

pub(crate) use execution::{BufferAddress, ExecutionBuffers, PlanExecution};
pub(crate) use short::run_ahead;
