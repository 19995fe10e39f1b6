//! Messages between single ranks: one, or a batch of them at once.
//!
//! These calls are not collective: a send and its receive concern two ranks, and the others do
//! something else meanwhile.

use std::marker::PhantomData;

use super::communicator::Communicator;
use super::memory::{ElementMemory, MemoryEngine, MemoryMut};
use roundelay_engine::CallMessage;
use roundelay_support::error::Error;

/// Messages that are sent and received at once ([`Communicator::batch`]).
///
/// ```
/// # fn main() -> Result<(), roundelay::Error> {
/// # let ranks = roundelay::Communicator::local(2)?;
/// # std::thread::scope(|scope| for mut comm in ranks { scope.spawn(move || {
/// // Every rank gives its neighbour a number.
/// let (n, r) = (comm.size(), comm.rank());
/// let (given, mut got) = ([r], [n]);
/// let mut batch = comm.batch();
/// batch.send(&given, (r + 1) % n).recv(&mut got, (r + n - 1) % n);
/// batch.run(&mut comm)?;
/// assert_eq!(got, [(r + n - 1) % n]);
/// # Ok::<(), roundelay::Error>(()) }); });
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing moves before `run`"]
pub struct MessageBatch<'a, E: MemoryEngine> {
    messages: Vec<CallMessage<'a>>,
    engine: PhantomData<E>,
}

impl<'a, E: MemoryEngine> MessageBatch<'a, E> {
    /// Adds a message to a rank; elements may be of another type than those of other messages.
    pub fn send<M: ElementMemory<Engine = E> + ?Sized>(
        &mut self,
        data: &'a M,
        to: u32,
    ) -> &mut Self {
        self.messages.push(CallMessage::sent(data.operand(), to));
        self
    }

    /// Adds a message from a rank.
    pub fn recv<M: MemoryMut<Engine = E> + ?Sized>(
        &mut self,
        data: &'a mut M,
        from: u32,
    ) -> &mut Self {
        self.messages.push(CallMessage::received(data.operand_mut(), from));
        self
    }

    /// Sends and receives all messages, side by side. Returns when everything was received, and
    /// what was sent may be overwritten.
    ///
    /// No order of the messages within batches can block them: only the order among the messages
    /// from one rank to another counts, and must be the same on both. What a rank sends to itself it
    /// receives in the same batch.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if a rank does not exist, or the messages of this rank to itself do not fit
    /// each other; nothing has moved then. All others end the job: [`Error::MessageMismatch`] if a
    /// peer sends another length or type, [`Error::Timeout`], [`Error::LostRank`],
    /// [`Error::Aborted`], [`Error::Memory`].
    pub fn run(mut self, comm: &mut Communicator) -> Result<E::Outcome, Error> {
        comm.exchange("batch", &mut self.messages).map(E::outcome)
    }
}

impl Communicator {
    /// Sends to one rank, which calls [`Communicator::recv`] with the same length and type.
    ///
    /// Returns when `data` may be overwritten. A few short messages may be on their way then; one of
    /// 64 KiB and more, or of 8 KiB and more in a [`Buffer`](crate::Buffer), waits until it is
    /// received. So two ranks must not both send before they receive: for that there is
    /// [`Communicator::batch`].
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// match comm.rank() {
    ///     0 => comm.send(&[1.5f32; 4], 1)?,
    ///     _ => {
    ///         let mut data = [0.0f32; 4];
    ///         comm.recv(&mut data, 0)?;
    ///         assert_eq!(data, [1.5; 4]);
    ///     }
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`MessageBatch::run`].
    pub fn send<M: ElementMemory + ?Sized>(&mut self, data: &M, to: u32) -> Result<(), Error> {
        self.exchange("send", &mut [CallMessage::sent(data.operand(), to)]).map(drop)
    }

    /// Receives the next message of one rank; [`Communicator::send`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`MessageBatch::run`].
    pub fn recv<M: MemoryMut + ?Sized>(&mut self, data: &mut M, from: u32) -> Result<(), Error> {
        self.exchange("recv", &mut [CallMessage::received(data.operand_mut(), from)]).map(drop)
    }

    /// Returns an empty list of messages, to be sent and received at once.
    pub fn batch<'a, E: MemoryEngine>(&self) -> MessageBatch<'a, E> {
        MessageBatch { messages: Vec::new(), engine: PhantomData }
    }
}
