//! The first word of every packet: which client of the engine it is for, and what it says.
//!
//! ```text
//!   bits   0..8      8..16   16..32     32..64
//!          client    kind    channel    number
//! ```
//!
//! The client's words follow: 40 bytes of tagged messages and windows, 24 of proxies of kernels, 8 of tolerant
//! calls. Both ends know the length of the packets of a connection, so that they know how many bytes come next.

/// A client of the progress engine, as packets name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketClient {
    /// Tagged messages.
    Messages = 1,
    /// Served windows. They share connections with messages.
    Windows = 2,
    /// Messages of kernels.
    Kernels = 3,
    /// Tolerant calls.
    Tolerant = 4,
}

impl PacketClient {
    const ALL: [PacketClient; 4] = [
        PacketClient::Messages,
        PacketClient::Windows,
        PacketClient::Kernels,
        PacketClient::Tolerant,
    ];
}

/// The first word of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// The client that it is for.
    pub client: PacketClient,
    /// The kind of packet, as the client numbers them.
    pub kind: u8,
    /// The channel of a kernel's link; otherwise 0.
    pub channel: u16,
    /// The number of a kernel's call; otherwise 0.
    pub number: u32,
}

impl PacketHeader {
    /// Returns the header of a packet that its client and its kind describe.
    #[inline]
    pub const fn new(client: PacketClient, kind: u8) -> Self {
        PacketHeader { client, kind, channel: 0, number: 0 }
    }

    /// Returns the header as a word.
    #[inline]
    pub const fn encode(self) -> u64 {
        self.client as u64
            | (self.kind as u64) << 8
            | (self.channel as u64) << 16
            | (self.number as u64) << 32
    }

    /// Returns the header of a word; `None` if there is no such client.
    #[inline]
    pub fn decode(word: u64) -> Option<Self> {
        let client = *PacketClient::ALL.get(usize::from(word as u8).checked_sub(1)?)?;
        let (kind, channel) = ((word >> 8) as u8, (word >> 16) as u16);
        Some(PacketHeader { client, kind, channel, number: (word >> 32) as u32 })
    }

    /// Returns the kind of a word that is the header of a packet for that client and has no other fields.
    #[inline]
    pub fn decode_kind(word: u64, client: PacketClient) -> Option<u8> {
        let header = PacketHeader::decode(word)?;
        (header == PacketHeader::new(client, header.kind)).then_some(header.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_their_word_and_no_other_word_is_one() {
        for client in PacketClient::ALL {
            let header = PacketHeader { client, kind: 200, channel: 0xabcd, number: 0xfedc_ba98 };
            assert_eq!(PacketHeader::decode(header.encode()), Some(header));
            let plain = PacketHeader::new(client, 7);
            assert_eq!(PacketHeader::decode_kind(plain.encode(), client), Some(7));
            assert_eq!(PacketHeader::decode_kind(header.encode(), client), None, "other fields");
            let others = PacketClient::ALL.into_iter().filter(|other| *other != client);
            for other in others {
                assert_eq!(PacketHeader::decode_kind(plain.encode(), other), None, "of {client:?}");
            }
        }
        for word in [0, 5, 255, u64::MAX] {
            assert_eq!(PacketHeader::decode(word), None, "{word} names no client");
        }
    }
}
