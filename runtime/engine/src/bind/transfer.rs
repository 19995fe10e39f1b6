//! Messages of a batch, and the tags that their pieces carry.

use roundelay_compiler::plan::MessageDirection;

use roundelay_support::dtype::DType;
use roundelay_support::error::ByteCount;

/// The value that a tag without content has, so that no message reads as zeros.
const TAG: u32 = 0x5265_6c61;
/// Bits of a tag that hold a length; the bit above marks the digest of a longer one.
const LENGTH_BITS: u32 = 27;

/// A message, as one of its ends sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTransfer {
    /// The other end.
    pub peer: u32,
    /// The direction in which it goes at this end.
    pub dir: MessageDirection,
    /// Type of the elements.
    pub dtype: DType,
    /// Length in bytes.
    pub bytes: u64,
}

impl BatchTransfer {
    /// Returns the tag that every piece of the message carries in place of a digest.
    pub fn tag(&self) -> u32 {
        let mask = (1 << LENGTH_BITS) - 1;
        let length = match u32::try_from(self.bytes) {
            Ok(bytes) if bytes <= mask => bytes,
            _ => (roundelay_support::digest::mix(0, self.bytes) as u32 & mask) | 1 << LENGTH_BITS,
        };
        TAG ^ ((self.dtype as u32) << (LENGTH_BITS + 1) | length)
    }
}

const _: () = assert!(DType::ALL.len() <= 1 << (32 - LENGTH_BITS - 1));

/// Describes a message that carries such a tag, in words.
pub fn tagged(tag: u32) -> String {
    let word = tag ^ TAG;
    let bytes = u64::from(word & ((1 << LENGTH_BITS) - 1));
    let Some(dtype) = DType::ALL.get((word >> (LENGTH_BITS + 1)) as usize) else {
        return "something else".into();
    };
    match word >> LENGTH_BITS & 1 {
        0 => content(*dtype, bytes),
        _ => format!("more than {} of {dtype}", ByteCount((1 << LENGTH_BITS) - 1)),
    }
}

/// Describes the content of a message in words.
pub(super) fn content(dtype: DType, bytes: u64) -> String {
    format!("{bytes} bytes ({} x {dtype})", bytes / dtype.size() as u64)
}

impl std::fmt::Display for BatchTransfer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let content = content(self.dtype, self.bytes);
        match self.dir {
            MessageDirection::Send => write!(f, "send {content} to rank {}", self.peer),
            MessageDirection::Recv => write!(f, "receive {content} from rank {}", self.peer),
        }
    }
}

/// The messages that a bound batch was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchShape {
    /// `batch`, `send`, `recv`, or the collective that is executed as a batch.
    pub(crate) name: &'static str,
    /// The messages, in the order in which they were listed.
    pub(crate) transfers: Vec<BatchTransfer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_tell_types_and_lengths() {
        let transfer =
            |dtype, bytes| BatchTransfer { peer: 1, dir: MessageDirection::Send, dtype, bytes };
        let mut tags = Vec::new();
        for &dtype in DType::ALL {
            for bytes in [0, 8, 16, (1 << 27) - 8, 1 << 27, 1 << 33, (1 << 33) + (1 << 28)] {
                let tag = transfer(dtype, bytes).tag();
                let count = bytes / dtype.size() as u64;
                let text = match bytes < 1 << 27 {
                    true => format!("{bytes} bytes ({count} x {dtype})"),
                    false => format!("more than 128.0 MiB of {dtype}"),
                };
                assert_eq!(tagged(tag), text);
                tags.push(tag);
            }
        }
        let all = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all);
        assert_eq!(tagged(!0 ^ TAG), "something else");
    }
}
