//! What can go wrong in a run. Every error has a stable code and says what to do.

use std::fmt;
use std::time::Duration;

use roundelay_dsl::diag::{Code, codes};

/// Why a call, or setting one up, failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A wait passed its deadline.
    #[error("{location}: waited {after:?} for {awaited}{remark}")]
    Timeout {
        /// Who waited, and where in the algorithm.
        location: Box<Location>,
        /// What did not come, and from whom.
        awaited: String,
        /// The rank that did not answer.
        peer: u32,
        /// How long.
        after: Duration,
        /// What is known of the peer, and the remedy; begins with its own punctuation.
        remark: String,
    },
    /// A rank is gone.
    #[error("rank {lost} is gone: {how}{}", at(.location))]
    LostRank {
        /// Who reports.
        rank: u32,
        /// Who is gone.
        lost: u32,
        /// How it ended, as far as is known.
        how: String,
        /// What the reporting rank was doing, if it was in a call.
        location: Option<Box<Location>>,
    },
    /// Two ranks play different plans, or the same with different arguments.
    #[error(
        "rank {rank} and rank {peer} do not make the same call: {detail}; every rank must call the \
         same collective with the same algorithm, count, type and operator, in the same order"
    )]
    PlanMismatch {
        /// Who reports.
        rank: u32,
        /// Whose call differs.
        peer: u32,
        /// What this rank calls.
        detail: String,
    },
    /// A message is not the one that its receiver waits for.
    #[error(
        "{location}: rank {peer} sends {sent} instead; both ends of a message must name the same \
         length and element type, and messages between two ranks are received in the order in \
         which they are sent"
    )]
    MessageMismatch {
        /// Who reports, and what it receives.
        location: Box<Location>,
        /// The sender.
        peer: u32,
        /// What it sends.
        sent: String,
    },
    /// Shared memory could not be had.
    #[error("no room for {what} ({} wanted): {cause}; {remedy}", Bytes(*.wanted))]
    Memory {
        /// What it is for.
        what: String,
        /// How many bytes.
        wanted: u64,
        /// What the system, or the layout, says.
        cause: String,
        /// What to change.
        remedy: String,
    },
    /// CUDA cannot be used, or one of its calls failed.
    #[error("rank {rank}{}: {what}", on(.device))]
    Cuda {
        /// On which rank.
        rank: u32,
        /// On which GPU, if that is settled: number and model.
        device: String,
        /// What failed, why, and the remedy.
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
        /// All of them, rendered.
        text: String,
    },
    /// A plan contradicts itself.
    #[error("the plan is damaged: {0}")]
    Plan(String),
    /// Another rank failed first, and everybody stopped.
    #[error("rank {rank} stopped because rank {by} failed: {cause}{}", at(.location))]
    Aborted {
        /// Who reports.
        rank: u32,
        /// Who failed.
        by: u32,
        /// Its error.
        cause: String,
        /// The code of its error.
        code: Code,
        /// What the reporting rank was doing, if it was in a call.
        location: Option<Box<Location>>,
    },
    /// The ranks could not be started, or the environment does not describe a job.
    #[error("{0}")]
    Start(String),
}

impl Error {
    /// The stable code; `docs/errors/` explains it.
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

/// Where in an algorithm a rank was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The rank.
    pub rank: u32,
    /// `collective.algorithm`, or what is played without one: `batch`, `send`, ...
    pub name: String,
    /// Which `each` of the program, or message of the batch, from 0.
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
