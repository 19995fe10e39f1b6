//! A proxy thread: serves some lanes by turns, takes orders, and waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, TryRecvError};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::lane::{EnteredCall, ProxyExit, ProxyLane, ProxyOrder};
use super::state::ProxyState;
use super::stream::{ProxyStream, ReceiveStage};
use crate::tunables::{
    LINGER_TIMEOUT, PACKETS_PER_TURN, POLLS_PER_SOCKET_POLL, PROXY_BLOCKS_MAX,
    PROXY_ORDER_SLEEP_MAX, PROXY_POLL_TIME, PROXY_PROGRESS_INTERVAL,
};
use roundelay_engine::progress::wait::{WaitAction, WaitLoop};
use roundelay_net::transport::posted::PostedSender;

/// A proxy thread, and the lanes that it serves.
pub(super) struct ProxyThread {
    pub(super) common: Arc<ProxyState>,
    pub(super) lanes: Vec<ProxyLane>,
}

impl ProxyThread {
    /// Carries what kernels ask for until the orders end, or something fails.
    pub(super) fn run(mut self, orders: &Inbox<ProxyOrder>) {
        match self.serve(orders) {
            Ok(()) => self.linger(),
            Err(ProxyExit::Stopped) => self.common.follow(),
            Err(ProxyExit::Failed(error)) => self.common.fail(*error),
        }
    }

    /// Serves all lanes until there are no more orders, and nothing is under way.
    fn serve(&mut self, orders: &Inbox<ProxyOrder>) -> Result<(), ProxyExit> {
        let mut wait = WaitLoop::for_proxy();
        loop {
            let is_open = self.take_orders(orders);
            let includes_sockets = wait.polls_sockets(POLLS_PER_SOCKET_POLL);
            let mut moved = false;
            for lane in &mut self.lanes {
                if lane.progress(includes_sockets)? {
                    (lane.still, moved) = (None, true);
                }
            }
            if moved {
                // A proxy publishes no wait.
                let _ = wait.progress();
                continue;
            }
            let is_busy = self.lanes.iter().any(ProxyLane::is_busy);
            if !is_busy && !is_open {
                return Ok(());
            }
            match wait.pause(&mut &*self.common) {
                WaitAction::Aborted => return Err(ProxyExit::Stopped),
                WaitAction::Examine => self.examine(wait.waited())?,
                WaitAction::Doze if is_busy => self.sleep_on_sockets(wait.nap()),
                WaitAction::Again | WaitAction::Doze | WaitAction::Expired => {}
            }
            if !is_busy && wait.waited() >= PROXY_POLL_TIME {
                self.sleep_until_order(orders, &mut wait);
            }
        }
    }

    /// Takes the orders that are here; returns false if there will be no more.
    fn take_orders(&mut self, orders: &Inbox<ProxyOrder>) -> bool {
        loop {
            match orders.try_recv() {
                Ok(order) => self.take_order(&order),
                Err(none) => return none == TryRecvError::Empty,
            }
        }
    }

    fn take_order(&mut self, order: &ProxyOrder) {
        self.lanes.iter_mut().for_each(|lane| lane.take_order(order));
    }

    /// Examines the lanes on which nothing has moved, and progresses connections that move only while they are polled.
    fn examine(&mut self, waited: Duration) -> Result<(), ProxyExit> {
        self.progress_connections();
        let now = Instant::now();
        self.lanes.iter_mut().try_for_each(|lane| {
            let since = *lane.still.get_or_insert(now.checked_sub(waited).unwrap_or(now));
            lane.check(now.saturating_duration_since(since))
        })
    }

    /// Returns the connections of all lanes.
    fn streams(&self) -> impl Iterator<Item = &ProxyStream> {
        self.lanes.iter().flat_map(|lane| &lane.streams)
    }

    /// Sleeps until a connection has something, or for so long.
    fn sleep_on_sockets(&self, most: Duration) {
        let descriptors: Vec<_> = self
            .streams()
            .filter_map(|stream| {
                let flags = match stream.sender.has_backlog() {
                    true => PollFlags::IN | PollFlags::OUT,
                    false => PollFlags::IN,
                };
                // A packet that was read already would wake it at once.
                let held = matches!(stream.coming, ReceiveStage::Read(_));
                Some((stream.connection.fd().filter(|_| !held)?, flags))
            })
            .collect();
        let mut fds: Vec<_> =
            descriptors.iter().map(|(fd, flags)| PollFd::new(&**fd, *flags)).collect();
        let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = rustix::event::poll(&mut fds, Some(&most));
    }

