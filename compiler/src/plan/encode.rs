//! Plans as bytes: magic, version, digest of the body, body. A decoded plan is checked again:
//! bytes from elsewhere are no proof.

use sha2::{Digest, Sha256};

use super::Plan;

/// Format version; part of the plan's identity.
pub const VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"RLPLAN\0\0";
const HEAD: usize = 8 + 4 + 32;

/// The reason for which bytes are not a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// Shorter than a header, or another file altogether.
    NotAPlan,
    /// Written by another version.
    Version(u32),
    /// The digest does not fit the body: truncated or altered.
    Damaged,
    /// The content contradicts itself.
    Inconsistent(String),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecodeError::NotAPlan => f.write_str("this is not a roundelay plan"),
            DecodeError::Version(v) => {
                write!(
                    f,
                    "the plan has format {v}, this program reads format {VERSION}; compile it again"
                )
            }
            DecodeError::Damaged => f.write_str(
                "the plan is truncated or altered: its digest does not fit; compile it again",
            ),
            DecodeError::Inconsistent(what) => write!(f, "the plan contradicts itself: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Plan {
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

    /// Decodes a plan from bytes and checks it: version, digest, and that it is consistent in itself.
    pub fn decode(bytes: &[u8]) -> Result<Plan, DecodeError> {
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
        let plan: Plan = postcard::from_bytes(body).map_err(|_| DecodeError::Damaged)?;
        plan.check().map_err(DecodeError::Inconsistent)?;
        Ok(plan)
    }
}
