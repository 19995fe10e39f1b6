//! Playing bound plans. `host` moves the data, `idle` and `wait` spin and give up, without lock,
//! allocation or system call while all goes well.

pub(crate) mod contention;
mod fold;
mod host;
mod idle;
mod short;
pub(crate) mod wait;

pub use host::Stats;
pub(crate) use host::{Base, Blocked, Player, Work};
pub(crate) use short::{run_ahead, short};
