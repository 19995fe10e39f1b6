//! When a wait has failed, and how that is told: who waited, where in the algorithm, for what, from
//! whom, and what is known of the peer.

use std::time::Duration;

use roundelay_dsl::diag::codes;

use crate::error::{Error, Place};
use crate::executor::wait::Look;
use crate::executor::{Blocked, Player};
use crate::transport::shm::{AbortRecord, Segment, State};

/// What is wrong with a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It has left or died; whatever it sent before is still there.
    Gone(String),
    /// It makes another call.
    OtherCall,
}

/// Examines a peer that this rank waits for.
pub(crate) fn examine(segment: &Segment, peer: u32, call: u64, digest: u32) -> Option<Trouble> {
    if segment.call_of(peer, call).is_some_and(|theirs| theirs != digest) {
        return Some(Trouble::OtherCall);
    }
    match segment.state(peer) {
        (State::Absent, _) => None,
        (State::Left, _) => Some(Trouble::Gone("it left the job".into())),
        (State::Present, pid) => {
            let pid = rustix::process::Pid::from_raw(pid)?;
            let gone = rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH);
            let number = pid.as_raw_nonzero();
            gone.then(|| Trouble::Gone(format!("its process {number} no longer exists")))
        }
    }
}

/// The error of a rank that stops because somebody failed.
pub(crate) fn aborted(segment: &Segment, rank: u32, place: Option<Place>) -> Error {
    let place = place.map(Box::new);
    match segment.abort_record() {
        Some(AbortRecord { code, rank: lost, text }) if code == codes::LOST_RANK => {
            Error::LostRank { rank, lost, how: text, place }
        }
        Some(AbortRecord { code, rank: by, text }) => {
            Error::Aborted { rank, by, cause: text, code, place }
        }
        None => {
            Error::Aborted { rank, by: rank, cause: "stopped".into(), code: codes::TIMEOUT, place }
        }
    }
}

/// What the others are told of a rank's error.
pub(crate) fn record(rank: u32, error: &Error) -> AbortRecord {
    match error {
        Error::LostRank { lost, how, .. } => {
            AbortRecord { code: codes::LOST_RANK, rank: *lost, text: how.clone() }
        }
        _ => AbortRecord { code: error.code(), rank, text: error.to_string() },
    }
}

/// What is known of a peer that does not answer, or of the rank that it waits for in turn, and the
/// remedy.
pub(crate) fn remark(segment: &Segment, peer: u32, call: u64) -> String {
    let culprit = |is: &dyn Fn(u32) -> bool| {
        let all = 0..segment.layout().ranks;
        std::iter::once(peer).chain(all).find(|&rank| is(rank))
    };
    let state = |rank| segment.state(rank).0;
    let pid = |rank| segment.state(rank).1;
    let is_here = |rank| state(rank) == State::Present;
    let what = if let Some(rank) = culprit(&|r| is_here(r) && is_stopped(pid(r))) {
        return format!(
            "; rank {rank} is stopped: let its process go on with `kill -CONT {}`",
            pid(rank)
        );
    } else if let Some(rank) = culprit(&|r| state(r) == State::Absent) {
        format!("rank {rank} has not joined the job")
    } else if let Some(rank) = culprit(&|r| is_here(r) && segment.latest_call(r) < call) {
        format!("rank {rank} (process {}) has not made this call", pid(rank))
    } else {
        format!("rank {peer} (process {}) is alive", pid(peer))
    };
    format!("; {what}; if it is only slow, allow more time (`--timeout`)")
}

/// Whether a process is stopped by a signal or a debugger.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before the state is in parentheses and may itself hold any character.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, Some('T' | 't'))
}

/// The error of a message that belongs to another call.
#[cold]
pub(crate) fn mismatch(player: &Player<'_>, receiver: u32) -> Error {
    let from = player.bound.froms.iter().find(|f| f.receiver == receiver);
    other_call(player, from.map_or(player.rank, |f| f.peer))
}

fn other_call(player: &Player<'_>, peer: u32) -> Error {
    let what = player.bound.describe();
    let detail = format!("call {} of rank {} is {what}", player.call, player.rank);
    Error::PlanMismatch { rank: player.rank, peer, detail }
}

/// Decides what becomes of a wait.
#[cold]
pub(crate) fn look(
    player: &mut Player<'_>,
    look: Look,
    lane: Option<usize>,
    blocked: Option<Blocked>,
) -> Result<(), Error> {
    let segment = player.segment.clone();
    let place = place(player, lane);
    if look == Look::Aborted {
        return Err(aborted(&segment, player.rank, Some(place)));
    }
    let Some((peer, awaited)) = blocked.map(|b| describe(player, b)) else { return Ok(()) };
    let trouble = examine(&segment, peer, player.call, player.digest);
    // Whatever the peer did before is visible now: it may have come just in time.
    let still = player.obstacle()? == (lane, blocked);
    match trouble {
        _ if !still => Ok(()),
        Some(Trouble::OtherCall) => Err(other_call(player, peer)),
        Some(Trouble::Gone(_)) if segment.is_aborted() => {
            Err(aborted(&segment, player.rank, Some(place)))
        }
        Some(Trouble::Gone(how)) => {
            let how = format!("{how} while rank {} waited for {awaited}", player.rank);
            Err(Error::LostRank { rank: player.rank, lost: peer, how, place: Some(place.into()) })
        }
        None if look == Look::Expired => {
            let remark = remark(&segment, peer, player.call);
            let after: Duration = player.wait.timeout();
            Err(Error::Timeout { place: place.into(), awaited, peer, after, remark })
        }
        None => Ok(()),
    }
}

/// Whom a blocked lane waits for, and what for, in words.
fn describe(player: &Player<'_>, blocked: Blocked) -> (u32, String) {
    let channel = |channel: u16| match channel {
        0 => String::new(),
        c => format!(" (channel {c})"),
    };
    let send = |index: u32| player.bound.sends.get(index as usize);
    match blocked {
        Blocked::Message(receiver) => {
            match player.bound.froms.iter().find(|f| f.receiver == receiver) {
                Some(f) => {
                    (f.peer, format!("a message from rank {}{}", f.peer, channel(f.channel)))
                }
                None => (player.rank, "a message".into()),
            }
        }
        Blocked::Room(index) => match send(index) {
            Some(s) => {
                let to = format!("rank {}{}", s.peer, channel(s.channel));
                (s.peer, format!("{to} to take earlier messages"))
            }
            None => (player.rank, "room for a message".into()),
        },
        Blocked::Drained(index) => match send(index) {
            Some(s) => {
                let by = format!("rank {}{}", s.peer, channel(s.channel));
                (s.peer, format!("{by} to read this rank's buffer"))
            }
            None => (player.rank, "a buffer to be read".into()),
        },
        Blocked::After(op) => {
            (player.rank, format!("operation {} of its own lane {}", op.op, op.lane))
        }
    }
}

fn place(player: &Player<'_>, lane: Option<usize>) -> Place {
    let step = player.at(lane);
    let site = step.and_then(|s| player.bound.sites.get(s.site as usize));
    Place {
        rank: player.rank,
        name: player.bound.name(),
        step: step.map_or(0, |s| s.round),
        site: site.map(|s| format!("{}:{}:{}", s.file, s.line, s.column)).unwrap_or_default(),
        text: site.map(|s| s.text.clone()).unwrap_or_default(),
    }
}
