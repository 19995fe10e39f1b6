//! Playing bound plans. `host` moves the data, `idle` and `wait` spin and give up, without lock,
//! allocation or system call while all goes well.

mod fold;
mod host;
mod idle;
pub(crate) mod wait;

pub use host::Stats;
pub(crate) use host::{Base, Blocked, Player, Work};
