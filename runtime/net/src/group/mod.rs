//! The ranks of a communicator, and how this rank reaches each of them.
//!
//! Ranks of one machine share memory of two kinds: a *control segment* holds their control pages and connections, the
//! *symmetric heap* holds their arenas. A communicator of its own has both in one segment; a part split off it has a
//! control segment of its own and shares the heap, so that buffers serve both. Every rank has a place in some segment,
//! if alone, so that its alarm is always a word in memory. Ranks elsewhere are reached through sockets
//! ([`net`](crate::net)), which then carry the messages outside plans too.
//!
//! | file | content |
//! |---|---|
//! | [`terms`] | the settings that all ranks must share |
//! | [`server`] | what serves the windows of a rank while its threads wait |
//! | [`alarm`] | what ends a group from any thread, and what wakes a thread |
//! | [`rank_group`] | [`RankGroup`]: its state, its memory, its place among other groups |
//! | [`routing`] | the route to each rank |
//! | [`kept`], [`note`] | memory that the next group may keep; what a rank publishes of itself, and its check |
//! | [`join`], [`split`] | a group of ranks that are linked; a part of a group |
//! | [`links`] | connections for data, and their paths |
//! | [`words`] | rounds of one word of every rank |
//! | [`liveness`], [`abort`] | states, calls and waits of other ranks; how a group ends |
//! | [`suspend`] | memory that goes back to the system while the ranks make no calls |
//! | [`identity`], [`shrink`] | what a rank keeps between generations; the ranks that make the next one |
//!
//! Conventions: an `impl RankGroup` stands in the file of its flow. A rank is named by its number in the group, and
//! [`LocalRank`] has its numbers in memory. The threads of a rank share its sockets under one lock.

mod abort;
mod alarm;
mod identity;
mod join;
mod kept;
mod links;
mod liveness;
mod note;
mod rank_group;
mod routing;
mod server;
mod shrink;
mod split;
mod suspend;
mod terms;
mod words;

pub use alarm::{AlarmClock, GroupAlarm};
pub use identity::{DoctorReporting, RankIdentity};
pub use kept::KeptMemory;
pub use links::ConnectionAttempt;
pub use note::{RankNote, ReporterAt, reporters};
pub use rank_group::{LocalRank, RankGroup};
pub use server::{ServingWait, WindowServer};
pub use split::GroupPart;
pub use terms::JobTerms;
pub use words::ShownWord;
