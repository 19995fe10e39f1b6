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
//! Every packet has the same length, so that both kinds of link know how many bytes come next; content is a message
//! of its own, of the length that the packet before it says.

use crate::dtype::DType;
use crate::error::Bytes;

/// Bytes of a packet: what travels in the first cache line of a header in shared memory.
pub(super) const BYTES: usize = 48;

/// The type and the length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) dtype: DType,
    pub(crate) bytes: u64,
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
}

impl Packet {
    /// Returns the bytes of content that follow.
    pub(super) fn content(self) -> usize {
        match self {
            Packet::Eager { shape, .. } => shape.bytes as usize,
            Packet::Data { bytes, .. } => bytes as usize,
            _ => 0,
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
        for packet in [
            Packet::Eager { tag: u64::MAX, shape },
            Packet::Offer { tag: 1, shape, id: 2, address: 3 },
            Packet::Accept { id: 4 },
            Packet::Data { id: 5, bytes: 6 },
            Packet::Credit { messages: 8 },
            Packet::Taken { id: 9, bytes: 10 },
        ] {
            assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
        assert_eq!(Packet::decode(&[255; BYTES]), None);
        let mut odd = Packet::Eager { tag: 0, shape }.encode();
        odd[16] = 200;
        assert_eq!(Packet::decode(&odd), None, "there is no such type");
    }
}
