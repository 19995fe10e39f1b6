//! The records of an open connection (RFC 8446, 5): what is sealed is copied once, and what comes is opened in place.
//!
//! rustls makes the connection and its secrets. For long messages its own records would be copied four times on their way
//! to the reader; these are copied once. Keys are derived and replaced as RFC 8446, 7 says.

use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use ring::aead::{Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::KeyLog;

/// Bytes of the header of a record: its type, a version, and its length.
pub(crate) const RECORD_HEADER: usize = 5;
/// The most bytes of a caller in a record.
pub(crate) const RECORD_CONTENT_MAX: usize = 16 << 10;
/// The most bytes after the header.
const RECORD_BYTES_MAX: usize = RECORD_CONTENT_MAX + 256;
/// Bytes by which a record proves itself.
const TAG: usize = 16;
/// Bytes of a secret of SHA-256.
const SECRET: usize = 32;

/// The type of content.
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const DATA: u8 = 23;

/// The record makes no sense, or is not the next one of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record does not decrypt: bytes were changed on their way")]
pub(crate) struct RecordError;

/// The secrets of both directions of a connection, as rustls shows them once they are agreed.
#[derive(Default)]
pub(crate) struct TrafficSecrets(Mutex<[Option<[u8; SECRET]>; 2]>);

impl TrafficSecrets {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the secret of the connecting side, and that of the accepting side.
    pub(crate) fn both(&self) -> Option<[[u8; SECRET]; 2]> {
        let [connecting, accepting] = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some([connecting?, accepting?])
    }
}

impl std::fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrafficSecrets(not shown)")
    }
}

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let side = match label {
            "CLIENT_TRAFFIC_SECRET_0" => 0,
            "SERVER_TRAFFIC_SECRET_0" => 1,
            _ => return,
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[side] = secret.try_into().ok();
    }
}

/// A length in bytes of what is derived.
struct DerivedBytes(usize);

impl KeyType for DerivedBytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives bytes of a secret: HKDF-Expand-Label without a context.
fn derived<const N: usize>(secret: &Prk, label: &[u8]) -> Result<[u8; N], RecordError> {
    let lengths = [0, N as u8, (6 + label.len()) as u8];
    let info = [&lengths[..], b"tls13 ", label, &[0]];
    let mut bytes = [0; N];
    let derived = secret.expand(&info, DerivedBytes(N)).map_err(|_| RecordError)?;
    derived.fill(&mut bytes).map_err(|_| RecordError)?;
    Ok(bytes)
}

/// The key of one direction.
pub(crate) struct RecordKey {
    algorithm: &'static Algorithm,
    secret: [u8; SECRET],
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl RecordKey {
    /// Derives a key from its secret, for the record of that number on.
    pub(crate) fn new(
        algorithm: &'static Algorithm,
        secret: [u8; SECRET],
        sequence: u64,
    ) -> Result<RecordKey, RecordError> {
        let of = Prk::new_less_safe(HKDF_SHA256, &secret);
        let key = match algorithm.key_len() {
            16 => UnboundKey::new(algorithm, &derived::<16>(&of, b"key")?),
            _ => UnboundKey::new(algorithm, &derived::<32>(&of, b"key")?),
        };
        let key = LessSafeKey::new(key.map_err(|_| RecordError)?);
        Ok(RecordKey { algorithm, secret, key, iv: derived(&of, b"iv")?, sequence })
    }

    /// Goes on with the next key, as the peer does at the same record.
    pub(crate) fn update(&mut self) -> Result<(), RecordError> {
        let next = derived(&Prk::new_less_safe(HKDF_SHA256, &self.secret), b"traffic upd")?;
        *self = RecordKey::new(self.algorithm, next, 0)?;
        Ok(())
    }

    /// Returns the number of records that this key has sealed or opened.
    pub(crate) fn records(&self) -> u64 {
        self.sequence
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        nonce[NONCE_LEN - 8..]
            .iter_mut()
            .zip(self.sequence.to_be_bytes())
            .for_each(|(byte, number)| *byte ^= number);
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// Appends a record with the content of some places, [`RECORD_CONTENT_MAX`] bytes at most.
    pub(crate) fn seal(
        &mut self,
        kind: u8,
        content: &[IoSlice<'_>],
        to: &mut Vec<u8>,
    ) -> Result<(), RecordError> {
        let bytes: usize = content.iter().map(|part| part.len()).sum();
        let length = u16::try_from(bytes + 1 + TAG).map_err(|_| RecordError)?.to_be_bytes();
        let header = [DATA, 3, 3, length[0], length[1]];
        to.extend_from_slice(&header);
        let start = to.len();
        content.iter().for_each(|part| to.extend_from_slice(part));
        to.push(kind);
        let nonce = self.next_nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), &mut to[start..]);
        to.extend_from_slice(tag.map_err(|_| RecordError)?.as_ref());
        Ok(())
    }

    /// Opens a whole record where it lies; returns the type of its content, which follows the header, and its bytes.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(u8, usize), RecordError> {
        let (header, sealed) =
            record.split_first_chunk_mut::<RECORD_HEADER>().ok_or(RecordError)?;
        let nonce = self.next_nonce();
        let opened = self.key.open_in_place(nonce, Aad::from(*header), sealed);
        let opened = opened.map_err(|_| RecordError)?;
        // Padding is of zeros, behind the type.
        let at = opened.iter().rposition(|&byte| byte != 0).ok_or(RecordError)?;
        match at <= RECORD_CONTENT_MAX {
            true => Ok((opened[at], at)),
            false => Err(RecordError),
        }
    }
}

