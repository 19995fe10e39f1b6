//! The courier of a rank: a thread that does in windows of ranks on other hosts what is put into this rank's streams.
//!
//! A part of a window that lies on another host is served there ([`roundelay_engine::messages`]), as private memory of a host is. What
//! a stream wants of it is an *errand* ([`tray`](super::tray)):
//!
//! * A put is copied into a slot by the stream, which then tells that it has come so far. The courier begins the
//!   host's put from there. The stream uses that slot again once the courier is done with it.
//! * Of a get, or an atomic operation, the stream tells first, and then waits until the courier is done with it: what was
//!   asked for lies in the slot, from where the stream copies it.
//! * A signal is told, and a flush told and waited for.
//!
//! All streams of a communicator have one order of calls, and so have errands. They begin in it; on the way of one peer
//! they stay in it, for packets do. They end in it too, so that one word says which are done.
//!
//! A rank waits no longer than the communicator's timeout for the answer to an errand. A stream waits twice as long
//! for the courier: the one that knows more reports first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::lanes::Common;
use super::pause::Pause;
use super::tray::{SLOT, SLOTS, Tray};
use roundelay_engine::messages::{Messenger, Operation, Place, Shape, What};
use roundelay_engine::window::{Fetch, Remote};
use roundelay_net::dtype::DType;
use roundelay_net::error::{Error, PROCESS_LIMIT_REMEDY};

/// The time for which the courier looks for another errand before it sleeps until one comes, and the longest sleep.
const BRISK: Duration = Duration::from_micros(500);
const REST: Duration = Duration::from_millis(20);
/// The time after an abort in which errands that were begun end.
const LAST_WORDS: Duration = Duration::from_millis(150);
/// The bytes of a word.
const WORD: u64 = 8;

/// The stream of a rank, as errands are put into it. What it does it does in the order of these calls.
pub(in super::super) trait Steps {
    /// The reason for which nothing can be put into it.
    type Fault;

    /// Tells the courier that it has come to so many errands.
    fn tell(&mut self, number: u64) -> Result<(), Self::Fault>;

    /// Waits until the courier is done with so many errands, the last of which is for this peer.
    fn reach(&mut self, number: u64, peer: u32) -> Result<(), Self::Fault>;

    /// Copies from an address to a slot.
    fn load(&mut self, slot: *mut u8, from: u64, bytes: usize) -> Result<(), Self::Fault>;

    /// Copies from a slot to an address.
    fn store(&mut self, to: u64, slot: *mut u8, bytes: usize) -> Result<(), Self::Fault>;
}

/// A peer's part, and the elements there; the longest wait for an answer of that peer.
#[derive(Clone)]
pub(in super::super) struct Errands {
    pub(in super::super) remote: Arc<Remote>,
    pub(in super::super) dtype: DType,
    pub(in super::super) timeout: Duration,
}

/// A share of what is done with a peer's part.
struct Errand {
    number: u64,
    to: Errands,
    task: Task,
}

enum Task {
    Signal,
    /// So many bytes of the slot go to the offset, or come from there.
    Operate(What, u64, u64),
}

