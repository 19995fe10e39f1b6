//! The packets by which two ranks agree on messages.
//!
//! ```text
//!   up to 8 KiB                  longer                            longer, where the receiver can read it
//!   Eager, payload  --->         Offer  --->                       Offer  --->
//!     ...                               <---  Accept                      <---  Taken
//!                   <--- Credit  Data, payload, ...  --->
//! ```
//!
//! A receiver on the same host that may read the sender's memory (`process_vm_readv`) reads the payload from there as
//! soon as there is a receive: each step of an agreement waits for a rank that may not be running.
//!
//! Windows have packets of their own. A put or an accumulate is applied as it arrives, without an answer; all others
//! get an answer, or are refused. The target applies the packets of a connection in order.
//!
//! ```text
//!   Put, payload  --->          Get    --->                         Fetch, Flush  --->
//!                                      <---  Data, payload, ...                   <---  Answer
//!        <---  Refused, if so          <---  Refused, if so                       <---  Refused, if so
//! ```
//!
//! An origin may put and get by its device what the target has granted, if devices join the two ranks (`device.rs`):
//!
//! ```text
//!   Reach  --->
//!          <---  Grant, and again if it changes
//! ```
//!
//! Every packet has the same length, so that both kinds of link know how many bytes come next; a payload is a message
//! of its own, of the length that the packet before it states. The first word is the header of all packets of the
//! progress engine, the others are what the kind says.

use crate::progress::{PacketClient, PacketHeader};
use crate::window::{AtomicFetch, PartMemory, WindowRights};
use roundelay_net::transport::one_sided::{AccessGrant, AccessRights};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::{AccessRefusal, ByteCount};

/// The bytes of a packet: it fits the first cache line of a header in shared memory.
pub(super) const PACKET_BYTES: usize = 48;
/// Messages in flight on a connection, packets and payloads.
pub(super) const SLOTS: u64 = 8;
/// The digest that all messages of this module carry.
pub(super) const DIGEST: u32 = 0x7a66_ed01;

/// The type and the length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageShape {
    /// The type of elements.
    pub dtype: DType,
    /// The length.
    pub bytes: u64,
}

impl std::fmt::Display for MessageShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let elements = self.bytes / self.dtype.size() as u64;
        write!(f, "{} ({elements} x {})", ByteCount(self.bytes), self.dtype)
    }
}

/// A packet from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessagePacket {
    /// A message, whose payload follows.
    Eager { tag: u64, shape: MessageShape },
    /// A message that is sent once the receiver has a buffer for it, and its address in the sender's memory: 0 if the
    /// receiver cannot read it there.
    Offer { tag: u64, shape: MessageShape, id: u64, address: u64 },
    /// The receiver has a buffer for the message.
    Accept { id: u64 },
    /// The receiver has read this many bytes of the message from the sender's memory.
    Taken { id: u64, bytes: u64 },
    /// The next bytes of a message follow.
    Data { id: u64, bytes: u64 },
    /// This many more eager messages may be sent.
    Credit { messages: u64 },
    /// Bytes for a window follow, which go to that offset.
    Put { key: u64, offset: u64, bytes: u64 },
    /// Elements for a window follow, which are combined with those at that offset.
    Accumulate { key: u64, offset: u64, bytes: u64, dtype: DType, op: RedOp },
    /// Requests bytes of a window, as `Data` of a message of that number.
    Get { key: u64, offset: u64, bytes: u64, id: u64 },
    /// Requests an atomic change of a word of a window.
    Fetch { key: u64, offset: u64, id: u64, fetch: AtomicFetch },
    /// Adds one to the signals of the sender at a window.
    Signal { key: u64 },
    /// Requests an answer once the operations before it have taken effect.
    Flush { key: u64, id: u64 },
    /// The answer, and the word as it was before.
    Answer { id: u64, value: u64 },
    /// Requests access to a part for the sender's device.
    Reach { key: u64 },
    /// The access that the device has from now on, if any.
    Grant { key: u64, grant: Option<AccessGrant> },
    /// An operation on a window was refused; one without an answer has the number 0.
    Refused { key: u64, id: u64, offset: u64, reason: RefusalReason },
}

/// Returns the client whose packets have a kind: those of windows share the connections of messages.
fn client_of(kind: u8) -> PacketClient {
    match kind {
        ..=LAST_OF_MESSAGES => PacketClient::Messages,
        _ => PacketClient::Windows,
    }
}

/// The last kind of packet of messages.
const LAST_OF_MESSAGES: u8 = 5;

/// The bit that marks the numbers of gets among those of `Data`; numbers without it are of offers.
pub(super) const GET_BIT: u64 = 1 << 63;

/// The reason for which an operation on a window was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalReason {
    Bounds {
        bytes: u64,
    },
    Rights {
        needed: WindowRights,
        has: WindowRights,
    },
    Alignment {
        offset: u64,
    },
    Elements,
    /// No window has that key, or has it any more.
    Over,
}

