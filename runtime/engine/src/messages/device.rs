//! Puts and gets by a device, where devices join two ranks.
//!
//! An origin requests access to a peer's part with its first put or get there, and the peer grants it: it registers the
//! part with its device for just the rights that peers have. All other operations, and those before the grant, are
//! packets.
//!
//! **Invariant:** operations of a rank take effect in order. The device keeps the order of its own, and packets wait
//! until it has completed those posted before them; nothing is posted to it while a put or an accumulate that was sent
//! as a packet is unconfirmed.
//!
//! **Invariant:** an operation that the device could not complete, since its memory was refused or the connection was
//! lost, is repeated as packets: the target then refuses or applies it. It may be applied twice, as no such operation
//! is an atomic.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::packet::MessagePacket;
use super::transfer::{MessageTransfer, PartialTransfer, TransferKind};
use crate::window::{ExposedPart, ServedPart};
use roundelay_net::transport::one_sided::{AccessGrant, AccessReport, OneSided, RemoteAccess};
use roundelay_net::transport::stream::StreamConnection;

/// The devices that join this rank and a peer, with the grants and operations of both.
pub(super) struct DeviceLink {
    connection: Arc<StreamConnection>,
    /// The peer's parts that access was requested to, with their grants.
    parts: BTreeMap<u64, (Option<Arc<ServedPart>>, Option<AccessGrant>)>,
    /// This rank's parts that the peer has requested access to.
    granted: BTreeSet<u64>,
    posted: VecDeque<DeviceTransfer>,
    /// Operations that have to be repeated as packets.
    pub(super) fallback: VecDeque<PartialTransfer>,
    number: u64,
    /// True if a put or an accumulate was sent as a packet that no answer has confirmed.
    pub(super) unconfirmed: bool,
    /// True if an answer is due that confirms it.
    pub(super) confirming: bool,
}

/// An operation that was posted to the device.
struct DeviceTransfer {
    id: u64,
    key: u64,
    grant: AccessGrant,
    part: PartialTransfer,
}

impl DeviceLink {
    /// Returns the devices of a connection, if it has any that access memory of the peer.
    pub(super) fn of(connection: &Arc<StreamConnection>) -> Option<Self> {
        connection.one_sided()?;
        Some(DeviceLink {
            connection: connection.clone(),
            parts: BTreeMap::new(),
            granted: BTreeSet::new(),
            posted: VecDeque::new(),
            fallback: VecDeque::new(),
            number: 0,
            unconfirmed: false,
            confirming: false,
        })
    }

    /// Returns true if no operation is left.
    pub(super) fn is_idle(&self) -> bool {
        self.posted.is_empty() && self.fallback.is_empty()
    }

    /// Returns all transfers that have not ended.
    pub(super) fn transfers(&self) -> impl Iterator<Item = &MessageTransfer> {
        let posted = self.posted.iter().map(|posted| &posted.part.transfer);
        posted.chain(self.fallback.iter().map(|part| &part.transfer))
    }

    /// Returns all transfers that have not ended; the device continues none of them.
    pub(super) fn into_transfers(self) -> impl Iterator<Item = MessageTransfer> {
        let posted = self.posted.into_iter().map(|posted| posted.part.transfer);
        posted.chain(self.fallback.into_iter().map(|part| part.transfer))
    }

    /// Records that a put or an accumulate is sent as a packet.
    pub(super) fn record_change(&mut self) {
        (self.unconfirmed, self.confirming) = (true, false);
    }

    /// Records that an answer is due, which confirms all packets before it.
    pub(super) fn expect_answer(&mut self) {
        self.confirming = true;
    }

    fn one_sided(&self) -> Option<&dyn OneSided> {
        self.connection.one_sided()
    }

    /// Records the grant of a part that access was requested to.
    pub(super) fn record_grant(
        &mut self,
        key: u64,
        grant: Option<AccessGrant>,
        remote: Option<Arc<ServedPart>>,
    ) {
        if let Some(part) = self.parts.get_mut(&key) {
            *part = (remote, grant);
        }
    }

    /// Removes a part of the peer.
    pub(super) fn forget(&mut self, key: u64) {
        self.parts.remove(&key);
    }

    /// Grants the peer's device access to this rank's part, if there is one; returns the packet with the grant.
    pub(super) fn grant(&mut self, key: u64, exposed: Option<&Arc<ExposedPart>>) -> MessagePacket {
        let granted = exposed.and_then(|exposed| {
            self.connection.one_sided()?.grant(exposed.exposure(), &|| exposed.may())
        });
        match exposed {
            Some(_) => self.granted.insert(key),
            None => self.granted.remove(&key),
        };
        MessagePacket::Grant { key, grant: granted }
    }

