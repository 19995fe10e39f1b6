//! The C interface of roundelay, and what bindings of other languages share with it.
//!
//! A [`CallRequest`] is a call as data, on memory that the caller vouches for ([`ElementBuffer`]). A [`CommHandle`] is
//! a communicator that any thread may use; it performs requests on the caller's thread, or starts them in the
//! background ([`PendingOperation`]).

#[allow(non_camel_case_types, reason = "names of C")]
pub mod abi;
mod buffer;
mod generation;
mod gpu_watch;
mod handle;
mod pending;
pub mod remote;
mod request;
mod request_options;
mod tunables;
mod window;

/// The text of `roundelay.h`, for bindings whose users compile against this very library.
pub const HEADER: &str = include_str!("../include/roundelay.h");

pub use buffer::ElementBuffer;
pub use handle::CommHandle;
pub use pending::PendingOperation;
pub use request::{CallRequest, TaggedMessage};
pub use request_options::RequestOptions;
pub use window::{CopyOperation, MappedPart, WindowHandle, WindowPlace, WordChange};
