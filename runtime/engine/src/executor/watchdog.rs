//! Decides when a wait has failed, and reports it: the rank that waited, the place in the algorithm, the message or
//! room that it waited for, the peer, and what is known of the peer.

use std::time::Duration;

use super::execution::PlanExecution;
use crate::bind::LaneCondition;
use crate::bind::{BatchTransfer, BoundStep, tagged};
use crate::progress::peer_failure::{PeerFailure, PeerLoss, examine, reported};
use crate::progress::wait::WaitAction;
use crate::progress::wait_report::{
    observed_standings, other_call, publish_wait, spell_call, start_time,
};
use crate::progress::{AwaitedAct, FailedWait, PeerName};
use crate::trace::{RepeatedDiagnosis, WaitRecord};
use crate::tunables::DIAGNOSIS_INTERVAL;
use roundelay_support::error::{Error, ErrorLocation};

/// Returns what is known of a wait that has timed out; `None` if the wait ends while the other ranks are examined.
fn remark_unless_it_comes(
    execution: &mut PlanExecution<'_>,
    waiting: &WaitRecord,
    mut comes: impl FnMut(&mut PlanExecution<'_>) -> Result<bool, Error>,
) -> Result<Option<String>, Error> {
    let mut looks = RepeatedDiagnosis::default();
    loop {
        let seen = observed_standings(execution.group, waiting, &execution.bound.sites);
        if let Some(text) = looks.add(seen, execution.rank) {
            return Ok(Some(text));
        }
        std::thread::sleep(DIAGNOSIS_INTERVAL);
        if comes(execution)? {
            return Ok(None);
        }
    }
}

/// Describes the wait of the lanes of a blocked rank.
fn waiting(
    execution: &mut PlanExecution<'_>,
    lane: Option<usize>,
    blocked: LaneCondition,
) -> Result<WaitRecord, Error> {
    let since = start_time(execution.recorder, execution.wait.waited());
    let (what, peer) = execution.bound.awaited(blocked, execution.rank);
    let mut waiting = WaitRecord::new(what, peer, execution.call, execution.digest, since);
    waiting.channel = match blocked {
        LaneCondition::Message(receiver) => {
            let from = execution.bound.froms.iter().find(|f| f.receiver == receiver);
            from.map_or(0, |f| f.channel)
        }
        LaneCondition::Room(i) | LaneCondition::Drained(i) => {
            execution.bound.sends.get(i as usize).map_or(0, |s| s.channel)
        }
        LaneCondition::After(_) => 0,
    };
    if let Some(step) = execution.at(lane, Some(blocked)) {
        let site = execution.bound.sites.get(step.site as usize);
        (waiting.line, waiting.column) = site.map_or((0, 0), |s| (s.line, s.column));
        waiting.step = step.round;
        waiting.pass = lane.map_or(u16::MAX, |lane| execution.pass(lane));
    }
    for other in execution.obstacles()? {
        waiting.also(execution.bound.awaited(other, execution.rank).1);
    }
    Ok(waiting)
}

/// Returns the error of a message that is not the one that a step receives.
#[cold]
pub(crate) fn unexpected(
    execution: &PlanExecution<'_>,
    step: &BoundStep,
    receiver: u32,
    arrived: u64,
) -> Error {
    let from = execution.bound.froms.iter().find(|f| f.receiver == receiver);
    let (Some(_), Some(from)) = (&execution.bound.batch, from) else {
        return mismatch(execution, receiver);
    };
    Error::MessageMismatch {
        location: location(execution, Some(step)).into(),
        peer: from.peer,
        sent: tagged((arrived >> 32) as u32 ^ execution.digest),
    }
}

/// Returns the error of a message that belongs to another call.
#[cold]
pub(crate) fn mismatch(execution: &PlanExecution<'_>, receiver: u32) -> Error {
    let from = execution.bound.froms.iter().find(|f| f.receiver == receiver);
    let peer = from.map_or(execution.rank, |f| f.peer);
    other_call(execution.group, peer, execution.call, &execution.bound.describe())
}

/// Decides whether a wait continues or fails.
#[cold]
pub(crate) fn decide_wait(
    execution: &mut PlanExecution<'_>,
    look: WaitAction,
    lane: Option<usize>,
    blocked: Option<LaneCondition>,
) -> Result<(), Error> {
    let location = location(execution, execution.at(lane, blocked));
    let waits = blocked.map(|b| waiting(execution, lane, b)).transpose()?;
    if let Some(waits) = &waits {
        publish_wait(execution.group, execution.recorder, waits);
    }
    if look == WaitAction::Aborted {
        return Err(execution.group.aborted(Some(location)));
    }
    let described = blocked.map(|b| describe(execution, b)).zip(waits);
    let Some(((peer, awaited), waits)) = described else { return Ok(()) };
    let trouble = examine(execution.group, peer, execution.call, execution.entered)
        .or_else(|| reported(execution.group))
        .or_else(|| {
            execution.endpoints.fault(peer).map(|fault| PeerFailure::Gone(PeerLoss::Cut(fault)))
        });
    // The awaited message may be one that another rank waits for, which cannot determine the cause.
    let elsewhere =
        if trouble.is_none() { execution.endpoints.lost(&execution.bound.sends) } else { None };
    let (gone, trouble) = match elsewhere {
        Some((gone, fault)) => (gone, Some(PeerFailure::Gone(PeerLoss::Cut(fault)))),
        None => (peer, trouble),
    };
    if trouble.is_none() && look == WaitAction::Expired {
        execution.group.ask_around();
    }
    // All that the peer did before is visible now: the message may have come just in time.
    let still = execution.obstacle()? == (lane, blocked);
    if still && matches!(trouble, Some(PeerFailure::Gone(_))) {
        execution.group.hear_out();
    }
    match trouble {
        _ if !still => Ok(()),
        Some(PeerFailure::OtherCall { peer, call }) => {
            let current = execution.entered.map(|_| execution.call);
            let what = spell_call((peer, call), current, || execution.bound.describe());
            Err(other_call(execution.group, peer, call, &what))
        }
        Some(PeerFailure::Gone(_)) if execution.group.is_aborted() => {
            Err(execution.group.aborted(Some(location)))
        }
        Some(PeerFailure::Gone(way)) => Err(FailedWait { location, peer: gone, awaited }.lost(way)),
        None if look == WaitAction::Expired => {
            let batch = execution.bound.batch.as_ref();
            let in_batch = blocked.filter(|_| batch.is_some());
            let comes =
                |execution: &mut PlanExecution<'_>| Ok(execution.obstacle()? != (lane, blocked));
            let Some(known) = remark_unless_it_comes(execution, &waits, comes)? else {
                return Ok(());
            };
            let remark = match in_batch {
                Some(blocked) => batch_remark(execution, peer, blocked, &known),
                None => known,
            };
            // Other ranks may have given up first, and then appear gone: their error is the cause.
            execution.group.listen();
            if execution.group.is_aborted() {
                return Err(execution.group.aborted(Some(location)));
            }
            let after: Duration = execution.wait.timeout();
            Err(FailedWait { location, peer, awaited }.timed_out(after, remark))
        }
        None => Ok(()),
    }
}

/// Describes the rank and the event that a blocked lane waits for.
fn describe(execution: &PlanExecution<'_>, blocked: LaneCondition) -> (u32, String) {
    let bound = &execution.bound;
    let of = |act: AwaitedAct, peer, channel: u16| {
        let channel = if bound.batch.is_some() { 0 } else { channel };
        (peer, act.of_named(&PeerName { peer: Some(peer), channel }))
    };
    let send = |index: u32| bound.sends.get(index as usize);
    let own = execution.rank;
    match blocked {
        LaneCondition::Message(receiver) => {
            match bound.froms.iter().find(|f| f.receiver == receiver) {
                Some(f) => of(AwaitedAct::Message, f.peer, f.channel),
                None => (own, "a message".into()),
            }
        }
        LaneCondition::Room(index) => match send(index) {
            Some(s) => of(AwaitedAct::TakeEarlier, s.peer, s.channel),
            None => (own, "room for a message".into()),
        },
        LaneCondition::Drained(index) => match send(index) {
            Some(s) => of(AwaitedAct::ReadBuffer, s.peer, s.channel),
            None => (own, "a buffer to be read".into()),
        },
        LaneCondition::After(op) => {
            (own, format!("operation {} of its own lane {}", op.op, op.lane))
        }
    }
}

/// Returns the remark for messages that only two ranks know of.
fn batch_remark(
    execution: &PlanExecution<'_>,
    peer: u32,
    blocked: LaneCondition,
    known: &str,
) -> String {
    let rank = execution.rank;
    match blocked {
        LaneCondition::Message(_) => {
            let known = known.strip_prefix(';').unwrap_or(known);
            format!("; does rank {peer} send to rank {rank}?{known}")
        }
        _ => format!(
            "; does rank {peer} receive from rank {rank}? If both ranks send first, make one batch \
             of what each sends and receives{known}"
        ),
    }
}

/// Returns the place in its algorithm at which a rank is.
pub(crate) fn location(execution: &PlanExecution<'_>, step: Option<&BoundStep>) -> ErrorLocation {
    if let Some(batch) = &execution.bound.batch {
        let index = step.map_or(0, |s| s.round);
        let transfer = batch.transfers.get(index as usize);
        return ErrorLocation {
            rank: execution.rank,
            name: batch.name.into(),
            step: index,
            site: String::new(),
            text: transfer.map(BatchTransfer::to_string).unwrap_or_default(),
        };
    }
    let site = step.and_then(|s| execution.bound.sites.get(s.site as usize));
    ErrorLocation {
        rank: execution.rank,
        name: execution.bound.name(),
        step: step.map_or(0, |s| s.round),
        site: site.map(|s| format!("{}:{}:{}", s.file, s.line, s.column)).unwrap_or_default(),
        text: site.map(|s| s.text.clone()).unwrap_or_default(),
    }
}
