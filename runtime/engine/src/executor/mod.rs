//! Executes bound plans on host memory: the data path.
//!
//! | file | holds |
//! |---|---|
//! | `execution.rs` | [`PlanExecution`], the execution of a bound plan in one call, and the memory that calls reuse |
//! | `short.rs` | runs a call ahead whose messages all travel in headers |
//! | `host.rs` | lanes: which step may go, where its messages are, how it ends |
//! | `fold.rs` | moves the data of a step: inputs, folded, to the store and the messages |
//! | `idle.rs` | what a rank does while none of its lanes can go |
//! | `wait.rs` | [`wait::WaitLoop`]: spins, yields or sleeps, and decides when to examine peers |
//! | `watchdog.rs` | decides when a wait has failed, and reports who waited where for what |
//!
//! The order is that of a call: `short` runs ahead, `host` takes over, and calls `fold` for each step and
//! `idle` between them. `wait` and `watchdog` serve all waits of the crate, not those of plans alone.
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
pub mod wait;
pub mod watchdog;

pub(crate) use execution::{BufferAddress, ExecutionBuffers, PlanExecution};
pub(crate) use short::run_ahead;
