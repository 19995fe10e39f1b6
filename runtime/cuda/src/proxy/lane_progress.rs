//! The progress of a lane: it takes orders, enters the calls that kernels enter, and moves both ways.

use std::sync::atomic::Ordering;

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::MessageDirection;

use super::call::ProxyCall;
use super::flow::MessageFlow;
use super::lane::{EnteredCall, ProxyExit, ProxyLane};
use super::lane_inbox::ProxyOrder;
use super::stream::ProxyStream;
use crate::tunables::{PACKETS_PER_TURN, PROXY_BLOCKS_MAX};

impl ProxyLane {
    /// Takes the orders that are here.
    pub(super) fn take_orders(&mut self) {
        while let Some(order) = self.inbox.take() {
            self.take_order(&order);
        }
    }

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
    pub(super) fn is_busy(&self) -> bool {
        self.work.is_some()
            || self.calls.values().any(|call| !call.is_captured)
            || self.streams.iter().any(ProxyStream::is_sending)
            || self.queues.has_due()
    }

    /// Polls everything once, sockets too if `includes_sockets`; returns true if something moved.
    pub(super) fn progress(&mut self, includes_sockets: bool) -> Result<bool, ProxyExit> {
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