impl From<RefusalReason> for AccessRefusal {
    fn from(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Bounds { bytes } => AccessRefusal::Bounds { bytes },
            RefusalReason::Rights { needed, has } => PartMemory::lacks(needed, has),
            RefusalReason::Alignment { offset } => AccessRefusal::Alignment { offset },
            RefusalReason::Elements => {
                AccessRefusal::Elements("the peer's part of the window has other elements".into())
            }
            RefusalReason::Over => AccessRefusal::Gone,
        }
    }
}

impl MessagePacket {
    /// Returns the bytes of payload that follow.
    pub(super) fn payload_bytes(self) -> usize {
        match self {
            MessagePacket::Eager { shape, .. } => shape.bytes as usize,
            MessagePacket::Data { bytes, .. }
            | MessagePacket::Put { bytes, .. }
            | MessagePacket::Accumulate { bytes, .. } => bytes as usize,
            _ => 0,
        }
    }

    /// Returns the part of a window that an unsolicited packet is about, and whether it is a grant.
    pub(super) fn unsolicited(self) -> Option<(u64, bool)> {
        match self {
            MessagePacket::Refused { key, id: 0, .. } => Some((key, false)),
            MessagePacket::Grant { key, .. } => Some((key, true)),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; PACKET_BYTES] {
        let of = |shape: MessageShape| (shape.dtype as u64, shape.bytes);
        let words: [u64; 6] = match self {
            MessagePacket::Eager { tag, shape } => [0, tag, of(shape).0, of(shape).1, 0, 0],
            MessagePacket::Offer { tag, shape, id, address } => {
                [1, tag, of(shape).0, of(shape).1, id, address]
            }
            MessagePacket::Accept { id } => [2, id, 0, 0, 0, 0],
            MessagePacket::Data { id, bytes } => [3, id, bytes, 0, 0, 0],
            MessagePacket::Credit { messages } => [4, messages, 0, 0, 0, 0],
            MessagePacket::Taken { id, bytes } => [5, id, bytes, 0, 0, 0],
            MessagePacket::Put { key, offset, bytes } => [6, key, offset, bytes, 0, 0],
            MessagePacket::Accumulate { key, offset, bytes, dtype, op } => {
                [7, key, offset, bytes, dtype as u64, op as u64]
            }
            MessagePacket::Get { key, offset, bytes, id } => [8, key, offset, bytes, id, 0],
            MessagePacket::Fetch { key, offset, id, fetch: AtomicFetch::Add(value) } => {
                [9, key, offset, id, value, 0]
            }
            MessagePacket::Fetch { key, offset, id, fetch: AtomicFetch::Swap(from, to) } => {
                [10, key, offset, id, from, to]
            }
            MessagePacket::Signal { key } => [11, key, 0, 0, 0, 0],
            MessagePacket::Flush { key, id } => [12, key, id, 0, 0, 0],
            MessagePacket::Answer { id, value } => [13, id, value, 0, 0, 0],
            MessagePacket::Reach { key } => [19, key, 0, 0, 0, 0],
            MessagePacket::Grant { key, grant: None } => [20, key, 0, 0, 0, 0],
            MessagePacket::Grant {
                key,
                grant: Some(AccessGrant { address, key: of_device, may, words }),
            } => {
                let may = u64::from(may.read) | u64::from(may.write) << 1;
                [20, key, may | u64::from(words) << 2, address, of_device.into(), 0]
            }
            MessagePacket::Refused { key, id, offset, reason } => {
                let (kind, detail) = match reason {
                    RefusalReason::Bounds { bytes } => (14, bytes),
                    RefusalReason::Rights { needed, has } => (15, needed.bits() | has.bits() << 8),
                    RefusalReason::Alignment { offset } => (16, offset),
                    RefusalReason::Elements => (17, 0),
                    RefusalReason::Over => (18, 0),
                };
                [kind, key, id, offset, detail, 0]
            }
        };
        let [kind, fields @ ..] = words;
        let header = PacketHeader::new(client_of(kind as u8), kind as u8).encode();
        let mut bytes = [0; PACKET_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(std::iter::once(header).chain(fields)) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the packet of these bytes; `None` if they are none.
    pub(super) fn decode(bytes: &[u8; PACKET_BYTES]) -> Option<Self> {
        let mut words = [0u64; 6];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [header, a, b, c, d, e] = words;
        let kind = PacketHeader::decode(header)?.kind;
        PacketHeader::decode_kind(header, client_of(kind))?;
        let shape = || {
            let dtype = *DType::ALL.get(usize::try_from(b).ok()?)?;
            Some(MessageShape { dtype, bytes: c })
        };
        Some(match kind {
            0 => MessagePacket::Eager { tag: a, shape: shape()? },
            1 => MessagePacket::Offer { tag: a, shape: shape()?, id: d, address: e },
            2 => MessagePacket::Accept { id: a },
            3 => MessagePacket::Data { id: a, bytes: b },
            4 => MessagePacket::Credit { messages: a },
            5 => MessagePacket::Taken { id: a, bytes: b },
            6 => MessagePacket::Put { key: a, offset: b, bytes: c },
            7 => {
                let dtype = *DType::ALL.get(usize::try_from(d).ok()?)?;
                let op = *RedOp::ALL.get(usize::try_from(e).ok()?)?;
                MessagePacket::Accumulate { key: a, offset: b, bytes: c, dtype, op }
            }
            8 => MessagePacket::Get { key: a, offset: b, bytes: c, id: d },
            9 => MessagePacket::Fetch { key: a, offset: b, id: c, fetch: AtomicFetch::Add(d) },
            10 => MessagePacket::Fetch { key: a, offset: b, id: c, fetch: AtomicFetch::Swap(d, e) },
            11 => MessagePacket::Signal { key: a },
            12 => MessagePacket::Flush { key: a, id: b },
            13 => MessagePacket::Answer { id: a, value: b },
            14..=18 => {
                let reason = match kind {
                    14 => RefusalReason::Bounds { bytes: d },
                    15 => RefusalReason::Rights {
                        needed: WindowRights::of_bits(d),
                        has: WindowRights::of_bits(d >> 8),
                    },
                    16 => RefusalReason::Alignment { offset: d },
                    17 => RefusalReason::Elements,
                    _ => RefusalReason::Over,
                };
                MessagePacket::Refused { key: a, id: b, offset: c, reason }
            }
            19 => MessagePacket::Reach { key: a },
            20 => {
                let may = AccessRights { read: b & 1 != 0, write: b & 2 != 0 };
                let key = u32::try_from(d).ok()?;
                let grant = AccessGrant { address: c, key, may, words: b & 4 != 0 };
                MessagePacket::Grant { key: a, grant: (may.read || may.write).then_some(grant) }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_survive_their_bytes() {
        let shape = MessageShape { dtype: DType::Bool, bytes: 1 << 40 };
        let may = AccessRights { read: false, write: true };
        let grant = AccessGrant { address: u64::MAX, key: u32::MAX, may, words: true };
        for packet in [
            MessagePacket::Eager { tag: u64::MAX, shape },
            MessagePacket::Offer { tag: 1, shape, id: 2, address: 3 },
            MessagePacket::Accept { id: 4 },
            MessagePacket::Data { id: 5, bytes: 6 },
            MessagePacket::Credit { messages: 8 },
            MessagePacket::Taken { id: 9, bytes: 10 },
            MessagePacket::Put { key: 11, offset: 12, bytes: 13 },
            MessagePacket::Accumulate {
                key: 14,
                offset: 15,
                bytes: 16,
                dtype: DType::F64,
                op: RedOp::Max,
            },
            MessagePacket::Get { key: 17, offset: 18, bytes: 19, id: 20 },
            MessagePacket::Fetch { key: 21, offset: 22, id: 23, fetch: AtomicFetch::Add(24) },
            MessagePacket::Fetch { key: 25, offset: 26, id: 27, fetch: AtomicFetch::Swap(28, 29) },
            MessagePacket::Signal { key: 30 },
            MessagePacket::Flush { key: 31, id: 32 },
            MessagePacket::Answer { id: 33, value: 34 },
            MessagePacket::Reach { key: 35 },
            MessagePacket::Grant { key: 36, grant: None },
            MessagePacket::Grant { key: 37, grant: Some(grant) },
        ] {
            assert_eq!(MessagePacket::decode(&packet.encode()), Some(packet));
        }
        for reason in [
            RefusalReason::Bounds { bytes: 1 },
            RefusalReason::Rights {
                needed: WindowRights::WRITE,
                has: WindowRights::READ | WindowRights::ATOMICS,
            },
            RefusalReason::Alignment { offset: 2 },
            RefusalReason::Elements,
            RefusalReason::Over,
        ] {
            let packet = MessagePacket::Refused { key: 3, id: 4, offset: 5, reason };
            assert_eq!(MessagePacket::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(MessagePacket::decode(&[255; PACKET_BYTES]), None);
        let mut odd = MessagePacket::Eager { tag: 0, shape }.encode();
        odd[16] = 200;
        assert_eq!(MessagePacket::decode(&odd), None, "there is no such type");
        let mut other = MessagePacket::Accept { id: 4 }.encode();
        other[0] = PacketClient::Windows as u8;
        assert_eq!(MessagePacket::decode(&other), None, "a message for the other client");
        (other[0], other[2]) = (PacketClient::Messages as u8, 1);
        assert_eq!(MessagePacket::decode(&other), None, "a channel, where there is none");
    }
}
