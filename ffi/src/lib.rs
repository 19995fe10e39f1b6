//! The C interface of roundelay, and what bindings of other languages share with it.
//!
//! An [`Operation`] is a call as data, on [`Buffer`]s: addresses, lengths and types that the caller vouches for. A
//! [`Handle`] is a communicator that any thread may use; it performs operations on the caller's thread, or starts
//! them in the background ([`Pending`]).

#[allow(non_camel_case_types, reason = "names of C")]
pub mod abi;
mod buffer;
mod fault;
mod gpu_watch;
mod handle;
mod operation;
pub mod remote;
mod window;

/// The text of `roundelay.h`, for bindings whose users compile against this very library.
pub const HEADER: &str = include_str!("../include/roundelay.h");

pub use buffer::{Buffer, Device};
pub use fault::{Fault, Kind};
pub use handle::{Handle, Options, Pending};
pub use operation::{Message, Name, Operation, Side, Tagged};
pub use window::{Change, Copied, MappedPart, Place, Window};
