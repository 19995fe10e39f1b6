//! The events that ranks report while they work.

use roundelay::Error;
use roundelay::trace::{FlightDump, RankTrace};
use serde::{Deserialize, Serialize};

/// The function that takes a rank's events.
pub(super) type EventSink<'a> = dyn FnMut(RankEvent) + 'a;

/// An event that is reported of a job while it is run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum JobEvent {
    /// A case is done.
    Done {
        /// Index of the case.
        case: usize,
        /// Time of one call.
        time_us: f64,
        /// Wrong elements on all ranks.
        wrong: u64,
        /// The protocol and the blocks with which it was run, where the ranks choose them.
        how: Option<KernelChoice>,
    },
    /// There is no result for a case: the call was refused on all ranks, ours or a library's inside the ranks.
    Lacks {
        /// Index of the case.
        case: usize,
        /// The code of our error; `None` for a library's.
        #[serde(default)]
        code: Option<String>,
        /// The reason.
        why: String,
    },
    /// The current activity of a case.
    Now {
        /// Index of the case.
        case: usize,
        /// The activity in words.
        what: String,
    },
    /// A remark to be printed beside results.
    Remark(String),
}

impl JobEvent {
    /// Returns the event of a case of ours that was refused on all ranks.
    pub(super) fn refused(case: usize, error: &Error) -> Self {
        JobEvent::Lacks { case, code: Some(error.code().to_string()), why: error.to_string() }
    }
}

/// The protocol and the blocks with which a GPU runs calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelChoice {
    /// The protocol of messages.
    #[serde(rename = "way")]
    pub(crate) protocol: String,
    /// Blocks of the kernel.
    pub(crate) blocks: u32,
}

/// An event that a rank reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum RankEvent {
    /// Says rank 0 of the job.
    Job(JobEvent),
    /// Something is wrong in the result of a case, in words.
    Wrong(String),
    /// The rank gives up.
    Error {
        /// Stable code.
        code: String,
        /// The error.
        message: String,
        /// True if it only follows another rank.
        aborted: bool,
        /// The rank that is gone, where that is the error.
        #[serde(default)]
        lost: Option<u32>,
        /// The flight recorder of the rank.
        flight: Option<Box<FlightDump>>,
    },
    /// Spans of the calls of a case.
    Trace(Box<RankTrace>),
}
