//! The lanes of a rank: making them, ordering from them, ending them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::call::FarCall;
use super::courier::Courier;
use super::direct::{GpuDirect, agree};
use super::exchange::FarBatch;
use super::lane::{Lane, Order};
use super::mail::Mail;
use super::memory::FarMemory;
use super::stream::Stream;
use super::tray::Tray;
use crate::backend::Fault;
use roundelay_engine::Core;
use roundelay_engine::messages::Messenger;
use roundelay_net::abort;
use roundelay_net::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_net::group::Alarm;
use roundelay_net::net::{ConnectionId, Deadline};
use roundelay_net::transport::shm::cores;

/// Most lanes of a rank.
const MOST: u32 = 8;

/// The state that the lanes of a rank share.
pub(super) struct Common {
    pub(super) rank: u32,
    /// True once the communicator wants them to end.
    stopped: AtomicBool,
    /// The error of the lane that failed first.
    failure: Mutex<Option<Error>>,
    alarm: Alarm,
    /// Makes kernels leave.
    abort: Box<dyn Fn() + Send + Sync>,
}

impl Common {
    /// Returns true if lanes are to end.
    pub(super) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.alarm.is_raised()
    }

    /// Returns true if the group has ended.
    pub(super) fn is_aborted(&self) -> bool {
        self.alarm.is_raised()
    }

    /// Makes kernels leave, if the group has ended.
    pub(super) fn follow(&self) {
        if self.alarm.is_raised() {
            (self.abort)();
        }
    }

    /// Ends the kernels, the other lanes and the group with an error.
    pub(super) fn fail(&self, error: Error) {
        let record = abort::record(self.rank, &error);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stopped.store(true, Ordering::Release);
        (self.abort)();
        self.alarm.raise(&record);
    }
}

/// The memory that a rank can have for words and slots: where devices of the network reach the slots, or why there is none
/// such; and on its host, made if ranks have not agreed on the former.
pub(in super::super) struct Offer<'a> {
    pub(in super::super) direct: Result<FarMemory, GpuDirect>,
    /// True if that is taken though no device reaches it, so that contents go by hosts: for tests.
    pub(in super::super) without_devices: bool,
    pub(in super::super) on_host: Box<MakeMemory<'a>>,
}

type MakeMemory<'a> = dyn FnOnce(&mut Core) -> Result<FarMemory, Error> + 'a;

/// The lanes of a rank.
pub struct Lanes {
    common: Arc<Common>,
    orders: Vec<Sender<Order>>,
    /// The number of the next call.
    numbers: AtomicU32,
    threads: Vec<JoinHandle<()>>,
    memory: Arc<FarMemory>,
    direct: GpuDirect,
    /// The memory for messages with single ranks, by rank, once there was one.
    mail: BTreeMap<u32, Arc<Mail>>,
    /// The courier does what streams want of windows on other hosts, once there was one.
    courier: Option<Courier>,
    /// For tests that cut them.
    #[cfg(test)]
    pub(super) connections: Vec<Arc<roundelay_net::transport::stream::Connection>>,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("lanes", &self.orders.len()).finish_non_exhaustive()
    }
}

impl Lanes {
    /// Connects to the ranks on other hosts, and starts the threads: all ranks together. `abort` makes this rank's
    /// kernels leave.
    ///
    /// # Errors
    ///
    /// The errors of connections, which end the communicator.
    pub(in super::super) fn open(
        core: &mut Core,
        memory: Offer<'_>,
        abort: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let here = core.near().into_iter().filter(|near| *near).count();
        let share = cores().len() / here.max(1) / 2;
        let fewest = core.words(share as u64)?.into_iter().min().unwrap_or(1);
        Self::connect(core, memory, (fewest as u32).clamp(1, MOST), abort)
    }

