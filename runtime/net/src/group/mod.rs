//! The ranks of a communicator, and how this rank reaches each of them.
//!
//! Ranks of one machine share memory of two kinds: a *control segment* holds their control pages and
//! connections, the *symmetric heap* holds their arenas. A communicator of its own has both in one segment; a
//! part split off it has a control segment of its own and shares the heap, so that buffers serve both. Every rank
//! sits in some segment, if alone, so that its alarm is always a word in memory. Ranks elsewhere are
//! reached through sockets (`net`), which then also carry what is said outside plans.
//!
//! `join` makes a group of ranks that found each other, `split` a part of a group, `links` its connections;
//! `identity` is what a rank keeps from one group to the next, `alarm` how a group ends by an abort.

mod alarm;
mod identity;
mod join;
mod links;
mod rally;
mod server;
mod split;

use alarm::Above;
pub use alarm::{Alarm, AlarmClock};
pub use identity::{Identity, Reporting};
pub use join::{Kept, Note, ReporterAt, Terms, reporters};
pub use links::Connecting;
pub use server::{Server, Serving};
pub use split::Part;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{FairMutex, FairMutexGuard};
use roundelay_compiler::cost::PathCost;

use crate::contention::Contention;
use crate::digest::mix;
use crate::fork::OwnerProcess;
use crate::net::{ConnectionId, Counts, LAST_WORDS, Net};
use crate::process::is_stopped;
use crate::route::{Peer, Route};
use crate::transport::rdma;
use crate::transport::shm::{Exchange, Layout, Segment, Sleeper, State};
use crate::transport::stream::Connection;
use crate::transport::{Means, Transports};
use crate::waiting::Waiting;

/// The time that ranks elsewhere may take to say what they wait for. They look up once a millisecond.
const ANSWERS: Duration = Duration::from_millis(200);

/// The numbers of a rank of this machine in the memory that it shares with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRank {
    /// Its number in the control segment.
    pub control: u32,
    /// Its number in the heap.
    pub heap: u32,
}

/// The result of reading a rank's word in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The rank shows nothing yet.
    Nothing,
    /// The word of the rank.
    Word(u64),
    /// The rank that is in another call.
    OtherCall(u32),
}

/// The ranks of a communicator, and the memory and sockets between them.
pub struct Group {
    /// The process that is the rank.
    process: OwnerProcess,
    rank: u32,
    control: Arc<Segment>,
    heap: Arc<Segment>,
    /// The numbers of the ranks of this machine, by rank.
    locals: Vec<Option<LocalRank>>,
    exchange: Exchange,
    /// The sockets, if not all ranks share the control segment. Parts raise alarms there too.
    net: Option<Arc<FairMutex<Net>>>,
    /// The whole that this is a part of, the whole that that is a part of, and so on.
    above: Vec<Above>,
    /// The counts of sockets that were needed before the ranks knew that they can do without.
    joined: Counts,
    /// The words of the ranks in the current round, if they are not all in the control segment; the rank that
    /// is in another call, if one is.
    words: Option<Result<Vec<u64>, u32>>,
    routes: Vec<Route>,
    /// The machine of each rank, numbered alike on all ranks.
    hosts: Vec<u32>,
    /// The process of each rank on this machine.
    pids: Vec<Option<i32>>,
    /// The identity, the same on all ranks, and the number of parts that were split off.
    id: u64,
    splits: u64,
    terms: Terms,
    /// See [`Group::paths`].
    paths: Vec<String>,
    /// The transports that carry data between hosts, if several paths name them.
    carried: Option<Transports>,
    /// See [`Group::path_costs`].
    costs: Vec<PathCost>,
    /// Connections that are not plain sockets: they move only while this process looks at them, whatever it waits
    /// for, for a peer may still need what an earlier call sent.
    streamed: Vec<Weak<Connection>>,
    /// The means of connections, and the transports that all ranks of the job have and may use.
    means: Means,
    all_have: Transports,
    /// The competition of other programs for this rank's core.
    pub contention: Contention,
    /// The thread that it belongs to.
    sleeper: Sleeper,
    /// The server of this rank's windows, if peers reach one through connections.
    server: Option<Arc<dyn Server>>,
    /// True once this rank itself has raised the abort flag by [`Alarm::raise`].
    stopped: Arc<AtomicBool>,
}