/// The end of the courier at which errands are given.
pub(in super::super) struct Courier {
    tray: Arc<Tray>,
    number: u64,
    orders: Option<Sender<Errand>>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Courier").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Courier {
    /// Starts the thread. It begins no errand any more once `gave_up` says that a kernel has left.
    pub(super) fn start(
        common: Arc<Common>,
        messenger: Messenger,
        tray: Arc<Tray>,
        gave_up: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let (orders, inbox) = channel();
        let name = format!("roundelay-win-{}", common.rank);
        let route = Route {
            tray: tray.clone(),
            common,
            messenger,
            gave_up: Box::new(gave_up),
            due: VecDeque::new(),
            begun: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name(name).spawn(move || route.run(&inbox));
        let thread = thread.map_err(|e| {
            Error::system(format!("cannot start a courier: {e}"), e, PROCESS_LIMIT_REMEDY)
        })?;
        Ok(Courier { tray, number: 0, orders: Some(orders), thread: Some(thread) })
    }

    /// Returns the memory that it shares with streams.
    pub(in super::super) fn tray(&self) -> &Arc<Tray> {
        &self.tray
    }

    fn order(&mut self, to: &Errands, task: Task) -> u64 {
        self.number += 1;
        let errand = Errand { number: self.number, to: to.clone(), task };
        // A courier that has ended has failed, or was told to: the stream hears of that.
        let _ = self.orders.as_ref().map(|orders| orders.send(errand));
        self.number
    }

    /// Makes the stream wait until it may use the slot of an errand.
    fn room<S: Steps>(&self, steps: &mut S, number: u64, peer: u32) -> Result<(), S::Fault> {
        match number.checked_sub(SLOTS) {
            Some(before) if self.tray.done().load(Ordering::Acquire) < before => {
                steps.reach(before, peer)
            }
            _ => Ok(()),
        }
    }

    /// Puts bytes at an address to an offset.
    pub(in super::super) fn put<S: Steps>(
        &mut self,
        steps: &mut S,
        to: &Errands,
        (offset, from, bytes): (u64, u64, u64),
    ) -> Result<(), S::Fault> {
        let what = What::Put(to.remote.key());
        for (at, len) in pieces(bytes) {
            let number = self.order(to, Task::Operate(what, offset + at, len));
            self.room(steps, number, to.remote.peer())?;
            steps.load(self.tray.slot(number), from + at, len as usize)?;
            steps.tell(number)?;
        }
        Ok(())
    }

    /// Gets bytes at an offset to an address.
    pub(in super::super) fn get<S: Steps>(
        &mut self,
        steps: &mut S,
        from: &Errands,
        (offset, to, bytes): (u64, u64, u64),
    ) -> Result<(), S::Fault> {
        let (what, peer) = (What::Get(from.remote.key()), from.remote.peer());
        let first = self.number + 1;
        for (at, len) in pieces(bytes) {
            self.order(from, Task::Operate(what, offset + at, len));
        }
        let last = self.number;
        if bytes == 0 {
            return Ok(());
        }
        let ahead = last.min(first + SLOTS - 1);
        self.room(steps, ahead, peer)?;
        steps.tell(ahead)?;
        for (number, (at, len)) in (first..).zip(pieces(bytes)) {
            steps.reach(number, peer)?;
            steps.store(to + at, self.tray.slot(number), len as usize)?;
            if number + SLOTS <= last {
                steps.tell(number + SLOTS)?;
            }
        }
        Ok(())
    }

    /// Does an atomic operation on the word at an offset; what it was comes to an address.
    pub(in super::super) fn fetch<S: Steps>(
        &mut self,
        steps: &mut S,
        from: &Errands,
        (offset, to, fetch): (u64, u64, Fetch),
    ) -> Result<(), S::Fault> {
        let (what, peer) = (What::Fetch(from.remote.key(), fetch), from.remote.peer());
        let number = self.order(from, Task::Operate(what, offset, WORD));
        self.room(steps, number, peer)?;
        steps.tell(number)?;
        steps.reach(number, peer)?;
        steps.store(to, self.tray.slot(number), WORD as usize)
    }

    /// Signals the peer.
    pub(in super::super) fn signal<S: Steps>(
        &mut self,
        steps: &mut S,
        to: &Errands,
    ) -> Result<(), S::Fault> {
        let number = self.order(to, Task::Signal);
        steps.tell(number)
    }

    /// Waits until all that was done with the peer's part has taken effect.
    pub(in super::super) fn flush<S: Steps>(
        &mut self,
        steps: &mut S,
        to: &Errands,
    ) -> Result<(), S::Fault> {
        let number = self.order(to, Task::Operate(What::Flush(to.remote.key()), 0, 0));
        steps.tell(number)?;
        steps.reach(number, to.remote.peer())
    }
}

impl Drop for Courier {
    /// Lets it end what was ordered, and waits for that. A stream that will not come so far must be told to end before.
    fn drop(&mut self) {
        self.orders = None;
        // A courier that panicked has nothing to add.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the pieces of so many bytes: where each begins, and its bytes.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(SLOT)).map(move |k| (k * SLOT, SLOT.min(bytes - k * SLOT)))
}

/// The state of the thread.
struct Route {
    tray: Arc<Tray>,
    common: Arc<Common>,
    messenger: Messenger,
    gave_up: Box<dyn Fn() -> bool + Send>,
    /// Errands that the stream has not come to, and those that were begun, in order.
    due: VecDeque<Errand>,
    begun: VecDeque<Begun>,
}

/// An errand that was begun. It has no operation if it was done at once.
struct Begun {
    number: u64,
    to: Errands,
    operation: Option<Arc<Operation>>,
}

impl Route {
    /// Does errands until nobody gives any more, or something fails.
    fn run(mut self, inbox: &Inbox<Errand>) {
        let mut pause = Pause::new();
        let (mut since, mut is_open) = (Instant::now(), true);
        while is_open || !(self.due.is_empty() && self.begun.is_empty()) {
            if self.is_over() {
                return self.leave();
            }
            is_open &= self.hear(inbox);
            match self.move_on() {
                Err(error) => return self.common.fail(error),
                Ok(true) => {
                    pause.moved();
                    since = Instant::now();
                    continue;
                }
                Ok(false) => {}
            }
            if let Some(Begun { operation: Some(operation), .. }) = self.begun.front() {
                // As long as it takes, so that a peer that does not answer is found.
                let last = self.begun.back().map_or(0, |begun| begun.number);
                let comes = || self.tray.told().load(Ordering::Acquire) > last;
                self.messenger.wait_unless(operation, None, &|| comes() || self.is_over());
            } else if !self.due.is_empty() {
                let _ = pause.is_due();
                pause.rest(&[]);
            } else if since.elapsed() < BRISK {
                std::thread::yield_now();
            } else {
                match inbox.recv_timeout(REST) {
                    Ok(errand) => self.due.push_back(errand),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => is_open = false,
                }
                pause.moved();
            }
        }
    }