    /// Makes so many lanes.
    pub(super) fn connect(
        core: &mut Core,
        memory: Offer<'_>,
        lanes: u32,
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
        let deadline = Deadline { timeout, watch: &mut |_| None, members: &[] };
        let made = core.group.connect(&wanted, deadline);
        let made = made.map_err(|error| core.fail(error))?;
        #[cfg(test)]
        let connections = made.clone();
        let mut made = made.into_iter();
        let streams =
            |_| far.iter().zip(&mut made).map(|(&peer, c)| Stream::new(peer, c)).collect();
        let mut streams: Vec<Vec<Stream>> = (0..lanes).map(streams).collect();
        let agreed = match memory.direct {
            Ok(direct) if memory.without_devices => Ok(direct),
            direct => agree(core, &mut streams, direct)?,
        };
        let (memory, direct) = match agreed {
            Ok(memory) => (memory, GpuDirect::Used),
            Err(why) => ((memory.on_host)(core)?, why),
        };
        let memory = Arc::new(memory);
        let common = Arc::new(Common {
            rank,
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
            alarm: core.group.alarm(),
            abort: Box::new(abort),
        });
        let (orders, threads) = (Vec::new(), Vec::new());
        let mut all = Lanes {
            common,
            orders,
            numbers: AtomicU32::new(1),
            threads,
            memory,
            direct,
            mail: BTreeMap::new(),
            courier: None,
            #[cfg(test)]
            connections,
        };
        for (number, streams) in (0..lanes).zip(streams) {
            let (common, memory) = (all.common.clone(), all.memory.clone());
            let lane = Lane::new((number, lanes), memory, common, streams);
            let (sender, inbox) = channel();
            let thread = std::thread::Builder::new()
                .name(format!("roundelay-far-{rank}"))
                .spawn(move || lane.run(&inbox))
                .map_err(|e| {
                    Error::system(format!("cannot start a lane: {e}"), e, PROCESS_LIMIT_REMEDY)
                });
            all.threads.push(thread.map_err(|error| core.fail(error))?);
            all.orders.push(sender);
        }
        Ok(all)
    }

    /// Returns their number, the same on all ranks.
    pub(in super::super) fn count(&self) -> u32 {
        self.orders.len() as u32
    }

    /// Returns the memory that they share with kernels.
    pub(in super::super) fn memory(&self) -> &Arc<FarMemory> {
        &self.memory
    }

    /// Returns whether messages between hosts go from GPU to GPU.
    pub fn direct(&self) -> &GpuDirect {
        &self.direct
    }

    /// Returns the memory for messages with a rank, which is made if there was none.
    pub(in super::super) fn mail(
        &mut self,
        peer: u32,
        make: impl FnOnce() -> Result<Mail, Fault>,
    ) -> Result<Arc<Mail>, Fault> {
        if let Some(mail) = self.mail.get(&peer) {
            return Ok(mail.clone());
        }
        let mail = Arc::new(make()?);
        self.mail.insert(peer, mail.clone());
        Ok(mail)
    }

    /// Starts the courier, if there was none. It begins nothing any more once `gave_up` says that a kernel has left.
    pub(in super::super) fn send_courier(
        &mut self,
        messenger: &Messenger,
        make: impl FnOnce() -> Result<Tray, Error>,
        gave_up: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), Error> {
        if self.courier.is_none() {
            let (common, tray) = (self.common.clone(), Arc::new(make()?));
            self.courier = Some(Courier::start(common, messenger.clone(), tray, gave_up)?);
        }
        Ok(())
    }

    /// Returns the courier, if there is one.
    pub(in super::super) fn courier(&mut self) -> Option<&mut Courier> {
        self.courier.as_mut()
    }

    /// Leaves the memory that kernels use until the process ends.
    pub(in super::super) fn abandon(&self) {
        std::mem::forget(self.memory.clone());
        self.courier.iter().for_each(|courier| std::mem::forget(courier.tray().clone()));
        self.mail.values().cloned().for_each(std::mem::forget);
    }

    /// Tells of messages between single ranks that a kernel is launched for.
    pub(in super::super) fn exchange(&self, batch: &Arc<FarBatch>) {
        self.tell(|| Order::Exchange(batch.clone()));
    }

    /// Returns the number of the next call.
    pub(in super::super) fn number(&self) -> u32 {
        loop {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            if number != 0 {
                return number;
            }
        }
    }

    /// Tells of a call, before a kernel that enters it is launched.
    pub(in super::super) fn order(&self, call: &FarCall) {
        self.tell(|| Order::Call(call.clone()));
    }

    /// Tells that the call of that number was not launched.
    pub(in super::super) fn forget(&self, number: u32) {
        self.tell(|| Order::Forget(number));
    }

    fn tell(&self, order: impl Fn() -> Order) {
        for lane in &self.orders {
            // A lane that has ended has failed, or was told to: the kernel hears of that.
            let _ = lane.send(order());
        }
    }

    /// Returns the error of the lane that failed first, if one has.
    pub(in super::super) fn failure(&self) -> Option<Error> {
        self.common.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes lanes end, whatever they do.
    pub(in super::super) fn stop(&self) {
        self.common.stopped.store(true, Ordering::Release);
    }
}

impl Drop for Lanes {
    /// Lets lanes end what was launched, and waits for them. Calls that will not end must be stopped before.
    fn drop(&mut self) {
        self.orders.clear();
        self.courier = None;
        for thread in self.threads.drain(..) {
            // A lane that panicked has nothing to add.
            let _ = thread.join();
        }
    }
}
