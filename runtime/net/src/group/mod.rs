//! The ranks of a communicator, and how this rank reaches each of them.
//!
//! Ranks of one machine share memory of two kinds: a *control segment* holds their control pages and
//! connections, the *symmetric heap* holds their arenas. A communicator of its own has both in one segment; a
//! part split off it has a control segment of its own and shares the heap, so that buffers serve both. Every rank
//! sits in some segment, if alone, so that its alarm is always a word in memory. Ranks elsewhere are
//! reached through sockets (`net`), which then also carry what is said outside plans.
//!
//! `join` makes a group of ranks that found each other, `split` a part of a group, `links` its connections;
//! `identity` is what a rank keeps from one group to the next, `alarm` how a group ends by an abort.

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
mod terms;
mod words;

pub use alarm::{Alarm, AlarmClock};
pub use identity::{Identity, Reporting};
pub use kept::Kept;
pub use links::Connecting;
pub use note::{Note, ReporterAt, reporters};
pub use rank_group::{Group, LocalRank};
pub use server::{Server, Serving};
pub use split::Part;
pub use terms::Terms;
pub use words::Shown;
