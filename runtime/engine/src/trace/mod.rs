//! Records what ranks do and what they wait for, and finds the cause of a wait.
//!
//! * The *flight recorder*: a ring of the latest calls and long waits of a rank, always on. A call costs one
//!   store of a cache line; the clock is read every 16th time. It is dumped as a [`FlightDump`], see
//!   `Communicator::flight`.
//! * *Waits* ([`WaitDescription`]): after a millisecond, a rank that waits publishes the awaited rank and its place in
//!   the algorithm, in one cache line. The rank that gives up first reads the lines of all, and [`diagnose()`]
//!   finds the cause: the rank that is stopped, dead, absent, late or in another call, or the cycle. Before a
//!   rank is reported as slow, or waits as a cycle, the diagnosis is repeated.
//! * *Spans*: with tracing on, every step and every wait of every lane with its times, bounded in number;
//!   [`write()`] makes one file for Perfetto of the [`RankTrace`]s of all ranks.
//!
//! | file | holds |
//! |---|---|
//! | `flight.rs` | the flight recorder |
//! | `dump.rs` | a recorder dumped: [`FlightDump`], and the flights of a job merged |
//! | `diagnose.rs` | the ranks to blame, from what is known of each: [`RankStanding`] to [`TraceVerdict`] |
//! | `looks.rs` | the diagnosis repeated, before a rank is reported as slow |
//! | `process.rs` | the condition of a rank's process |
//! | `live.rs` | what ranks publish in shared memory, read from outside: [`live()`] |
//! | `delays.rs` | the rank or link that slows a job down, from flights: [`delays()`] |
//! | `deadlock.rs` | communicators whose ranks wait for each other, from flights: [`deadlock()`] |
//! | `spans.rs` | spans, and the [`RankTrace`] of a rank |
//! | `chrome.rs` | the file of traces |
//!
//! **Invariant:** nothing here blocks, locks or ends an operation: `watchdog` decides, this module reports.

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
pub use diagnose::{CauseClass, RankCondition, RankStanding, SeenCall, TraceVerdict, diagnose};
pub use dump::{DumpEntry, FlightDump, merge};
pub use flight::EVENTS;
pub(crate) use flight::FlightRecorder;
pub use live::{LiveRanks, live};
pub(crate) use looks::RepeatedDiagnosis;
pub use roundelay_net::bootstrap::ProcessEnding;
pub(crate) use roundelay_support::waiting::WaitRecord;
pub use roundelay_support::waiting::now;
pub use roundelay_support::waiting::{AwaitedEvent, WaitDescription};
pub use spans::SpanTracer;
pub use spans::{MessageFlow, RankTrace, SPANS, SpanKind, TraceSpan};
