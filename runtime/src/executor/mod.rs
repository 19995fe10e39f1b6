//! Playing bound plans. `host` moves the data, `wait` spins and gives up, both without lock,
//! allocation or system call while all goes well.

mod host;
pub(crate) mod wait;

pub use host::Stats;
pub(crate) use host::{Base, Blocked, Player, Work};
