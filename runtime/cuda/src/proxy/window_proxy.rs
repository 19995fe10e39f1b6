//! The RMA proxy: a thread that performs stream-ordered window operations whose target is on another host.
//!
//! A part of a window that lies on another host is served there ([`roundelay_engine::messages`]), as private memory of
//! a host is. What a stream asks of it is a list of *orders* ([`window_slots`](super::window_slots)):
//!
//! * A put is copied into a slot by the stream, which then publishes that it has reached the order. The proxy begins
//!   the host's put from there. The stream uses that slot again once the proxy has completed the order.
//! * For a get, or an atomic operation, the stream publishes first, and then waits until the proxy has completed the
//!   order: the result lies in the slot, from where the stream copies it.
//! * For a signal the stream publishes; for a flush it publishes and waits.
//!
//! All streams of a communicator have one order of calls, and so have these orders. They begin in it; on the way of
//! one peer they stay in it, for packets do. They complete in it too, so that one word counts those that are done.
//!
//! A rank waits no longer than the communicator's timeout for the answer to an order. A stream waits twice as long for
//! the proxy: the proxy knows the cause, and so reports first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::state::ProxyState;
use super::window_slots::{ProxySlots, SLOT, SLOTS};
use crate::tunables::{PROXY_ORDER_SLEEP_MAX, PROXY_POLL_TIME, RMA_ABORT_GRACE};
use roundelay_engine::messages::{
    MessageBuffer, MessageOperation, MessageShape, RankMessenger, TransferKind,
};
use roundelay_engine::progress::wait::{WaitAction, WaitLoop, WaitingRank};
use roundelay_engine::window::{AtomicFetch, ServedPart};
use roundelay_support::dtype::DType;
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};

/// The bytes of a word.
const WORD: u64 = 8;

/// The stream of a rank, into which the steps of orders are put. It performs them in the order of these calls.
pub(crate) trait StreamSteps {
    /// The reason for which nothing can be put into it.
    type Fault;

    /// Publishes that the stream has reached the order of that number.
    fn publish(&mut self, number: u64) -> Result<(), Self::Fault>;

    /// Waits until the proxy has completed the order of that number, which is for this peer.
    fn wait_until(&mut self, number: u64, peer: u32) -> Result<(), Self::Fault>;

    /// Copies from an address to a slot.
    fn load(&mut self, slot: *mut u8, from: u64, bytes: usize) -> Result<(), Self::Fault>;

    /// Copies from a slot to an address.
    fn store(&mut self, to: u64, slot: *mut u8, bytes: usize) -> Result<(), Self::Fault>;
}

/// A peer's part, and the elements there; the longest wait for an answer of that peer.
#[derive(Clone)]
pub(crate) struct WindowTarget {
    pub(crate) remote: Arc<ServedPart>,
    pub(crate) dtype: DType,
    pub(crate) timeout: Duration,
}

/// An operation on a slot's worth of a peer's part.
struct WindowOrder {
    number: u64,
    to: WindowTarget,
    task: OrderTask,
}

enum OrderTask {
    Signal,
    /// That many bytes of the slot go to the offset, or come from there.
    Operate(TransferKind, u64, u64),
}

/// The window proxy, as those have it that give it orders.
pub(crate) struct WindowProxy {
    slots: Arc<ProxySlots>,
    number: u64,
    orders: Option<Sender<WindowOrder>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for WindowProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowProxy").field("number", &self.number).finish_non_exhaustive()
    }
}

impl WindowProxy {
    /// Starts the thread. It begins no order once `gave_up` returns true: a kernel has left.
    pub(super) fn start(
        common: Arc<ProxyState>,
        messenger: RankMessenger,
        slots: Arc<ProxySlots>,
        gave_up: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let (orders, inbox) = channel();
        let name = format!("roundelay-win-{}", common.rank);
        let worker = ProxyWorker {
            slots: slots.clone(),
            common,
            messenger,
            gave_up: Box::new(gave_up),
            due: VecDeque::new(),
            begun: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || worker.run(&inbox));
        let thread = thread.map_err(|e| {
            Error::system(format!("cannot start a courier: {e}"), e, PROCESS_LIMIT_REMEDY)
        })?;
        Ok(WindowProxy { slots, number: 0, orders: Some(orders), thread: Some(thread) })
    }

    /// Returns the memory that it shares with streams.
    pub(crate) fn slots(&self) -> &Arc<ProxySlots> {
        &self.slots
    }

    fn order(&mut self, to: &WindowTarget, task: OrderTask) -> u64 {
        self.number += 1;
        let order = WindowOrder { number: self.number, to: to.clone(), task };
        // A proxy that has ended has failed, or was stopped: the stream's kernel is aborted in either case.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        self.number
    }