/// Returns the bytes of the record that these begin with, its header among them; `None` if the header is not whole.
pub(crate) fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some([kind, _, _, high, low]) = bytes.first_chunk::<RECORD_HEADER>().copied() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind == DATA && length <= RECORD_BYTES_MAX {
        true => Ok(Some(RECORD_HEADER + length)),
        false => Err(RecordError),
    }
}

#[cfg(test)]
mod tests {
    use ring::aead::{AES_128_GCM, CHACHA20_POLY1305};

    use super::*;

    fn keys(algorithm: &'static Algorithm) -> [RecordKey; 2] {
        [0, 0].map(|sequence| RecordKey::new(algorithm, [5; SECRET], sequence).expect("a key"))
    }

    /// The keys of the example connection of RFC 8448, 3: those of the server's data.
    #[test]
    fn keys_are_those_of_the_standard() {
        let secret = [
            0xa1, 0x1a, 0xf9, 0xf0, 0x55, 0x31, 0xf8, 0x56, 0xad, 0x47, 0x11, 0x6b, 0x45, 0xa9,
            0x50, 0x32, 0x82, 0x04, 0xb4, 0xf4, 0x4b, 0xfb, 0x6b, 0x3a, 0x4b, 0x4f, 0x1f, 0x3f,
            0xcb, 0x63, 0x16, 0x43,
        ];
        let of = Prk::new_less_safe(HKDF_SHA256, &secret);
        let key = [
            0x9f, 0x02, 0x28, 0x3b, 0x6c, 0x9c, 0x07, 0xef, 0xc2, 0x6b, 0xb9, 0xf2, 0xac, 0x92,
            0xe3, 0x56,
        ];
        let iv = [0xcf, 0x78, 0x2b, 0x88, 0xdd, 0x83, 0x54, 0x9a, 0xad, 0xf1, 0xe9, 0x84];
        assert_eq!(derived::<16>(&of, b"key"), Ok(key));
        assert_eq!(derived::<12>(&of, b"iv"), Ok(iv));
    }

    #[test]
    fn records_open_in_order_alone_and_unchanged() {
        for algorithm in [&AES_128_GCM, &CHACHA20_POLY1305] {
            let [mut near, mut far] = keys(algorithm);
            let mut records = Vec::new();
            let parts = [IoSlice::new(b"one "), IoSlice::new(b"word")];
            for _ in 0..3 {
                near.seal(DATA, &parts, &mut records).expect("sealed");
            }
            let bytes = record_bytes(&records).expect("a record").expect("whole");
            assert_eq!(bytes, RECORD_HEADER + 8 + 1 + TAG);
            let mut all = records.chunks_mut(bytes);
            let (first, second, third) =
                (all.next().expect("one"), all.next().expect("two"), all.next().expect("three"));
            assert_eq!(far.open(first), Ok((DATA, 8)));
            assert_eq!(&first[RECORD_HEADER..][..8], b"one word");
            let kept = second.to_vec();
            // The third in the place of the second.
            assert_eq!(far.open(third), Err(RecordError));
            for at in 0..kept.len() {
                let mut far = RecordKey::new(algorithm, [5; SECRET], 1).expect("a key");
                let mut changed = kept.clone();
                changed[at] ^= 1;
                assert_eq!(far.open(&mut changed), Err(RecordError), "byte {at}");
            }
            let mut far = RecordKey::new(algorithm, [5; SECRET], 1).expect("a key");
            assert_eq!(far.open(second), Ok((DATA, 8)));
        }
    }

    #[test]
    fn a_new_key_opens_what_the_same_new_key_sealed() {
        let [mut near, mut far] = keys(&AES_128_GCM);
        let mut record = Vec::new();
        near.update().expect("the next key");
        near.seal(DATA, &[IoSlice::new(b"word")], &mut record).expect("sealed");
        let mut kept = record.clone();
        assert_eq!(far.open(&mut record), Err(RecordError));
        far.update().expect("the next key");
        assert_eq!(far.open(&mut kept), Ok((DATA, 4)));
        assert_eq!(far.records(), 1);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        assert_eq!(record_bytes(&[DATA, 3, 3, 0]), Ok(None));
        assert_eq!(record_bytes(&[DATA, 3, 3, 0xff, 0xff]), Err(RecordError));
        assert_eq!(record_bytes(&[HANDSHAKE, 3, 3, 0, 9]), Err(RecordError));
        let [mut key, _] = keys(&AES_128_GCM);
        assert_eq!(key.open(&mut []), Err(RecordError));
        assert_eq!(key.open(&mut [DATA, 3, 3, 0, 3, 1, 2, 3]), Err(RecordError));
    }
}
