//! A rank's handle on the others.

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::cost::Topology;
use roundelay_compiler::plan::{BufferPlacement, Plan};
use roundelay_dsl::diag::codes;

#[cfg(feature = "cuda")]
use super::mixed::OpenedGpu;
use super::settings::CallSettings;
use super::worker::{self, ProgressWorker};
use roundelay_engine::bind::CallStats;
use roundelay_engine::custom::Algorithm;
use roundelay_engine::hints::OnFailure;
use roundelay_engine::messages::RankMessenger;
use roundelay_engine::{CallArgs, EngineCore, PlanCall, StopHandle};
use roundelay_net::group::{RankGroup, RankIdentity};
use roundelay_net::memory::{Arena, Buffer, bytes, bytes_mut};
use roundelay_net::net::WaitPolicy;
use roundelay_net::route::RankRoute;
use roundelay_net::store::Store;
use roundelay_net::transport::TransportSet;
use roundelay_net::transport::shm::ShmSegment;
use roundelay_support::dtype::{Element, RedOp};
use roundelay_support::error::Error;
use roundelay_support::fork::OwnerProcess;

/// A rank of a job. Calls are collective: all ranks make the same ones in the same order, on the
/// caller's thread or, by [`Communicator::start`], in the background. After a failed call (other than
/// one refused for its arguments) the communicator cannot be used any more.
///
/// A process that was forked from a rank's is no rank: what it calls fails by [`Error::Forked`], as do messages,
/// windows, links and pending work of its parent, and the rank goes on unharmed. It may make a communicator of its own.
///
/// The examples of the calls are the code of one rank, and are run by two.
///
/// Dropping it waits for pending work, and for the calls in its GPU's streams; each has its deadline. Dropped in a
/// process that was forked from the rank's it does nothing: that process is no rank, and what the rank holds
/// stays as it is.
pub struct Communicator {
    /// The process that is the rank. Every call asks it, in [`Communicator::core`] or [`Communicator::callable`].
    pub(super) process: OwnerProcess,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) paths: u32,
    pub(super) routes: Arc<[RankRoute]>,
    pub(super) arena: Arc<Arena>,
    pub(super) settings: CallSettings,
    /// The means to end the calls, wherever the state is.
    pub(super) stop: Arc<StopHandle>,
    /// The state, unless the worker has it.
    pub(super) home: Option<Box<EngineCore>>,
    pub(super) worker: Option<ProgressWorker<Communicator>>,
    /// The messages with tags, once they were first used.
    pub(super) messenger: Option<RankMessenger>,
    /// This rank's identity to others that do not know it yet, once that is wanted, or since it joined.
    pub(super) identity: Option<Box<RankIdentity>>,
    /// This rank's GPU, if the ranks opened theirs.
    #[cfg(feature = "cuda")]
    pub(super) gpu: Option<OpenedGpu>,
}

impl Communicator {
    pub(crate) fn in_segment(segment: Arc<ShmSegment>, rank: u32) -> Self {
        let arena = Arena::new(segment.clone(), rank);
        Communicator::over(RankGroup::whole(segment, rank), arena)
    }

    /// Makes the communicator of this rank in a group of ranks that found each other through a store.
    pub(crate) fn of_group(
        group: RankGroup,
        timeout: Duration,
        store: &mut dyn Store,
    ) -> Result<Self, Error> {
        let own = group.local(group.rank()).map_or(0, |local| local.heap);
        let arena = Arena::new(group.heap().clone(), own);
        let mut comm = Communicator::over(group, arena);
        comm.set_timeout(timeout);
        let core = comm.core()?;
        let watch = &mut |_| store.look();
        match core.open_links(WaitPolicy { timeout, watch, members: &[] }) {
            Ok(()) => Ok(comm),
            Err(error) => Err(core.fail(store.fail(error))),
        }
    }

