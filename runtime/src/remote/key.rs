//! The bytes by which a peer names a region.

use roundelay_engine::window::WindowRights;
use roundelay_support::error::Error;

/// The beginning of a key of this version.
const MAGIC: &[u8; 4] = b"rlk1";
const BYTES: usize = 4 + 4 * 8;

/// The facts that a peer must have of a region to access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RegionKey {
    /// The endpoint that registered it.
    pub(super) endpoint: u64,
    /// The random number by which packets name it.
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) rights: WindowRights,
}

impl RegionKey {
    pub(super) fn encode(self) -> Vec<u8> {
        let words = [self.endpoint, self.number, self.bytes, self.rights.bits()];
        MAGIC.iter().copied().chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let words = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() == BYTES).ok_or_else(|| {
            let text = "these bytes are not the key of a region: give those that its `key` returned, whole, and use \
                        one version of roundelay everywhere";
            Error::Usage(text.into())
        })?;
        let word = |at: usize| {
            let word = words.get(8 * at..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let rights = WindowRights::of_bits(word(3));
        Ok(RegionKey { endpoint: word(0), number: word(1), bytes: word(2), rights })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = RegionKey { endpoint: 1, number: u64::MAX, bytes: 3, rights: WindowRights::READ };
        let bytes = key.encode();
        assert_eq!(RegionKey::decode(&bytes), Ok(key));
        assert!((0..bytes.len()).all(|end| RegionKey::decode(&bytes[..end]).is_err()));
        let longer = [&bytes[..], &[0]].concat();
        for bad in [&longer[..], b"", b"rlk2", &[255; BYTES]] {
            let error = RegionKey::decode(bad).expect_err("no key").to_string();
            assert!(error.contains("not the key of a region"), "{error}");
        }
    }
}
