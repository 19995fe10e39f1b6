//! The host's engine: what a rank needs to make calls, and how it plays them.
//!
//! The state is a [`Core`]: group, connections, bound plans, recorder. Whoever holds it makes the calls, so
//! there is nothing to lock. `call` prepares a call for the executor, `batch` messages between single ranks,
//! `control` is what ranks say to each other outside plans, `plans` finds the plan of a call by name, `share`
//! divides calls over the paths.

mod batch;
mod call;
mod control;
mod core;
mod liveness;
mod plans;
mod record;
mod share;

pub(crate) use self::core::Core;
pub(crate) use batch::Message;
pub use call::{Args, Call};
pub(crate) use plans::{Named, SERVED};
