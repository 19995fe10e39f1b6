//! The packets by which two ranks agree on messages.
//!
//! ```text
//!   up to 8 KiB                  longer                            longer, where the receiver can read it
//!   Eager, content  --->         Offer  --->                       Offer  --->
//!     ...                               <---  Accept                      <---  Taken
//!                   <--- Credit  Data, content, ...  --->
//! ```
//!
//! A receiver on the same host that may read the sender's memory (`process_vm_readv`) takes the content from there as
//! soon as there is a receive: each step of an agreement waits for a rank that may not be running.
//!
//! Windows have packets of their own. A put or an accumulate is applied where it comes, without an answer; all others
//! get an answer, or are refused. The target does what comes on a connection in order.
//!
//! ```text
//!   Put, content  --->          Get    --->                         Fetch, Flush  --->
//!                                      <---  Data, content, ...                   <---  Answer
//!        <---  Refused, if so          <---  Refused, if so                       <---  Refused, if so
//! ```
//!
//! An origin may put and get by itself what the target has granted, if devices join the two ranks (`device.rs`):
//!
//! ```text
//!   Reach  --->
//!          <---  Grant, and again if it changes
//! ```
//!
//! Every packet has the same length, so that both kinds of link know how many bytes come next; content is a message
//! of its own, of the length that the packet before it says.

use crate::window::{Fetch, Place, Rights};
use roundelay_net::dtype::{DType, RedOp};
use roundelay_net::error::{Bytes, Refusal};
use roundelay_net::transport::one_sided::{Grant, May};

/// Bytes of a packet: what travels in the first cache line of a header in shared memory.
pub(super) const BYTES: usize = 48;

/// The type and the length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The type of elements.
    pub dtype: DType,
    /// The length.
    pub bytes: u64,
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let elements = self.bytes / self.dtype.size() as u64;
        write!(f, "{} ({elements} x {})", Bytes(self.bytes), self.dtype)
    }
}

/// What one rank says to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packet {
    /// A message, whose content follows.
    Eager { tag: u64, shape: Shape },
    /// A message that is sent once the receiver has a place for it.
    /// It lies at that address of the sender's memory; 0 if nobody can read it there.
    Offer { tag: u64, shape: Shape, id: u64, address: u64 },
    /// The receiver has a place for the message.
    Accept { id: u64 },
    /// The receiver has read so many bytes of the message where they lie.
    Taken { id: u64, bytes: u64 },
    /// The next bytes of a message follow.
    Data { id: u64, bytes: u64 },
    /// So many eager messages found their places.
    Credit { messages: u64 },
    /// Bytes for a window follow, which go to that offset.
    Put { key: u64, offset: u64, bytes: u64 },
    /// Elements for a window follow, which are combined with those at that offset.
    Accumulate { key: u64, offset: u64, bytes: u64, dtype: DType, op: RedOp },
    /// Bytes of a window are wanted: as `Data` of a message of that number.
    Get { key: u64, offset: u64, bytes: u64, id: u64 },
    /// A word of a window is to be read and written at once.
    Fetch { key: u64, offset: u64, id: u64, fetch: Fetch },
    /// Counts for whoever waits for it at a window.
    Signal { key: u64 },
    /// What came before has taken effect once this is answered.
    Flush { key: u64, id: u64 },
    /// The answer, and the word as it was before.
    Answer { id: u64, value: u64 },
    /// This rank's device wants to access a part by itself.
    Reach { key: u64 },
    /// It may from now on, in this way; or not, or not any more.
    Grant { key: u64, grant: Option<Grant> },
    /// An operation on a window did nothing. It has no number if nobody waits for it.
    Refused { key: u64, id: u64, offset: u64, reason: Reason },
}

/// The bit of the numbers of gets: all other numbers of data are those of offers.
pub(super) const GET: u64 = 1 << 63;

