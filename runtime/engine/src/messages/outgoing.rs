//! The entries of a connection's send queues.

use super::packet::MessagePacket;
use super::transfer::{MessageTransfer, PartialTransfer};

/// An entry of a send queue. Entries are sent in order.
pub(super) enum OutgoingEntry {
    Packet(MessagePacket),
    /// A message that has not been announced yet.
    Send(MessageTransfer),
    /// The payload of an accepted offer.
    Stream(PartialTransfer, u64),
}

impl OutgoingEntry {
    /// Returns the subject of an unsolicited packet, as [`MessagePacket::unsolicited`].
    pub(super) fn unsolicited(&self) -> Option<(u64, bool)> {
        match self {
            OutgoingEntry::Packet(packet) => packet.unsolicited(),
            OutgoingEntry::Send(_) | OutgoingEntry::Stream(..) => None,
        }
    }
}
