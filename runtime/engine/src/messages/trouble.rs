//! Operations that wait in vain, or too long: who is to blame, and what is known.

use std::time::Instant;

use super::TICK;
use super::engine::{Early, Engine};
use super::link::Link;
use super::matching::Peer;
use super::transfer::{Transfer, What};
use crate::executor::watchdog::{Gone, Trouble, examine};
use roundelay_net::error::{Error, Location};

impl Engine {
    /// Looks for peers that are gone and for operations whose time is over.
    pub(super) fn examine(&mut self) {
        self.endpoints.tend();
        if let Some(error) = self.trouble(false).and_then(|_| {
            // Whatever a rank sent before it went is here now.
            self.progress();
            self.trouble(true)
        }) {
            match self.group.is_aborted() {
                true => drop(self.progress()),
                false => self.fail(error),
            }
        }
    }

    /// Returns the error of an operation that waits in vain, or too long.
    fn trouble(&mut self, is_sure: bool) -> Option<Error> {
        let (peer, what, gone) = match self.in_vain() {
            Some((peer, what, gone)) => (peer, what, Some(gone)),
            None => {
                let (peer, what) = self.late(is_sure)?;
                (peer, what, None)
            }
        };
        if is_sure && gone.is_some() {
            self.group.hear_out();
        }
        let (transfer, awaited) = self.waits(peer, what)?;
        let location = self.location(transfer, peer);
        let rank = self.group.rank();
        let whom = peer.unwrap_or(rank);
        Some(match gone {
            Some(gone) => gone.lost(whom, &awaited, location),
            None => Error::Timeout {
                location: location.into(),
                awaited,
                peer: whom,
                after: transfer.timeout,
                remark: self.remark(peer, transfer.tag, what),
            },
        })
    }

    /// Returns a peer, none if it may be any, that an operation waits for in vain, since it is gone. Each peer is examined
    /// once, however many operations wait for it.
    fn in_vain(&self) -> Option<(Option<u32>, What, Gone)> {
        let gone = |peer: u32| match examine(&self.group, peer, 0, None) {
            Some(Trouble::Gone(gone)) => Some(gone),
            _ => self.endpoints.fault(peer).map(Gone::Cut),
        };
        let own = self.group.rank();
        let mut peers = self.links.values().filter(|link| link.peer != own);
        let lost =
            peers.find_map(|link| Some((link.peer, self.waiting_for(link)?, gone(link.peer)?)));
        if let Some((peer, what, gone)) = lost {
            return Some((Some(peer), what, gone));
        }
        if !self.matching.awaits(Peer::Any) {
            return None;
        }
        let mut ends = (0..self.group.size()).filter(|&rank| rank != own).map(gone);
        let first = ends.next()??;
        ends.all(|end| end.is_some()).then_some((None, What::Receive, first))
    }

    /// Returns the kind of an operation that waits for the peer of a connection.
    fn waiting_for(&self, link: &Link) -> Option<What> {
        let receives = || self.matching.awaits(Peer::Rank(link.peer)).then_some(What::Receive);
        let signals = || self.awaited.iter().any(|awaited| awaited.peer == link.peer);
        let of_link = link.pending().next().map(|transfer| transfer.what);
        of_link.or_else(receives).or_else(|| signals().then_some(What::Signal))
    }

    /// Returns a peer, none if it may be any, that an operation has waited for too long: neither has it begun nor has
    /// anything moved on its connection for as long as its timeout. All operations are looked at, but not always.
    fn late(&mut self, is_sure: bool) -> Option<(Option<u32>, What)> {
        let now = Instant::now();
        if !is_sure && now.duration_since(self.looked) < TICK {
            return None;
        }
        self.looked = now;
        let latest = self.last_moved();
        let is_late = |(peer, transfer): &(Option<u32>, &Transfer)| {
            let link = peer.and_then(|peer| self.links.get(&peer)).map(|link| link.since);
            let moved = if peer.is_some() { link } else { latest };
            let since = moved.map_or(transfer.since, |moved| moved.max(transfer.since));
            now.saturating_duration_since(since) >= transfer.timeout
        };
        self.transfers().find(is_late).map(|(peer, transfer)| (peer, transfer.what))
    }

    /// Returns all that has not ended: the other rank if it is known, and the transfer.
    pub(super) fn transfers(&self) -> impl Iterator<Item = (Option<u32>, &Transfer)> {
        let of_link = |link| Link::pending(link).map(|transfer| (Some(link.peer), transfer));
        let of_links = self.links.values().flat_map(of_link);
        let receives = self.matching.receives().map(|(from, receive)| match from {
            Peer::Rank(rank) => (Some(rank), receive),
            Peer::Any => (None, receive),
        });
        let own = self.matching.kept().filter_map(|(from, early)| match early {
            Early::Own(send) => Some((Some(from), send)),
            _ => None,
        });
        let signals = self.awaited.iter().map(|awaited| (Some(awaited.peer), &awaited.transfer));
        of_links.chain(receives).chain(own).chain(signals)
    }

    /// Returns an operation of this kind that waits for that peer, and what it waits for.
    fn waits(&self, peer: Option<u32>, what: What) -> Option<(&Transfer, String)> {
        let of = self.transfers().find(|(its, transfer)| *its == peer && transfer.what == what);
        let whom = peer.map_or("any rank".into(), |peer| format!("rank {peer}"));
        of.map(|(_, transfer)| {
            let tag = transfer.tag;
            let awaited = match what {
                What::Send => format!("{whom} to receive the message with tag {tag}"),
                What::Receive => format!("a message from {whom} with tag {tag}"),
                What::Signal => format!("a signal from {whom}"),
                What::Give => format!("{whom} to take what it gets"),
                _ => format!("{whom} to serve its window ({})", what.name()),
            };
            (transfer, awaited)
        })
    }

    /// Says what is known about a wait that took too long.
    fn remark(&self, peer: Option<u32>, tag: u64, what: What) -> String {
        let rank = self.group.rank();
        let whom = peer.map_or(String::new(), |peer| peer.to_string());
        match what {
            What::Receive => {}
            What::Send => {
                return format!("; does rank {whom} receive from rank {rank} with tag {tag}?");
            }
            _ => return format!("; does rank {whom} do its part, and is its process not stopped?"),
        }
        let mut others: Vec<String> = self
            .matching
            .messages()
            .filter(|(from, _)| peer.is_none_or(|peer| peer == *from))
            .map(|(from, tag)| format!("tag {tag} from rank {from}"))
            .collect();
        others.truncate(8);
        match others.is_empty() {
            true => "; no message is there that nobody has received".into(),
            false => format!("; there are messages with {}", others.join(", ")),
        }
    }

    pub(super) fn location(&self, transfer: &Transfer, peer: Option<u32>) -> Location {
        let Transfer { what, shape, tag, .. } = transfer;
        let whom = peer.map_or("any rank".into(), |peer| format!("rank {peer}"));
        let text = match what {
            What::Send => format!("send {shape} to {whom}, tag {tag}"),
            What::Receive => format!("receive {shape} from {whom}, tag {tag}"),
            What::Signal => format!("wait for a signal from {whom}"),
            what => format!("{} of {shape} at byte {tag} of the part of {whom}", what.name()),
        };
        let (rank, name) = (self.group.rank(), what.name().into());
        Location { rank, name, step: 0, site: String::new(), text }
    }
}
