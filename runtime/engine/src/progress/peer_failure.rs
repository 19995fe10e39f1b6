//! The failure of a peer: what a rank that waits can know of the one that it waits for, and the words for it.
//!
//! All clients of the progress engine, and the executor, examine their peers here. A rank is *gone* if it left, its
//! process ended, the control connections report so, or a connection to it was cut.

use roundelay_net::group::RankGroup;
use roundelay_net::transport::fault::ConnectionFault;
use roundelay_net::transport::shm::RankPresence;
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
pub(crate) fn reported(group: &RankGroup) -> Option<PeerFailure> {
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
