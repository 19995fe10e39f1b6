//! The engine of the host, and what all engines have in common.
//!
//! An engine binds and plays calls on one kind of memory; this one has the memory of this host, `crate::cuda` that
//! of GPUs. Common to them are the [table](table) of collectives, which makes one [`Call`] of a method's arguments,
//! plans by name (`plans`), words from rank to rank (`control`), and what is kept for the next calls (`recent`).
//!
//! The state of a rank is a [`Core`]: group, connections, bound plans, recorder. Whoever holds it makes the calls,
//! so there is nothing to lock. `named` performs calls by name, `call` prepares a plan for the executor,
//! `empty` compares calls without elements, `batch`
//! messages between single ranks, `tolerant` plays algorithms that go on without a failed rank, `share` divides calls
//! over the paths, `stop` ends all of it from another thread.

mod batch;
mod call;
mod control;
mod core;
mod empty;
mod liveness;
mod named;
mod plans;
mod recent;
mod record;
mod reduction;
mod share;
mod stop;
pub(crate) mod table;
mod tolerant;

pub use self::core::Core;
pub use batch::Message;
pub use batch::{End, peers};
pub use call::Blocks;
pub use call::{Args, Call};
pub use named::writes_output;
pub use recent::Recent;
pub use reduction::Reduction;
pub use reduction::check_factor;
pub use stop::Stop;
pub use table::{
    ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, BARRIER, BROADCAST, Collective, GATHER, Named, REDUCE,
    REDUCE_SCATTER, SCATTER, SERVED, Seat, alike, each, fits, served, total,
};
