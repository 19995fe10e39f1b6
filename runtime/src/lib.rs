//! Collective operations between the ranks of a job, played from proved plans.
//!
//! The compiler makes a [`Plan`](roundelay_compiler::plan::Plan) for each rank; a [`Communicator`]
//! plays it together with the other ranks. Ranks are processes that a [`Launcher`] starts, or
//! threads of one process; they share memory, and nothing is copied more often than it must be.
//!
//! ```
//! # fn main() -> Result<(), roundelay::Error> {
//! // Two ranks, as threads of this process.
//! let ranks = roundelay::Communicator::local(2)?;
//! std::thread::scope(|scope| {
//!     for mut comm in ranks {
//!         scope.spawn(move || {
//!             let mut buffer = comm.alloc::<f32>(1000)?;
//!             buffer.fill(comm.rank() as f32 + 1.0);
//!             comm.all_reduce(&mut buffer, roundelay::RedOp::Sum)?;
//!             assert!(buffer.iter().all(|&x| x == 3.0));
//!             Ok::<(), roundelay::Error>(())
//!         });
//!     }
//! });
//! # Ok(())
//! # }
//! ```
//!
//! * [`Communicator`]: calls, buffers, deadlines. [`Work`]: calls in the background.
//! * [`Algorithm`]: an algorithm of one's own. [`Prototype`]: one that was written as a Rust function.
//! * [`Batch`]: messages between single ranks, at once. [`Messages`]: with tags, in any order.
//! * [`Window`]: memory that the other ranks put to and get from, and signals; [`AnyWindow`] where the type of its
//!   elements is not known before.
//! * [`Endpoint`]: memory that single peers write and read, without a communicator ([`Link`], [`Region`],
//!   [`RemoteRegion`]).
//! * [`Buffer`]: memory that the other ranks read in place. [`Memory`]: all memory that calls take.
//! * [`Launcher`]: ranks as processes.
//! * [`DType`], [`RedOp`]: types and operators.
//! * [`cuda`]: the same on GPUs.
//! * [`Error`]: what can go wrong, with stable codes.

mod bind;
pub mod bootstrap;
pub mod build;
pub mod choose;
mod collectives;
mod comm;
#[cfg(feature = "cuda")]
pub mod cuda;
mod custom;
mod engine;
mod executor;
pub mod hints;
#[doc(hidden)]
pub mod internal;
pub mod lang;
mod messages;
mod prototype;
mod remote;
pub mod trace;
mod window;

pub use bind::Stats;
pub use bootstrap::{Ending, Handles, Launcher, Outcome, Setup};
pub use choose::{Choice, DecidedBy, Machine, Request, Resolver};
pub use comm::{
    AbortHandle, AnyElement, AnyMapped, AnyWindow, Batch, CallOptions, Communicator, Engine, Host,
    Mapped, Memory, MemoryMut, Messages, PendingMessage, Resources, Status, Typed, Window, With,
    Work,
};
pub use custom::{Algorithm, plan_of};
pub use engine::{Args, Call, Reduction};
pub use hints::{HintError, Hints};
pub use messages::{Delivered, Peer};
pub use prototype::{Playable, Prototype};
pub use remote::{Endpoint, Link, Region, RemoteRegion};
pub use roundelay_net::dtype::{Bool, DType, Element, RedOp, UnknownName};
pub use roundelay_net::error::{Diagnostics, Error, Location, Refusal, Source};
pub use roundelay_net::fabric;
pub use roundelay_net::memory::Buffer;
pub use roundelay_net::ports::PortRange;
#[doc(hidden)]
pub use roundelay_net::{limits, variables};
// No item may have the name of one of these: without the feature, it would hide rustc's note that names it.
#[cfg(feature = "macros")]
pub use roundelay_macros::{algo_file, algorithm, algorithm_fn};
pub use roundelay_net::route::Route;
pub use roundelay_net::transport::shm::Layout;
pub use roundelay_net::transport::{Transport, Transports, Unavailable};
pub use window::{Access, Attributes, Rights};

/// Names to which the macros expand; not for use elsewhere.
#[doc(hidden)]
pub mod __private {
    pub use crate::prototype::Once;
    #[cfg(feature = "macros")]
    pub use roundelay_macros::with;
}
