//! Encodes what goes over a connection between a rank and the store, and bounds it.

use sha2::{Digest, Sha256};

use crate::tunables::{STORE_FAILURE_BYTES, STORE_KEY_BYTES, STORE_VALUE_BYTES};
use roundelay_support::abort::{AbortRecord, code_named};
use roundelay_support::secret::{NONCE, PROOF};

/// The first bytes of both sides; the last one is the version.
pub(crate) const MAGIC: [u8; 8] = *b"rndlst\0\x03";
/// The key under which a store keeps the address of its host at which the first rank of another host reached it: an
/// empty value if all ranks have come from the same host.
pub(crate) const HOST_KEY: &str = "the address of this host";
/// The longest remainder of a frame after its length, in bytes.
pub(crate) const MAX_FRAME: usize = FRAME_HEAD + 2 + STORE_KEY_BYTES + STORE_VALUE_BYTES;
/// The bytes of operation and number.
pub(crate) const FRAME_HEAD: usize = 5;

/// The rank that a guest names: it belongs to the job and is none of its ranks.
pub(crate) const GUEST: u32 = u32::MAX;

/// The key of the note that guests may read.
pub const ROSTER: &str = "reporters";

pub(crate) const HELLO: usize = 8 + 4 + 4 + 32 + 1 + NONCE;
pub(crate) const CHALLENGE: usize = 8 + NONCE;
/// The answer to a client of which one side encrypts and the other does not, in the clear: a challenge without a nonce.
pub(crate) const MODE_REFUSAL: [u8; CHALLENGE] = {
    let mut bytes = [0; CHALLENGE];
    let mut at = 0;
    while at < MAGIC.len() {
        bytes[at] = MAGIC[at];
        at += 1;
    }
    bytes
};
pub(crate) const VERDICT: usize = 1 + 4 + PROOF;

/// The request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreRequest {
    /// Body: length of the key (u16), key, value.
    Set = 1,
    /// Body: key. Answered when it is there.
    Get = 2,
    /// No body. Reports that this rank has joined; answered when all ranks have.
    Finish = 3,
    /// Body: a failure. Answered with the first failure of the job, which is this one if there was
    /// none.
    Fail = 4,
    /// No body. Asks for the ranks that are missing or silent; answered in words.
    Who = 5,
    /// No body, no answer. Reports that this rank, which was asked, is present.
    Here = 6,
    /// No body, of a guest. Asks for the report of this process about its ranks; answered with it, see
    /// [`Job::report`](super::job::Job::report).
    Report = 7,
}

impl StoreRequest {
    pub(crate) fn from_byte(byte: u8) -> Option<StoreRequest> {
        [
            StoreRequest::Set,
            StoreRequest::Get,
            StoreRequest::Finish,
            StoreRequest::Fail,
            StoreRequest::Who,
            StoreRequest::Here,
            StoreRequest::Report,
        ]
        .into_iter()
        .find(|&op| op as u8 == byte)
    }
}

/// The server's answer to a client, or to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreVerdict {
    /// It was done; the body is the result.
    Ok = 0,
    /// The proof is of another secret.
    Secret = 1,
    /// The client belongs to another job.
    Job = 2,
    /// The client counts other ranks than the server, whose number follows.
    Size = 3,
    /// Another process is this rank already.
    Taken = 4,
    /// The store has no room, or no frame has room for the answer.
    Full = 5,
    /// Unsolicited: the first failure of the job follows.
    Failed = 6,
    /// Unsolicited: the client is to send [`StoreRequest::Here`].
    Ask = 7,
    /// The client's connection is in the clear for another reason than the server's, or without one.
    Mode = 8,
}

impl StoreVerdict {
    pub(crate) fn from_byte(byte: u8) -> Option<StoreVerdict> {
        use StoreVerdict::{Ask, Failed, Full, Job, Mode, Ok, Secret, Size, Taken};
        let all = [Ok, Secret, Job, Size, Taken, Full, Failed, Ask, Mode];
        all.into_iter().find(|&v| v as u8 == byte)
    }
}