    /// Returns true if nothing is begun any more: the communicator has ended, or a kernel has given up.
    fn is_over(&self) -> bool {
        self.common.is_over() || (self.gave_up)()
    }

    /// Ends, as the communicator does. What has ended the messages of this rank ended errands too: that is the cause.
    fn leave(&self) {
        let until = Instant::now() + LAST_WORDS;
        let begun = self.begun.iter().filter_map(|begun| begun.operation.as_ref());
        for operation in begun.filter(|_| self.common.is_aborted()) {
            self.messenger.wait(operation, Some(until));
            if let Some(Err(error)) = operation.result() {
                return self.common.fail(error);
            }
        }
        self.common.follow();
    }

    /// Takes orders; returns false if there will be no more.
    fn hear(&mut self, inbox: &Inbox<Errand>) -> bool {
        loop {
            match inbox.try_recv() {
                Ok(errand) => self.due.push_back(errand),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Begins what the stream has come to, and ends what is done; returns true if there was something.
    fn move_on(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        let told = self.tray.told().load(Ordering::Acquire);
        while self.due.front().is_some_and(|errand| errand.number <= told) {
            // What a stream does behind a kernel that has given up is nothing that a peer may see.
            if self.is_over() {
                return Ok(moved);
            }
            let Some(errand) = self.due.pop_front() else { break };
            let begun = self.begin(errand)?;
            self.begun.push_back(begun);
            moved = true;
        }
        let is_done = |begun: &Begun| begun.operation.as_ref().is_none_or(|o| o.is_done());
        while self.begun.front().is_some_and(is_done) {
            let Some(Begun { number, to, operation }) = self.begun.pop_front() else { break };
            if let Some(result) = operation.and_then(|operation| operation.result()) {
                result?;
            }
            self.refused(&to.remote)?;
            self.tray.done().store(number, Ordering::Release);
            moved = true;
        }
        Ok(moved)
    }

    fn begin(&self, Errand { number, to, task }: Errand) -> Result<Begun, Error> {
        let peer = to.remote.peer();
        let operation = match task {
            Task::Signal => {
                self.messenger.signal(peer, to.remote.key())?;
                None
            }
            Task::Operate(what, offset, bytes) => {
                let shape = Shape { dtype: to.dtype, bytes };
                let place = Place { address: self.tray.slot(number), shape };
                let kept = Box::new(self.tray.clone());
                // SAFETY: the slot has as many bytes, and the operation keeps it. It is the courier's until it says that
                // the errand is done: the stream has told that it has come to it.
                let begun = unsafe {
                    self.messenger.operate(what, place, peer, (offset, to.timeout), Some(kept))
                };
                Some(begun?)
            }
        };
        Ok(Begun { number, to, operation })
    }

    /// Fails if the peer has refused something that has no answer.
    fn refused(&self, remote: &Remote) -> Result<(), Error> {
        let Some((offset, refusal)) = remote.take_refusal() else { return Ok(()) };
        let what =
            format!("put to rank {} at byte {offset} of its part of a window", remote.peer());
        Err(Error::Window { rank: self.common.rank, what, refusal })
    }
}
