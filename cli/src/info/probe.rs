//! Reports the resources that communicators take: measured on two ranks, and modelled for very many.

use std::fmt;

use roundelay::internal::{run_together, scale};
use roundelay::launch::JobSetup;
use roundelay::transport::{Transport, TransportSet};
use roundelay::{Communicator, Error, HeldResources, RedOp};
use serde::Serialize;

use crate::values::size_text;

/// Ranks of a probe.
const RANKS: u32 = 2;
/// Bytes of the vector that the ranks of a probe reduce.
const BYTES: usize = 1 << 20;
/// Ranks of the very large job.
const MANY: u32 = 131_072;

/// The resources that rank 0 of a small communicator holds.
#[derive(Serialize)]
pub(super) struct ResourceProbe {
    transport: &'static str,
    ranks: u32,
    /// The resources once the ranks have joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<HeldResources>,
    /// The resources after they reduced a vector of `bytes` bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<HeldResources>,
    bytes: usize,
    /// The reason why there is no such communicator here.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

/// Makes a communicator over each transport.
pub(super) fn probes() -> Vec<ResourceProbe> {
    let usable = |of: &&Transport| of.is_mapped() || of.probe().is_ok();
    let probe = |over: &Transport| {
        let (joined, used, fault) = match held(TransportSet::of(*over)) {
            Ok((joined, used)) => (Some(joined), Some(used), None),
            Err(error) => (None, None, Some(error.to_string())),
        };
        ResourceProbe { transport: over.name(), ranks: RANKS, joined, used, bytes: BYTES, fault }
    };
    Transport::ALL.iter().filter(usable).map(probe).collect()
}

fn held(over: TransportSet) -> Result<(HeldResources, HeldResources), Error> {
    let ranks = Communicator::local_over(RANKS, |_| JobSetup::new().transports(over))?;
    let job_args = |mut comm: Communicator| {
        let joined = comm.resources()?;
        comm.all_reduce(&mut vec![1.0f32; BYTES / size_of::<f32>()], RedOp::Sum)?;
        // The other rank has what it needs for it too.
        comm.barrier()?;
        Ok((joined, comm.resources()?))
    };
    let ended = run_together(ranks, job_args)
        .map_err(|e| Error::Start(format!("cannot start a thread a rank: {e}")))?;
    let held = ended
        .into_iter()
        .map(|ended| ended.unwrap_or_else(|_| Err(Error::Start("a rank panicked".into()))));
    let held: Result<Vec<_>, Error> = held.collect();
    held?.into_iter().next().ok_or_else(|| Error::Start("no rank joined".into()))
}

impl fmt::Display for ResourceProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {} ranks", self.transport, self.ranks)?;
        if let Some(fault) = &self.fault {
            return write!(f, ": {fault}");
        }
        let after = format!("after all_reduce of {}", size_text(self.bytes as u64));
        for (when, held) in [("joined", &self.joined), (&after, &self.used)] {
            let Some(held) = held else { continue };
            let own = whole_kib(held.memory.arena_bytes + held.memory.staging_bytes);
            let shared = whole_kib(held.memory.shared_bytes);
            write!(f, "\n    {when:26} {shared} shared by all, {own} of its own, ")?;
            write!(f, "descriptors {}", held.descriptors)?;
            if held.control_links > 0 {
                let (data, control) = (held.data_sockets, held.control_links);
                write!(f, " (data sockets {data}, control links {control})")?;
            }
            if held.memory.pinned_bytes > 0 {
                write!(f, ", {} in place for devices", whole_kib(held.memory.pinned_bytes))?;
            }
        }
        Ok(())
    }
}

/// The modelled cost of joining a job of very many ranks.
#[derive(Serialize)]
pub(super) struct JoinScale {
    #[serde(flatten)]
    figures: scale::ScaleFigures,
    seconds: f64,
}

impl JoinScale {
    /// Models the job by running the logic for every rank and counting; the time is of a model.
    pub(super) fn modelled() -> Self {
        let figures = scale::join(MANY, &scale::ScaleAssumptions::default());
        JoinScale { figures, seconds: figures.seconds() }
    }
}

impl fmt::Display for JoinScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figures: it, seconds } = self;
        let (ranks, steps, links) = (it.ranks, it.steps, it.links_a_rank);
        let (store, messages) = (it.store_a_rank, it.messages_a_rank);
        write!(f, "{ranks} ranks: {steps} steps, and a rank has at most {links} control links, ")?;
        write!(f, "{store} operations of the store, {messages} messages, ")?;
        write!(f, "{} of cards; {seconds:.1} s", whole_kib(it.bytes_a_rank))
    }
}

fn whole_kib(bytes: u64) -> String {
    size_text(bytes.next_multiple_of(1 << 10))
}
