//! Reads what ranks publish, from a process that is none of them: neither must they answer, nor even run.
//!
//! The ranks of a host share control pages, where each shows who it is, its latest calls and its long wait. They lie in
//! files without a name that every rank of the communicator holds open.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::diagnose::{RankCondition, RankStanding, SeenCall};
use super::dump::{DumpEntry, FlightDump};
use super::process::condition;
use crate::tunables::LIVE_CHECK_INTERVAL;
use roundelay_net::net::host_name;
use roundelay_net::transport::shm::{NAME, RankPresence, ShmSegment};
use roundelay_support::digest::mix;
use roundelay_support::error::Error;
use roundelay_support::waiting::{WaitRecord, now};

/// The remedy where there is nothing to see.
const REMEDY: &str = "name the process of a rank, or of the launcher that started it";

/// The ranks of a communicator that are on this host, as they stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveRanks {
    /// The communicator, as its recorders name it.
    pub communicator: String,
    /// The number of ranks, on all hosts.
    pub ranks: u32,
    /// The records that running ranks have published: their calls without names, and their waits without files.
    pub flights: Vec<FlightDump>,
    /// The ranks that do not run.
    pub standings: Vec<RankStanding>,
}

/// Reads what the ranks of all communicators of a process have published, in 0.2 s.
///
/// # Errors
///
/// [`Error::Usage`] if the process is gone, belongs to another user, or is no rank of a communicator.
pub fn live(pid: i32) -> Result<Vec<LiveRanks>, Error> {
    let segments = segments(pid)?;
    let before: Vec<Vec<RankStanding>> = segments.values().map(|segment| look(segment)).collect();
    std::thread::sleep(LIVE_CHECK_INTERVAL);
    let found = segments.values().zip(before).map(|(segment, before)| published(segment, &before));
    let found: Vec<LiveRanks> = found.flatten().collect();
    if found.is_empty() {
        return Err(Error::Usage(format!(
            "process {pid} is no rank of a communicator, or has not joined it yet: {REMEDY}"
        )));
    }
    Ok(found)
}

/// Returns the memory of the communicators of a process, by the numbers of their files.
fn segments(pid: i32) -> Result<BTreeMap<u64, Arc<ShmSegment>>, Error> {
    let folder = format!("/proc/{pid}/fd");
    let entries = std::fs::read_dir(&folder).map_err(|error| {
        let text =
            format!("process {pid} has ended, or belongs to another user ({error}): {REMEDY}");
        Error::Usage(text)
    })?;
    let mut segments = BTreeMap::new();
    for entry in entries.flatten() {
        let is_ours = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with(&format!("/memfd:{NAME} ")));
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // What has no pages of this version is no memory of ranks.
        if let (true, Some(number)) = (is_ours, number)
            && let Ok(segment) = ShmSegment::of_process(pid, number)
        {
            segments.insert(segment.identity(), segment);
        }
    }
    Ok(segments)
}

/// Returns the state of the ranks that have joined.
fn look(segment: &ShmSegment) -> Vec<RankStanding> {
    let numbers = 0..segment.layout().ranks;
    let shown = numbers.filter_map(|number| Some((number, segment.shown_rank(number)?.0)));
    shown.map(|(number, rank)| standing(segment, number, rank)).collect()
}

fn standing(segment: &ShmSegment, number: u32, rank: u32) -> RankStanding {
    let (state, pid) = segment.state(number);
    let calls = segment.latest_call(number);
    let recent = SeenCall::recent(calls, |call| segment.call_of(number, call));
    let waiting = segment.wait_of(number).and_then(WaitRecord::from_words).map(|w| w.spell(&[]));
    let condition = condition(state, Some(pid), false);
    RankStanding { rank, pid: Some(pid), condition, calls, recent, waiting }
}

/// Returns what is known of the ranks of a communicator; `None` if it is over, or this memory is only that of buffers.
fn published(segment: &ShmSegment, before: &[RankStanding]) -> Option<LiveRanks> {
    let numbers = 0..segment.layout().ranks;
    let size = numbers.clone().find_map(|number| Some(segment.shown_rank(number)?.1))?;
    let mut standings = look(segment);
    for standing in &mut standings {
        let then = before.iter().find(|then| then.rank == standing.rank);
        let lasts = then.is_some_and(|then| then.waiting == standing.waiting);
        standing.waiting = standing.waiting.take().filter(|_| lasts);
    }
    if standings.iter().all(|standing| standing.condition == RankCondition::Left) {
        return None;
    }
    // All ranks are of this host: those without a process number have not joined.
    if segment.layout().ranks == size {
        let absent = numbers.filter(|&number| segment.shown_rank(number).is_none());
        let absent = absent.filter(|&number| segment.state(number).0 == RankPresence::Absent);
        standings.extend(absent.map(|rank| RankStanding {
            rank,
            pid: None,
            condition: RankCondition::Absent,
            calls: 0,
            recent: Vec::new(),
            waiting: None,
        }));
    }
    let number = segment.shown_communicator().unwrap_or_else(|| mix(segment.identity(), 0));
    let communicator = format!("{number:016x}");
    standings.sort_by_key(|standing| standing.rank);
    let (running, standings) =
        standings.into_iter().partition(|standing| standing.condition == RankCondition::Running);
    let running: Vec<RankStanding> = running;
    let flights = running.into_iter().map(|rank| flight(rank, size, &communicator)).collect();
    Some(LiveRanks { communicator, ranks: size, flights, standings })
}

fn flight(standing: RankStanding, ranks: u32, communicator: &str) -> FlightDump {
    let RankStanding { rank, pid, calls, recent, waiting, .. } = standing;
    let call = |seen: SeenCall| DumpEntry::Call {
        call: seen.call,
        name: String::new(),
        count: 0,
        dtype: String::new(),
        op: String::new(),
        digest: seen.digest,
        at: 0,
        ended: seen.call < calls,
    };
    FlightDump {
        rank,
        ranks,
        pid: pid.unwrap_or(0),
        host: host_name(),
        communicator: communicator.into(),
        now: now(),
        calls,
        waiting,
        error: None,
        recorded: calls,
        events: recent.into_iter().map(call).collect(),
        seen: Vec::new(),
    }
}