    /// Makes the communicator of this rank in a group, whose buffers come from that arena.
    pub(crate) fn over(group: RankGroup, arena: Arc<Arena>) -> Self {
        let settings = CallSettings::default();
        Communicator::new(Box::new(EngineCore::new(group, arena, settings.timeout)), settings)
    }

    pub(super) fn new(core: Box<EngineCore>, settings: CallSettings) -> Self {
        Communicator {
            process: OwnerProcess::here(),
            rank: core.rank(),
            size: core.size(),
            paths: core.paths(),
            routes: core.group.routes().into(),
            arena: core.arena.clone(),
            settings,
            stop: core.stop.clone(),
            home: Some(core),
            worker: None,
            messenger: None,
            identity: None,
            #[cfg(feature = "cuda")]
            gpu: None,
        }
    }

    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the number of paths between the hosts: the parts of `split … in paths`.
    pub(crate) fn paths(&self) -> u32 {
        self.paths
    }

    /// Sets the longest time that this rank waits for another, 30 s by default. A wait begins anew whenever
    /// something moved: the timeout bounds how long nothing moves, not how long a call takes. It counts for
    /// calls made, or started, from now on; [`Communicator::with`] sets it for single calls. A timeout of
    /// zero is refused by the next call.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.settings.timeout = timeout;
        if let Some(messenger) = &self.messenger {
            messenger.set_timeout(timeout);
        }
    }

    /// Describes how the last call was divided over the paths, the reason, and since when; `None` if it was
    /// not split by bandwidth, or there is one path.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn balance(&mut self) -> Result<Option<String>, Error> {
        Ok(self.core()?.divided())
    }

    /// Allocates a buffer of zeros that the other ranks can read, so that its data need not be copied on the
    /// way. It is this rank's own: other ranks touch it only within calls that it is passed to.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the machine or the rank's arena has no room for it; [`Error::Forked`] in a child of the
    /// rank's process.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.check_process()?;
        Buffer::zeroed(&self.arena, len)
    }

    /// Returns the placement of the ranks and their links, as the cost model sees them, and the transports that
    /// carry calls: `shm`, `tcp`, or `shm+tcp` over several machines. It is the same on all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn topology(&mut self) -> Result<(Topology, TransportSet), Error> {
        let core = self.core()?;
        Ok((core.topology(), core.transports()))
    }

    /// Runs a plan in place.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn run_in_place<T: Element>(
        &mut self,
        plan: &Plan,
        op: RedOp,
        data: &mut [T],
    ) -> Result<CallStats, Error> {
        let count = count_of(data.len(), plan.header.blocks, "data")?;
        let args = CallArgs::InPlace { data: bytes_mut(data) };
        self.run(plan, PlanCall { count, dtype: T::DTYPE, op, factor: 1.0, args })
    }

    /// Runs a plan out of place.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn run_out_of_place<T: Element>(
        &mut self,
        plan: &Plan,
        op: RedOp,
        count: u64,
        input: &[T],
        output: &mut [T],
    ) -> Result<CallStats, Error> {
        let args = CallArgs::OutOfPlace { input: bytes(input), output: bytes_mut(output) };
        self.run(plan, PlanCall { count, dtype: T::DTYPE, op, factor: 1.0, args })
    }

    /// Runs a plan: this rank's side of a collective call. Returns when this rank's result is
    /// there and its buffers are its own again.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`], [`Error::Unsupported`] and [`Error::Plan`] if the call cannot be made;
    /// nothing has moved then, and the communicator stays usable. All others end the job:
    /// [`Error::PlanMismatch`] if another rank makes another call, [`Error::Timeout`],
    /// [`Error::LostRank`], [`Error::Aborted`], [`Error::Memory`].
    #[inline]
    pub fn run(
        &mut self,
        plan: &Plan,
        call: PlanCall<&[u8], &mut [u8]>,
    ) -> Result<CallStats, Error> {
        self.callable()?.lend(|core| core.run(plan, call))
    }

    /// Returns the word of every rank, by rank.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn all_gather_u64(&mut self, word: u64) -> Result<Vec<u64>, Error> {
        self.callable()?.words(word)
    }

    /// Returns this rank's plan of an algorithm.
    pub(crate) fn plan_of(
        &self,
        algorithm: &Algorithm,
        placement: BufferPlacement,
    ) -> Result<Arc<Plan>, Error> {
        algorithm.plan(self.size(), self.rank(), algorithm.root(), placement, self.paths())
    }

    /// Fails in a process that was forked from the rank's.
    #[doc(hidden)]
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        self.process.check("communicator")
    }

    /// Returns the state, ready for a call with the settings of now. Every call on the caller's thread comes
    /// through here.
    #[inline]
    pub(crate) fn core(&mut self) -> Result<&mut EngineCore, Error> {
        self.check_process()?;
        self.core_here()
    }

    /// Returns the state, in the process of the rank.
    #[inline]
    fn core_here(&mut self) -> Result<&mut EngineCore, Error> {
        self.settled()?;
        let Some(core) = self.home.as_deref_mut() else { return Err(worker::gone()) };
        if self.settings.timeout.is_zero() {
            return Err(Error::Usage(
                "a timeout of zero leaves no time for any call: set a longer one".into(),
            ));
        }
        core.timeout = self.settings.timeout;
        if self.settings.hints.is_some() || core.plans.is_hinted() {
            core.plans.hint_calls(self.settings.hints.clone());
        }
        Ok(core)
    }

    /// Returns the state for a call that all ranks make, with the ranks that are left if one was lost and the hint
    /// `on_failure` says so.
    #[inline]
    pub(crate) fn callable(&mut self) -> Result<&mut EngineCore, Error> {
        if self.core()?.failed.is_some() {
            self.go_on_if_wished()?;
            return self.core_here();
        }
        // It is there: the line above has asked for it.
        self.home.as_deref_mut().ok_or_else(worker::gone)
    }

    /// Goes on with the ranks that are left, if that is wished and none of them has ended the job on purpose.
    #[cold]
    fn go_on_if_wished(&mut self) -> Result<(), Error> {
        let timeout = self.settings.timeout;
        let core = self.core()?;
        let wished = core.plans.merged_hints()?.on_failure() == Some(OnFailure::Shrink);
        let on_purpose = core.group.abort_record().is_some_and(|r| r.code == codes::ABORTED);
        match wished && !on_purpose {
            true => self.shrink(timeout),
            false => Ok(()),
        }
    }

    /// Waits until pending work is done.
    pub(crate) fn settled(&mut self) -> Result<(), Error> {
        if self.home.is_none() { self.settle() } else { Ok(()) }
    }

    /// Waits until pending work is done and takes the state back.
    #[cold]
    fn settle(&mut self) -> Result<(), Error> {
        let Some(worker) = &self.worker else { return Err(worker::gone()) };
        self.home = Some(worker.give_back(&self.stop)?);
        Ok(())
    }

    /// Returns the state, after pending work is done.
    pub(super) fn into_core(mut self) -> Option<Box<EngineCore>> {
        self.settled().ok()?;
        self.home.take()
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        // The threads are not there in a forked process, and what is said to peers is said for the rank.
        if !self.process.is_here() {
            std::mem::forget((self.home.take(), self.worker.take(), self.messenger.take()));
            std::mem::forget(self.identity.take());
            #[cfg(feature = "cuda")]
            std::mem::forget(self.gpu.take());
            return;
        }
        #[cfg(feature = "cuda")]
        self.leave_gpu();
        if let Some(worker) = self.worker.take() {
            worker.stop();
        }
    }
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .finish()
    }
}

fn count_of(len: usize, blocks: u32, what: &str) -> Result<u64, Error> {
    match (len as u64).checked_rem(u64::from(blocks)) {
        Some(0) => Ok(len as u64 / u64::from(blocks)),
        _ => Err(Error::Usage(format!(
            "the {what} has {len} elements, which is not a multiple of the plan's {blocks} blocks"
        ))),
    }
}
