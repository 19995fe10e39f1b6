//! Puts and gets that a device does by itself, where devices join two ranks.
//!
//! An origin asks for a part of the peer's when it first puts or gets there, and the peer grants it: it registers the
//! part with its device for just what peers may do. Everything else, and whatever comes before the grant, goes as
//! packets.
//!
//! **Invariant:** operations of a rank take effect in order. The device keeps its own, and packets wait until it has
//! done what was begun before them; it is given nothing while a put or an accumulate of before is on its way as a
//! packet and has no answer behind it.
//!
//! **Invariant:** whatever the device could not do, since its memory was refused or the way there was lost, is asked
//! for by packets, where the target refuses it in its own words, or does it. All of it may be done twice: none is an
//! atomic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::link::{Link, Out};
use super::packet::{GET, Packet};
use super::transfer::{Part, Transfer, What};
use crate::window::{Exposed, Remote};
use roundelay_net::transport::one_sided::{Access, Grant, News, OneSided};
use roundelay_net::transport::stream::Connection;

/// The devices that join this rank and a peer, and what they do.
pub(super) struct Device {
    connection: Arc<Connection>,
    /// Parts of the peer's that were asked for, with their grants.
    parts: BTreeMap<u64, (Option<Arc<Remote>>, Option<Grant>)>,
    /// Parts of this rank's that the peer has asked for.
    granted: BTreeSet<u64>,
    begun: VecDeque<Begun>,
    /// Operations that are to go as packets after all.
    again: VecDeque<Part>,
    number: u64,
    /// True if something was put or accumulated by packets since an answer came; and if one is due that comes after
    /// that.
    unconfirmed: bool,
    confirming: bool,
}

/// An operation that the device does.
struct Begun {
    id: u64,
    key: u64,
    grant: Grant,
    part: Part,
}

/// The way that the next operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Packet,
    /// The device has it, or it is done.
    Device,
    /// It waits for what is before it.
    Waits,
}

impl Device {
    /// Returns the devices of a connection, if it has any that access memory of the peer.
    pub(super) fn of(connection: &Arc<Connection>) -> Option<Self> {
        connection.one_sided()?;
        Some(Device {
            connection: connection.clone(),
            parts: BTreeMap::new(),
            granted: BTreeSet::new(),
            begun: VecDeque::new(),
            again: VecDeque::new(),
            number: 0,
            unconfirmed: false,
            confirming: false,
        })
    }

    /// Returns true if nothing is left to be done.
    pub(super) fn is_idle(&self) -> bool {
        self.begun.is_empty() && self.again.is_empty()
    }

    /// Returns everything that has not ended.
    pub(super) fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        let begun = self.begun.iter().map(|begun| &begun.part.transfer);
        begun.chain(self.again.iter().map(|part| &part.transfer))
    }

    /// Returns everything that has not ended; the device does no more of it.
    pub(super) fn into_transfers(self) -> impl Iterator<Item = Transfer> {
        let begun = self.begun.into_iter().map(|begun| begun.part.transfer);
        begun.chain(self.again.into_iter().map(|part| part.transfer))
    }

    /// Records that a put or an accumulate goes as a packet.
    pub(super) fn changes(&mut self) {
        (self.unconfirmed, self.confirming) = (true, false);
    }

    /// Records that the peer was asked for something, and answers after all before it.
    pub(super) fn asks(&mut self) {
        self.confirming = true;
    }

    fn one_sided(&self) -> Option<&dyn OneSided> {
        self.connection.one_sided()
    }

    /// Records what the device may do with a part that was asked for.
    pub(super) fn hear(&mut self, key: u64, grant: Option<Grant>, remote: Option<Arc<Remote>>) {
        if let Some(part) = self.parts.get_mut(&key) {
            *part = (remote, grant);
        }
    }

    /// Forgets a part of the peer's.
    pub(super) fn forget(&mut self, key: u64) {
        self.parts.remove(&key);
    }

    /// Lets the peer's device access this rank's part, as far as there is one; returns what to tell it.
    pub(super) fn grant(&mut self, key: u64, exposed: Option<&Arc<Exposed>>) -> Packet {
        let granted = exposed.and_then(|exposed| {
            self.connection.one_sided()?.grant(exposed.exposure(), &|| exposed.may())
        });
        match exposed {
            Some(_) => self.granted.insert(key),
            None => self.granted.remove(&key),
        };
        Packet::Grant { key, grant: granted }
    }

    /// Returns true if the peer has asked for a part.
    pub(super) fn has_granted(&self, key: u64) -> bool {
        self.granted.contains(&key)
    }

    /// Returns the grant that an operation can use; asks for one first if that was not done.
    fn usable(&mut self, transfer: &Transfer) -> Result<Option<(u64, Grant)>, Packet> {
        let (key, reads) = match transfer.what {
            What::Put(key) => (key, false),
            What::Get(key) => (key, true),
            _ => return Ok(None),
        };
        let bytes = transfer.shape.bytes;
        if bytes == 0 || !self.one_sided().is_some_and(OneSided::is_up) {
            return Ok(None);
        }
        let Some((_, grant)) = self.parts.get(&key) else {
            self.parts.insert(key, (None, None));
            return Err(Packet::Reach { key });
        };
        Ok(grant
            .filter(|grant| allows(grant, reads, transfer.tag, bytes))
            .map(|grant| (key, grant)))
    }

    /// Has the device do an operation.
    fn begin(&mut self, key: u64, grant: Grant, part: Part) {
        self.number += 1;
        let (id, Transfer { what, address, shape, tag, .. }) = (self.number, &part.transfer);
        let reads = matches!(what, What::Get(_));
        let there = grant.address.wrapping_add(*tag);
        let access = Access { id, reads, here: *address, there, key: grant.key, len: shape.bytes };
        if let Some(device) = self.connection.one_sided() {
            // SAFETY: memory of a transfer that has not ended; those of a connection are given up after it is cut.
            unsafe { device.begin(access) };
        }
        self.begun.push_back(Begun { id, key, grant, part });
    }

    /// Hears what the device has done; returns true if it has done anything, and adds what has ended.
    fn heed(&mut self, ended: &mut Vec<Transfer>) -> bool {
        let mut news = Vec::new();
        if let Some(device) = self.connection.one_sided().filter(|_| !self.begun.is_empty()) {
            device.hear(&mut |new| news.push(new));
        }
        for new in &news {
            match *new {
                News::Moved { id, bytes } => {
                    if let Some(first) = self.begun.front_mut().filter(|first| first.id == id) {
                        first.part.moved = bytes;
                    }
                }
                News::Done { id } => {
                    if self.begun.front().is_some_and(|first| first.id == id)
                        && let Some(first) = self.begun.pop_front()
                    {
                        if let Some((Some(remote), _)) = self.parts.get(&first.key) {
                            remote.count();
                        }
                        ended.push(first.part.transfer);
                    }
                }
                News::Failed { refused } => self.failed(refused),
            }
        }
        !news.is_empty()
    }

    /// Has all that was begun done by packets; if it was refused nothing goes by this grant any more.
    fn failed(&mut self, refused: bool) {
        if let Some(Begun { key, grant, .. }) = self.begun.front().filter(|_| refused)
            && let Some((_, known)) = self.parts.get_mut(key)
            && *known == Some(*grant)
        {
            *known = None;
        }
        self.again.extend(self.begun.drain(..).map(|begun| begun.part));
    }
}