    /// Returns true if the peer has requested access to a part.
    pub(super) fn has_granted(&self, key: u64) -> bool {
        self.granted.contains(&key)
    }

    /// Returns the grant that an operation can use; fails with the packet that requests one, the first time.
    pub(super) fn usable(
        &mut self,
        transfer: &MessageTransfer,
    ) -> Result<Option<(u64, AccessGrant)>, MessagePacket> {
        let (key, reads) = match transfer.what {
            TransferKind::Put(key) => (key, false),
            TransferKind::Get(key) => (key, true),
            _ => return Ok(None),
        };
        let bytes = transfer.shape.bytes;
        if bytes == 0 || !self.one_sided().is_some_and(OneSided::is_up) {
            return Ok(None);
        }
        let Some((_, grant)) = self.parts.get(&key) else {
            self.parts.insert(key, (None, None));
            return Err(MessagePacket::Reach { key });
        };
        Ok(grant
            .filter(|grant| allows(grant, reads, transfer.tag, bytes))
            .map(|grant| (key, grant)))
    }

    /// Posts an operation to the device.
    pub(super) fn post(&mut self, key: u64, grant: AccessGrant, part: PartialTransfer) {
        self.number += 1;
        let (id, MessageTransfer { what, address, shape, tag, .. }) = (self.number, &part.transfer);
        let reads = matches!(what, TransferKind::Get(_));
        let there = grant.address.wrapping_add(*tag);
        let access =
            RemoteAccess { id, reads, here: *address, there, key: grant.key, len: shape.bytes };
        if let Some(device) = self.connection.one_sided() {
            // SAFETY: memory of a transfer that has not ended; those of a connection end after it is cut.
            unsafe { device.begin(access) };
        }
        self.posted.push_back(DeviceTransfer { id, key, grant, part });
    }

    /// Takes the completions of the device, and adds the transfers that have ended; returns true if there were any.
    pub(super) fn poll(&mut self, ended: &mut Vec<MessageTransfer>) -> bool {
        let mut news = Vec::new();
        if let Some(device) = self.connection.one_sided().filter(|_| !self.posted.is_empty()) {
            device.hear(&mut |new| news.push(new));
        }
        for new in &news {
            match *new {
                AccessReport::Moved { id, bytes } => {
                    if let Some(first) = self.posted.front_mut().filter(|first| first.id == id) {
                        first.part.moved = bytes;
                    }
                }
                AccessReport::Done { id } => {
                    if self.posted.front().is_some_and(|first| first.id == id)
                        && let Some(first) = self.posted.pop_front()
                    {
                        if let Some((Some(remote), _)) = self.parts.get(&first.key) {
                            remote.count();
                        }
                        ended.push(first.part.transfer);
                    }
                }
                AccessReport::Failed { refused } => self.fall_back(refused),
            }
        }
        !news.is_empty()
    }

    /// Repeats all posted operations as packets; if the device was refused access, its grant is not used again.
    fn fall_back(&mut self, refused: bool) {
        if let Some(DeviceTransfer { key, grant, .. }) = self.posted.front().filter(|_| refused)
            && let Some((_, known)) = self.parts.get_mut(key)
            && *known == Some(*grant)
        {
            *known = None;
        }
        self.fallback.extend(self.posted.drain(..).map(|posted| posted.part));
    }
}

/// Returns true if a device may read or write these bytes of a part. A word that it would not access atomically is sent
/// as a packet.
fn allows(grant: &AccessGrant, reads: bool, offset: u64, bytes: u64) -> bool {
    let may = if reads { grant.may.read } else { grant.may.write };
    let is_word = bytes == 8 && grant.address.wrapping_add(offset).is_multiple_of(8);
    may && (grant.words || !is_word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_net::transport::one_sided::AccessRights;

    #[test]
    fn a_device_does_what_was_granted_and_words_only_as_one() {
        let may = AccessRights { read: true, write: false };
        let grant = AccessGrant { address: 4096, key: 7, may, words: false };
        let by = |reads, offset, bytes| allows(&grant, reads, offset, bytes);
        assert!(by(true, 0, 16) && by(true, 4, 8) && by(true, 0, 4));
        assert!(!by(true, 0, 8) && !by(true, 64, 8), "an aligned word");
        assert!(!by(false, 0, 16), "it may not write");
        let grant = AccessGrant { words: true, ..grant };
        assert!(allows(&grant, true, 0, 8));
        let may = AccessRights { read: false, write: true };
        assert!(allows(&AccessGrant { may, ..grant }, false, 8, 8));
        assert!(!allows(&AccessGrant { may, ..grant }, true, 8, 8));
    }
}
