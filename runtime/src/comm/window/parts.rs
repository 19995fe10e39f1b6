//! The parts of a window as one rank sees them: its own, and the way to that of each peer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::tunables::{WINDOW_DRAIN_TIMEOUT, WINDOW_LOCK_CHECK_DELAY};
use roundelay_engine::messages::RankMessenger;
use roundelay_engine::progress::failed_wait::remark_on_silence;
use roundelay_engine::progress::peer_failure::{PeerFailure, examine};
use roundelay_engine::progress::wait::{WaitAction, WaitLoop};
use roundelay_engine::progress::{AwaitedAct, FailedWait};
use roundelay_engine::window::{
    ExposedPart, MappedPart, MemorySpan, PartAttributes, ServedPart, WindowAccess, WindowRights,
};
use roundelay_net::group::RankGroup;
use roundelay_net::transport::shm::{ShmSegment, SleeperRole};
use roundelay_support::abort;
use roundelay_support::dtype::DType;
use roundelay_support::error::{AccessRefusal, Error, ErrorLocation};
use roundelay_support::fork::OwnerProcess;
use roundelay_support::interrupt;

/// The way to a peer's part.
pub(super) enum PartReach {
    /// It is mapped here.
    Mapped(MappedPart),
    /// Its own process serves it.
    Served(Arc<ServedPart>),
}

/// The service of a window between ranks that do not map each other's parts.
pub(super) struct WindowService {
    pub(super) messenger: RankMessenger,
    /// The number by which peers name this rank's part.
    pub(super) key: u64,
}

/// The state that a rank holds of a window.
pub(super) struct WindowParts {
    /// The process that is the rank.
    process: OwnerProcess,
    pub(super) rank: u32,
    pub(super) dtype: DType,
    pub(super) own: Arc<ExposedPart>,
    pub(super) peers: Vec<PartReach>,
    /// None if all ranks map all parts.
    pub(super) service: Option<WindowService>,
    /// The signals of each rank that were taken.
    pub(super) taken: Arc<[AtomicU64]>,
    /// The peers whose parts are mapped until the window ends.
    held: Mutex<BTreeSet<u32>>,
    control: Arc<ShmSegment>,
    /// The numbers in it of the ranks of this machine.
    locals: Vec<Option<u32>>,
    crowded: bool,
    /// For threads that wait: it examines peers.
    group: Mutex<RankGroup>,
    /// True once the communicator has ended, or gone on.
    pub(super) over: Arc<AtomicBool>,
    /// Nanoseconds of the longest time without progress.
    timeout: AtomicU64,
    /// True once nothing is left to be ended.
    pub(super) is_freed: bool,
}

/// The purpose of a wait.
pub(super) struct AwaitedAccess<'a> {
    pub(super) name: &'a str,
    pub(super) text: String,
    pub(super) peer: u32,
    /// True if the wait is over, too, once the peer is gone.
    pub(super) ends_with_peer: bool,
    /// True if its failure ends the job.
    pub(super) is_fatal: bool,
}

