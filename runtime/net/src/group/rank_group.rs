//! The ranks of a communicator as one of them sees them: its state, and what it reads of it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{FairMutex, FairMutexGuard};
use roundelay_compiler::cost::PathCost;

use super::alarm::AlarmScope;
use super::server::WindowServer;
use super::terms::JobTerms;
use crate::net::{ConnectionId, NetworkCounts, RankNetwork};
use crate::route::RankRoute;
use crate::transport::rdma;
use crate::transport::shm::{RankPresence, SegmentLayout, ShmSegment, SleeperRole, WordExchange};
use crate::transport::stream::StreamConnection;
use crate::transport::{StreamResources, TransportSet};
use roundelay_support::contention::CoreContention;
use roundelay_support::digest::mix;
use roundelay_support::fork::OwnerProcess;

/// The numbers of a rank of this machine in the memory that it shares with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRank {
    /// Its number in the control segment.
    pub control: u32,
    /// Its number in the heap.
    pub heap: u32,
}

/// The ranks of a communicator, and the memory and sockets between them.
pub struct RankGroup {
    /// The process that is the rank.
    pub(super) process: OwnerProcess,
    pub(super) rank: u32,
    pub(super) control: Arc<ShmSegment>,
    pub(super) heap: Arc<ShmSegment>,
    /// The numbers of the ranks of this machine, by rank.
    pub(super) locals: Vec<Option<LocalRank>>,
    pub(super) exchange: WordExchange,
    /// The sockets, if not all ranks share the control segment. Parts raise alarms there too.
    pub(super) net: Option<Arc<FairMutex<RankNetwork>>>,
    /// The whole that this is a part of, the whole that that is a part of, and so on.
    pub(super) above: Vec<AlarmScope>,
    /// The counts of sockets that were needed before the ranks knew that they can do without.
    pub(super) joined: NetworkCounts,
    /// The words of the ranks in the current round, if they are not all in the control segment; the rank that
    /// is in another call, if one is.
    pub(super) words: Option<Result<Vec<u64>, u32>>,
    pub(super) routes: Vec<RankRoute>,
    /// The machine of each rank, numbered alike on all ranks.
    pub(super) hosts: Vec<u32>,
    /// The process of each rank on this machine.
    pub(super) pids: Vec<Option<i32>>,
    /// The identity, the same on all ranks, and the number of parts that were split off.
    pub(super) id: u64,
    pub(super) splits: u64,
    pub(super) terms: JobTerms,
    /// See [`RankGroup::paths`].
    pub(super) paths: Vec<String>,
    /// The transports that carry data between hosts, if several paths name them.
    pub(super) carried: Option<TransportSet>,
    /// See [`RankGroup::path_costs`].
    pub(super) costs: Vec<PathCost>,
    /// Connections that are not plain sockets: they move only while this process looks at them, whatever it waits
    /// for, for a peer may still need what an earlier call sent.
    pub(super) streamed: Vec<Weak<StreamConnection>>,
    /// The means of connections, and the transports that all ranks of the job have and may use.
    pub(super) means: StreamResources,
    pub(super) all_have: TransportSet,
    /// The competition of other programs for this rank's core.
    pub contention: CoreContention,
    /// The thread that it belongs to.
    pub(super) sleeper: SleeperRole,
    /// The server of this rank's windows, if peers reach one through connections.
    pub(super) server: Option<Arc<dyn WindowServer>>,
    /// True once this rank itself has raised the abort flag by [`GroupAlarm::raise`](super::alarm::GroupAlarm::raise).
    pub(super) stopped: Arc<AtomicBool>,
}

impl RankGroup {
    /// Takes this rank's place in the control segment.
    pub(super) fn local_ranks(
        rank: u32,
        control: Arc<ShmSegment>,
        heap: Arc<ShmSegment>,
        locals: Vec<Option<LocalRank>>,
        terms: JobTerms,
    ) -> Self {
        let own = locals.get(rank as usize).copied().flatten().map_or(0, |local| local.heap);
        let registrations = rdma::ArenaRegistrations::new(heap.clone(), own);
        let group = RankGroup {
            process: OwnerProcess::here(),
            rank,
            control,
            means: StreamResources { devices: rdma::DeviceChoice::default(), registrations },
            heap,
            hosts: vec![0; locals.len()],
            locals,
            exchange: WordExchange::new(),
            net: None,
            above: Vec::new(),
            joined: NetworkCounts::default(),
            words: None,
            routes: Vec::new(),
            pids: Vec::new(),
            id: 0,
            splits: 0,
            terms,
            paths: Vec::new(),
            carried: None,
            costs: Vec::new(),
            streamed: Vec::new(),
            all_have: TransportSet::NONE,
            contention: CoreContention::default(),
            sleeper: SleeperRole::Calls,
            server: None,
            stopped: Arc::default(),
        };
        group.control.show_rank(group.own(), rank, group.size());
        group.control.set_state(group.own(), RankPresence::Present);
        group
    }

