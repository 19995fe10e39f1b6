//! Plays jobs: an algorithm played by local processes on random data, checked and timed.
//!
//! The process that the user started proves the algorithm and starts this same program once for each rank
//! (`rank`), with a [`Job`] to do. Every rank compiles for itself; the runtime compares plans before the
//! first byte moves. Contributors report [`Event`]s, a line of JSON each. `places` says what each collective reads
//! and must write, `data` makes and judges elements of the types of `element`, `many` does so by several
//! threads, `sample` says which. `buffers` is memory with guard bytes, `ready` an algorithm to be played, `trial` a
//! call that is checked, `measure` the course of a case; `rank` has what differs on the host, `gpu` what differs on
//! GPUs. `table` prints;
//! `prove` and `launch` are the first process's side, `cause` and `traces` what it makes of what ranks
//! report and remember; `joined` is for ranks that another launcher started.

mod buffers;
mod cause;
mod data;
mod element;
pub(crate) mod gpu;
mod handed;
mod joined;
mod launch;
mod many;
pub(crate) mod measure;
mod places;
mod prove;
pub(crate) mod rank;
mod ready;
mod refusals;
mod sample;
pub(crate) mod table;
mod traces;
mod trial;

use roundelay::cuda::Protocol;
use roundelay::trace::{Flight, Trace};
use roundelay::{DType, Error, RedOp};
use roundelay_compiler::Shape;
use serde::{Deserialize, Serialize};

use crate::args::{Play, Target, Verify};
use crate::hints;
use crate::peer::Inside;
pub(crate) use buffers::{GUARD, digest};
pub(crate) use data::FACTOR;
pub(crate) use launch::{Start, play};
pub(crate) use prove::{Proof, is_choice, prove, resolve};
pub(crate) use ready::Ready;
pub(crate) use refusals::RefusedCases;
pub(crate) use traces::Output;

/// The function that takes a rank's events.
type Say<'a> = dyn FnMut(Event) + 'a;

/// The work of all ranks of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The algorithms.
    pub(crate) entries: Vec<JobEntry>,
    /// Contributors, as `8` or `2x4`.
    pub(crate) shape: String,
    /// The root of rooted collectives; if there is none, it turns with every call.
    pub(crate) root: Option<u32>,
    /// Calls of which size, in order.
    pub(crate) cases: Vec<Case>,
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// True if buffers are in memory that others cannot read.
    pub(crate) private: bool,
    /// The seed of the data.
    pub(crate) seed: u64,
    /// Timed calls of each case.
    pub(crate) iters: Option<u32>,
    /// Calls before.
    pub(crate) warmup: u32,
    /// Seconds to spend on the timed calls of a case, where `iters` does not say.
    pub(crate) budget: f64,
    /// True if a few calls of each case are traced.
    pub(crate) trace: bool,
    /// The part of the results that is verified.
    #[serde(default)]
    pub(crate) verify: Verify,
    /// The settings of calls on GPUs; `None` on the host's processors.
    pub(crate) gpu: Option<GpuSettings>,
}

impl Job {
    /// Makes a job without entries and cases, of the options of the command line.
    pub(crate) fn of(play: &Play, shape: &Shape, seed: u64, budget: f64) -> Self {
        let hints = hints::texts(play).join(",");
        let gpu = GpuSettings { graph: play.on.graph, hints, ..GpuSettings::default() };
        Job {
            entries: Vec::new(),
            shape: shape.to_string(),
            root: None,
            cases: Vec::new(),
            dtype: play.dtype,
            op: play.op,
            private: play.private,
            seed,
            iters: play.iters,
            warmup: play.warmup,
            budget,
            trace: play.trace.is_some(),
            verify: play.verify,
            gpu: play.on.gpus().then_some(gpu),
        }
    }

    /// Returns the number of wrong elements of which the job fails: of ours, if it is no try. What a peer
    /// gets wrong is said in its row.
    fn wrong(&self, told: &JobEvent) -> u64 {
        let tries = self.tries();
        let ours = |case: usize| self.cases.get(case).is_none_or(|c| c.who.is_none());
        match *told {
            JobEvent::Done { case, wrong, .. } if !tries && ours(case) => wrong,
            _ => 0,
        }
    }

    /// Returns true if calls that are refused or wrong are no failure.
    fn tries(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.tries)
    }
}

/// The settings of calls on GPUs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct GpuSettings {
    /// Calls that are captured into one graph, which is replayed; each call is launched by itself otherwise.
    pub(crate) graph: Option<u32>,
    /// The hints that the user gave for calls.
    pub(crate) hints: String,
    /// Libraries that are measured in the same processes.
    pub(crate) inside: Vec<Inside>,
    /// Calls are tries: those that are refused or wrong are told, and no failure.
    pub(crate) tries: bool,
    /// Seconds after which the rest is left out.
    pub(crate) seconds: Option<f64>,
}

/// One algorithm of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobEntry {
    /// The name as the user wrote it.
    target: String,
    /// The algorithm to take from a file.
    algorithm: Option<String>,
    /// Paths between the hosts.
    paths: u32,
    /// The ranks as its axes have them.
    shape: String,
    /// True if calls are in place.
    in_place: bool,
    /// True if results were proved to be bitwise equal on all ranks.
    bitwise: bool,
    /// The coarsest rounding on the wire, relative to the value; 0 if there is none.
    wire: f64,
}

impl JobEntry {
    /// Returns the algorithm with that root.
    fn target(&self, root: u32) -> Target {
        let paths = self.paths;
        Target { paths, ..Target::of(self.target.clone(), self.algorithm.clone(), root) }
    }

    /// Returns true if calls are in place.
    pub(crate) fn in_place(&self) -> bool {
        self.in_place
    }
}

/// One size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    /// Index of the algorithm.
    pub(crate) entry: usize,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// The library inside the ranks that is measured, by its index; `None` for ours.
    #[serde(default)]
    pub(crate) who: Option<usize>,
    /// The part of a measurement in turns that this case is.
    #[serde(default)]
    pub(crate) turn: Turn,
    /// The protocol of messages between GPUs, if that is not left to the ranks.
    #[serde(default, rename = "way", with = "protocol_text")]
    pub(crate) protocol: Option<Protocol>,
    /// Blocks of a kernel, likewise.
    #[serde(default)]
    pub(crate) blocks: Option<u32>,
}

/// Results are checked before the first turn of a size, and after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl Default for Turn {
    /// Returns a turn that is the only one.
    fn default() -> Self {
        Turn { first: true, last: true }
    }
}

/// A protocol by its name.
mod protocol_text {
    use roundelay::cuda::Protocol;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        protocol: &Option<Protocol>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        protocol.map(Protocol::name).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<Protocol>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

impl Case {
    /// Makes a case of calls of ours.
    pub(crate) fn ours(entry: usize, count: u64) -> Self {
        Case { entry, count, who: None, turn: Turn::default(), protocol: None, blocks: None }
    }
}

/// An event that is reported of a job while it is played.
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
        /// The protocol and the blocks with which it was played, where the ranks choose them.
        how: Option<How>,
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
    fn refused(case: usize, error: &Error) -> Self {
        JobEvent::Lacks { case, code: Some(error.code().to_string()), why: error.to_string() }
    }
}

/// The protocol and the blocks with which a GPU plays calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct How {
    /// The protocol of messages.
    #[serde(rename = "way")]
    pub(crate) protocol: String,
    /// Blocks of the kernel.
    pub(crate) blocks: u32,
}

/// An event that a rank reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Event {
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
        flight: Option<Box<Flight>>,
    },
    /// Spans of the calls of a case.
    Trace(Box<Trace>),
}
