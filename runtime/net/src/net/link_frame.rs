//! The messages between linked ranks, and their form on a link.

use serde::{Deserialize, Serialize};

/// A message between linked ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkFrame {
    /// A step of gathering endpoints, each as its bytes.
    Endpoints(u32, Vec<Vec<u8>>),
    /// A step of a round of words: each rank's tag and word.
    Words { round: u64, step: u32, words: Vec<(u32, u64)> },
    /// All ranks stop: the code, the rank and the text of the cause.
    Alarm(String, u32, String),
    /// A rank is gone, and how.
    Gone(u32, String),
    /// The wait of a rank, if it waits, the number of its report, and true if it asks others.
    Wait { rank: u32, number: u32, words: Option<[u64; 8]>, asks: bool },
    /// The sender leaves; nothing follows.
    Left,
    /// A rank has ended for certain, as a rank of its machine saw, and how.
    Ended(u32, String),
    /// The sender waits for words in a call: its number, and its digest with all calls before.
    Call { call: u64, digest: u32 },
    /// The process of a rank is stopped, as the witness, a rank of its machine, saw when it was asked; `number`
    /// counts the witness's reports.
    Stopped { rank: u32, witness: u32, number: u32 },
}

/// The bytes before the content of a frame: its length, four of them, and the communicator's number.
pub(super) const FRAME_HEADER: usize = 12;

impl LinkFrame {
    /// Returns the bytes of its content.
    pub(super) fn encode(&self) -> Vec<u8> {
        // A frame is plain data: encoding it into memory cannot fail.
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// Returns what stands before a content of that many bytes.
pub(super) fn frame_header(communicator: u64, length: usize) -> [u8; FRAME_HEADER] {
    let mut header = [0; FRAME_HEADER];
    header[..4].copy_from_slice(&(length as u32).to_le_bytes());
    header[4..].copy_from_slice(&communicator.to_le_bytes());
    header
}