    /// Returns the same ranks for the thread that moves messages beside the calls. The group that makes the calls
    /// lives longer: it enters and leaves.
    pub fn beside(&self) -> RankGroup {
        RankGroup {
            process: self.process,
            rank: self.rank,
            control: self.control.clone(),
            heap: self.heap.clone(),
            locals: self.locals.clone(),
            exchange: WordExchange::new(),
            net: self.net.clone(),
            above: self.above.clone(),
            joined: self.joined,
            words: None,
            routes: self.routes.clone(),
            hosts: self.hosts.clone(),
            pids: self.pids.clone(),
            id: self.id,
            splits: 0,
            terms: self.terms,
            paths: self.paths.clone(),
            carried: self.carried,
            costs: self.costs.clone(),
            streamed: Vec::new(),
            means: self.means.clone(),
            all_have: self.all_have,
            contention: CoreContention::default(),
            sleeper: SleeperRole::Messages,
            server: None,
            stopped: self.stopped.clone(),
        }
    }

    /// Returns the same ranks for threads that wait for windows.
    pub fn beside_windows(&self) -> RankGroup {
        let mut group = self.beside();
        group.sleeper = SleeperRole::Windows;
        group.server = self.server.clone();
        group
    }

    /// Has threads that wait serve peers meanwhile.
    pub fn set_server(&mut self, server: Arc<dyn WindowServer>) {
        self.server = Some(server);
    }

    /// Returns the server of this rank's windows, if there is one.
    pub fn server(&self) -> Option<&Arc<dyn WindowServer>> {
        self.server.as_ref()
    }

    /// Announces that this rank is about to sleep. Whatever comes from now on wakes it.
    pub fn announce_sleep(&self) {
        self.control.announce_sleep(self.own(), self.sleeper);
    }

    /// Sleeps until a peer in shared memory writes, or for `most`.
    pub fn sleep(&self, most: Duration) {
        self.control.sleep(self.own(), self.sleeper, most);
    }

    /// Records that this rank is awake, if it announced that it would sleep and did not.
    pub fn rise(&self) {
        self.control.rise(self.own(), self.sleeper);
    }

    /// Wakes another thread of this rank, if it sleeps.
    pub fn wake_own(&self, sleeper: SleeperRole) {
        self.control.wake(self.own(), sleeper);
    }

    /// Returns true if a local rank was woken on this rank's core, and cannot run before this one leaves it.
    pub fn owes_core(&self) -> bool {
        let locals = self.locals.iter().flatten().map(|local| local.control);
        self.control.owes_core(locals, self.sleeper)
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.locals.len() as u32
    }

    /// Returns the parameters of the shared memory.
    pub fn layout(&self) -> &SegmentLayout {
        self.control.layout()
    }

    /// Returns the memory that holds the arenas.
    pub fn heap(&self) -> &Arc<ShmSegment> {
        &self.heap
    }

    /// Returns the memory that holds control pages and connections.
    pub fn control(&self) -> &Arc<ShmSegment> {
        &self.control
    }

    /// Returns the way to every rank.
    pub fn routes(&self) -> &[RankRoute] {
        &self.routes
    }

    /// Returns the identity of the next part with these ranks: the same on all of them, and no other's.
    pub fn next_id(&mut self, ranks: u64) -> u64 {
        self.splits += 1;
        mix(mix(self.id, self.splits), ranks)
    }

    /// Returns the number of the communicator: the same on all of its ranks, and that of no other.
    pub fn number(&self) -> u64 {
        let whole = match &self.net {
            Some(net) => {
                let (job, comm) = net.lock().names();
                mix(mix(job as u64, (job >> 64) as u64), comm)
            }
            None => self.control.identity(),
        };
        mix(whole, self.id)
    }

