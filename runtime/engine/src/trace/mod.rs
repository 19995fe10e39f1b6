//! Records what ranks did, and what they wait for.
//!
//! Five things, from always to seldom:
//!
//! * The *flight recorder* (`flight`): a ring of the latest calls and long waits of a rank, always on. A
//!   call costs one store of a cache line; the clock is looked at every 16th time. It is dumped as a
//!   [`Flight`], see `Communicator::flight`.
//! * *Waits* ([`Wait`]): after a millisecond, a rank that waits publishes whom it waits for and where in
//!   the algorithm, in one cache line. Whoever gives up first reads everybody's line, and [`diagnose`]
//!   finds the cause: the rank that is stopped, dead, absent, late or in another call, or the cycle. Before a rank is
//!   called slow, or waits a cycle, everybody is looked at again (`looks`).
//! * What ranks publish in memory that they share can be read from outside, by [`live()`], whatever they do.
//! * What ranks waited for in the past tells which rank or link is slow ([`delays()`]), and the waits of several
//!   communicators which of them wait for each other ([`deadlock()`]).
//! * *Spans* (`spans`): with tracing on, every step and every wait of every lane with its times, bounded
//!   in number; [`write()`] makes one file for Perfetto of all ranks' [`Trace`]s.
//!
//! Nothing here blocks, locks or ends anything: `watchdog` decides, this module tells.

mod chrome;
mod deadlock;
mod delays;
mod diagnose;
mod dump;
mod flight;
mod live;
mod looks;
pub mod process;
mod spans;

pub use chrome::write;
pub use deadlock::deadlock;
pub use delays::delays;
pub use diagnose::{Class, Condition, Seen, Standing, Verdict, diagnose};
pub use dump::{Entry, Flight, merge};
pub use flight::EVENTS;
pub(crate) use flight::Recorder;
pub use live::{Live, live};
pub(crate) use looks::{Looks, PAUSE};
pub use roundelay_net::bootstrap::Ending;
pub(crate) use roundelay_net::waiting::Waiting;
pub use roundelay_net::waiting::now;
pub use roundelay_net::waiting::{Wait, What};
pub use spans::Tracer;
pub use spans::{Flow, Kind, SPANS, Span, Trace};
