//! Plays a job whose ranks somebody else started: this process is one of them. Every rank proves and plays;
//! rank 0 speaks.

use std::cell::RefCell;

use roundelay::bootstrap::{ByHand, Membership, Setup, membership_with};
use roundelay::fabric::RDMA;
use roundelay::{Communicator, Error, Transport, Transports};
use roundelay_compiler::cost::Topology;

use super::launch::Start;
use super::rank::work;
use super::{Event, Job, JobEvent};
use crate::args::{Play, TransportName};
use crate::choice;
use crate::report::{FAILED, Failure, fault};
use roundelay_dsl::diag::codes;

thread_local! {
    /// A process joins once, and plays several jobs.
    static COMM: RefCell<Option<Communicator>> = const { RefCell::new(None) };
}

/// Returns the rank of this process, if another launcher started it as one.
pub(crate) fn membership(play: &Play) -> Result<Option<Membership>, Failure> {
    let by_hand = ByHand { rank: play.rank, size: play.size, store: play.store.clone() };
    membership_with(&by_hand).map_err(|e| Failure::Usage(e.to_string()))
}

/// Plays a job as one of its ranks. `tell` is called on rank 0, as by [`super::play`].
pub(super) fn play(
    job: &Job,
    start: &Start,
    membership: &Membership,
    mut tell: impl FnMut(JobEvent),
) -> Result<(), Failure> {
    COMM.with_borrow_mut(|kept| {
        let comm = joined(kept, start, membership)?;
        // The seed of one is the seed of all.
        let seeds = comm.all_gather_u64(job.seed).map_err(|e| failure(&e))?;
        let job = Job { seed: seeds[0], ..job.clone() };
        let mut wrong = 0;
        let mut remarks = Vec::new();
        let result = work(&job, comm, &mut |event| match event {
            Event::Job(told) => {
                wrong += job.wrong(&told);
                tell(told);
            }
            Event::Wrong(text) => remarks.push(text),
            Event::Trace(_) | Event::Error { .. } => {}
        });
        result?.map_err(|e| failure(&e))?;
        if wrong == 0 && remarks.is_empty() {
            return Ok(());
        }
        let first = fault(codes::WRONG_RESULT, format!("{wrong} elements are wrong"));
        Err(Failure::Run(remarks.into_iter().take(3).fold(first, |d, text| d.note(text))))
    })
}

/// Returns the topology and the name of the transport, if another launcher started the ranks; joins to learn them.
pub(crate) fn topology(play: &Play) -> Result<Option<(Topology, Transports)>, Failure> {
    let Some(membership) = membership(play)? else { return Ok(None) };
    let start = Start::of(play, false)?;
    COMM.with_borrow_mut(|kept| {
        let comm = joined(kept, &start, &membership)?;
        comm.topology().map(Some).map_err(|e| failure(&e))
    })
}

/// Returns the transport of the data of a job of so many ranks.
pub(crate) fn way(play: &Play, ranks: u64) -> Result<TransportName, Failure> {
    if play.on.gpus() {
        return Ok(TransportName::Nvlink);
    }
    if let Some((topology, transports)) = topology(play)? {
        let name = transports.to_string();
        let ways = [
            TransportName::Shm,
            TransportName::Tcp,
            TransportName::Rdma,
            TransportName::BothRdma,
            TransportName::Mixed,
            TransportName::BothMixed,
        ];
        let way = ways.into_iter().find(|way| way.name() == name).unwrap_or(TransportName::Both);
        return Ok(if topology.ranks() > topology.hosts() { way } else { way.between() });
    }
    let merged = choice::merged(play)?;
    let transports = merged.hints().transport().unwrap_or_default();
    let allowed = |transport| transports.contains(transport);
    // `route` decides in the same way for ranks of this machine.
    let rdma = allowed(Transport::Rdma) && (play.hosts > 1 || !allowed(Transport::Tcp));
    let rdma = rdma && Transport::Rdma.probe().is_ok();
    // If there are several paths, their transports decide.
    let paths = choice::all_ways(merged.hints())?;
    let devices = paths.iter().filter(|path| path.transport == RDMA).count();
    let (tcp, rdma) = match paths.len() {
        0 | 1 => (!rdma, rdma),
        all => (devices < all, devices > 0),
    };
    Ok(match (allowed(Transport::Shm), tcp, rdma) {
        (true, ..) if play.hosts <= 1 => TransportName::Shm,
        // Each is alone on its host: nobody shares memory.
        (true, true, true) if ranks <= play.hosts.into() => TransportName::Mixed,
        (true, false, true) if ranks <= play.hosts.into() => TransportName::Rdma,
        (true, ..) if ranks <= play.hosts.into() => TransportName::Tcp,
        (true, true, true) => TransportName::BothMixed,
        (true, false, true) => TransportName::BothRdma,
        (true, ..) => TransportName::Both,
        (false, true, true) => TransportName::Mixed,
        (false, false, true) => TransportName::Rdma,
        (false, ..) => TransportName::Tcp,
    })
}

/// Returns the communicator, joined when it is first needed.
fn joined<'a>(
    kept: &'a mut Option<Communicator>,
    start: &Start,
    membership: &Membership,
) -> Result<&'a mut Communicator, Failure> {
    match kept {
        Some(comm) => Ok(comm),
        none => Ok(none.insert(join(start, membership).map_err(|e| failure(&e))?)),
    }
}

fn join(start: &Start, membership: &Membership) -> Result<Communicator, Error> {
    let setup = Setup::from_env()?.hints(&start.hints).timeout(start.timeout);
    let setup = match start.slot_bytes {
        Some(bytes) => setup.slot_bytes(bytes),
        None => setup,
    };
    Communicator::join(membership, &setup)
}

/// Converts an error. A rank that only follows another rank's abort prints nothing: that other rank does.
fn failure(error: &Error) -> Failure {
    match error {
        Error::Aborted { .. } => Failure::Said(FAILED),
        _ => Failure::Run(fault(error.code(), error.to_string())),
    }
}
