//! What ranks did, and what they wait for.
//!
//! Three things, from always to seldom:
//!
//! * The *flight recorder* (`flight`): a ring of the latest calls and long waits of a rank, always on. A
//!   call costs one store of a cache line; the clock is looked at every 16th time. It is dumped as a
//!   [`Flight`], see [`Communicator::flight`](crate::Communicator::flight).
//! * *Waits* (`waiting`): after a millisecond, a rank that waits publishes whom it waits for and where in
//!   the algorithm, in one cache line. Whoever gives up first reads everybody's line, and [`diagnose`]
//!   finds the cause: the rank that is stopped, dead, absent, late or in another call, or the cycle. Before a rank is
//!   called slow, or waits a cycle, everybody is looked at again (`looks`).
//! * *Spans* (`spans`): with tracing on, every step and every wait of every lane with its times, bounded
//!   in number; [`write()`] makes one file for Perfetto of all ranks' [`Trace`]s.
//!
//! Nothing here blocks, locks or ends anything: `watchdog` decides, this module tells.

mod chrome;
mod diagnose;
mod dump;
mod flight;
mod looks;
mod spans;
mod waiting;

pub use chrome::write;
pub use diagnose::{Class, Condition, Seen, Standing, Verdict, diagnose};
pub use dump::{Entry, Flight, merge};
pub use flight::EVENTS;
pub(crate) use flight::Recorder;
pub(crate) use looks::{Looks, PAUSE};
pub(crate) use spans::Tracer;
pub use spans::{Flow, Kind, SPANS, Span, Trace};
pub(crate) use waiting::Waiting;
pub use waiting::{Wait, What};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the clock that all processes of a machine share.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// The same clock as of its latest tick, a few milliseconds ago: a load instead of a measurement.
#[inline]
pub(crate) fn coarse() -> u64 {
    nanos(clock_gettime(ClockId::MonotonicCoarse))
}

fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}
