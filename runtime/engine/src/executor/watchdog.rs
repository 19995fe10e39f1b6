//! Decides when a wait has failed, and reports it: the rank that waited, the place in the algorithm, the message or
//! room that it waited for, the peer, and what is known of the peer.

use std::time::Duration;

use roundelay_compiler::plan::SourceLine;

use super::execution::PlanExecution;
use super::wait::WaitAction;
use crate::bind::LaneCondition;
use crate::bind::{BatchTransfer, BoundStep, tagged};
use crate::trace::process::condition;
use crate::trace::{
    FlightRecorder, RankCondition, RankStanding, RepeatedDiagnosis, SeenCall, WaitDescription,
    WaitRecord, now,
};
use crate::tunables::DIAGNOSIS_INTERVAL;
use roundelay_net::group::RankGroup;
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_net::transport::shm::RankPresence;
use roundelay_support::error::{Error, ErrorLocation, ErrorSource};
use roundelay_support::process::{has_gone, no_longer};

/// The fault of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerFailure {
    /// It has left or died; whatever it sent before is still there.
    Gone(PeerLoss),
    /// A rank, not always the one that was examined, made another call of that number.
    OtherCall {
        /// The rank.
        peer: u32,
        /// The number of the call.
        call: u64,
    },
}

/// The way in which a peer is gone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerLoss {
    /// It has announced its end.
    #[error("it left the job")]
    Left,
    /// Its process, of this number, has ended.
    #[error("{}", no_longer(*.0))]
    Ended(i32),
    /// The control connections between ranks show it.
    #[error("{0}")]
    Reported(String),
    /// A connection for messages has ended.
    #[error("{0}")]
    Cut(#[source] ConnectionFault),
}

impl PeerLoss {
    /// Returns the error of a rank that waited at that place for the peer.
    pub fn lost(self, peer: u32, awaited: &str, location: ErrorLocation) -> Error {
        let rank = location.rank;
        let how = format!("{self} while rank {rank} waited for {awaited}");
        let source = match self {
            PeerLoss::Cut(fault) => Some(ErrorSource::new(fault)),
            _ => None,
        };
        Error::LostRank { rank, lost: peer, how, location: Some(location.into()), source }
    }
}

/// Examines a peer that this rank waits for.
pub fn examine(
    group: &RankGroup,
    peer: u32,
    call: u64,
    digest: Option<u32>,
) -> Option<PeerFailure> {
    let theirs = digest.and_then(|_| group.call_of(peer, call));
    if theirs.is_some() && theirs != digest {
        return Some(PeerFailure::OtherCall { peer, call });
    }
    if let Some(trouble) = digest.and_then(|_| reported(group)) {
        return Some(trouble);
    }
    if let Some(how) = group.gone(peer) {
        return Some(PeerFailure::Gone(PeerLoss::Reported(how)));
    }
    match group.state(peer) {
        (RankPresence::Absent, _) => None,
        (RankPresence::Died, Some(pid)) => Some(PeerFailure::Gone(PeerLoss::Ended(pid))),
        (RankPresence::Left | RankPresence::Died | RankPresence::Moved, _) => {
            Some(PeerFailure::Gone(PeerLoss::Left))
        }
        (RankPresence::Present, pid) => missing(pid?).map(PeerFailure::Gone),
    }
}

/// Returns the failure of a linked rank on another host that waits for words in a call, where this rank made another
/// call of that number.
fn reported(group: &RankGroup) -> Option<PeerFailure> {
    group.other_call().map(|(peer, call)| PeerFailure::OtherCall { peer, call })
}

/// Returns true if a rank is known to have ended: it shares memory with this one, and has announced its end, or its
/// process is gone.
pub fn has_ended(group: &RankGroup, peer: u32) -> bool {
    group.local(peer).is_some() && end_here(group, peer).is_some()
}

/// Returns the way in which a rank is known to have ended: it has announced its end, or its process is gone, as this
/// rank observes on its own host, or a rank of the peer's host has reported. The end of a connection to it is no proof.
pub(crate) fn end_of(group: &RankGroup, peer: u32) -> Option<PeerLoss> {
    match is_elsewhere(group, peer) {
        true => group.ended(peer).map(PeerLoss::Reported),
        false => end_here(group, peer),
    }
}

