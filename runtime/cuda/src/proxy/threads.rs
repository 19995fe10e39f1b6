//! The proxy threads of a rank, and the lanes that they serve: starting them, ordering from them, ending them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::call::ProxyCall;
use super::direct_probe::agree;
use super::direct_slots::GpuDirect;
use super::lane::ProxyLane;
use super::lane_inbox::{LaneInbox, ProxyOrder};
use super::memory::ProxyMemory;
use super::peer_slots::PeerSlots;
use super::queues::ProxyBatch;
use super::run::run_lanes;
use super::state::ProxyState;
use super::stream::ProxyStream;
use super::window_proxy::WindowProxy;
use super::window_slots::ProxySlots;
use crate::backend::DriverFault;
use crate::tunables::PROXY_LANES_MAX;
use roundelay_engine::EngineCore;
use roundelay_engine::messages::RankMessenger;
use roundelay_net::net::{ConnectionId, WaitPolicy};
use roundelay_net::transport::shm::cores;
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};

/// The memory that a rank can have for words and slots: memory whose slots devices of the network reach, or why there
/// is none; and a maker of memory on the host, called if ranks do not agree on the former.
pub(crate) struct MemoryOffer<'a> {
    pub(crate) direct: Result<ProxyMemory, GpuDirect>,
    /// True if the former is taken though no device reaches it, so that contents go by hosts: for tests.
    pub(crate) without_devices: bool,
    pub(crate) on_host: Box<MemoryMaker<'a>>,
}

type MemoryMaker<'a> = dyn FnOnce(&mut EngineCore) -> Result<ProxyMemory, Error> + 'a;

/// The proxy threads of a rank, and the orders that their lanes take.
pub(crate) struct ProxyThreads {
    common: Arc<ProxyState>,
    /// The orders of each lane: as many lanes as all ranks have.
    inboxes: Vec<Arc<LaneInbox>>,
    /// The number of the next call.
    numbers: AtomicU32,
    /// The thread that serves them, with its helpers.
    thread: Option<JoinHandle<()>>,
    memory: Arc<ProxyMemory>,
    direct: GpuDirect,
    /// The memory for messages with single ranks, by rank, once there was one.
    peers: BTreeMap<u32, Arc<PeerSlots>>,
    /// The proxy for windows on other hosts, once there was one.
    window_proxy: Option<WindowProxy>,
    /// For tests that cut them.
    #[cfg(test)]
    pub(super) connections: Vec<Arc<roundelay_net::transport::stream::StreamConnection>>,
}

impl std::fmt::Debug for ProxyThreads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyThreads").field("lanes", &self.inboxes.len()).finish_non_exhaustive()
    }
}

impl ProxyThreads {
    /// Connects to the ranks on other hosts, and starts the threads: all ranks together. `abort` makes this rank's
    /// kernels leave.
    ///
    /// # Errors
    ///
    /// The errors of connections, which end the communicator.
    pub(crate) fn open(
        core: &mut EngineCore,
        memory: MemoryOffer<'_>,
        abort: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let here = core.near().into_iter().filter(|near| *near).count();
        let share = cores().len() / here.max(1) / 2;
        let fewest = core.words(share as u64)?.into_iter().min().unwrap_or(1);
        let lanes = (fewest as u32).clamp(1, PROXY_LANES_MAX);
        Self::connect(core, memory, (lanes, lanes), abort)
    }

    /// Opens `lanes` lanes, which one thread serves, at most `threads` while messages are long.
    pub(super) fn connect(
        core: &mut EngineCore,
        memory: MemoryOffer<'_>,
        (lanes, threads): (u32, u32),
        abort: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let near = core.near();
        let paths = core.paths().max(1);
        let first = core.group.layout().batch_channel() + 1;
        let far: Vec<u32> =
            (0u32..).zip(&near).filter(|(_, near)| !**near).map(|(r, _)| r).collect();
        let wanted: Vec<ConnectionId> = (0..lanes)
            .flat_map(|lane| far.iter().map(move |&peer| (lane, peer)))
            .map(|(lane, peer)| {
                let (channel, path) = (first + lane as u16, (lane % paths) as u16);
                ConnectionId { peer, channel, path }
            })
            .collect();
        let (timeout, rank) = (core.timeout(), core.rank());
        let deadline = WaitPolicy { timeout, watch: &mut |_| None, members: &[] };
        let made = core.group.connect(&wanted, deadline);
        let made = made.map_err(|error| core.fail(error))?;
        #[cfg(test)]
        let connections = made.clone();
        let mut made = made.into_iter();
        let streams =
            |_| far.iter().zip(&mut made).map(|(&peer, c)| ProxyStream::new(peer, c)).collect();
        let mut streams: Vec<Vec<ProxyStream>> = (0..lanes).map(streams).collect();
        let agreed = match memory.direct {
            Ok(direct) if memory.without_devices => Ok(direct),
            direct => agree(core, &mut streams, direct)?,
        };
        let (memory, direct) = match agreed {
            Ok(memory) => (memory, GpuDirect::Used),
            Err(why) => ((memory.on_host)(core)?, why),
        };
        let memory = Arc::new(memory);
        let common = Arc::new(ProxyState {
            rank,
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
            alarm: core.group.alarm(),
            abort: Box::new(abort),
        });
        let mut all = ProxyThreads {
            common,
            inboxes: Vec::new(),
            numbers: AtomicU32::new(1),
            thread: None,
            memory,
            direct,
            peers: BTreeMap::new(),
            window_proxy: None,
            #[cfg(test)]
            connections,
        };
        let lane = |(number, streams)| {
            let (common, memory) = (all.common.clone(), all.memory.clone());
            ProxyLane::new((number, lanes), memory, common, streams)
        };
        let made: Vec<ProxyLane> = (0..lanes).zip(streams).map(lane).collect();
        let inboxes = made.iter().map(|lane| lane.inbox.clone()).collect();
        let (common, helpers) = (all.common.clone(), threads.saturating_sub(1) as usize);
        let thread = std::thread::Builder::new()
            .name(format!("roundelay-far-{rank}"))
            .spawn(move || run_lanes(common, made, helpers))
            .map_err(|e| {
                Error::system(format!("cannot start a proxy thread: {e}"), e, PROCESS_LIMIT_REMEDY)
            });
        all.thread = Some(thread.map_err(|error| core.fail(error))?);
        all.inboxes = inboxes;
        Ok(all)
    }

