//! Plans as bytes: magic, version, digest of the body, body. A decoded plan is checked again:
//! bytes from elsewhere are no proof.

use sha2::{Digest, Sha256};

use super::{InconsistentPlan, Plan, UnprovedPlan};

/// Format version; part of the plan's identity.
pub const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"RLPLAN\0\0";
const HEAD: usize = 8 + 4 + 32;

/// The reason for which bytes are not a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than a header, or another file altogether.
    #[error("this is not a roundelay plan")]
    NotAPlan,
    /// Written by another version.
    #[error("the plan has format {0}, this program reads format {VERSION}; compile it again")]
    Version(u32),
    /// The digest does not fit the body: truncated or altered.
    #[error("the plan is truncated or altered: its digest does not fit; compile it again")]
    Damaged,
    /// The content contradicts itself.
    #[error("the plan contradicts itself: {0}")]
    Inconsistent(#[from] InconsistentPlan),
}

impl Plan {
    /// Decodes a plan from bytes and checks it: version, digest, and that it is consistent in itself.
    pub fn decode(bytes: &[u8]) -> Result<Plan, DecodeError> {
        Ok(UnprovedPlan::decode(bytes)?.check()?)
    }
}

impl UnprovedPlan {
    /// Encodes the plan in bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain data into memory cannot fail; an empty body would be refused on decoding.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(HEAD + body.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&Sha256::digest(&body));
        out.extend_from_slice(&body);
        out
    }

    /// Decodes a plan from bytes of this version, whose digest fits.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (Some(head), Some(body)) = (bytes.get(..HEAD), bytes.get(HEAD..)) else {
            return Err(DecodeError::NotAPlan);
        };
        if &head[..8] != MAGIC {
            return Err(DecodeError::NotAPlan);
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        if Sha256::digest(body)[..] != head[12..] {
            return Err(DecodeError::Damaged);
        }
        postcard::from_bytes(body).map_err(|_| DecodeError::Damaged)
    }
}
