//! Messages between single ranks: one, or a batch of them at once.
//!
//! These calls are not collective: a send and its receive concern two ranks, and the others do
//! something else meanwhile. So they leave no trace in what collectives compare, and they travel on
//! a channel of their own. Messages from one rank to another are received in the order in which they
//! are sent, whatever batches they are in.

use super::core::EngineCore;
use crate::bind::CallStats;
use crate::bind::{self, BoundPlan, bind_batch};
use crate::executor::{BufferAddress, PlanExecution};
use crate::operation::{CallMessage, check_peers};
use crate::progress::wait::WaitLoop;
use roundelay_support::error::Error;

impl EngineCore {
    /// Runs a batch. `collective` is the word by which ranks know each other's calls, if all ranks
    /// make this one.
    pub fn exchange(
        &mut self,
        name: &'static str,
        messages: &mut [CallMessage<'_>],
        collective: Option<u64>,
    ) -> Result<CallStats, Error> {
        self.usable()?;
        check_peers(if collective.is_some() { "exchange" } else { name }, messages, self.size())?;
        let is_known = |bound: &BoundPlan| {
            bound.batch.as_ref().is_some_and(|batch| {
                batch.name == name
                    && batch
                        .transfers
                        .iter()
                        .copied()
                        .eq(messages.iter().map(CallMessage::transfer))
            })
        };
        let at = match self.batches.position(is_known) {
            Some(at) => at,
            None => self.bind_batch(name, messages)?,
        };
        self.not_aborted().map_err(|error| self.fail(error))?;
        self.work.bases.clear();
        for message in messages {
            let len = message.transfer().bytes as usize;
            let address = std::ptr::with_exposed_provenance_mut(message.address() as usize);
            let mapped = self.arena.find(address, len);
            self.work.bases.push(BufferAddress { address, mapped });
        }
        let entered = collective.map(|word| self.enter(word, None));
        let bound = &self.batches[at];
        let mut execution = PlanExecution {
            bound,
            work: &mut self.work,
            endpoints: &mut self.endpoints,
            kernel: bound.kernel,
            rank: self.group.rank(),
            call: self.calls,
            digest: 0,
            entered,
            wait: WaitLoop::new(self.timeout, bound.posted || self.group.layout().crowded)
                .for_sockets(bound.posted),
            group: &mut self.group,
            stats: CallStats::default(),
            reads_peer: false,
            moved: 0,
            taken: 0,
            recorder: &mut self.recorder,
        };
        execution.execute(0).map_err(|error| self.fail(error))
    }

    fn bind_batch(
        &mut self,
        name: &'static str,
        messages: &[CallMessage<'_>],
    ) -> Result<usize, Error> {
        let transfers = messages.iter().map(CallMessage::transfer).collect();
        let batch = bind::BatchShape { name, transfers };
        match bind_batch(batch, &mut self.group, &mut self.endpoints, self.timeout) {
            Ok(bound) => Ok(self.batches.keep(bound)),
            Err(error @ Error::Usage(_)) => Err(error),
            // The peers must not wait for a rank that has no memory or no connection.
            Err(error) => {
                let error = self.explain(error);
                Err(self.fail(error))
            }
        }
    }
}