    /// Sleeps until an order comes, or for a moment.
    fn sleep_until_order(&mut self, orders: &Inbox<ProxyOrder>, wait: &mut WaitLoop) {
        let has_graphs = self.lanes.iter().any(|lane| lane.has_graphs);
        let wakes = self.streams().all(|stream| stream.connection.wakes());
        let most = match (has_graphs, wakes) {
            // Only kernels know of graphs that are launched.
            (true, _) => wait.nap(),
            (false, true) => PROXY_ORDER_SLEEP_MAX,
            (false, false) => PROXY_PROGRESS_INTERVAL,
        };
        if let Ok(order) = orders.recv_timeout(most) {
            self.take_order(&order);
            let _ = wait.progress();
        }
    }

    /// Progresses the connections that move only while they are polled.
    fn progress_connections(&self) {
        let slow = self.streams().filter(|stream| !stream.connection.wakes());
        slow.for_each(|stream| stream.connection.tend());
    }

    /// Waits until what was sent over several paths has arrived, for a limited time.
    fn linger(&self) {
        let deadline = Instant::now() + LINGER_TIMEOUT;
        let waits = |stream: &ProxyStream| {
            let state = stream.connection.stream();
            state.is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        while self.streams().any(waits) && !self.common.is_over() && Instant::now() < deadline {
            self.progress_connections();
            std::thread::yield_now();
        }
    }
}

impl ProxyLane {
    fn take_order(&mut self, order: &ProxyOrder) {
        match order {
            ProxyOrder::Call(call) => {
                self.has_graphs |= call.is_captured;
                // A call of which this lane carries nothing is dropped.
                if !self.flows(call).is_empty() {
                    self.calls.insert(call.number, call.clone());
                }
            }
            ProxyOrder::Forget(number) => drop(self.calls.remove(number)),
            ProxyOrder::Exchange(batch) => self.accept_batch(batch),
        }
    }

    /// Returns true if work is under way, or will be without another order.
    fn is_busy(&self) -> bool {
        self.work.is_some()
            || self.calls.values().any(|call| !call.is_captured)
            || self.streams.iter().any(ProxyStream::is_sending)
            || self.queues.has_due()
    }

    /// Polls everything once, sockets too if `includes_sockets`; returns true if something moved.
    fn progress(&mut self, includes_sockets: bool) -> Result<bool, ProxyExit> {
        let begun = if self.work.is_none() { self.enter_call() } else { None };
        let mut moved = begun.is_some();
        let mut work = self.work.take().or(begun);
        moved |= self.report_room();
        moved |= self.post_pieces();
        match &mut work {
            Some(EnteredCall { call, flows }) => {
                moved |= self.post_messages(call, flows);
                // Reading a word takes less time than polling a socket.
                let has_said = |flow: &MessageFlow| {
                    call.part.links[flow.link].dir == MessageDirection::Recv
                        || flow.moved == flow.total
                };
                if moved || includes_sockets || flows.iter().all(has_said) {
                    moved |= self.receive(call, flows)?;
                }
            }
            None if includes_sockets => moved |= self.receive_ahead()?,
            None => {}
        }
        moved |= self.complete_sends(work.as_mut())?;
        self.work = work.filter(|work| !work.is_over());
        Ok(moved)
    }

    /// Returns the call that a block of this lane has entered, if it is another than the last.
    fn enter_call(&mut self) -> Option<EnteredCall> {
        for block in (self.number..PROXY_BLOCKS_MAX).step_by(self.lanes as usize) {
            let word = abi::entered(self.memory.ranks(), self.common.rank, block);
            let word = self.memory.kernel_word(word).load(Ordering::Acquire);
            let seen = &mut self.entered[block as usize];
            let (epoch, number) = ((word >> 32) as u32, word as u32);
            if word == *seen || self.last == Some(epoch) {
                *seen = word;
                continue;
            }
            // Else its order is about to come, or it is of a call without messages for this lane.
            let Some(call) = self.calls.get(&number) else { continue };
            *seen = word;
            self.last = Some(epoch);
            let call = ProxyCall { epoch, ..call.clone() };
            if !call.is_captured {
                self.calls.remove(&number);
            }
            let flows = self.flows(&call);
            self.queues.mark_before_call();
            return Some(EnteredCall { call, flows });
        }
        None
    }

    /// Receives pieces, and reads ahead what has come of a call that no block has entered, as far as it needs no slot;
    /// returns true if there was something.
    fn receive_ahead(&mut self) -> Result<bool, ProxyExit> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..PACKETS_PER_TURN {
                match self.receive_piece(at) {
                    Ok(Some(true)) => moved = true,
                    Ok(_) => break,
                    Err(fault) => return Err(self.messages_lost(at, &fault)),
                }
            }
            self.streams[at].read_ahead();
        }
        Ok(moved)
    }
}
