//! Plays bound plans. `host` moves the data, `idle` and `wait` spin and give up, without lock,
//! allocation or system call while all goes well.

mod fold;
mod host;
mod idle;
mod player;
mod short;
pub mod wait;
pub mod watchdog;

pub(crate) use player::Base;
pub use player::{Player, Work};
pub(crate) use short::run_ahead;
