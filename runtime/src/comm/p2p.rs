//! Messages between single ranks: one, or a batch of them at once.
//!
//! These calls are not collective: a send and its receive concern two ranks, and the others do
//! something else meanwhile.

use super::Communicator;
use crate::bind::Stats;
use crate::dtype::Element;
use crate::engine::Message;
use crate::error::Error;

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
#[derive(Debug, Default)]
#[must_use = "nothing moves before `run`"]
pub struct Batch<'a> {
    messages: Vec<Message<'a>>,
}

impl<'a> Batch<'a> {
    /// Adds a message to a rank; elements may be of another type than those of other messages.
    pub fn send<T: Element>(&mut self, data: &'a [T], to: u32) -> &mut Self {
        self.messages.push(Message::sent(data, to));
        self
    }

    /// Adds a message from a rank.
    pub fn recv<T: Element>(&mut self, data: &'a mut [T], from: u32) -> &mut Self {
        self.messages.push(Message::received(data, from));
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
    pub fn run(mut self, comm: &mut Communicator) -> Result<Stats, Error> {
        comm.core()?.exchange("batch", &mut self.messages, None)
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
    /// # Errors
    ///
    /// The errors of [`Batch::run`].
    pub fn send<T: Element>(&mut self, data: &[T], to: u32) -> Result<(), Error> {
        self.core()?.exchange("send", &mut [Message::sent(data, to)], None).map(drop)
    }

    /// Receives the next message of one rank.
    ///
    /// # Errors
    ///
    /// The errors of [`Batch::run`].
    pub fn recv<T: Element>(&mut self, data: &mut [T], from: u32) -> Result<(), Error> {
        self.core()?.exchange("recv", &mut [Message::received(data, from)], None).map(drop)
    }

    /// Returns an empty list of messages, to be sent and received at once.
    pub fn batch<'a>(&self) -> Batch<'a> {
        Batch { messages: Vec::new() }
    }
}
