//! The errors of a run. Every error has a stable code and a remedy.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use roundelay_dsl::diag::{Diagnostic, ErrorCode, codes};

/// The reason for which a call, or its setup, failed.
///
/// [`source`](std::error::Error::source) is the underlying error where there is one: [`std::io::Error`],
/// `HintError`, [`FabricError`](crate::fabric::FabricError),
/// `TunedError`, [`CompileDiagnostics`], with the feature `cuda`
/// `DriverError` and `NvrtcError`. The message has its text too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A wait passed its deadline.
    #[error("{location}: waited {after:?} for {awaited}{remark}")]
    Timeout {
        /// The rank that waited, and the place in its algorithm.
        location: Box<ErrorLocation>,
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
        location: Option<Box<ErrorLocation>>,
        /// The error of the connection or of the system that shows it, if there is one.
        source: Option<ErrorSource>,
    },
    /// Two ranks execute different plans, or one plan with different arguments.
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
        location: Box<ErrorLocation>,
        /// The sender.
        peer: u32,
        /// The message it sends.
        sent: String,
    },
    /// Shared memory could not be had.
    #[error("no room for {what} ({} wanted): {cause}; {remedy}", ByteCount(*.wanted))]
    Memory {
        /// The purpose of the memory.
        what: String,
        /// The number of bytes wanted.
        wanted: u64,
        /// The reason given by the system or the layout.
        cause: String,
        /// The setting to change.
        remedy: String,
        /// The error of the system, if the system refused.
        source: Option<ErrorSource>,
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
        /// The error of the driver or of the system, if there is one.
        source: Option<ErrorSource>,
    },
    /// A valid call that this algorithm, device or build does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The arguments of a call are wrong.
    #[error("{0}")]
    Usage(String),
    /// Started work panicked, or the thread that does it is gone.
    #[error("{0}")]
    Work(String),
    /// A process that was forked from a rank used what the rank made. Nothing was sent or changed, and the rank
    /// goes on.
    #[error(
        "this {what} belongs to process {owner}, and process {caller}, which was forked from it, is no rank: nothing was \
         sent or changed; call in process {owner}, or make a communicator of its own in process {caller}"
    )]
    Forked {
        /// The object that was used: `communicator`, `window`, `work`, ...
        what: &'static str,
        /// The process that made it.
        owner: u32,
        /// The process that used it.
        caller: u32,
    },
    /// A hint, the tuned table or the topology file is wrong.
    #[error("{text}")]
    Settings {
        /// The name of what is wrong, the fault, and the remedy.
        text: String,
        /// The fault alone, if it is not one between two settings.
        source: Option<ErrorSource>,
    },
    /// An algorithm was refused by the compiler.
    #[error("{text}")]
    Refused {
        /// The code of the first diagnostic.
        code: ErrorCode,
        /// All diagnostics, rendered.
        text: String,
        /// [`CompileDiagnostics`], if the compiler refused; the error of the system, if a file cannot be read.
        source: Option<ErrorSource>,
    },
    /// A plan contradicts itself.
    #[error("the plan is damaged: {0}")]
    Plan(String),
    /// Another rank failed first, and all ranks stopped.
    #[error("rank {rank} stopped because rank {by} failed: {cause}{}", at(.location))]
    Aborted {
        /// The rank that reports.
        rank: u32,
        /// The rank that failed first.
        by: u32,
        /// Its error.
        cause: String,
        /// The code of its error.
        code: ErrorCode,
        /// The place at which the reporting rank was, if it was in a call.
        location: Option<Box<ErrorLocation>>,
    },
    /// A window or a region does not allow an access, or is over. Nothing was read or written; the communicator or
    /// the link stays usable.
    #[error("rank {rank}, {what}: {refusal}")]
    Window {
        /// The rank that reports.
        rank: u32,
        /// The operation, with the peer and the place in its window.
        what: String,
        /// The reason.
        refusal: AccessRefusal,
    },
    /// The ranks could not be started, or the environment does not describe a job.
    #[error("{0}")]
    Start(String),
    /// The system refused what a job needs, a socket, a process, a thread, a file; or a peer a connection.
    #[error("{text}")]
    System {
        /// The code of the fault for which this stands.
        code: ErrorCode,
        /// The operation, the reason and the remedy.
        text: String,
        /// The error of the system, or of the connection.
        source: ErrorSource,
    },
}

impl Error {
    /// Returns the stable code; `docs/errors/` explains it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Timeout { .. } => codes::TIMEOUT,
            Error::LostRank { .. } => codes::LOST_RANK,
            Error::PlanMismatch { .. } | Error::MessageMismatch { .. } => codes::PLAN_MISMATCH,
            Error::Memory { .. } => codes::MEMORY,
            Error::Cuda { .. } => codes::CUDA,
            Error::Unsupported(_) => codes::UNSUPPORTED,
            Error::Usage(_) => codes::USAGE,
            Error::Work(_) => codes::WORK,
            Error::Forked { .. } => codes::FORKED,
            Error::Settings { .. } => codes::SETTINGS,
            Error::Plan(_) => codes::PLAN_DAMAGED,
            Error::Aborted { code, .. }
            | Error::Refused { code, .. }
            | Error::System { code, .. } => *code,
            Error::Window { refusal: AccessRefusal::Over, .. } => codes::WINDOW_OVER,
            Error::Window { .. } => codes::WINDOW,
            Error::Start(_) => codes::START,
        }
    }

    /// Makes the error of an operation of the system without which ranks do not come together. `text` is the
    /// operation and the reason; `remedy` is left out if it is empty, and gives way where the system lacks something.
    pub fn system(
        mut text: String,
        source: impl Into<std::io::Error>,
        remedy: &'static str,
    ) -> Self {
        let source = source.into();
        let remedy = Errno::from_io_error(&source).and_then(shortage_remedy).unwrap_or(remedy);
        if !remedy.is_empty() {
            text = format!("{text}; {remedy}");
        }
        Error::System { code: codes::START, text, source: ErrorSource::new(source) }
    }
}

