//! Waits that have become long: they are published to other ranks, and what these do is examined for the cause.

use std::time::Duration;

use roundelay_compiler::plan::SourceLine;

use crate::trace::process::condition;
use crate::trace::{
    FlightRecorder, RankCondition, RankStanding, RepeatedDiagnosis, SeenCall, WaitDescription,
    WaitRecord, now,
};
use crate::tunables::DIAGNOSIS_INTERVAL;
use roundelay_net::group::RankGroup;
use roundelay_support::error::Error;

/// Returns the cause for which a rank waits in vain, as far as this rank can determine it, and the remedy.
pub fn remark(group: &RankGroup, waiting: &WaitRecord, sites: &[SourceLine]) -> String {
    let mut looks = RepeatedDiagnosis::default();
    loop {
        match looks.add(observed_standings(group, waiting, sites), group.rank()) {
            Some(text) => return text,
            None => std::thread::sleep(DIAGNOSIS_INTERVAL),
        }
    }
}

/// Returns the state of all ranks as one that waits can see it.
pub(crate) fn observed_standings(
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
pub fn start_time(recorder: &FlightRecorder, waited: Duration) -> u64 {
    match recorder.waiting() {
        Some(waiting) => waiting.since,
        None => now().saturating_sub(u64::try_from(waited.as_nanos()).unwrap_or(0)),
    }
}

/// Records and publishes a wait that has become long.
pub fn publish_wait(group: &mut RankGroup, recorder: &mut FlightRecorder, waiting: &WaitRecord) {
    recorder.waits(waiting);
    group.publish_wait(Some(waiting));
}

/// Records that a wait that was long is over.
#[cold]
pub(crate) fn withdraw_wait(group: &mut RankGroup, recorder: &mut FlightRecorder) {
    recorder.resumes();
    group.publish_wait(None);
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
