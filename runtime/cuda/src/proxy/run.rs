//! The loop of a proxy thread: orders, the calls that kernels enter, and waits.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, TryRecvError};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::pause::ProxyPause;
use super::stream::ProxyStream;
use super::thread::{EnteredCall, ProxyExit, ProxyOrder, ProxyThread};
use crate::tunables::{
    PACKETS_PER_TURN, PROXY_BLOCKS_MAX, PROXY_ORDER_SLEEP_MAX, PROXY_POLL_TIME,
    PROXY_PROGRESS_INTERVAL,
};

impl ProxyThread {
    /// Carries what kernels ask for until the orders end, or something fails.
    pub(super) fn run(mut self, orders: &Inbox<ProxyOrder>) {
        let mut pause = ProxyPause::new();
        let end = loop {
            let is_open = self.take_orders(orders);
            match self.progress(&pause) {
                Ok(true) => {
                    pause.moved();
                    continue;
                }
                Ok(false) => {}
                Err(end) => break end,
            }
            let waited = match (self.is_busy(), is_open) {
                (true, _) => self.pause(&mut pause),
                (false, true) => self.wait_for_order(orders, &mut pause),
                (false, false) => return self.linger(),
            };
            if let Err(end) = waited {
                break end;
            }
        };
        match end {
            ProxyExit::Stopped => self.common.follow(),
            ProxyExit::Failed(error) => self.common.fail(*error),
        }
    }

    /// Takes the orders that are here; returns false if there will be no more.
    fn take_orders(&mut self, orders: &Inbox<ProxyOrder>) -> bool {
        loop {
            match orders.try_recv() {
                Ok(order) => self.take_order(order),
                Err(none) => return none == TryRecvError::Empty,
            }
        }
    }

    fn take_order(&mut self, order: ProxyOrder) {
        match order {
            ProxyOrder::Call(call) => {
                self.has_graphs |= call.is_captured;
                // A call of which this thread carries nothing is dropped.
                if !self.flows(&call).is_empty() {
                    self.calls.insert(call.number, call);
                }
            }
            ProxyOrder::Forget(number) => drop(self.calls.remove(&number)),
            ProxyOrder::Exchange(batch) => self.accept_batch(&batch),
        }
    }

    /// Returns true if work is under way, or will be without another order.
    fn is_busy(&self) -> bool {
        self.work.is_some()
            || self.calls.values().any(|call| !call.is_captured)
            || self.streams.iter().any(ProxyStream::is_sending)
            || self.queues.has_due()
    }

    /// Polls everything once; returns true if something moved.
    fn progress(&mut self, pause: &ProxyPause) -> Result<bool, ProxyExit> {
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
                if moved || pause.is_glance() || flows.iter().all(has_said) {
                    moved |= self.receive(call, flows)?;
                }
            }
            None if pause.is_glance() => moved |= self.receive_ahead()?,
            None => {}
        }
        moved |= self.complete_sends(work.as_mut())?;
        if !moved && pause.is_glance() {
            self.check(work.as_ref(), pause)?;
        }
        self.work = work.filter(|work| !work.is_over());
        Ok(moved)
    }

    /// Returns the call that a block of this thread has entered, if it is another than the last.
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
            // Else its order is about to come, or it is of a call without messages for this thread.
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

    /// Waits until an order comes, or for a moment if there has been nothing to do for long.
    fn wait_for_order(
        &mut self,
        orders: &Inbox<ProxyOrder>,
        pause: &mut ProxyPause,
    ) -> Result<(), ProxyExit> {
        if pause.is_due() {
            if self.common.is_over() {
                return Err(ProxyExit::Stopped);
            }
            self.progress_connections();
        }
        if pause.lasts() < PROXY_POLL_TIME {
            std::thread::yield_now();
            return Ok(());
        }
        let wakes = self.streams.iter().all(|stream| stream.connection.wakes());
        let limit = match (self.has_graphs, wakes) {
            // Only kernels know of graphs that are launched.
            (true, _) => pause.nap(),
            (false, true) => PROXY_ORDER_SLEEP_MAX,
            (false, false) => PROXY_PROGRESS_INTERVAL,
        };
        if let Ok(order) = orders.recv_timeout(limit) {
            self.take_order(order);
            pause.moved();
        }
        Ok(())
    }

    /// Progresses the connections that move only while they are polled.
    fn progress_connections(&self) {
        let slow = self.streams.iter().filter(|stream| !stream.connection.wakes());
        slow.for_each(|stream| stream.connection.tend());
    }

    /// Waits until what was sent over several paths has arrived, for two seconds at most.
    fn linger(&self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        let waits = |stream: &ProxyStream| {
            let state = stream.connection.stream();
            state.is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        while self.streams.iter().any(waits) && !self.common.is_over() && Instant::now() < deadline
        {
            self.progress_connections();
            std::thread::yield_now();
        }
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

    /// Waits for a moment; fails if the thread is to end.
    fn pause(&self, pause: &mut ProxyPause) -> Result<(), ProxyExit> {
        if pause.is_due() {
            if self.common.is_over() {
                return Err(ProxyExit::Stopped);
            }
            self.progress_connections();
        }
        pause.rest(&self.streams);
        Ok(())
    }
}
