//! The packets of proxies: the header of all packets of the progress engine, with channel and call, and four fields.

use roundelay_engine::progress::{PacketClient, PacketHeader};
use roundelay_net::wire::{WireMessage, sized};

/// Returns the wire formats of proxies, for tests and fuzzers.
pub fn wires() -> Vec<WireMessage> {
    let sample = |kind| {
        let (channel, block, number) = (7, 31, 3);
        let packet =
            ProxyPacket { kind, epoch: 9, channel, block, number, bytes: 64, digest: 0xd16e57 };
        packet.encode().to_vec()
    };
    vec![WireMessage {
        name: "proxies: packet",
        samples: PacketKind::ALL.map(sample).into(),
        read: |bytes| Some(ProxyPacket::decode(sized(bytes)?)?.encode().to_vec()),
    }]
}

/// Bytes of a packet.
pub(super) const BYTES: usize = 32;

/// The kind of a packet, as headers number it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A content of that many bytes follows, unless it is empty.
    Message = 1,
    /// The receiver has consumed messages up to the number.
    Credit,
    /// A piece of a message between single ranks, which is no call's: its content follows, unless it is empty.
    Piece,
    /// The receiver has consumed such pieces up to the count.
    Room,
    /// A message whose content a device has written into its slot.
    Placed,
    /// The slots, for the peer's device: its key of them, bytes, and the address in place of the digest.
    Grant,
    /// A probe was written there.
    Probe,
}

impl PacketKind {
    const ALL: [PacketKind; 7] = [
        PacketKind::Message,
        PacketKind::Credit,
        PacketKind::Piece,
        PacketKind::Room,
        PacketKind::Placed,
        PacketKind::Grant,
        PacketKind::Probe,
    ];
}

/// A packet from a proxy thread to the thread of the same number of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProxyPacket {
    pub(super) kind: PacketKind,
    /// The call.
    pub(super) epoch: u32,
    /// The channel of the link. Both ends count the channels between two ranks alike, each direction for itself.
    pub(super) channel: u16,
    pub(super) block: u32,
    /// The message, from 1 in each call; of pieces, the tag of their message.
    pub(super) number: u32,
    /// Bytes of the content; of credit, where the block's slots begin among those that devices write.
    pub(super) bytes: u64,
    /// A digest of what all ranks have in common in this call; of pieces, their count between these ranks.
    pub(super) digest: u64,
}

impl ProxyPacket {
    /// Returns a packet about pieces.
    pub(super) fn of_pieces(
        kind: PacketKind,
        block: u32,
        count: u64,
        (tag, bytes): (u32, u64),
    ) -> Self {
        ProxyPacket { kind, epoch: 0, channel: 0, block, number: tag, bytes, digest: count }
    }

    /// Returns a packet about slots that devices reach, with key, bytes and address.
    pub(super) fn of_slots(kind: PacketKind, (number, bytes, digest): (u32, u64, u64)) -> Self {
        ProxyPacket { kind, epoch: 0, channel: 0, block: 0, number, bytes, digest }
    }

    pub(super) fn encode(&self) -> [u8; BYTES] {
        let ProxyPacket { kind, epoch, channel, block, number, bytes, digest } = *self;
        let (client, kind) = (PacketClient::Kernels, kind as u8);
        let header = PacketHeader { client, kind, channel, number: epoch }.encode();
        let words = [header, u64::from(block) | u64::from(number) << 32, bytes, digest];
        let mut to = [0; BYTES];
        for (to, word) in to.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        to
    }

    /// Returns the packet, if the bytes are one.
    pub(super) fn decode(from: &[u8; BYTES]) -> Option<ProxyPacket> {
        let mut words = [0u64; BYTES / 8];
        for (word, from) in words.iter_mut().zip(from.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [header, place, bytes, digest] = words;
        let header = PacketHeader::decode(header)?;
        let kind = *PacketKind::ALL.get(usize::from(header.kind).checked_sub(1)?)?;
        let PacketHeader { client: PacketClient::Kernels, channel, number: epoch, .. } = header
        else {
            return None;
        };
        let (block, number) = (place as u32, (place >> 32) as u32);
        Some(ProxyPacket { kind, epoch, channel, block, number, bytes, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_as_they_went() {
        let packet = ProxyPacket {
            kind: PacketKind::Message,
            epoch: 0x8000_0001,
            channel: 7,
            block: 31,
            number: 0xffff_fffe,
            bytes: 1 << 33 | 5,
            digest: 0x0123_4567_89ab_cdef,
        };
        let credit = ProxyPacket { kind: PacketKind::Credit, ..packet };
        let [piece, room] = [PacketKind::Piece, PacketKind::Room]
            .map(|k| ProxyPacket::of_pieces(k, 3, 1 << 40, (9, 16)));
        for packet in [packet, credit, piece, room] {
            assert_eq!(ProxyPacket::decode(&packet.encode()), Some(packet));
        }
        for kind in PacketKind::ALL {
            let packet = ProxyPacket { kind, ..packet };
            assert_eq!(ProxyPacket::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(ProxyPacket::decode(&[0; BYTES]), None, "no client");
        let mut forged = packet.encode();
        forged[0] = PacketClient::Messages as u8;
        assert_eq!(ProxyPacket::decode(&forged), None, "a packet of another client");
        for kind in [0, 8, 255] {
            let mut forged = packet.encode();
            forged[1] = kind;
            assert_eq!(ProxyPacket::decode(&forged), None, "{kind} is no kind");
        }
    }
}