/// The remedy where the system starts no further process or thread.
pub const PROCESS_LIMIT_REMEDY: &str = "raise the limit of processes and threads (`ulimit -u`, or that of the \
                                          container), or start fewer ranks";

/// Returns the remedy for a shortage of the system, whatever was asked for.
pub fn shortage_remedy(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::MFILE => Some("raise the limit of open files (`ulimit -n`)"),
        Errno::NFILE => Some("close files, or raise `sysctl fs.file-max`"),
        Errno::NOMEM => Some("give the machine or container more memory"),
        _ => None,
    }
}

/// The reason for which a window or a region does not allow an access.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessRefusal {
    /// It reaches beyond the end.
    #[error("the peer's part ends at byte {bytes}; name a place inside it")]
    Bounds {
        /// The size of the peer's part.
        bytes: u64,
    },
    /// The peer does not allow it, or does not any more.
    #[error(
        "the peer's rights are `{has}`, and this needs `{needed}`; its owner gives rights when it makes or registers \
         it, and may withdraw them"
    )]
    Rights {
        /// The right that is missing.
        needed: &'static str,
        /// The rights that there are.
        has: String,
    },
    /// An atomic operation does not begin at a 64-bit word.
    #[error("the place is byte {offset}, and atomic operations need a multiple of 8")]
    Alignment {
        /// The first byte.
        offset: u64,
    },
    /// The element type is not the window's, or does not have the operator.
    #[error("{0}")]
    Elements(String),
    /// The peer's part is not memory that this rank can map.
    #[error(
        "the peer's part is served by its own process; put to it and get from it, or have it in memory of `alloc` on \
         this host"
    )]
    NotMapped,
    /// The peer has ended its part of the window.
    #[error(
        "the peer has dropped, freed or revoked its part; free a window on all ranks together, and use a key no \
         longer than its region lives"
    )]
    Gone,
    /// The communicator or the link has ended, or the communicator has gone on to another generation.
    #[error(
        "its communicator or link has ended here, or the communicator has gone on to another generation; make a new \
         one"
    )]
    Over,
}

/// The error that underlies an [`Error`]. It is shared, so that errors can be copied; two are equal if they
/// read the same.
#[derive(Debug, Clone)]
pub struct ErrorSource(Arc<dyn std::error::Error + Send + Sync>);

impl ErrorSource {
    /// Wraps an error.
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        ErrorSource(Arc::new(error))
    }
}

impl fmt::Display for ErrorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::ops::Deref for ErrorSource {
    type Target = dyn std::error::Error + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for ErrorSource {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

impl Eq for ErrorSource {}

/// The diagnostics for which the compiler refused a text, as data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", messages(.0))]
pub struct CompileDiagnostics(pub Vec<Diagnostic>);

fn messages(diagnostics: &[Diagnostic]) -> String {
    let texts: Vec<String> =
        diagnostics.iter().map(|d| format!("{}: {}", d.code, d.message)).collect();
    texts.join("; ")
}

/// The place in an algorithm at which a rank was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorLocation {
    /// The rank.
    pub rank: u32,
    /// `collective.algorithm`, or what is run without one: `batch`, `send`, ...
    pub name: String,
    /// The index of the `each` of the program, or of the message of the batch, from 0.
    pub step: u32,
    /// `file:line:column`, if the plan has it; nothing for a message of a batch.
    pub site: String,
    /// The statement there, or the message in words.
    pub text: String,
}

impl fmt::Display for ErrorLocation {
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

/// Returns how a message names a place; nothing where there is none.
pub fn at(location: &Option<Box<ErrorLocation>>) -> String {
    location.as_ref().map(|p| format!("; {p}")).unwrap_or_default()
}

/// A byte count as people read it.
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
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
            [0, 1000, 1024, 1536, 5 << 20, 3 << 30].map(|n| ByteCount(n).to_string()).into();
        assert_eq!(texts, ["0 bytes", "1000 bytes", "1 KiB", "1.5 KiB", "5 MiB", "3 GiB"]);
    }

    #[test]
    fn sources_are_found_through_copies() {
        use std::error::Error as _;
        let refused = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let error = Error::system(format!("cannot listen: {refused}"), refused, "").clone();
        assert_eq!(error.code(), codes::START);
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(|e| e.kind()), Some(std::io::ErrorKind::AddrInUse));

        assert_eq!(Error::Usage(String::new()).code(), codes::USAGE);
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
