//! The packets of proxies.

/// Bytes of a packet.
pub(super) const BYTES: usize = 32;

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A content of that many bytes follows, unless it is empty.
    Message,
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
        let mut to = [0; BYTES];
        let kind: u16 = match self.kind {
            PacketKind::Message => 1,
            PacketKind::Credit => 2,
            PacketKind::Piece => 3,
            PacketKind::Room => 4,
            PacketKind::Placed => 5,
            PacketKind::Grant => 6,
            PacketKind::Probe => 7,
        };
        to[..4].copy_from_slice(&self.epoch.to_le_bytes());
        to[4..6].copy_from_slice(&kind.to_le_bytes());
        to[6..8].copy_from_slice(&self.channel.to_le_bytes());
        to[8..12].copy_from_slice(&self.block.to_le_bytes());
        to[12..16].copy_from_slice(&self.number.to_le_bytes());
        to[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        to[24..].copy_from_slice(&self.digest.to_le_bytes());
        to
    }

    /// Returns the packet, if the bytes are one.
    pub(super) fn decode(from: &[u8; BYTES]) -> Option<ProxyPacket> {
        let word =
            |at: usize| u32::from_le_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let kind = match word(4) & 0xffff {
            1 => PacketKind::Message,
            2 => PacketKind::Credit,
            3 => PacketKind::Piece,
            4 => PacketKind::Room,
            5 => PacketKind::Placed,
            6 => PacketKind::Grant,
            7 => PacketKind::Probe,
            _ => return None,
        };
        Some(ProxyPacket {
            kind,
            epoch: word(0),
            channel: (word(4) >> 16) as u16,
            block: word(8),
            number: word(12),
            bytes: long(16),
            digest: long(24),
        })
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
        assert_eq!(ProxyPacket::decode(&[0; BYTES]), None, "no kind");
    }
}
