//! The secret that the ranks of a job may share. It never crosses the wire: a rank proves that it
//! knows it by an HMAC-SHA256 over the messages of both sides, to another rank and to the store alike.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::error::Error;

/// Bytes of a proof.
pub const PROOF: usize = 32;
/// Bytes of a number used once.
pub const NONCE: usize = 32;

/// A shared secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct JobSecret(Vec<u8>);

impl From<Vec<u8>> for JobSecret {
    fn from(bytes: Vec<u8>) -> Self {
        JobSecret(bytes)
    }
}

impl JobSecret {
    /// Returns the bytes that the ranks share.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// The side that proves. Both names are equally long, so that no other words give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofSide {
    /// The side that connects.
    Connecting,
    /// The side that accepts.
    Accepting,
}

fn mac(secret: &[u8], side: ProofSide, transcript: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    mac.update(match side {
        ProofSide::Connecting => b"roundelay connects",
        ProofSide::Accepting => b"roundelay accepted",
    });
    transcript.iter().for_each(|part| mac.update(part));
    Some(mac)
}

/// Proves that this side knows the secret. The transcript must have parts of fixed lengths.
pub fn proof(secret: &[u8], side: ProofSide, transcript: &[&[u8]]) -> [u8; PROOF] {
    // A key of any length is taken: the default stands for a case that does not exist.
    mac(secret, side, transcript).map(|mac| mac.finalize().into_bytes().into()).unwrap_or_default()
}

/// Returns true if a proof is right, in a time that does not depend on it.
pub fn accepts(secret: &[u8], proof: &[u8], side: ProofSide, transcript: &[&[u8]]) -> bool {
    mac(secret, side, transcript).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

impl JobSecret {
    /// Proves the knowledge of this secret, see [`proof`].
    pub fn proof(&self, side: ProofSide, transcript: &[&[u8]]) -> [u8; PROOF] {
        proof(self.bytes(), side, transcript)
    }

    /// Checks a proof with this secret, see [`accepts`].
    pub fn accepts(&self, proof: &[u8], side: ProofSide, transcript: &[&[u8]]) -> bool {
        accepts(self.bytes(), proof, side, transcript)
    }
}

/// Returns random bytes.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(n) if n == N => Ok(bytes),
        Ok(_) => Err(Error::Start("the system gave too few random bytes".into())),
        Err(e) => Err(Error::system(format!("the system gave no random bytes: {e}"), e, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_side_one_secret_and_what_was_said() {
        let secret = JobSecret::from(b"correct horse".to_vec());
        let proof = secret.proof(ProofSide::Connecting, &[b"hello", b"nonce"]);
        assert!(secret.accepts(&proof, ProofSide::Connecting, &[b"hello", b"nonce"]));
        assert!(!secret.accepts(&proof, ProofSide::Accepting, &[b"hello", b"nonce"]));
        assert!(!secret.accepts(&proof, ProofSide::Connecting, &[b"hello", b"other"]));
        assert!(!secret.accepts(&proof[..31], ProofSide::Connecting, &[b"hello", b"nonce"]));
        assert!(!secret.accepts(&[0; 32], ProofSide::Connecting, &[b"hello", b"nonce"]));
        let other = JobSecret::from(b"correct house".to_vec());
        assert!(!other.accepts(&proof, ProofSide::Connecting, &[b"hello", b"nonce"]));
    }

    #[test]
    fn it_is_never_printed() {
        let secret = JobSecret::from(b"correct horse".to_vec());
        assert!(!format!("{secret:?} {:?}", Some(&secret)).contains("horse"));
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random::<NONCE>(), random::<NONCE>());
    }
}