/// The reason for which an operation on a window does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Bounds {
        bytes: u64,
    },
    Rights {
        needed: Rights,
        has: Rights,
    },
    Alignment {
        offset: u64,
    },
    Elements,
    /// There is no window with that key, or none any more.
    Over,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Bounds { bytes } => Refusal::Bounds { bytes },
            Reason::Rights { needed, has } => Place::lacks(needed, has),
            Reason::Alignment { offset } => Refusal::Alignment { offset },
            Reason::Elements => {
                Refusal::Elements("the peer's part of the window has other elements".into())
            }
            Reason::Over => Refusal::Gone,
        }
    }
}

impl Packet {
    /// Returns the bytes of content that follow.
    pub(super) fn content(self) -> usize {
        match self {
            Packet::Eager { shape, .. } => shape.bytes as usize,
            Packet::Data { bytes, .. }
            | Packet::Put { bytes, .. }
            | Packet::Accumulate { bytes, .. } => bytes as usize,
            _ => 0,
        }
    }

    /// Returns the part of a window of which the peer is told by this what it did not ask for, and whether it is granted.
    pub(super) fn told(self) -> Option<(u64, bool)> {
        match self {
            Packet::Refused { key, id: 0, .. } => Some((key, false)),
            Packet::Grant { key, .. } => Some((key, true)),
            _ => None,
        }
    }