impl WindowParts {
    pub(super) fn new(
        group: RankGroup,
        (own, peers, service): (Arc<ExposedPart>, Vec<PartReach>, Option<WindowService>),
        over: Arc<AtomicBool>,
        timeout: Duration,
    ) -> Self {
        WindowParts {
            process: OwnerProcess::here(),
            rank: group.rank(),
            dtype: own.place().dtype(),
            own,
            taken: peers.iter().map(|_| AtomicU64::new(0)).collect(),
            locals: (0..group.size()).map(|r| group.local(r).map(|local| local.control)).collect(),
            peers,
            service,
            held: Mutex::default(),
            control: group.control().clone(),
            crowded: group.layout().crowded,
            group: Mutex::new(group),
            over,
            timeout: AtomicU64::new(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)),
            is_freed: false,
        }
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.timeout.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout.load(Ordering::Relaxed))
    }

    /// Returns the way to a peer, if an operation can begin: `what` says which.
    #[inline]
    pub(super) fn reach(&self, peer: u32, what: impl Fn() -> String) -> Result<&PartReach, Error> {
        self.check_process()?;
        if !self.goes_on() {
            return Err(self.ended(what));
        }
        self.peers.get(peer as usize).ok_or_else(|| {
            let (what, last) = (what(), self.peers.len() - 1);
            Error::Usage(format!("{what}: there is no rank {peer}, the ranks are 0 to {last}"))
        })
    }

    /// Fails in a process that was forked from the rank's.
    #[inline]
    pub(super) fn check_process(&self) -> Result<(), Error> {
        self.process.check("window")
    }

    /// Returns true unless the job or the generation has ended.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed) && !self.control.is_aborted()
    }

    /// Returns the error of an operation after that.
    #[cold]
    pub(super) fn ended(&self, what: impl Fn() -> String) -> Error {
        if self.over.load(Ordering::Acquire) {
            return self.refused(what, AccessRefusal::Over);
        }
        let location = ErrorLocation {
            rank: self.rank,
            name: "window".into(),
            step: 0,
            site: String::new(),
            text: what(),
        };
        self.group.lock().aborted(Some(location))
    }

    /// Returns the error of a refused operation. A peer whose job has ended takes its part away: then that is the
    /// cause.
    #[cold]
    pub(super) fn refused(&self, what: impl Fn() -> String, refusal: AccessRefusal) -> Error {
        if matches!(refusal, AccessRefusal::Rights { .. }) && !self.goes_on() {
            return self.ended(what);
        }
        Error::Window { rank: self.rank, what: what(), refusal }
    }

    pub(super) fn attributes(&self, peer: u32) -> Result<PartAttributes, Error> {
        let size = self.dtype.size() as u64;
        Ok(match self.reach(peer, || "ask for the attributes of a window".into())? {
            PartReach::Mapped(direct) => {
                let place = direct.place();
                let (len, rights) = ((place.bytes() / size) as usize, place.block().rights());
                PartAttributes { access: WindowAccess::Mapped, len, rights, by_device: 0 }
            }
            PartReach::Served(remote) => {
                let (len, rights) = ((remote.bytes() / size) as usize, remote.rights());
                let by_device = remote.by_device();
                PartAttributes { access: WindowAccess::Served, len, rights, by_device }
            }
        })
    }

    /// Signals a peer.
    #[inline]
    pub(super) fn signal(&self, peer: u32) -> Result<(), Error> {
        match self.reach(peer, || format!("signal rank {peer}"))? {
            PartReach::Mapped(direct) => direct.signal(),
            PartReach::Served(remote) => return self.served_signal(remote),
        }
        self.wake(peer);
        Ok(())
    }

    /// Wakes a rank of this machine that may wait for what was done.
    #[inline]
    pub(super) fn wake(&self, peer: u32) {
        if let Some(local) = self.locals.get(peer as usize).copied().flatten() {
            self.control.wake(local, SleeperRole::Windows);
        }
    }

    /// Takes a signal of a peer; returns false if none is there.
    #[inline]
    pub(super) fn take_signal(&self, peer: u32) -> Result<bool, Error> {
        self.reach(peer, || format!("look for a signal of rank {peer}"))?;
        Ok(self.own.place().block().take_signal(peer, &self.taken[peer as usize]))
    }

    /// Waits for a signal of a peer, and takes it.
    #[inline]
    pub(super) fn wait_signal(&self, peer: u32) -> Result<(), Error> {
        let what = || format!("wait for a signal of rank {peer}");
        let reach = self.reach(peer, what)?;
        let (block, taken) = (self.own.place().block(), &self.taken[peer as usize]);
        let is_there = || block.take_signal(peer, taken);
        for _ in 0..WaitLoop::polls(self.crowded) {
            if is_there() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let awaited = AwaitedAccess {
            name: "wait_signal",
            text: AwaitedAct::Signal.of(peer),
            peer,
            ends_with_peer: false,
            is_fatal: true,
        };
        match reach {
            PartReach::Mapped(_) => self.until(&awaited, is_there),
            PartReach::Served(remote) => self.served_wait(remote),
        }
    }

    /// Waits until something is so that a rank of this machine brings about.
    pub(super) fn until(
        &self,
        awaited: &AwaitedAccess<'_>,
        is_so: impl Fn() -> bool,
    ) -> Result<(), Error> {
        let mut wait = WaitLoop::new(self.timeout(), self.crowded).without_interrupts();
        loop {
            if is_so() {
                return Ok(());
            }
            let mut group = self.group.lock();
            let look = wait.pause(&mut *group);
            if look == WaitAction::Examine && interrupt::is_due() {
                drop(group);
                let is_requested = interrupt::is_requested();
                group = self.group.lock();
                if is_requested {
                    group.abort(&interrupt::record(self.rank));
                    return Err(group.aborted(None));
                }
            }
            if matches!(look, WaitAction::Again | WaitAction::Doze) {
                continue;
            }
            if let Some(result) = self.look(awaited, look, &mut group, &is_so) {
                return result;
            }
        }
    }

    /// Looks whether a wait is in vain; returns how it ends if it does.
    #[cold]
    pub(super) fn look(
        &self,
        awaited: &AwaitedAccess<'_>,
        look: WaitAction,
        group: &mut RankGroup,
        is_so: &dyn Fn() -> bool,
    ) -> Option<Result<(), Error>> {
        let AwaitedAccess { name, text, peer, ends_with_peer, is_fatal } = awaited;
        if self.over.load(Ordering::Acquire) {
            let what = || format!("wait for {text}");
            return Some(Err(self.refused(what, AccessRefusal::Over)));
        }
        let location = || ErrorLocation {
            rank: self.rank,
            name: (*name).into(),
            step: 0,
            site: String::new(),
            text: format!("wait for {text}"),
        };
        let gone = match examine(group, *peer, 0, None) {
            Some(PeerFailure::Gone(gone)) => Some(gone),
            _ => None,
        };
        if gone.is_some() && *ends_with_peer {
            return Some(Ok(()));
        }
        if gone.is_some() {
            // What it did before it went is here by then.
            group.hear_out();
        }
        if is_so() {
            return Some(Ok(()));
        }
        if group.is_aborted() && *is_fatal {
            return Some(Err(group.aborted(Some(location()))));
        }
        let failed = FailedWait { location: location(), peer: *peer, awaited: text.clone() };
        let error = match gone {
            Some(gone) => failed.lost(gone),
            None if look == WaitAction::Expired => {
                failed.timed_out(self.timeout(), remark_on_silence(*peer))
            }
            None => return None,
        };
        if *is_fatal {
            group.abort(&abort::record(self.rank, &error));
        }
        Some(Err(error))
    }

    /// Fails once a wait for the lock of accumulates that a rank holds is in vain.
    #[cold]
    pub(super) fn wait_lock(&self, holder: u32, waited: Duration) -> Result<(), Error> {
        if waited < WINDOW_LOCK_CHECK_DELAY {
            return Ok(());
        }
        let awaited = AwaitedAccess {
            name: "accumulate",
            text: AwaitedAct::EndAccumulate.of(holder),
            peer: holder,
            ends_with_peer: false,
            is_fatal: true,
        };
        let look = if waited >= self.timeout() { WaitAction::Expired } else { WaitAction::Examine };
        let mut group = self.group.lock();
        if group.is_aborted()
            || look == WaitAction::Expired
            || waited.subsec_millis().is_multiple_of(8)
        {
            return self.look(&awaited, look, &mut group, &|| false).unwrap_or(Ok(()));
        }
        Ok(())
    }

    /// Returns the ranks that may access this rank's part: by themselves, or served by this process.
    fn origins(&self) -> impl Iterator<Item = u32> {
        let is_origin = |local: &Option<u32>| local.is_some() || self.service.is_some();
        let origins = (0u32..).zip(&self.locals).filter(move |(_, local)| is_origin(local));
        origins.map(|(rank, _)| rank)
    }

    /// Withdraws rights from all peers, and waits until nothing is under way that needed them.
    pub(super) fn withdraw(&self, rights: WindowRights) -> Result<(), Error> {
        self.check_process()?;
        let block = self.own.place().block();
        self.own.withdraw(rights);
        self.renew_grants();
        for peer in self.origins() {
            let awaited = AwaitedAccess {
                name: "withdraw",
                text: format!("rank {peer} to end its access, or to drop what it has mapped"),
                peer,
                ends_with_peer: true,
                is_fatal: false,
            };
            self.until(&awaited, || block.is_quiet(peer))?;
        }
        Ok(())
    }

    /// Says that this rank looks at no peer's words any more.
    pub(super) fn detach(&self) {
        for reach in &self.peers {
            if let PartReach::Mapped(direct) = reach {
                direct.attach(false);
            }
        }
    }

    /// Maps a peer's part until the window ends; returns its memory, whether it may be written, and what it lies in.
    pub(super) fn hold(
        &self,
        peer: u32,
        what: impl Fn() -> String,
    ) -> Result<(MemorySpan, bool, Arc<ShmSegment>), Error> {
        let PartReach::Mapped(direct) = self.reach(peer, &what)? else {
            return Err(self.refused(what, AccessRefusal::NotMapped));
        };
        let mut held = self.held.lock();
        if !held.contains(&peer) {
            direct.hold(WindowRights::READ).map_err(|refusal| self.refused(what, refusal))?;
            held.insert(peer);
        }
        let is_writable = direct.place().block().rights().contains(WindowRights::WRITE);
        Ok((direct.place().span(), is_writable, self.group.lock().heap().clone()))
    }

    /// Ends what [`Self::hold`] has begun.
    pub(super) fn release(&self) {
        for peer in std::mem::take(&mut *self.held.lock()) {
            if let PartReach::Mapped(direct) = &self.peers[peer as usize] {
                direct.release();
            }
        }
    }

    /// Ends this rank's part without the others: what they may still touch serves nothing else.
    fn abandon(&self) {
        let block = self.own.place().block();
        self.own.withdraw(WindowRights::ALL);
        let group = self.group.lock();
        let is_gone = |peer| matches!(examine(&group, peer, 0, None), Some(PeerFailure::Gone(_)));
        let until = Instant::now() + WINDOW_DRAIN_TIMEOUT;
        let drains = |peer: u32| {
            while !block.is_quiet(peer) {
                if Instant::now() >= until {
                    return is_gone(peer);
                }
                rustix::thread::sched_yield();
            }
            true
        };
        if !self.origins().all(drains) {
            self.own.get_stuck();
        }
        self.detach();
        if self.origins().any(|peer| block.is_attached(peer) && !is_gone(peer)) {
            self.own.forget_words();
        }
    }
}

impl Drop for WindowParts {
    fn drop(&mut self) {
        // A process that was forked from the rank's is no rank: nothing is ended.
        if !self.process.is_here() {
            self.own.get_stuck();
            return;
        }
        if !self.is_freed {
            self.release();
            self.end_service(false);
            self.abandon();
        }
    }
}