impl Group {
    /// Makes a group of all ranks of a segment.
    pub fn whole(segment: Arc<Segment>, rank: u32) -> Self {
        let locals: Vec<_> =
            (0..segment.layout().ranks).map(|r| Some(LocalRank { control: r, heap: r })).collect();
        let terms = Terms::of(segment.layout());
        let mut group = Self::local_ranks(rank, segment.clone(), segment, locals, terms);
        let here = Peer { host: 0, has: Transports::SHM };
        group.find_routes(&vec![here; group.locals.len()], None);
        group.show_number();
        group
    }

    /// Takes this rank's place in the control segment.
    fn local_ranks(
        rank: u32,
        control: Arc<Segment>,
        heap: Arc<Segment>,
        locals: Vec<Option<LocalRank>>,
        terms: Terms,
    ) -> Self {
        let own = locals.get(rank as usize).copied().flatten().map_or(0, |local| local.heap);
        let registrations = rdma::Registrations::new(heap.clone(), own);
        let group = Group {
            process: OwnerProcess::here(),
            rank,
            control,
            means: Means { devices: rdma::Choice::default(), registrations },
            heap,
            hosts: vec![0; locals.len()],
            locals,
            exchange: Exchange::new(),
            net: None,
            above: Vec::new(),
            joined: Counts::default(),
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
            all_have: Transports::NONE,
            contention: Contention::new(),
            sleeper: Sleeper::Calls,
            server: None,
            stopped: Arc::default(),
        };
        group.control.show_rank(group.own(), rank, group.size());
        group.control.set_state(group.own(), State::Present);
        group
    }

    /// Returns the same ranks as those see them who move messages beside the calls. The group that makes the calls
    /// lives longer: it enters and leaves.
    pub fn beside(&self) -> Group {
        Group {
            process: self.process,
            rank: self.rank,
            control: self.control.clone(),
            heap: self.heap.clone(),
            locals: self.locals.clone(),
            exchange: Exchange::new(),
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
            contention: Contention::new(),
            sleeper: Sleeper::Messages,
            server: None,
            stopped: self.stopped.clone(),
        }
    }

    /// Returns the same ranks as those see them who wait for windows.
    pub fn beside_windows(&self) -> Group {
        let mut group = self.beside();
        group.sleeper = Sleeper::Windows;
        group.server = self.server.clone();
        group
    }

    /// Has threads that wait serve peers meanwhile.
    pub fn set_server(&mut self, server: Arc<dyn Server>) {
        self.server = Some(server);
    }

    /// Returns the server of this rank's windows, if there is one.
    pub fn server(&self) -> Option<&Arc<dyn Server>> {
        self.server.as_ref()
    }

    /// Announces that this rank is about to sleep. Whatever comes from now on wakes it.
    pub fn announce_sleep(&self) {
        self.control.announce_sleep(self.own(), self.sleeper);
    }

    /// Sleeps until a peer in shared memory does something, or so long.
    pub fn sleep(&self, most: Duration) {
        self.control.sleep(self.own(), self.sleeper, most);
    }

    /// Records that this rank is awake, if it announced that it would sleep and did not.
    pub fn rise(&self) {
        self.control.rise(self.own(), self.sleeper);
    }

