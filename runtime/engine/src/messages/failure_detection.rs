//! Failure detection: operations whose peer is lost, and operations that have timed out.

use std::time::Instant;

use super::engine::MessageEngine;
use super::link::PeerLink;
use super::matching::ReceiveSource;
use super::transfer::{MessageTransfer, TransferKind};
use crate::progress::failed_wait::remark_on_silence;
use crate::progress::peer_failure::{PeerFailure, PeerLoss, examine};
use crate::progress::{AwaitedAct, FailedWait, PeerName};
use crate::tunables::CHANGE_CHECK_INTERVAL;
use roundelay_support::error::Error;

impl MessageEngine {
    /// Ends all operations if one of them waits for a lost peer or has timed out.
    pub(super) fn examine(&mut self) {
        self.endpoints.tend();
        if let Some(error) = self.find_failure(false).and_then(|_| {
            // All that a rank sent before it ended has come by now.
            self.progress();
            self.find_failure(true)
        }) {
            match self.group.is_aborted() {
                true => drop(self.progress()),
                false => self.fail(error),
            }
        }
    }

    /// Returns the error of an operation whose peer is lost, or that has timed out.
    fn find_failure(&mut self, is_sure: bool) -> Option<Error> {
        let (peer, what, gone) = match self.find_lost_peer() {
            Some((peer, what, gone)) => (peer, what, Some(gone)),
            None => {
                let (peer, what) = self.find_timed_out(is_sure)?;
                (peer, what, None)
            }
        };
        if is_sure && gone.is_some() {
            self.group.hear_out();
        }
        let (transfer, awaited) = self.describe_wait(peer, what)?;
        let location = self.location(transfer, peer);
        let failed = FailedWait { location, peer: peer.unwrap_or(self.group.rank()), awaited };
        Some(match gone {
            Some(gone) => failed.lost(gone),
            None => failed.timed_out(transfer.timeout, self.remark(peer, transfer.tag, what)),
        })
    }

    /// Returns a lost peer that an operation waits for, none if any peer would do and all are lost. Each peer is
    /// examined once, however many operations wait for it.
    fn find_lost_peer(&self) -> Option<(Option<u32>, TransferKind, PeerLoss)> {
        let gone = |peer: u32| match examine(&self.group, peer, 0, None) {
            Some(PeerFailure::Gone(gone)) => Some(gone),
            _ => self.endpoints.fault(peer).map(PeerLoss::Cut),
        };
        let own = self.group.rank();
        let mut peers = self.links.values().filter(|link| link.peer != own);
        let lost =
            peers.find_map(|link| Some((link.peer, self.waiting_for(link)?, gone(link.peer)?)));
        if let Some((peer, what, gone)) = lost {
            return Some((Some(peer), what, gone));
        }
        if !self.matching.awaits(ReceiveSource::Any) {
            return None;
        }
        let mut ends = (0..self.group.size()).filter(|&rank| rank != own).map(gone);
        let first = ends.next()??;
        ends.all(|end| end.is_some()).then_some((None, TransferKind::Receive, first))
    }

    /// Returns the kind of a pending operation that needs the peer of a connection.
    fn waiting_for(&self, link: &PeerLink) -> Option<TransferKind> {
        let receives = || {
            self.matching.awaits(ReceiveSource::Rank(link.peer)).then_some(TransferKind::Receive)
        };
        let signals = || self.signal_waits.iter().any(|awaited| awaited.peer == link.peer);
        let of_link = link.pending().next().map(|transfer| transfer.what);
        of_link.or_else(receives).or_else(|| signals().then_some(TransferKind::Signal))
    }

    /// Returns the peer, if it is known, and the kind of an operation that has timed out: since it started, nothing has
    /// moved on its connection for as long as its timeout. All operations are examined, once a
    /// [`CHANGE_CHECK_INTERVAL`].
    fn find_timed_out(&mut self, is_sure: bool) -> Option<(Option<u32>, TransferKind)> {
        let now = Instant::now();
        if !is_sure && now.duration_since(self.examined_at) < CHANGE_CHECK_INTERVAL {
            return None;
        }
        self.examined_at = now;
        let latest = self.last_moved();
        let is_late = |(peer, transfer): &(Option<u32>, &MessageTransfer)| {
            let link = peer.and_then(|peer| self.links.get(&peer)).map(|link| link.moved_at);
            let moved = if peer.is_some() { link } else { latest };
            let since = moved.map_or(transfer.since, |moved| moved.max(transfer.since));
            now.saturating_duration_since(since) >= transfer.timeout
        };
        self.transfers().find(is_late).map(|(peer, transfer)| (peer, transfer.what))
    }

    /// Returns an operation of this kind that waits for that peer, and a description of the wait.
    fn describe_wait(
        &self,
        peer: Option<u32>,
        what: TransferKind,
    ) -> Option<(&MessageTransfer, String)> {
        let of = self.transfers().find(|(its, transfer)| *its == peer && transfer.what == what);
        of.map(|(_, transfer)| {
            let act = match what {
                TransferKind::Send => AwaitedAct::Receive(transfer.tag),
                TransferKind::Receive => AwaitedAct::TaggedMessage(transfer.tag),
                TransferKind::Signal => AwaitedAct::Signal,
                TransferKind::Give => AwaitedAct::TakeBytes,
                _ => AwaitedAct::ServeWindow(what.name()),
            };
            (transfer, act.of_named(&PeerName { peer, channel: 0 }))
        })
    }

    /// Returns what is known about a wait that has timed out.
    fn remark(&self, peer: Option<u32>, tag: u64, what: TransferKind) -> String {
        let rank = self.group.rank();
        match (what, peer) {
            (TransferKind::Receive, _) | (_, None) => {}
            (TransferKind::Send, Some(to)) => {
                return format!("; does rank {to} receive from rank {rank} with tag {tag}?");
            }
            (_, Some(peer)) => return remark_on_silence(peer),
        }
        let mut others: Vec<String> = self
            .matching
            .messages()
            .into_iter()
            .filter(|(from, _)| peer.is_none_or(|peer| peer == *from))
            .map(|(from, tag)| format!("tag {tag} from rank {from}"))
            .collect();
        others.truncate(8);
        match others.is_empty() {
            true => "; there is no message without a receive".into(),
            false => format!("; there are messages with {}", others.join(", ")),
        }
    }
}
