//! Messages between single ranks: one, or a batch of them at once.
//!
//! These calls are not collective: a send and its receive concern two ranks, and the others do
//! something else meanwhile. So they leave no trace in what collectives compare, and they travel on
//! a channel of their own. Messages from one rank to another are received in the order in which they
//! are sent, whatever batches they are in.

use super::{Core, Recent};
use crate::bind::Stats;
use crate::bind::{self, Bound, Transfer, bind_batch};
use crate::executor::wait::Wait;
use crate::executor::{Base, Player};
use roundelay_compiler::plan::Dir;
use roundelay_net::dtype::DType;
use roundelay_net::error::Error;

/// Batches that were played before: one of the same shape is played again at once.
pub(super) type Batches = Recent<Bound, 64>;

/// A message of a call, on memory of any kind.
#[derive(Debug)]
pub struct Message<I, O> {
    /// The rank at the other end.
    pub peer: u32,
    /// The type of its elements.
    pub dtype: DType,
    /// Its length.
    pub bytes: u64,
    /// This rank's end.
    pub end: End<I, O>,
}

/// The end of a message that a rank is, with its memory.
#[derive(Debug)]
pub enum End<I, O> {
    /// This rank sends, from that memory.
    Sent(I),
    /// This rank receives, into that memory.
    Received(O),
}

impl<I, O> Message<I, O> {
    /// Describes a message to a rank, of a type and so many bytes.
    pub fn sent(data: I, (dtype, bytes): (DType, usize), to: u32) -> Self {
        Message { peer: to, dtype, bytes: bytes as u64, end: End::Sent(data) }
    }

    /// Describes a message from a rank.
    pub fn received(data: O, (dtype, bytes): (DType, usize), from: u32) -> Self {
        Message { peer: from, dtype, bytes: bytes as u64, end: End::Received(data) }
    }

    /// Returns the message without its memory.
    pub fn transfer(&self) -> Transfer {
        let dir = match &self.end {
            End::Sent(_) => Dir::Send,
            End::Received(_) => Dir::Recv,
        };
        Transfer { peer: self.peer, dir, dtype: self.dtype, bytes: self.bytes }
    }
}

/// Fails unless the other end of every message is one of so many ranks; `what` is done with it.
pub fn peers<I, O>(what: &str, messages: &[Message<I, O>], ranks: u32) -> Result<(), Error> {
    match messages.iter().find(|message| message.peer >= ranks) {
        None => Ok(()),
        Some(message) => Err(Error::Usage(format!(
            "there is no rank {} to {what} with: the ranks are 0 to {}",
            message.peer,
            ranks - 1
        ))),
    }
}

/// A message of memory of this host.
type HostMessage<'a> = Message<&'a [u8], &'a mut [u8]>;

impl Core {
    /// Plays a batch. `collective` is the word by which ranks know each other's calls, if all ranks
    /// make this one.
    pub fn exchange(
        &mut self,
        name: &'static str,
        messages: &mut [HostMessage<'_>],
        collective: Option<u64>,
    ) -> Result<Stats, Error> {
        self.usable()?;
        peers(if collective.is_some() { "exchange" } else { name }, messages, self.size())?;
        let played = |bound: &Bound| {
            bound.batch.as_ref().is_some_and(|batch| {
                batch.name == name
                    && batch.transfers.iter().copied().eq(messages.iter().map(Message::transfer))
            })
        };
        let at = match self.batches.position(played) {
            Some(at) => at,
            None => self.bind_batch(name, messages)?,
        };
        self.not_aborted().map_err(|error| self.fail(error))?;
        self.work.bases.clear();
        for message in messages {
            let (address, len) = match &mut message.end {
                End::Sent(data) => (data.as_ptr().cast_mut(), data.len()),
                End::Received(data) => (data.as_mut_ptr(), data.len()),
            };
            let mapped = self.arena.find(address, len);
            self.work.bases.push(Base { address, mapped });
        }
        let entered = collective.map(|word| self.enter(word, None));
        let bound = &self.batches[at];
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

    fn bind_batch(
        &mut self,
        name: &'static str,
        messages: &[HostMessage<'_>],
    ) -> Result<usize, Error> {
        let transfers = messages.iter().map(Message::transfer).collect();
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
