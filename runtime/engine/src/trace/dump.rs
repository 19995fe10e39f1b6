//! The flight recorder as people and programs read it, and the dumps of several ranks as one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::diagnose::{RankCondition, RankStanding, SeenCall};
use super::flight::{FlightEvent, FlightRecorder};
use crate::tunables::{COMPARED_CALLS, DUMP_EVENTS_MAX, DUMP_RANKS_MAX};
use roundelay_net::bootstrap::ProcessEnding;
use roundelay_support::waiting::{AwaitedEvent, WaitDescription};

/// The dump of one rank's flight recorder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlightDump {
    /// The rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// Its process.
    pub pid: i32,
    /// The host: ranks of which it is the same share a clock, and numbers of processes.
    #[serde(default)]
    pub host: String,
    /// The communicator: the same on all of its ranks.
    #[serde(default)]
    pub communicator: String,
    /// The time of this dump: nanoseconds of the machine's monotonic clock; 0 if it is not known.
    #[serde(default)]
    pub now: u64,
    /// Calls made.
    pub calls: u64,
    /// The wait it is in, if for longer than a millisecond.
    pub waiting: Option<WaitDescription>,
    /// The reason for which it gave up, if it did.
    pub error: Option<String>,
    /// Events recorded since the beginning.
    pub recorded: u64,
    /// The latest of them, oldest first.
    pub events: Vec<DumpEntry>,
    /// The observed state of the other ranks when it gave up.
    pub seen: Vec<RankStanding>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DumpEntry {
    /// A call.
    Call {
        /// Its number, from 1.
        call: u64,
        /// `collective.algorithm`; empty if it is not known.
        name: String,
        /// Elements.
        count: u64,
        /// Type.
        dtype: String,
        /// Operator.
        op: String,
        /// A digest of this call and all before it: equal on all ranks.
        digest: u32,
        /// A time not after its begin: nanoseconds of the machine's monotonic clock, which is looked at every
        /// 16 events and after long waits.
        at: u64,
        /// True if it ended well.
        ended: bool,
    },
    /// A wait of a millisecond or more.
    Wait {
        /// The number of the call.
        call: u64,
        /// The rank it waits for.
        peer: u32,
        /// The event it waits for.
        what: AwaitedEvent,
        /// The index of the `each` of the program, from 0.
        step: u32,
        /// The line of the statement, 0 if there is none.
        line: u32,
        /// The channel.
        #[serde(default)]
        channel: u16,
        /// The pass of the call, see [`WaitDescription::pass`].
        #[serde(default)]
        pass: u16,
        /// The time at which it began.
        since: u64,
        /// The time at which it was over, if it was.
        until: Option<u64>,
    },
}

impl FlightRecorder {
    /// Returns the latest events in words; of a rank that has made `calls`, of which the last has
    /// `failed` or not.
    pub(crate) fn entries(&self, calls: u64, failed: bool) -> (u64, Vec<DumpEntry>) {
        let entry = |event: &FlightEvent| match *event {
            FlightEvent::Call { call, digest, label, at } => DumpEntry::Call {
                call,
                name: self.name(&label).to_owned(),
                count: label.count,
                dtype: label.dtype.name().to_owned(),
                op: label.op.name().to_owned(),
                digest,
                at,
                ended: call < calls || !failed,
            },
            FlightEvent::Wait { call, waiting: w, until } => DumpEntry::Wait {
                call,
                peer: w.peer,
                what: w.what,
                step: w.step,
                line: w.line,
                channel: w.channel,
                pass: w.pass,
                since: w.since,
                until: (until > 0).then_some(until),
            },
        };
        (self.recorded(), self.latest(DUMP_EVENTS_MAX).map(entry).collect())
    }
}

impl FlightDump {
    /// Keeps the dump small: of the other ranks those that are of interest.
    pub(crate) fn bounded(mut self) -> Self {
        if self.seen.len() > DUMP_RANKS_MAX {
            let odd =
                |s: &RankStanding| s.condition != RankCondition::Running || s.waiting.is_none();
            self.seen.sort_by_key(|s| !odd(s));
            self.seen.truncate(DUMP_RANKS_MAX);
        }
        self
    }

    fn standing(&self) -> RankStanding {
        let seen = |entry: &DumpEntry| match entry {
            DumpEntry::Call { call, name, count, dtype, op, digest, .. } => {
                let what = match count {
                    0 => name.clone(),
                    _ => format!("{name} of {count} x {dtype} with {op}"),
                };
                let what = (!what.is_empty()).then_some(what);
                Some(SeenCall { call: *call, digest: *digest, what })
            }
            DumpEntry::Wait { .. } => None,
        };
        let mut recent: Vec<SeenCall> =
            self.events.iter().rev().filter_map(seen).take(COMPARED_CALLS).collect();
        recent.reverse();
        RankStanding {
            rank: self.rank,
            pid: Some(self.pid),
            condition: RankCondition::Running,
            calls: self.calls,
            recent,
            waiting: self.waiting.clone(),
        }
    }
}

/// Merges the dumps of those ranks that gave up and the endings of processes (by rank; empty if they are not
/// known) into the state of all ranks of a job that failed.
pub fn merge(ranks: u32, flights: &[FlightDump], endings: &[ProcessEnding]) -> Vec<RankStanding> {
    let own: BTreeMap<u32, &FlightDump> = flights.iter().map(|f| (f.rank, f)).collect();
    let unknown = |rank| RankStanding {
        rank,
        pid: None,
        condition: RankCondition::Unknown,
        calls: 0,
        recent: Vec::new(),
        waiting: None,
    };
    let standing = |rank: u32| {
        if let Some(flight) = own.get(&rank) {
            return flight.standing();
        }
        // The worst that anybody saw: a rank that looked later may have seen more.
        let views = flights.iter().flat_map(|f| &f.seen).filter(|s| s.rank == rank);
        let seen = views.min_by_key(|s| s.condition.rank()).cloned();
        let seen = seen.unwrap_or_else(|| unknown(rank));
        let ended = endings.get(rank as usize);
        let condition = match (ended, seen.condition) {
            (Some(ProcessEnding::Exited(0)), RankCondition::Running | RankCondition::Unknown) => {
                RankCondition::Left
            }
            (
                Some(
                    ending @ (ProcessEnding::Exited(1..)
                    | ProcessEnding::Exited(..0)
                    | ProcessEnding::Signalled(_)),
                ),
                _,
            ) => RankCondition::Died(ending.to_string()),
            (_, condition) => condition,
        };
        RankStanding { condition, ..seen }
    };
    (0..ranks).map(standing).collect()
}