    /// Makes the stream wait until it may use the slot of an order.
    fn wait_for_slot<S: StreamSteps>(
        &self,
        steps: &mut S,
        number: u64,
        peer: u32,
    ) -> Result<(), S::Fault> {
        match number.checked_sub(SLOTS) {
            Some(before) if self.slots.done().load(Ordering::Acquire) < before => {
                steps.wait_until(before, peer)
            }
            _ => Ok(()),
        }
    }

    /// Puts bytes at an address to an offset.
    pub(crate) fn put<S: StreamSteps>(
        &mut self,
        steps: &mut S,
        to: &WindowTarget,
        (offset, from, bytes): (u64, u64, u64),
    ) -> Result<(), S::Fault> {
        let what = TransferKind::Put(to.remote.key());
        for (at, len) in pieces(bytes) {
            let number = self.order(to, OrderTask::Operate(what, offset + at, len));
            self.wait_for_slot(steps, number, to.remote.peer())?;
            steps.load(self.slots.slot(number), from + at, len as usize)?;
            steps.publish(number)?;
        }
        Ok(())
    }

    /// Gets bytes at an offset to an address.
    pub(crate) fn get<S: StreamSteps>(
        &mut self,
        steps: &mut S,
        from: &WindowTarget,
        (offset, to, bytes): (u64, u64, u64),
    ) -> Result<(), S::Fault> {
        let (what, peer) = (TransferKind::Get(from.remote.key()), from.remote.peer());
        let first = self.number + 1;
        for (at, len) in pieces(bytes) {
            self.order(from, OrderTask::Operate(what, offset + at, len));
        }
        let last = self.number;
        if bytes == 0 {
            return Ok(());
        }
        let ahead = last.min(first + SLOTS - 1);
        self.wait_for_slot(steps, ahead, peer)?;
        steps.publish(ahead)?;
        for (number, (at, len)) in (first..).zip(pieces(bytes)) {
            steps.wait_until(number, peer)?;
            steps.store(to + at, self.slots.slot(number), len as usize)?;
            if number + SLOTS <= last {
                steps.publish(number + SLOTS)?;
            }
        }
        Ok(())
    }

    /// Performs an atomic operation on the word at an offset; the value from before comes to an address.
    pub(crate) fn fetch<S: StreamSteps>(
        &mut self,
        steps: &mut S,
        from: &WindowTarget,
        (offset, to, fetch): (u64, u64, AtomicFetch),
    ) -> Result<(), S::Fault> {
        let (what, peer) = (TransferKind::Fetch(from.remote.key(), fetch), from.remote.peer());
        let number = self.order(from, OrderTask::Operate(what, offset, WORD));
        self.wait_for_slot(steps, number, peer)?;
        steps.publish(number)?;
        steps.wait_until(number, peer)?;
        steps.store(to, self.slots.slot(number), WORD as usize)
    }

    /// Signals the peer.
    pub(crate) fn signal<S: StreamSteps>(
        &mut self,
        steps: &mut S,
        to: &WindowTarget,
    ) -> Result<(), S::Fault> {
        let number = self.order(to, OrderTask::Signal);
        steps.publish(number)
    }

    /// Waits until all that was done with the peer's part has taken effect.
    pub(crate) fn flush<S: StreamSteps>(
        &mut self,
        steps: &mut S,
        to: &WindowTarget,
    ) -> Result<(), S::Fault> {
        let number = self.order(to, OrderTask::Operate(TransferKind::Flush(to.remote.key()), 0, 0));
        steps.publish(number)?;
        steps.wait_until(number, to.remote.peer())
    }
}