    /// Shows that number to other programs that inspect the memory.
    pub(super) fn show_number(&self) {
        self.control.show_communicator(self.own(), self.number());
    }

    /// Returns the machine of each rank, by number.
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// Returns true if some ranks are reached through sockets.
    pub fn is_networked(&self) -> bool {
        self.net.is_some()
    }

    /// Returns true if ranks of one machine may share memory.
    pub fn shares_memory(&self) -> bool {
        !self.terms.transports.mapped().is_empty()
    }

    /// Returns the transports between the ranks: the same on all of them.
    pub fn transports(&self) -> TransportSet {
        let one_host = self.hosts.iter().all(|&host| host == self.hosts[0]);
        self.terms.transports.carried(one_host, self.all_have, self.carried)
    }

    /// Returns the numbers of a rank that shares memory with this one.
    #[inline]
    pub fn local(&self, rank: u32) -> Option<LocalRank> {
        self.locals.get(rank as usize).copied().flatten()
    }

    pub(super) fn own(&self) -> u32 {
        self.local(self.rank).map_or(0, |local| local.control)
    }

    /// Returns true if `low..high` of the heap lies in the arena of a rank.
    pub fn lies_in_arena(&self, rank: u32, low: u64, high: u64) -> bool {
        let Some(local) = self.local(rank) else { return false };
        let layout = self.heap.layout();
        let arena = layout.arena(local.heap);
        low >= arena && low <= high && high <= arena + layout.arena_bytes
    }

    /// Returns the connections to open before they are needed.
    pub fn links_at_once(&self) -> Vec<ConnectionId> {
        if self.terms.lazy {
            return Vec::new();
        }
        let apart = (0..self.size()).filter(|&peer| self.local(peer).is_none());
        let (channels, last) = (self.terms.channels as u16, self.layout().batch_channel());
        // Those of plans, and the one of messages between single ranks.
        let channels = || (0..channels.min(last)).chain([last]);
        apart
            .flat_map(|peer| channels().map(move |channel| ConnectionId { peer, channel, path: 0 }))
            .collect()
    }

    /// Returns true if connections wait until a call needs them.
    pub fn is_lazy(&self) -> bool {
        self.terms.lazy
    }

    pub(super) fn net(&self) -> Option<FairMutexGuard<'_, RankNetwork>> {
        self.net.as_ref().map(|net| net.lock())
    }

    /// Returns the counts of what was done over sockets to come together and to speak outside plans.
    pub fn counts(&self) -> NetworkCounts {
        self.net().map_or(self.joined, |net| net.counts())
    }

    /// Returns the bytes of shared memory that the ranks of this machine have reserved, arenas included.
    pub fn reserved(&self) -> u64 {
        let heap = if self.shares_heap() { 0 } else { self.heap.reserved() };
        self.control.reserved() + heap + self.linked().map_or(0, |memory| memory.reserved())
    }

    /// Returns the memory of an older generation over which this rank is linked with others, if that is neither of
    /// those of this one.
    fn linked(&self) -> Option<Arc<ShmSegment>> {
        let memory = self.net()?.memory()?.clone();
        let is_own = Arc::ptr_eq(&memory, &self.control) || Arc::ptr_eq(&memory, &self.heap);
        (!is_own).then_some(memory)
    }

    /// Returns the bytes of this rank's arena that are registered with devices.
    pub fn registered(&self) -> u64 {
        self.means.registrations.bytes()
    }

    /// Returns the number of descriptors, without those of connections for data.
    pub fn descriptors(&self) -> u64 {
        let memory = if self.shares_heap() { 1 } else { 2 };
        let memory = memory + u64::from(self.linked().is_some());
        memory + self.net().map_or(0, |net| net.counts().links + net.listener().descriptors())
    }

    /// Returns true if one segment is both control segment and heap.
    pub(super) fn shares_heap(&self) -> bool {
        Arc::ptr_eq(&self.control, &self.heap)
    }
}

impl Drop for RankGroup {
    fn drop(&mut self) {
        if self.sleeper != SleeperRole::Calls || !self.process.is_here() {
            return;
        }
        self.linger();
        self.control.set_state(self.own(), RankPresence::Left);
        // An alarm that a part raised in memory may not have gone further yet.
        if self.is_aborted() {
            self.listen();
        }
        if let Some(mut net) = self.net() {
            net.leave();
        }
    }
}