/// Returns the way in which a rank of this machine has ended.
fn end_here(group: &RankGroup, peer: u32) -> Option<PeerLoss> {
    match group.state(peer) {
        (RankPresence::Left, _) => Some(PeerLoss::Left),
        (RankPresence::Died, Some(pid)) => Some(PeerLoss::Ended(pid)),
        (RankPresence::Present, Some(pid)) => missing(pid),
        _ => None,
    }
}

/// Reports to ranks on other hosts which ranks of this one have ended.
pub(crate) fn bear_witness(group: &RankGroup) {
    let peers = (0..group.size()).filter(|&peer| group.is_networked() && peer != group.rank());
    for (peer, end) in peers.filter_map(|peer| Some((peer, end_here(group, peer)?))) {
        group.tell_ended(peer, &format!("{end}, as rank {} on its machine saw", group.rank()));
    }
}

/// Returns true if a rank is on another host, whose processes this one cannot examine.
pub(crate) fn is_elsewhere(group: &RankGroup, peer: u32) -> bool {
    group.state(peer) == (RankPresence::Present, None)
}

/// Returns the end of a process; `None` if it still runs.
fn missing(pid: i32) -> Option<PeerLoss> {
    has_gone(pid).then_some(PeerLoss::Ended(pid))
}

/// Returns the cause for which a rank waits in vain, as far as this rank can determine it, and the remedy.
pub(crate) fn remark(group: &RankGroup, waiting: &WaitRecord, sites: &[SourceLine]) -> String {
    let mut looks = RepeatedDiagnosis::default();
    loop {
        match looks.add(observed_standings(group, waiting, sites), group.rank()) {
            Some(text) => return text,
            None => std::thread::sleep(DIAGNOSIS_INTERVAL),
        }
    }
}

/// Returns the text of [`remark`]; `None` if the wait ends while the other ranks are examined.
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

/// Returns the state of all ranks as one that waits can see it.
fn observed_standings(
    group: &RankGroup,
    waiting: &WaitRecord,
    sites: &[SourceLine],
) -> Vec<RankStanding> {
    let mut standings = standings(group, sites);
    // This rank has its own wait at first hand.
    if let Some(own) = standings.get_mut(group.rank() as usize) {
        own.waiting = Some(waiting.spell(sites));
    }
    standings
}

/// Returns the state of all ranks, as far as it can be seen.
pub(crate) fn standings(group: &RankGroup, sites: &[SourceLine]) -> Vec<RankStanding> {
    (0..group.size()).map(|rank| standing(group, rank, sites)).collect()
}

fn standing(group: &RankGroup, rank: u32, sites: &[SourceLine]) -> RankStanding {
    let (state, pid) = group.state(rank);
    let calls = group.latest_call(rank);
    let condition = condition(state, pid, rank == group.rank());
    let latest = calls.unwrap_or(0);
    let recent = SeenCall::recent(latest, |call| group.call_of(rank, call));
    let waiting: Option<WaitDescription> = group.wait_of(rank).map(|w| w.spell(sites));
    // Of a rank whose calls cannot be read, only its reports are known.
    let condition = match (&waiting, condition) {
        (_, RankCondition::Unknown) if group.is_stopped_elsewhere(rank) => RankCondition::Stopped,
        (Some(_), RankCondition::Unknown) => RankCondition::Running,
        (None, RankCondition::Running) if calls.is_none() => RankCondition::Unknown,
        (_, condition) => condition,
    };
    let pid = pid.filter(|&pid| pid > 0);
    RankStanding { rank, pid, condition, calls: latest, recent, waiting }
}

/// Returns the time at which a wait began that has lasted so long: as recorded, if it is.
pub(crate) fn began(recorder: &FlightRecorder, waited: Duration) -> u64 {
    match recorder.waiting() {
        Some(waiting) => waiting.since,
        None => now().saturating_sub(u64::try_from(waited.as_nanos()).unwrap_or(0)),
    }
}

/// Records and publishes a wait that has become long.
pub(crate) fn waits(group: &mut RankGroup, recorder: &mut FlightRecorder, waiting: &WaitRecord) {
    recorder.waits(waiting);
    group.publish_wait(Some(waiting));
}