    /// Returns the number of lanes, the same on all ranks.
    pub(crate) fn lanes(&self) -> u32 {
        self.inboxes.len() as u32
    }

    /// Returns the memory that they share with kernels.
    pub(crate) fn memory(&self) -> &Arc<ProxyMemory> {
        &self.memory
    }

    /// Returns the bytes of host memory that are kept in place for kernels.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        let peers = self.peers.values().map(|slots| slots.pinned_bytes()).sum::<u64>();
        let windows = self.window_proxy.iter().map(|proxy| proxy.slots().pinned_bytes());
        self.memory.pinned_bytes() + peers + windows.sum::<u64>()
    }

    /// Returns whether messages between hosts go from GPU to GPU.
    pub(crate) fn direct(&self) -> &GpuDirect {
        &self.direct
    }

    /// Returns the memory for messages with a rank, which is made if there was none.
    pub(crate) fn peer_slots(
        &mut self,
        peer: u32,
        make: impl FnOnce() -> Result<PeerSlots, DriverFault>,
    ) -> Result<Arc<PeerSlots>, DriverFault> {
        if let Some(slots) = self.peers.get(&peer) {
            return Ok(slots.clone());
        }
        let slots = Arc::new(make()?);
        self.peers.insert(peer, slots.clone());
        Ok(slots)
    }

    /// Starts the window proxy, if there was none. It begins no operation once `gave_up` returns true: a kernel has
    /// left.
    pub(crate) fn start_window_proxy(
        &mut self,
        messenger: &RankMessenger,
        make: impl FnOnce() -> Result<ProxySlots, Error>,
        gave_up: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), Error> {
        if self.window_proxy.is_none() {
            let (common, slots) = (self.common.clone(), Arc::new(make()?));
            self.window_proxy =
                Some(WindowProxy::start(common, messenger.clone(), slots, gave_up)?);
        }
        Ok(())
    }

    /// Returns the window proxy, if there is one.
    pub(crate) fn window_proxy(&mut self) -> Option<&mut WindowProxy> {
        self.window_proxy.as_mut()
    }

    /// Leaves the memory that kernels use until the process ends.
    pub(crate) fn abandon(&self) {
        std::mem::forget(self.memory.clone());
        self.window_proxy.iter().for_each(|proxy| std::mem::forget(proxy.slots().clone()));
        self.peers.values().cloned().for_each(std::mem::forget);
    }

    /// Announces messages between single ranks for which a kernel is launched.
    pub(crate) fn order_batch(&self, batch: &Arc<ProxyBatch>) {
        self.broadcast(|| ProxyOrder::Exchange(batch.clone()));
    }

    /// Returns the number of the next call.
    pub(crate) fn next_number(&self) -> u32 {
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            if number != 0 {
                return number;
            }
        }
    }

    /// Announces a call, before a kernel that enters it is launched.
    pub(crate) fn order_call(&self, call: &ProxyCall) {
        self.broadcast(|| ProxyOrder::Call(call.clone()));
    }

    /// Withdraws the call of that number, which was not launched.
    pub(crate) fn forget_call(&self, number: u32) {
        self.broadcast(|| ProxyOrder::Forget(number));
    }

    fn broadcast(&self, order: impl Fn() -> ProxyOrder) {
        // A thread that has ended has failed, or was stopped: the kernel is aborted in either case.
        self.inboxes.iter().for_each(|inbox| inbox.post(order()));
    }

    /// Returns the error of the proxy that failed first, if one has.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.common.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops all proxies, whatever they do.
    pub(crate) fn stop(&self) {
        self.common.stopped.store(true, Ordering::Release);
    }
}

impl Drop for ProxyThreads {
    /// Lets threads complete what was launched, and joins them. Calls that will not end must be stopped before.
    fn drop(&mut self) {
        self.inboxes.iter().for_each(|inbox| inbox.close());
        self.window_proxy = None;
        // A thread that panicked has nothing to add.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