    pub(super) fn encode(self) -> [u8; BYTES] {
        let of = |shape: Shape| (shape.dtype as u64, shape.bytes);
        let words: [u64; 6] = match self {
            Packet::Eager { tag, shape } => [0, tag, of(shape).0, of(shape).1, 0, 0],
            Packet::Offer { tag, shape, id, address } => {
                [1, tag, of(shape).0, of(shape).1, id, address]
            }
            Packet::Accept { id } => [2, id, 0, 0, 0, 0],
            Packet::Data { id, bytes } => [3, id, bytes, 0, 0, 0],
            Packet::Credit { messages } => [4, messages, 0, 0, 0, 0],
            Packet::Taken { id, bytes } => [5, id, bytes, 0, 0, 0],
            Packet::Put { key, offset, bytes } => [6, key, offset, bytes, 0, 0],
            Packet::Accumulate { key, offset, bytes, dtype, op } => {
                [7, key, offset, bytes, dtype as u64, op as u64]
            }
            Packet::Get { key, offset, bytes, id } => [8, key, offset, bytes, id, 0],
            Packet::Fetch { key, offset, id, fetch: Fetch::Add(value) } => {
                [9, key, offset, id, value, 0]
            }
            Packet::Fetch { key, offset, id, fetch: Fetch::Swap(from, to) } => {
                [10, key, offset, id, from, to]
            }
            Packet::Signal { key } => [11, key, 0, 0, 0, 0],
            Packet::Flush { key, id } => [12, key, id, 0, 0, 0],
            Packet::Answer { id, value } => [13, id, value, 0, 0, 0],
            Packet::Reach { key } => [19, key, 0, 0, 0, 0],
            Packet::Grant { key, grant: None } => [20, key, 0, 0, 0, 0],
            Packet::Grant { key, grant: Some(Grant { address, key: of_device, may, words }) } => {
                let may = u64::from(may.read) | u64::from(may.write) << 1;
                [20, key, may | u64::from(words) << 2, address, of_device.into(), 0]
            }
            Packet::Refused { key, id, offset, reason } => {
                let (kind, detail) = match reason {
                    Reason::Bounds { bytes } => (14, bytes),
                    Reason::Rights { needed, has } => (15, needed.bits() | has.bits() << 8),
                    Reason::Alignment { offset } => (16, offset),
                    Reason::Elements => (17, 0),
                    Reason::Over => (18, 0),
                };
                [kind, key, id, offset, detail, 0]
            }
        };
        let mut bytes = [0; BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Returns the packet of these bytes; `None` if they are none.
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut words = [0u64; 6];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [kind, a, b, c, d, e] = words;
        let shape = || {
            let dtype = *DType::ALL.get(usize::try_from(b).ok()?)?;
            Some(Shape { dtype, bytes: c })
        };
        Some(match kind {
            0 => Packet::Eager { tag: a, shape: shape()? },
            1 => Packet::Offer { tag: a, shape: shape()?, id: d, address: e },
            2 => Packet::Accept { id: a },
            3 => Packet::Data { id: a, bytes: b },
            4 => Packet::Credit { messages: a },
            5 => Packet::Taken { id: a, bytes: b },
            6 => Packet::Put { key: a, offset: b, bytes: c },
            7 => {
                let dtype = *DType::ALL.get(usize::try_from(d).ok()?)?;
                let op = *RedOp::ALL.get(usize::try_from(e).ok()?)?;
                Packet::Accumulate { key: a, offset: b, bytes: c, dtype, op }
            }
            8 => Packet::Get { key: a, offset: b, bytes: c, id: d },
            9 => Packet::Fetch { key: a, offset: b, id: c, fetch: Fetch::Add(d) },
            10 => Packet::Fetch { key: a, offset: b, id: c, fetch: Fetch::Swap(d, e) },
            11 => Packet::Signal { key: a },
            12 => Packet::Flush { key: a, id: b },
            13 => Packet::Answer { id: a, value: b },
            14..=18 => {
                let reason = match kind {
                    14 => Reason::Bounds { bytes: d },
                    15 => {
                        Reason::Rights { needed: Rights::of_bits(d), has: Rights::of_bits(d >> 8) }
                    }
                    16 => Reason::Alignment { offset: d },
                    17 => Reason::Elements,
                    _ => Reason::Over,
                };
                Packet::Refused { key: a, id: b, offset: c, reason }
            }
            19 => Packet::Reach { key: a },
            20 => {
                let may = May { read: b & 1 != 0, write: b & 2 != 0 };
                let key = u32::try_from(d).ok()?;
                let grant = Grant { address: c, key, may, words: b & 4 != 0 };
                Packet::Grant { key: a, grant: (may.read || may.write).then_some(grant) }
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
        let shape = Shape { dtype: DType::Bool, bytes: 1 << 40 };
        let may = May { read: false, write: true };
        let grant = Grant { address: u64::MAX, key: u32::MAX, may, words: true };
        for packet in [
            Packet::Eager { tag: u64::MAX, shape },
            Packet::Offer { tag: 1, shape, id: 2, address: 3 },
            Packet::Accept { id: 4 },
            Packet::Data { id: 5, bytes: 6 },
            Packet::Credit { messages: 8 },
            Packet::Taken { id: 9, bytes: 10 },
            Packet::Put { key: 11, offset: 12, bytes: 13 },
            Packet::Accumulate {
                key: 14,
                offset: 15,
                bytes: 16,
                dtype: DType::F64,
                op: RedOp::Max,
            },
            Packet::Get { key: 17, offset: 18, bytes: 19, id: 20 },
            Packet::Fetch { key: 21, offset: 22, id: 23, fetch: Fetch::Add(24) },
            Packet::Fetch { key: 25, offset: 26, id: 27, fetch: Fetch::Swap(28, 29) },
            Packet::Signal { key: 30 },
            Packet::Flush { key: 31, id: 32 },
            Packet::Answer { id: 33, value: 34 },
            Packet::Reach { key: 35 },
            Packet::Grant { key: 36, grant: None },
            Packet::Grant { key: 37, grant: Some(grant) },
        ] {
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
        for reason in [
            Reason::Bounds { bytes: 1 },
            Reason::Rights { needed: Rights::WRITE, has: Rights::READ | Rights::ATOMICS },
            Reason::Alignment { offset: 2 },
            Reason::Elements,
            Reason::Over,
        ] {
            let packet = Packet::Refused { key: 3, id: 4, offset: 5, reason };
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(Packet::decode(&[255; BYTES]), None);
        let mut odd = Packet::Eager { tag: 0, shape }.encode();
        odd[16] = 200;
        assert_eq!(Packet::decode(&odd), None, "there is no such type");
    }
}
