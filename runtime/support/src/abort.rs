//! Abort records: the failure of a rank as the others get it, and the error that they report.

use roundelay_dsl::diag::{ErrorCode, codes};
use roundelay_dsl::escaped;

use crate::error::{Error, ErrorLocation, at};

/// The reason for which all ranks stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbortRecord {
    /// The kind of failure.
    pub code: ErrorCode,
    /// The rank whose failure it is: the one that reported it, or the one that is gone.
    pub rank: u32,
    /// The failure in words.
    pub text: String,
}

/// Returns the code of this name, as another process sends it; that of a lost rank if there is none.
pub fn code_named(name: &str) -> ErrorCode {
    codes::ALL.iter().find(|(code, _)| code.0 == name).map_or(codes::LOST_RANK, |(code, _)| *code)
}

/// Returns the error of a rank that stops because of what another one recorded.
pub fn consequence(rank: u32, cause: AbortRecord, location: Option<ErrorLocation>) -> Error {
    let AbortRecord { code, rank: by, text } = cause;
    // Text of another process, which may be no rank where there is no secret.
    let text = escaped(&text).into_owned();
    let location = location.map(Box::new);
    match code == codes::LOST_RANK {
        true => Error::LostRank { rank, lost: by, how: text, location, source: None },
        false => Error::Aborted { rank, by, cause: text, code, location },
    }
}

/// Makes the abort record of a rank's error, for the others.
pub fn record(rank: u32, error: &Error) -> AbortRecord {
    match error {
        // A rank that is notified between two calls has no place of its own to name.
        Error::LostRank { lost, how, location, .. } => {
            let text = format!("{how}{}", at(location));
            AbortRecord { code: codes::LOST_RANK, rank: *lost, text }
        }
        _ => AbortRecord { code: error.code(), rank, text: error.to_string() },
    }
}
