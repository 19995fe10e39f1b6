//! Operations that wait in vain, or too long: who is to blame, and what is known.

use super::device::Device;
use super::engine::{Early, Engine};
use super::link::Out;
use super::matching::Peer;
use super::transfer::{Transfer, What};
use crate::error::{Error, Location};
use crate::executor::watchdog::{Gone, Trouble, examine};

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
        let (peer, what, gone) = self.in_vain()?;
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

    /// Returns a peer, none if it may be any, whom an operation waits for in vain: since it is gone, or too long.
    fn in_vain(&self) -> Option<(Option<u32>, What, Option<Gone>)> {
        let gone = |peer: u32| match examine(&self.group, peer, 0, None) {
            Some(Trouble::Gone(gone)) => Some(gone),
            _ => self.endpoints.fault(peer).map(Gone::Cut),
        };
        let is_late = |transfer: &Transfer| transfer.since.elapsed() >= transfer.timeout;
        let own = self.group.rank();
        for (peer, transfer) in self.transfers() {
            let lost = match peer {
                Some(peer) if peer == own => None,
                Some(peer) => gone(peer),
                None => {
                    let others = || (0..self.group.size()).filter(|&rank| rank != own);
                    let all = others().all(|rank| gone(rank).is_some());
                    others().next().filter(|_| all).and_then(gone)
                }
            };
            if lost.is_some() || is_late(transfer) {
                return Some((peer, transfer.what, lost));
            }
        }
        None
    }

    /// Returns all that has not ended: the other rank if it is known, and the transfer.
    pub(super) fn transfers(&self) -> impl Iterator<Item = (Option<u32>, &Transfer)> {
        let of_links = self.links.values().flat_map(|link| {
            let queued = link.out.iter().filter_map(|out| match out {
                Out::Send(send) => Some(send),
                Out::Stream(part, _) => Some(&part.transfer),
                Out::Packet(_) => None,
            });
            let lent = queued.chain(link.lent()).chain(link.offered.values());
            let accepted = link.accepted.values().map(|part| &part.transfer);
            let by_device = link.device.iter().flat_map(Device::transfers);
            let all = lent.chain(accepted).chain(link.asked.values()).chain(by_device);
            all.map(|transfer| (Some(link.peer), transfer))
        });
        let receives = self.matching.receives().map(|(from, _, receive)| match from {
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