/// Returns the digest that stands for the name of a job.
pub fn digest(job: &str) -> [u8; 32] {
    Sha256::digest(job.as_bytes()).into()
}

/// The first message of a client: its rank, and its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreHello {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) job: [u8; 32],
    /// True if the proofs cover the host: the connection is in the clear because it does not leave it.
    pub(crate) is_host_bound: bool,
    pub(crate) nonce: [u8; NONCE],
}

impl StoreHello {
    pub(crate) fn bytes(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.rank.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.job);
        bytes[48] = self.is_host_bound.into();
        bytes[49..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Decodes a hello; `None` if these are not its bytes.
    pub(crate) fn read(bytes: &[u8; HELLO]) -> Option<StoreHello> {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        (bytes[..8] == MAGIC).then(|| StoreHello {
            rank: word(8),
            size: word(12),
            job: std::array::from_fn(|i| bytes[16 + i]),
            is_host_bound: bytes[48] != 0,
            nonce: std::array::from_fn(|i| bytes[49 + i]),
        })
    }
}

/// Appends a frame: `head` is the operation or the verdict.
pub(crate) fn push_frame(out: &mut Vec<u8>, head: u8, number: u32, parts: &[&[u8]]) {
    let length = FRAME_HEAD + parts.iter().map(|p| p.len()).sum::<usize>();
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(head);
    out.extend_from_slice(&number.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// A message that came, or an answer.
pub(crate) struct StoreFrame<'a> {
    /// The operation or the verdict.
    pub(crate) head: u8,
    pub(crate) number: u32,
    pub(crate) body: &'a [u8],
    /// The length of it all.
    pub(crate) whole: usize,
}

/// The bytes cannot be a frame.
pub(crate) struct DamagedFrame;

/// Returns the frame at the front of these bytes, or `None` if there is more to come.
pub(crate) fn frame(bytes: &[u8]) -> Result<Option<StoreFrame<'_>>, DamagedFrame> {
    let Some((length, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if !(FRAME_HEAD..=MAX_FRAME).contains(&length) {
        return Err(DamagedFrame);
    }
    let Some(rest) = rest.get(..length) else { return Ok(None) };
    let (&head, rest) = rest.split_first().ok_or(DamagedFrame)?;
    let (number, body) = rest.split_first_chunk().ok_or(DamagedFrame)?;
    Ok(Some(StoreFrame { head, number: u32::from_le_bytes(*number), body, whole: 4 + length }))
}

/// Encodes the body of a failure.
pub(crate) fn failure_body(failure: &AbortRecord) -> Vec<u8> {
    let AbortRecord { code, rank, text } = failure;
    let mut end = text.len().min(STORE_FAILURE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&rank.to_le_bytes()[..], &[code.0.len() as u8], code.0.as_bytes(), &text.as_bytes()[..end]]
        .concat()
}

/// Decodes the failure in such a body.
pub(crate) fn failure(body: &[u8]) -> Option<AbortRecord> {
    let (rank, rest) = body.split_first_chunk()?;
    let (&length, rest) = rest.split_first()?;
    let (code, text) = rest.split_at_checked(length.into())?;
    let (code, text) = (std::str::from_utf8(code).ok()?, std::str::from_utf8(text).ok()?);
    let fits = text.len() <= STORE_FAILURE_BYTES;
    let rank = u32::from_le_bytes(*rank);
    fits.then(|| AbortRecord { code: code_named(code), rank, text: text.into() })
}

/// Returns key and value of a [`StoreRequest::Set`].
pub(crate) fn key_and_value(body: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = body.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    (value.len() <= STORE_VALUE_BYTES).then_some((self::key(key)?, value))
}

/// Returns a key of a bounded length, as text.
pub(crate) fn key(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && text.len() <= STORE_KEY_BYTES).then(|| text.to_owned())
}
