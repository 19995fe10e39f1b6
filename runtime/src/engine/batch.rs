//! Messages between single ranks: one, or a batch of them at once.
//!
//! These calls are not collective: a send and its receive concern two ranks, and the others do
//! something else meanwhile. So they leave no trace in what collectives compare, and they travel on
//! a channel of their own. Messages from one rank to another are received in the order in which they
//! are sent, whatever batches they are in.

use super::Core;
use crate::bind::Stats;
use crate::bind::{self, Bound, Transfer, bind_batch};
use crate::dtype::{DType, Element};
use crate::error::Error;
use crate::executor::wait::Wait;
use crate::executor::{Base, Player};
use crate::memory::{bytes, bytes_mut};
use roundelay_compiler::plan::Dir;

/// Bound batches that are kept.
const KEPT: usize = 64;

/// Batches that were played before: one of the same shape is played again at once.
#[derive(Default)]
pub(crate) struct Batches {
    kept: Vec<Bound>,
    next: usize,
}

impl Batches {
    fn find(&self, name: &str, messages: &[Message<'_>]) -> Option<usize> {
        self.kept.iter().position(|bound| {
            bound.batch.as_ref().is_some_and(|batch| {
                batch.name == name
                    && batch.transfers.iter().copied().eq(messages.iter().map(Message::transfer))
            })
        })
    }

    fn keep(&mut self, bound: Bound) -> usize {
        let at = self.next % KEPT;
        self.next += 1;
        match self.kept.get_mut(at) {
            Some(old) => *old = bound,
            None => self.kept.push(bound),
        }
        at
    }
}

/// A message of a call.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    peer: u32,
    dtype: DType,
    memory: Memory<'a>,
}

#[derive(Debug)]
enum Memory<'a> {
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
}

impl<'a> Message<'a> {
    pub(crate) fn sent<T: Element>(data: &'a [T], to: u32) -> Self {
        Message { peer: to, dtype: T::DTYPE, memory: Memory::Sent(bytes(data)) }
    }

    pub(crate) fn received<T: Element>(data: &'a mut [T], from: u32) -> Self {
        Message { peer: from, dtype: T::DTYPE, memory: Memory::Received(bytes_mut(data)) }
    }

    fn transfer(&self) -> Transfer {
        let (dir, len) = match &self.memory {
            Memory::Sent(data) => (Dir::Send, data.len()),
            Memory::Received(data) => (Dir::Recv, data.len()),
        };
        Transfer { peer: self.peer, dir, dtype: self.dtype, bytes: len as u64 }
    }
}

impl Core {
    /// Plays a batch. `collective` is the word by which ranks know each other's calls, if all ranks
    /// make this one.
    pub(crate) fn exchange(
        &mut self,
        name: &'static str,
        messages: &mut [Message<'_>],
        collective: Option<u64>,
    ) -> Result<Stats, Error> {
        self.usable()?;
        let size = self.size();
        if let Some(message) = messages.iter().find(|m| m.peer >= size) {
            return Err(Error::Usage(format!(
                "there is no rank {} to {} with: the ranks are 0 to {}",
                message.peer,
                if collective.is_some() { "exchange" } else { name },
                size - 1
            )));
        }
        let at = match self.batches.find(name, messages) {
            Some(at) => at,
            None => self.bind_batch(name, messages)?,
        };
        self.work.bases.clear();
        for message in messages {
            let (address, len) = match &mut message.memory {
                Memory::Sent(data) => (data.as_ptr().cast_mut(), data.len()),
                Memory::Received(data) => (data.as_mut_ptr(), data.len()),
            };
            let mapped = self.arena.find(address, len);
            self.work.bases.push(Base { address, mapped });
        }
        let entered = collective.map(|word| self.enter(word, None));
        let bound = &self.batches.kept[at];
        let mut player = Player {
            bound,
            work: &mut self.work,
            endpoints: &mut self.endpoints,
            kernel: bound.kernel,
            rank: self.group.rank(),
            call: self.calls,
            digest: 0,
            entered,
            wait: Wait::new(self.timeout, bound.posted || self.group.layout().crowded)
                .for_sockets(bound.posted),
            group: &mut self.group,
            stats: Stats::default(),
            reads_peer: false,
            moved: 0,
            taken: 0,
            recorder: &mut self.recorder,
        };
        player.play(0).map_err(|error| self.fail(error))
    }

    fn bind_batch(&mut self, name: &'static str, messages: &[Message<'_>]) -> Result<usize, Error> {
        let transfers = messages.iter().map(Message::transfer).collect();
        let batch = bind::Batch { name, transfers };
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