    /// Wakes another thread of this rank, if it sleeps.
    pub fn wake_own(&self, sleeper: Sleeper) {
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
    pub fn layout(&self) -> &Layout {
        self.control.layout()
    }

    /// Returns the memory that holds the arenas.
    pub fn heap(&self) -> &Arc<Segment> {
        &self.heap
    }

    /// Returns the memory that holds control pages and connections.
    pub fn control(&self) -> &Arc<Segment> {
        &self.control
    }

    /// Returns the way to every rank.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns the identity of the next part with these ranks: the same on all of them, and no other's.
    pub fn next_id(&mut self, ranks: u64) -> u64 {
        self.splits += 1;
        mix(mix(self.id, self.splits), ranks)
    }

    /// Returns a number that tells the communicator from others: the same on all of its ranks.
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

    /// Shows that number to whoever looks from outside.
    fn show_number(&self) {
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
    pub fn transports(&self) -> Transports {
        let one_host = self.hosts.iter().all(|&host| host == self.hosts[0]);
        self.terms.transports.carried(one_host, self.all_have, self.carried)
    }

    /// Returns the numbers of a rank that shares memory with this one.
    #[inline]
    pub fn local(&self, rank: u32) -> Option<LocalRank> {
        self.locals.get(rank as usize).copied().flatten()
    }

    fn own(&self) -> u32 {
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

    fn net(&self) -> Option<FairMutexGuard<'_, Net>> {
        self.net.as_ref().map(|net| net.lock())
    }

    /// Returns the counts of what was done over sockets to come together and to speak outside plans.
    pub fn counts(&self) -> Counts {
        self.net().map_or(self.joined, |net| net.counts())
    }

    /// Returns the bytes of shared memory that the ranks of this machine have reserved, arenas included.
    pub fn reserved(&self) -> u64 {
        let heap = if self.shares_heap() { 0 } else { self.heap.reserved() };
        self.control.reserved() + heap + self.linked().map_or(0, |memory| memory.reserved())
    }

    /// Returns the memory of an older generation over which this rank is linked with others, if that is neither of
    /// those of this one.
    fn linked(&self) -> Option<Arc<Segment>> {
        let memory = self.net()?.memory()?.clone();
        let is_own = Arc::ptr_eq(&memory, &self.control) || Arc::ptr_eq(&memory, &self.heap);
        (!is_own).then_some(memory)
    }

    /// Returns the bytes of this rank's arena that devices know.
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
    fn shares_heap(&self) -> bool {
        Arc::ptr_eq(&self.control, &self.heap)
    }

    /// Reads what ranks elsewhere say: alarms, and that they are gone.
    pub fn listen(&self) {
        let own = self.own();
        let Some(mut net) = self.net() else { return };
        net.poll();
        for connection in self.streamed.iter().filter_map(Weak::upgrade) {
            connection.tend();
        }
        if net.answer_waits(|| self.control.wait_of(own)) {
            self.stopped_here().for_each(|rank| net.report_stopped(rank));
        }
        match net.alarmed() {
            Some(record) if !self.control.is_aborted() => self.control.abort(record),
            // A rank of this machine raised it: those elsewhere must hear it too.
            None if self.control.is_aborted() => {
                if let Some(record) = self.control.abort_record() {
                    net.alarm(&record);
                }
            }
            _ => {}
        }
    }

    /// Listens for a moment after a socket showed that a rank is gone: it may have failed for a reason that it
    /// told everybody, and that has not come here yet.
    pub fn hear_out(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.net.is_some() && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }

    /// Asks the ranks whose waits cannot be seen what they wait for, before this rank gives up a wait that it
    /// has published, and listens for a moment.
    pub fn ask_around(&mut self) {
        let own = self.control.wait_of(self.own());
        let Some(own) = own.filter(|_| self.net.is_some()) else { return };
        if let Some(mut net) = self.net() {
            net.ask_waits(own);
            self.stopped_here().for_each(|rank| net.report_stopped(rank));
        }
        let deadline = Instant::now() + ANSWERS;
        let answered = |group: &Self| group.net().is_none_or(|net| net.is_answered());
        while !answered(self) && !self.is_aborted() && Instant::now() < deadline {
            self.listen();
            rustix::thread::sched_yield();
        }
    }

    /// Returns the ranks of this machine whose processes are stopped.
    fn stopped_here(&self) -> impl Iterator<Item = u32> {
        let others = (0..self.size()).filter(|&rank| rank != self.rank);
        others.filter(|&rank| match self.state(rank) {
            (State::Present, Some(pid)) => is_stopped(pid),
            _ => false,
        })
    }

    /// Returns true if a rank elsewhere is stopped, as one of its machine reported when this rank asked.
    pub fn is_stopped_elsewhere(&self, rank: u32) -> bool {
        self.net().is_some_and(|net| net.is_stopped(rank))
    }

    /// Publishes the call that this rank is in.
    #[inline]
    pub fn publish_call(&self, call: u64, digest: u32) {
        self.control.publish_call(self.own(), call, digest);
    }

    /// Returns the number of a rank's latest call, if that can be seen from here.
    pub fn latest_call(&self, rank: u32) -> Option<u64> {
        self.local(rank).map(|local| self.control.latest_call(local.control))
    }

    /// Returns the digest of a rank's `call`-th call, if it got there, not far beyond, and can be seen.
    pub fn call_of(&self, rank: u32, call: u64) -> Option<u32> {
        self.control.call_of(self.local(rank)?.control, call)
    }

    /// Returns true if a rank got to its `call`-th call, and that has this digest, as far as it can be seen.
    #[inline]
    pub fn is_in_call(&self, rank: u32, call: u64, digest: u32) -> bool {
        self.local(rank).is_none_or(|local| self.control.is_in_call(local.control, call, digest))
    }

    /// Reports the call in which this rank waits for words to the ranks elsewhere that it is linked with, once.
    pub fn report_call(&self, call: u64, digest: u32) {
        self.net().iter_mut().for_each(|net| net.report_call(call, digest));
    }

    /// Returns a linked rank that waits for words in a call, and the number of the call, if this rank made another one
    /// of that number.
    pub fn other_call(&self) -> Option<(u32, u64)> {
        let own = self.own();
        self.net()?.other_call(|call| self.control.call_of(own, call))
    }

    /// Publishes the wait of this rank, or its end.
    pub fn publish_wait(&self, waiting: Option<&Waiting>) {
        self.control.publish_wait(self.own(), waiting.map(Waiting::words));
        if let (None, Some(mut net)) = (waiting, self.net()) {
            net.waits_no_more();
        }
    }

    /// Returns the wait of a rank, if it said so and that can be seen from here.
    pub fn wait_of(&self, rank: u32) -> Option<Waiting> {
        let words = match self.local(rank) {
            Some(local) => self.control.wait_of(local.control),
            None => self.net()?.wait_of(rank),
        };
        Waiting::from_words(words?)
    }

    /// Returns the state of a rank, and its process if that is on this machine.
    pub fn state(&self, rank: u32) -> (State, Option<i32>) {
        let known = self.pids.get(rank as usize).copied().flatten();
        match self.local(rank).map(|local| self.control.state(local.control)) {
            // It has joined, and takes its place next.
            None | Some((State::Absent, _)) if known.is_some() => (State::Present, known),
            None => (State::Present, None),
            Some((state, pid)) => (state, Some(pid)),
        }
    }

    /// Describes how a rank elsewhere went, if it is known to have gone.
    pub fn gone(&self, rank: u32) -> Option<String> {
        self.net()?.gone(rank).map(str::to_owned)
    }

    /// Describes how a rank elsewhere ended, if one of its machine saw it and said so.
    pub fn ended(&self, rank: u32) -> Option<String> {
        self.net()?.ended(rank).map(str::to_owned)
    }

    /// Tells ranks elsewhere that a rank of this machine has ended, as this one has seen, once.
    pub fn tell_ended(&self, rank: u32, how: &str) {
        self.net().iter_mut().for_each(|net| net.tell_ended(rank, how));
    }

    /// Begins a round in which every rank shows one word; `call` tells the calls of ranks apart.
    pub fn post_word(&mut self, word: u64, call: u32) {
        self.words = None;
        if let Some(mut net) = self.net() {
            return net.begin_words(word, call);
        }
        self.exchange.post(&self.control, self.own(), word);
        let locals = self.locals.iter().flatten().map(|local| local.control);
        self.exchange.wake_if_last(&self.control, locals);
    }

    /// Returns the rank whose words are missing in that round, if they do not come from each rank by itself.
    pub fn awaited_word(&self) -> Option<u32> {
        self.net()?.awaited_words()
    }

    /// Returns the word that a rank shows in that round.
    pub fn word_of(&mut self, rank: u32) -> Shown {
        if self.net.is_none() {
            let local = self.local(rank);
            let word = local.and_then(|local| self.exchange.read(&self.control, local.control));
            return word.map_or(Shown::Nothing, Shown::Word);
        }
        if self.words.is_none() {
            let poll = |mut net: FairMutexGuard<'_, Net>| {
                Some(net.poll_words()?.map(<[u64]>::to_vec).map_err(|m| m.peer))
            };
            self.words = self.net().and_then(poll);
        }
        match &self.words {
            None => Shown::Nothing,
            Some(Ok(words)) => words.get(rank as usize).map_or(Shown::Nothing, |&w| Shown::Word(w)),
            Some(Err(peer)) => Shown::OtherCall(*peer),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.sleeper != Sleeper::Calls || !self.process.is_here() {
            return;
        }
        self.linger();
        self.control.set_state(self.own(), State::Left);
        // An alarm that a part raised in memory may not have gone further yet.
        if self.is_aborted() {
            self.listen();
        }
        if let Some(mut net) = self.net() {
            net.leave();
        }
    }
}
