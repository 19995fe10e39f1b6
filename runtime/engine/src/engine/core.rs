//! Holds all that a rank needs to make calls: the group, its connections, the plans bound so far.
//!
//! A `Communicator` holds it, or its progress thread does while asynchronous
//! work is pending. Its owner makes the calls, so there is nothing to lock.

use std::sync::Arc;
use std::time::Duration;

use roundelay_compiler::cost::{LinkRates, Topology};
use roundelay_compiler::plan::{PathShares, Plan};

use super::plans::PlanTable;
use super::recent::RecentList;
use super::stop::StopHandle;
use super::suspension::SuspensionState;
use crate::bind::CallStats;
use crate::bind::{BoundPlan, CallSizing, PlanKey};
use crate::choose::MachineDescription;
use crate::executor::ExecutionBuffers;
use crate::messages::{MessengerGuard, RankMessenger};
use crate::operation::{BARRIER, CallArgs, PlanCall, check_reduction};
use crate::trace::{FlightRecorder, RankStanding};
use crate::window::{WindowBlock, WindowLifetime};
use roundelay_net::endpoints::EndpointTable;
use roundelay_net::group::RankGroup;
use roundelay_net::memory::Buffer;
use roundelay_net::memory::{Arena, ArenaPiece};
use roundelay_net::net::WaitPolicy;
use roundelay_net::paths::PathBalance;
use roundelay_net::transport::TransportSet;
use roundelay_support::abort;
use roundelay_support::error::Error;

/// The name of calls without a plan that come before others: those of `split`, `cuda`, `window` and `install`.
pub(super) const SET_UP: &str = "set-up";

/// The memory that calls keep for the next ones.
#[derive(Debug, Default)]
pub(crate) struct CallStaging {
    pub(crate) input: Option<Buffer<u8>>,
    pub(crate) output: Option<Buffer<u8>>,
}

/// The state with which a rank makes calls; see the [module](self).
pub struct EngineCore {
    /// The word that tells windows that it has ended: before anything else does.
    pub life: WindowLifetime,
    /// The messages with tags, once they were first used. They end before the group does.
    pub(super) messages: Option<MessengerGuard>,
    /// The means to end its calls from any thread.
    pub stop: Arc<StopHandle>,
    /// The ranks, and how each is reached.
    pub group: RankGroup,
    /// The longest time without progress in the next call.
    pub timeout: Duration,
    /// The memory of this rank that others map.
    pub arena: Arc<Arena>,
    pub(crate) scratch: Option<ArenaPiece>,
    /// The connections that are open.
    pub endpoints: EndpointTable,
    pub(crate) work: ExecutionBuffers,
    /// Bound plans.
    pub(crate) bounds: RecentList<BoundPlan, 256>,
    /// Batches that were executed before: one of the same shape is executed again at once.
    pub(crate) batches: RecentList<BoundPlan, 64>,
    /// The bound plan of the call in progress, or of the last one.
    pub(crate) current: Option<usize>,
    /// The name of a call without a plan.
    pub(super) control: &'static str,
    /// The number of calls made, and a digest of all of them in order.
    pub(crate) calls: u64,
    pub(crate) history: u64,
    /// The failure that ended the communicator.
    pub failed: Option<String>,
    /// The state of suspension.
    pub(super) suspension: SuspensionState,
    /// The flight recorder.
    pub recorder: FlightRecorder,
    /// The observed state of the other ranks when a call failed.
    pub(crate) seen: Vec<RankStanding>,
    /// The plans of calls by name.
    pub plans: PlanTable,
    /// Shares that the caller set, for plans that are split by bandwidth into as many parts.
    pub shares: Option<PathShares>,
    /// The measurements of the paths, once a plan is split over them.
    pub(crate) balance: Option<PathBalance>,
    /// Bytes sent and received over each path before the call in progress.
    pub(crate) moved: Vec<(u64, u64)>,
    pub(crate) staging: CallStaging,
}

impl AsMut<RankGroup> for EngineCore {
    fn as_mut(&mut self) -> &mut RankGroup {
        &mut self.group
    }
}

impl EngineCore {
    /// Returns the state of a rank of a group, before its first call.
    pub fn new(group: RankGroup, arena: Arc<Arena>, timeout: Duration) -> Self {
        EngineCore {
            life: WindowLifetime::default(),
            messages: None,
            stop: Arc::new(StopHandle::of(&group)),
            group,
            timeout,
            arena,
            scratch: None,
            endpoints: EndpointTable::default(),
            work: ExecutionBuffers::default(),
            bounds: RecentList::default(),
            batches: RecentList::default(),
            current: None,
            control: SET_UP,
            calls: 0,
            history: 0,
            failed: None,
            suspension: SuspensionState::default(),
            recorder: FlightRecorder::new(),
            seen: Vec::new(),
            plans: PlanTable::default(),
            shares: None,
            balance: None,
            moved: Vec::new(),
            staging: CallStaging::default(),
        }
    }

    /// Opens the connections that calls will need, unless that is to be done when they need them.
    pub fn open_links(&mut self, deadline: WaitPolicy<'_>) -> Result<(), Error> {
        let wanted = self.group.links_at_once();
        self.endpoints.connect(&mut self.group, wanted.into_iter(), deadline)
    }

    /// Returns the ranks, their machines and links, as far as all ranks know them alike.
    pub fn topology(&self) -> Topology {
        let topology = Topology::new(self.group.hosts());
        let rates = LinkRates { cores: MachineDescription::here().cores, ..LinkRates::default() };
        let rates = if self.group.shares_memory() { rates } else { rates.apart() };
        let topology = topology.with(rates);
        topology.over(self.group.path_costs().to_vec())
    }

