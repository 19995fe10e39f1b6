//! The C interface of roundelay, and what bindings of other languages share with it.
//!
//! A [`Request`] is a call as data, on memory that the caller vouches for ([`Buffer`]). A [`CommHandle`] is a communicator
//! that any thread may use; it performs requests on the caller's thread, or starts them in the background ([`Pending`]).

#[allow(non_camel_case_types, reason = "names of C")]
pub mod abi;
mod buffer;
mod gpu_watch;
mod handle;
pub mod remote;
mod request;
mod window;

/// The text of `roundelay.h`, for bindings whose users compile against this very library.
pub const HEADER: &str = include_str!("../include/roundelay.h");

pub use buffer::Buffer;
pub use handle::{CommHandle, Pending, RequestOptions};
pub use request::{Request, TaggedMessage};
pub use window::{Change, Copied, MappedPart, WindowHandle, WindowPlace};