/// Records that a wait that was long is over.
#[cold]
pub(crate) fn resumed(group: &mut RankGroup, recorder: &mut FlightRecorder) {
    recorder.resumes();
    group.publish_wait(None);
}

/// Describes the wait of the lanes of a blocked rank.
fn waiting(
    execution: &mut PlanExecution<'_>,
    lane: Option<usize>,
    blocked: LaneCondition,
) -> Result<WaitRecord, Error> {
    let since = began(execution.recorder, execution.wait.waited());
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

/// Returns the words for a call of this rank that differs from a peer's: `current` is the number of the call at hand,
/// if it is one of all ranks.
pub(crate) fn spell_call(
    (peer, call): (u32, u64),
    current: Option<u64>,
    describe: impl FnOnce() -> String,
) -> String {
    match current == Some(call) {
        true => describe(),
        false => format!("another one than that of rank {peer}"),
    }
}

/// Returns the error of a rank whose call number `call`, which is `what`, is not the one that a peer makes.
/// If the job has ended already, that is the cause: where a part failed, its ranks no longer do what the
/// others do.
#[cold]
pub(crate) fn other_call(group: &RankGroup, peer: u32, call: u64, what: &str) -> Error {
    group.listen();
    if group.is_aborted() {
        return group.aborted(None);
    }
    let rank = group.rank();
    Error::PlanMismatch { rank, peer, detail: format!("call {call} of rank {rank} is {what}") }
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
        self::waits(execution.group, execution.recorder, waits);
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
        Some(PeerFailure::Gone(way)) => Err(way.lost(gone, &awaited, location)),
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
            Err(Error::Timeout { location: location.into(), awaited, peer, after, remark })
        }
        None => Ok(()),
    }
}

/// Describes the rank and the event that a blocked lane waits for.
fn describe(execution: &PlanExecution<'_>, blocked: LaneCondition) -> (u32, String) {
    let channel = |channel: u16| match channel {
        0 => String::new(),
        _ if execution.bound.batch.is_some() => String::new(),
        c => format!(" (channel {c})"),
    };
    let send = |index: u32| execution.bound.sends.get(index as usize);
    match blocked {
        LaneCondition::Message(receiver) => {
            match execution.bound.froms.iter().find(|f| f.receiver == receiver) {
                Some(f) => {
                    (f.peer, format!("a message from rank {}{}", f.peer, channel(f.channel)))
                }
                None => (execution.rank, "a message".into()),
            }
        }
        LaneCondition::Room(index) => match send(index) {
            Some(s) => {
                let to = format!("rank {}{}", s.peer, channel(s.channel));
                (s.peer, format!("{to} to take earlier messages"))
            }
            None => (execution.rank, "room for a message".into()),
        },
        LaneCondition::Drained(index) => match send(index) {
            Some(s) => {
                let by = format!("rank {}{}", s.peer, channel(s.channel));
                (s.peer, format!("{by} to read this rank's buffer"))
            }
            None => (execution.rank, "a buffer to be read".into()),
        },
        LaneCondition::After(op) => {
            (execution.rank, format!("operation {} of its own lane {}", op.op, op.lane))
        }
    }
}

/// Returns the text of [`remark`] for messages that only two ranks know of.
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn the_fault_of_a_connection_is_the_source_of_a_lost_rank() {
        let (name, site, text) = ("all_reduce.ring".into(), String::new(), String::new());
        let here = ErrorLocation { rank: 1, name, step: 2, site, text };
        let fault = ConnectionFault::Failed(Errno::NETUNREACH);
        let error = PeerLoss::Cut(fault.clone()).lost(3, "a message", here.clone());
        let wanted = format!("rank 3 is gone: {fault} while rank 1 waited for a message; {here}");
        assert_eq!(error.to_string(), wanted);
        let source = error.source().expect("the fault");
        assert_eq!(source.downcast_ref(), Some(&fault));
        assert!(source.source().is_some_and(|source| source.is::<Errno>()));
        assert!(PeerLoss::Left.lost(3, "a message", here).source().is_none());
    }
}