impl Drop for WindowProxy {
    /// Lets the proxy complete its orders, and waits for that. A stream that will not reach them must be aborted
    /// before.
    fn drop(&mut self) {
        self.orders = None;
        // A proxy that panicked has nothing to add.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the pieces of `bytes`: where each begins, and its bytes.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(SLOT)).map(move |k| (k * SLOT, SLOT.min(bytes - k * SLOT)))
}

/// The state of the thread.
struct ProxyWorker {
    slots: Arc<ProxySlots>,
    common: Arc<ProxyState>,
    messenger: RankMessenger,
    gave_up: Box<dyn Fn() -> bool + Send>,
    /// Orders that the stream has not reached, and those that were begun, in order.
    due: VecDeque<WindowOrder>,
    begun: VecDeque<PostedOrder>,
}

/// An order that was begun. It has no operation if it was done at once.
struct PostedOrder {
    number: u64,
    to: WindowTarget,
    operation: Option<Arc<MessageOperation>>,
}

impl WaitingRank for &ProxyWorker {
    fn is_aborted(&self) -> bool {
        self.is_over()
    }
}

impl ProxyWorker {
    /// Performs orders until they end, or something fails.
    fn run(mut self, inbox: &Inbox<WindowOrder>) {
        let mut wait = WaitLoop::for_proxy();
        let mut is_open = true;
        while is_open || !(self.due.is_empty() && self.begun.is_empty()) {
            if self.is_over() {
                return self.leave();
            }
            is_open &= self.take_orders(inbox);
            match self.progress() {
                Err(error) => return self.common.fail(error),
                Ok(true) => {
                    let _ = wait.progress();
                    continue;
                }
                Ok(false) => {}
            }
            if let Some(PostedOrder { operation: Some(operation), .. }) = self.begun.front() {
                // As long as it takes, so that a peer that does not answer is found.
                let last = self.begun.back().map_or(0, |begun| begun.number);
                let comes = || self.slots.reached().load(Ordering::Acquire) > last;
                self.messenger.wait_unless(operation, None, &|| comes() || self.is_over());
                continue;
            }
            wait.share_spins(u32::from(!self.due.is_empty()));
            let action = wait.pause(&mut &self);
            if !self.due.is_empty() {
                if action == WaitAction::Doze {
                    std::thread::sleep(wait.nap());
                }
            } else if wait.waited() >= PROXY_POLL_TIME {
                match inbox.recv_timeout(PROXY_ORDER_SLEEP_MAX) {
                    Ok(order) => {
                        self.due.push_back(order);
                        let _ = wait.progress();
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => is_open = false,
                }
            }
        }
    }

    /// Returns true if no order is begun any more: the communicator has ended, or a kernel has given up.
    fn is_over(&self) -> bool {
        self.common.is_over() || (self.gave_up)()
    }

    /// Ends with the communicator. What has ended the messages of this rank ended orders too: that is the cause.
    fn leave(&self) {
        let until = Instant::now() + RMA_ABORT_GRACE;
        let begun = self.begun.iter().filter_map(|begun| begun.operation.as_ref());
        for operation in begun.filter(|_| self.common.is_aborted()) {
            self.messenger.wait(operation, Some(until));
            if let Some(Err(error)) = operation.result() {
                return self.common.fail(error);
            }
        }
        self.common.follow();
    }

    /// Takes the orders that are here; returns false if there will be no more.
    fn take_orders(&mut self, inbox: &Inbox<WindowOrder>) -> bool {
        loop {
            match inbox.try_recv() {
                Ok(order) => self.due.push_back(order),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Begins the orders that the stream has reached, and completes those that are done; returns true if there were
    /// some.
    fn progress(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        let reached = self.slots.reached().load(Ordering::Acquire);
        while self.due.front().is_some_and(|order| order.number <= reached) {
            // What a stream does behind a kernel that has given up must reach no peer.
            if self.is_over() {
                return Ok(moved);
            }
            let Some(order) = self.due.pop_front() else { break };
            let begun = self.begin(order)?;
            self.begun.push_back(begun);
            moved = true;
        }
        let is_done = |begun: &PostedOrder| begun.operation.as_ref().is_none_or(|o| o.is_done());
        while self.begun.front().is_some_and(is_done) {
            let Some(PostedOrder { number, to, operation }) = self.begun.pop_front() else { break };
            if let Some(result) = operation.and_then(|operation| operation.result()) {
                result?;
            }
            self.refused(&to.remote)?;
            self.slots.done().store(number, Ordering::Release);
            moved = true;
        }
        Ok(moved)
    }

    fn begin(&self, WindowOrder { number, to, task }: WindowOrder) -> Result<PostedOrder, Error> {
        let peer = to.remote.peer();
        let operation = match task {
            OrderTask::Signal => {
                self.messenger.signal(peer, to.remote.key())?;
                None
            }
            OrderTask::Operate(what, offset, bytes) => {
                let shape = MessageShape { dtype: to.dtype, bytes };
                let place = MessageBuffer { address: self.slots.slot(number), shape };
                let kept = Box::new(self.slots.clone());
                // SAFETY: the slot has as many bytes, and the operation keeps it. It is the proxy's until the order is
                // done: the stream has published that it has reached the order.
                let begun = unsafe {
                    self.messenger.operate(what, place, peer, (offset, to.timeout), Some(kept))
                };
                Some(begun?)
            }
        };
        Ok(PostedOrder { number, to, operation })
    }

    /// Fails if the peer has refused something that has no answer.
    fn refused(&self, remote: &ServedPart) -> Result<(), Error> {
        let Some((offset, refusal)) = remote.take_refusal() else { return Ok(()) };
        let what =
            format!("put to rank {} at byte {offset} of its part of a window", remote.peer());
        Err(Error::Window { rank: self.common.rank, what, refusal })
    }
}
