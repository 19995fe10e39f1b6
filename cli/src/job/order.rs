//! The job: the work of all ranks.

use roundelay::cuda::DeviceProtocol;
use roundelay::{DType, RedOp};
use roundelay_compiler::Shape;
use serde::{Deserialize, Serialize};

use super::event::JobEvent;
use crate::args::{JobArgs, TargetArgs, VerifyScope};
use crate::hints;
use crate::peer::InsideLibrary;

/// The work of all ranks of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobOrder {
    /// The algorithms.
    pub(crate) entries: Vec<JobEntry>,
    /// Contributors, as `8` or `2x4`.
    pub(crate) shape: String,
    /// The root of rooted collectives; if there is none, it turns with every call.
    pub(crate) root: Option<u32>,
    /// Calls of which size, in order.
    pub(crate) cases: Vec<JobCase>,
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
    pub(crate) verify: VerifyScope,
    /// The settings of calls on GPUs; `None` on the host's processors.
    pub(crate) gpu: Option<GpuSettings>,
}

impl JobOrder {
    /// Makes a job without entries and cases, of the options of the command line.
    pub(crate) fn of(job_args: &JobArgs, shape: &Shape, seed: u64, budget: f64) -> Self {
        let hints = hints::texts(job_args).join(",");
        let gpu = GpuSettings { graph: job_args.on.graph, hints, ..GpuSettings::default() };
        JobOrder {
            entries: Vec::new(),
            shape: shape.to_string(),
            root: None,
            cases: Vec::new(),
            dtype: job_args.dtype,
            op: job_args.op,
            private: job_args.private,
            seed,
            iters: job_args.iters,
            warmup: job_args.warmup,
            budget,
            trace: job_args.trace.is_some(),
            verify: job_args.verify,
            gpu: job_args.on.gpus().then_some(gpu),
        }
    }

    /// Returns the number of wrong elements of which the job fails: of ours, if it is no try. What a peer
    /// gets wrong is said in its row.
    pub(super) fn wrong(&self, event: &JobEvent) -> u64 {
        let tries = self.tries();
        let ours = |case: usize| self.cases.get(case).is_none_or(|c| c.who.is_none());
        match *event {
            JobEvent::Done { case, wrong, .. } if !tries && ours(case) => wrong,
            _ => 0,
        }
    }

    /// Returns true if calls that are refused or wrong are no failure.
    pub(super) fn tries(&self) -> bool {
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
    pub(crate) inside: Vec<InsideLibrary>,
    /// Calls are tries: those that are refused or wrong are reported, and are no failure.
    pub(crate) tries: bool,
    /// Seconds after which the rest is left out.
    pub(crate) seconds: Option<f64>,
}

/// One algorithm of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobEntry {
    /// The name as the user wrote it.
    pub(super) target: String,
    /// The algorithm to take from a file.
    pub(super) algorithm: Option<String>,
    /// Paths between the hosts.
    pub(super) paths: u32,
    /// The ranks as its axes have them.
    pub(super) shape: String,
    /// True if calls are in place.
    pub(super) in_place: bool,
    /// True if results were proved to be bitwise equal on all ranks.
    pub(super) bitwise: bool,
    /// The coarsest rounding on the wire, relative to the value; 0 if there is none.
    pub(super) wire: f64,
}

impl JobEntry {
    /// Returns the algorithm with that root.
    pub(super) fn target(&self, root: u32) -> TargetArgs {
        let paths = self.paths;
        TargetArgs { paths, ..TargetArgs::of(self.target.clone(), self.algorithm.clone(), root) }
    }

    /// Returns true if calls are in place.
    pub(crate) fn in_place(&self) -> bool {
        self.in_place
    }
}

/// One size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobCase {
    /// Index of the algorithm.
    pub(crate) entry: usize,
    /// Elements, in the unit of the collective.
    pub(crate) count: u64,
    /// The library inside the ranks that is measured, by its index; `None` for ours.
    #[serde(default)]
    pub(crate) who: Option<usize>,
    /// The part of a measurement in turns that this case is.
    #[serde(default)]
    pub(crate) turn: JobTurn,
    /// The protocol of messages between GPUs, if that is not left to the ranks.
    #[serde(default, rename = "way", with = "protocol_text")]
    pub(crate) protocol: Option<DeviceProtocol>,
    /// Blocks of a kernel, likewise.
    #[serde(default)]
    pub(crate) blocks: Option<u32>,
}

/// Results are checked before the first turn of a size, and after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobTurn {
    pub(crate) first: bool,
    pub(crate) last: bool,
}

impl Default for JobTurn {
    /// Returns a turn that is the only one.
    fn default() -> Self {
        JobTurn { first: true, last: true }
    }
}

/// A protocol by its name.
mod protocol_text {
    use roundelay::cuda::DeviceProtocol;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        protocol: &Option<DeviceProtocol>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        protocol.map(DeviceProtocol::name).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<DeviceProtocol>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

impl JobCase {
    /// Makes a case of calls of ours.
    pub(crate) fn ours(entry: usize, count: u64) -> Self {
        JobCase { entry, count, who: None, turn: JobTurn::default(), protocol: None, blocks: None }
    }
}