    /// Returns the number of paths between the hosts.
    pub fn paths(&self) -> u32 {
        (self.group.paths().len() as u32).max(1)
    }

    /// Returns the transports that carry calls; the tuned table has them as they are printed.
    pub fn transports(&self) -> TransportSet {
        self.group.transports()
    }

    pub(crate) fn slot_bytes(&self) -> u64 {
        self.group.layout().slot_bytes
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.group.rank()
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// Executes a plan; see `Communicator::run`.
    pub fn run(
        &mut self,
        plan: &Plan,
        call: PlanCall<&[u8], &mut [u8]>,
    ) -> Result<CallStats, Error> {
        self.call(plan, call, &[])
    }

    /// Executes a plan with that many elements in each block.
    pub fn run_cut(
        &mut self,
        plan: &Plan,
        call: PlanCall<&[u8], &mut [u8]>,
        counts: &[usize],
    ) -> Result<CallStats, Error> {
        let counts: Vec<u64> = counts.iter().map(|&c| c as u64).collect();
        let blocks = counts.len() as u64 == u64::from(plan.header.blocks);
        match counts.first() {
            Some(&count) if blocks && counts.iter().all(|&c| c == count) => {
                self.call(plan, PlanCall { count, ..call }, &[])
            }
            _ => {
                let count = counts.iter().fold(0u64, |sum, &c| sum.saturating_add(c));
                self.call(plan, PlanCall { count, ..call }, &counts)
            }
        }
    }

    fn call(
        &mut self,
        plan: &Plan,
        call: PlanCall<&[u8], &mut [u8]>,
        counts: &[u64],
    ) -> Result<CallStats, Error> {
        self.usable()?;
        if call.count == 0 && plan.header.collective != BARRIER.name {
            return self.call_empty(plan, call);
        }
        let PlanCall { count, dtype, op, factor, mut args } = call;
        if plan.header.reduces {
            check_reduction(&plan.header.collective, dtype, op, factor)?;
        }
        let key = PlanKey { hash: plan.header.hash, count, dtype, op };
        let shares = self.divide(plan, &key)?;
        let sizing = CallSizing { counts, shares: shares.as_ref() };
        let same = |of: &[u64]| of.len() == counts.len() && (of.is_empty() || of == counts);
        let known = |b: &BoundPlan| {
            b.key == key
                && same(&b.counts)
                && b.shares.as_ref() == sizing.shares
                && plan.part.rank == self.rank()
        };
        // Most calls are like the one before.
        let at = match self.current.filter(|&at| known(&self.bounds[at])) {
            Some(at) => at,
            None => match self.bounds.position(known) {
                Some(at) => at,
                None => self.bind(plan, key, sizing)?,
            },
        };
        self.buffers(at, &mut args)?;
        self.current = Some(at);
        let in_place = matches!(args, CallArgs::InPlace { .. });
        let result = self.not_aborted().and_then(|()| self.execute(at, factor, in_place));
        result.map_err(|error| self.fail_call(error))
    }

    /// Cuts the words of this rank's part of a window from its arena: all zero, and not shared yet.
    pub fn cut_words(&self) -> Result<(ArenaPiece, WindowBlock), Error> {
        let cut = self.arena.cut(WindowBlock::bytes(self.size()) as usize)?;
        // SAFETY: the piece has at least that many bytes, and is not shared yet.
        unsafe { cut.address().write_bytes(0, cut.bytes()) };
        let lost = || Error::Work("a piece of an arena lies outside of it".into());
        let at = self.arena.find(cut.address(), cut.bytes()).ok_or_else(lost)?;
        let block = WindowBlock::new(self.group.heap().clone(), at, self.size())?;
        Ok((cut, block))
    }

    /// Returns what moves messages with tags.
    pub fn messenger(&mut self) -> RankMessenger {
        let (group, timeout) = (&self.group, self.timeout);
        let MessengerGuard(messenger) = self.messages.get_or_insert_with(|| {
            let messenger = RankMessenger::new(group.beside(), timeout);
            messenger.admit_messages(!self.suspension.refuses());
            MessengerGuard(messenger)
        });
        self.stop.of_messages(messenger.clone());
        messenger.clone()
    }

    /// Makes a call that may write to memory of a caller, and says so meanwhile.
    #[inline]
    pub fn lend<R>(&mut self, call: impl FnOnce(&mut EngineCore) -> R) -> R {
        self.stop.enter();
        let result = call(self);
        self.stop.leave();
        result
    }

    /// Fails if an earlier call failed, or if the ranks are suspended and calls are refused; resumes them elsewhere.
    pub fn usable(&self) -> Result<(), Error> {
        match &self.failed {
            None => self.suspension.admit_call(),
            Some(cause) => Err(Error::Usage(format!(
                "this communicator cannot be used after an error ({cause}): start the job again"
            ))),
        }
    }

    /// Fails if some rank has ended the job: a call whose data is all there would else come through. Asked after
    /// the arguments were checked, so that a call that is wrong on all ranks has the same error on all of them.
    pub(crate) fn not_aborted(&self) -> Result<(), Error> {
        match self.group.is_aborted() {
            true => Err(self.group.aborted(None)),
            false => Ok(()),
        }
    }

    /// Fails if this rank itself has ended the job, from another thread: nothing more is written then.
    pub(crate) fn not_stopped(&self) -> Result<(), Error> {
        match self.group.is_stopped() {
            true => Err(self.group.aborted(None)),
            false => Ok(()),
        }
    }

    /// Notes an error that ends the job, and tells the others.
    #[cold]
    pub fn fail(&mut self, error: Error) -> Error {
        self.look_around(&error);
        self.group.abort(&abort::record(self.rank(), &error));
        self.endpoints.cut();
        self.failed = Some(error.to_string());
        error
    }
}
