//! The C interface, `include/roundelay.h`.
//!
//! Every function returns a status: 0, or the number of the code of the error (703 for `RL0703`), whose text
//! [`rl_last_error`] has. Nothing unwinds across the interface. The functions are written out one by one, since
//! cbindgen makes the header of the source as it stands.
//!
//! `values` has types and constants, `arguments` reads what calls have in common, `pointers` what the caller's pointers
//! point to, `error` turns errors into numbers, and `perform` performs a call or starts it. The other files have the
//! functions, by subject.

mod values;

mod algorithm;
mod alloc;
mod arguments;
mod collectives;
mod collectives_exchange;
mod comm;
mod endpoint;
mod error;
mod messages;
mod perform;
mod pointers;
mod scans;
mod suspend;
mod window;
mod work;

pub use values::*;

pub use algorithm::*;
pub use alloc::*;
pub use collectives::*;
pub use collectives_exchange::*;
pub use comm::*;
pub use endpoint::*;
pub use error::*;
pub use messages::*;
pub use scans::*;
pub use suspend::*;
pub use window::*;
pub use work::*;