/// Returns true if a device may read or write so many bytes at an offset by itself. A word that it would not do as one
/// goes as a packet.
fn allows(grant: &Grant, reads: bool, offset: u64, bytes: u64) -> bool {
    let may = if reads { grant.may.read } else { grant.may.write };
    let is_word = bytes == 8 && grant.address.wrapping_add(offset).is_multiple_of(8);
    may && (grant.words || !is_word)
}

impl Link {
    /// Hears what the device has done for this rank.
    pub(super) fn heed_device(&mut self) {
        if let Some(device) = &mut self.device {
            self.moved |= device.heed(&mut self.ended);
        }
    }

    /// Decides how the next thing goes that is to be said; what goes by the device is given to it. Content is not due.
    pub(super) fn way(&mut self) -> Way {
        let has_asked = !self.asked.is_empty() || self.accepted.range(GET..).next().is_some();
        let Some(device) = &mut self.device else { return Way::Packet };
        while let Some(part) = device.again.pop_back() {
            self.out.push_front(match part.transfer.what {
                What::Put(_) => Out::Stream(part, 0),
                _ => Out::Send(part.transfer),
            });
        }
        if device.confirming && !has_asked {
            (device.unconfirmed, device.confirming) = (false, false);
        }
        let transfer = match self.out.front() {
            Some(Out::Packet(Packet::Signal { .. })) => None,
            Some(Out::Send(transfer)) if transfer.what.is_of_window() => Some(transfer),
            Some(Out::Stream(part, _)) if part.moved > 0 => return Way::Packet,
            Some(Out::Stream(part, _)) if part.transfer.what.changes() => Some(&part.transfer),
            _ => return Way::Packet,
        };
        let is_clear = !device.unconfirmed && !has_asked;
        let waits = |is_idle| if is_idle { Way::Packet } else { Way::Waits };
        let Some(transfer) = transfer else { return waits(device.is_idle()) };
        if matches!(transfer.what, What::Flush(_)) && is_clear {
            if !device.is_idle() {
                return Way::Waits;
            }
            if let Some(Out::Send(flush)) = self.out.pop_front() {
                self.ended.push(flush);
            }
            return Way::Device;
        }
        match device.usable(transfer) {
            Err(asks) => {
                self.out.push_front(Out::Packet(asks));
                Way::Packet
            }
            Ok(None) => waits(device.is_idle()),
            // An answer is due, after which it may go.
            Ok(Some(_)) if !is_clear && device.confirming => Way::Waits,
            Ok(Some(_)) if !is_clear => waits(device.is_idle()),
            Ok(Some((key, grant))) => {
                match self.out.pop_front() {
                    Some(Out::Stream(part, _)) => device.begin(key, grant, part),
                    Some(Out::Send(transfer)) => {
                        device.begin(key, grant, Part { transfer, moved: 0 });
                    }
                    _ => {}
                }
                Way::Device
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_net::transport::one_sided::May;

    #[test]
    fn a_device_does_what_was_granted_and_words_only_as_one() {
        let may = May { read: true, write: false };
        let grant = Grant { address: 4096, key: 7, may, words: false };
        let by = |reads, offset, bytes| allows(&grant, reads, offset, bytes);
        assert!(by(true, 0, 16) && by(true, 4, 8) && by(true, 0, 4));
        assert!(!by(true, 0, 8) && !by(true, 64, 8), "an aligned word");
        assert!(!by(false, 0, 16), "it may not write");
        let grant = Grant { words: true, ..grant };
        assert!(allows(&grant, true, 0, 8));
        let may = May { read: false, write: true };
        assert!(allows(&Grant { may, ..grant }, false, 8, 8));
        assert!(!allows(&Grant { may, ..grant }, true, 8, 8));
    }
}
