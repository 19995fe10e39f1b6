//! The errors of a run. Every error has a stable code and says what to do.

use std::fmt;
use std::time::Duration;

use roundelay_dsl::diag::{Code, codes};

/// The reason for which a call, or its setup, failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A wait passed its deadline.
    #[error("{location}: waited {after:?} for {awaited}{remark}")]
    Timeout {
        /// The rank that waited, and the place in its algorithm.
        location: Box<Location>,
        /// The data or event that did not come, and the rank it was expected from.
        awaited: String,
        /// The rank that did not answer.
        peer: u32,
        /// The time waited.
        after: Duration,
        /// The state of the peer as far as it is known, and the remedy; begins with its own punctuation.
        remark: String,
    },
    /// A rank is gone.
    #[error("rank {lost} is gone: {how}{}", at(.location))]
    LostRank {
        /// The rank that reports.
        rank: u32,
        /// The rank that is gone.
        lost: u32,
        /// The way it ended, as far as is known.
        how: String,
        /// The place at which the reporting rank was, if it was in a call.
        location: Option<Box<Location>>,
    },
    /// Two ranks play different plans, or one plan with different arguments.
    #[error(
        "rank {rank} and rank {peer} do not make the same call: {detail}; every rank must call the \
         same collective with the same algorithm, count, type and operator, in the same order"
    )]
    PlanMismatch {
        /// The rank that reports.
        rank: u32,
        /// The rank whose call differs.
        peer: u32,
        /// The call that this rank makes.
        detail: String,
    },
    /// A message is not the one that its receiver waits for.
    #[error(
        "{location}: rank {peer} sends {sent} instead; both ends of a message must name the same \
         length and element type, and messages between two ranks are received in the order in \
         which they are sent"
    )]
    MessageMismatch {
        /// The rank that reports, and the message it receives.
        location: Box<Location>,
        /// The sender.
        peer: u32,
        /// The message it sends.
        sent: String,
    },
    /// Shared memory could not be had.
    #[error("no room for {what} ({} wanted): {cause}; {remedy}", Bytes(*.wanted))]
    Memory {
        /// The purpose of the memory.
        what: String,
        /// The number of bytes wanted.
        wanted: u64,
        /// The reason given by the system or the layout.
        cause: String,
        /// The setting to change.
        remedy: String,
    },
    /// CUDA cannot be used, or one of its calls failed.
    #[error("rank {rank}{}: {what}", on(.device))]
    Cuda {
        /// The rank on which it failed.
        rank: u32,
        /// The GPU on which it failed, if that is settled: number and model.
        device: String,
        /// The call that failed, the reason, and the remedy.
        what: String,
    },
    /// The element type, the operator and the algorithm do not go together.
    #[error("{0}")]
    Unsupported(String),
    /// The arguments of a call do not fit its plan.
    #[error("{0}")]
    Usage(String),
    /// An algorithm was refused by the compiler.
    #[error("{text}")]
    Refused {
        /// The code of the first diagnostic.
        code: Code,
        /// All diagnostics, rendered.
        text: String,
    },
    /// A plan contradicts itself.
    #[error("the plan is damaged: {0}")]
    Plan(String),
    /// Another rank failed first, and everybody stopped.
    #[error("rank {rank} stopped because rank {by} failed: {cause}{}", at(.location))]
    Aborted {
        /// The rank that reports.
        rank: u32,
        /// The rank that failed first.
        by: u32,
        /// Its error.
        cause: String,
        /// The code of its error.
        code: Code,
        /// The place at which the reporting rank was, if it was in a call.
        location: Option<Box<Location>>,
    },
    /// The ranks could not be started, or the environment does not describe a job.
    #[error("{0}")]
    Start(String),
}

impl Error {
    /// Returns the stable code; `docs/errors/` explains it.
    pub fn code(&self) -> Code {
        match self {
            Error::Timeout { .. } => codes::TIMEOUT,
            Error::LostRank { .. } => codes::LOST_RANK,
            Error::PlanMismatch { .. } | Error::MessageMismatch { .. } => codes::PLAN_MISMATCH,
            Error::Memory { .. } => codes::MEMORY,
            Error::Cuda { .. } => codes::CUDA,
            Error::Unsupported(_) | Error::Usage(_) => codes::UNSUPPORTED,
            Error::Plan(_) => codes::PLAN_DAMAGED,
            Error::Aborted { code, .. } | Error::Refused { code, .. } => *code,
            Error::Start(_) => codes::START,
        }
    }
}

/// The place in an algorithm at which a rank was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The rank.
    pub rank: u32,
    /// `collective.algorithm`, or what is played without one: `batch`, `send`, ...
    pub name: String,
    /// The index of the `each` of the program, or of the message of the batch, from 0.
    pub step: u32,
    /// `file:line:column`, if the plan knows it; nothing for a message of a batch.
    pub site: String,
    /// The statement there, or the message in words.
    pub text: String,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, {}, step {}", self.rank, self.name, self.step)?;
        match (self.site.as_str(), self.text.as_str()) {
            ("", "") => Ok(()),
            ("", text) => write!(f, " (`{text}`)"),
            (site, text) => write!(f, " ({site}: `{text}`)"),
        }
    }
}

fn on(device: &str) -> String {
    if device.is_empty() { String::new() } else { format!(", GPU {device}") }
}

fn at(location: &Option<Box<Location>>) -> String {
    location.as_ref().map(|p| format!("; {p}")).unwrap_or_default()
}

/// A byte count as people read it.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
        match UNITS.iter().find(|(_, shift)| self.0 >> shift > 0) {
            Some((unit, shift)) if self.0.trailing_zeros() >= *shift => {
                write!(f, "{} {unit}", self.0 >> shift)
            }
            Some((unit, shift)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_read_well() {
        let texts: Vec<String> =
            [0, 1000, 1024, 1536, 5 << 20, 3 << 30].map(|n| Bytes(n).to_string()).into();
        assert_eq!(texts, ["0 bytes", "1000 bytes", "1 KiB", "1.5 KiB", "5 MiB", "3 GiB"]);
    }

    #[test]
    fn an_aborted_rank_reports_the_code_of_the_cause() {
        let error = Error::Aborted {
            rank: 1,
            by: 0,
            cause: "out of patience".into(),
            code: codes::TIMEOUT,
            location: None,
        };
        assert_eq!(error.code(), codes::TIMEOUT);
        assert_eq!(error.to_string(), "rank 1 stopped because rank 0 failed: out of patience");
    }
}
