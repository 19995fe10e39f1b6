//! Messages with tags, from any thread, in any order, beside the calls on the communicator.

use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::communicator::Communicator;
use super::memory::{ElementMemory, Host, MemoryMut};
use super::work::WorkStatus;
use roundelay_engine::messages::{
    DeliveredMessage, MessageBuffer, MessageOperation, MessageShape, RankMessenger, ReceiveSource,
};
use roundelay_support::error::Error;

/// Sends and receives messages with tags ([`Communicator::messages`]). Any thread may, whatever else the
/// communicator does: a message needs no call of it. Clones are the same.
///
/// A receive takes the first message with its tag from the rank that it names, or from [any](ReceiveSource::Any).
/// Messages of one rank with the same tag are received in the order in which they were sent; all others in any order,
/// so that sends and receives may be started in any order on all ranks. A message and its receive have the same type
/// and length.
///
/// ```
/// # fn main() -> Result<(), roundelay::Error> {
/// # let ranks = roundelay::Communicator::local(2)?;
/// # std::thread::scope(|scope| for mut comm in ranks { scope.spawn(move || {
/// // Both ranks receive before they send, and in another order than the other one sends.
/// let (messages, other) = (comm.messages()?, 1 - comm.rank());
/// let loss = messages.recv_async(vec![0.0f32], other, 2)?;
/// let step = messages.recv_async(vec![0u64], roundelay::message::ReceiveSource::Any, 1)?;
/// messages.send(&[7u64], other, 1)?;
/// messages.send(&[0.5f32], other, 2)?;
/// assert_eq!(loss.wait()?.0, [0.5]);
/// assert_eq!(step.wait()?.1.source, other);
/// # Ok::<(), roundelay::Error>(()) }); });
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaggedMessages {
    messenger: RankMessenger,
    timeout: Option<Duration>,
}

/// A message that is being sent or received, with its buffer. Dropped, it goes on. As a future it ends with the
/// buffer.
#[must_use = "errors of the message are found only by waiting for it"]
pub struct PendingMessage<M> {
    messenger: RankMessenger,
    operation: Arc<MessageOperation>,
    /// None once it was given back.
    buffer: Option<Arc<MessageMemory<M>>>,
}

/// A buffer that stays where it is.
struct MessageMemory<M>(NonNull<M>);

// SAFETY: it owns the buffer, which is used by one thread at a time.
unsafe impl<M: Send> Send for MessageMemory<M> {}
// SAFETY: a shared one gives no access to the buffer.
unsafe impl<M: Send> Sync for MessageMemory<M> {}

impl<M> MessageMemory<M> {
    fn new(buffer: M) -> Self {
        MessageMemory(NonNull::from(Box::leak(Box::new(buffer))))
    }

    fn into_inner(self) -> M {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: it was a box, and is not dropped as one any more.
        *unsafe { Box::from_raw(kept.0.as_ptr()) }
    }
}

impl<M> Drop for MessageMemory<M> {
    fn drop(&mut self) {
        // SAFETY: it was a box.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn place(bytes: &[u8], of: roundelay_support::dtype::DType) -> MessageBuffer {
    let shape = MessageShape { dtype: of, bytes: bytes.len() as u64 };
    MessageBuffer { address: bytes.as_ptr().cast_mut(), shape }
}

impl TaggedMessages {
    /// Sets the longest time for which a message waits and nothing moves between its two ranks, other messages
    /// included; by default that of the communicator ([`Communicator::set_timeout`]).
    pub fn with_timeout(self, timeout: Duration) -> Self {
        TaggedMessages { timeout: Some(timeout), ..self }
    }

    fn limits(&self, tag: u64) -> (u64, Duration) {
        (tag, self.timeout.unwrap_or_else(|| self.messenger.timeout()))
    }

    /// Sends to a rank, which receives with the same tag. Returns when `data` may be overwritten: one of up to 8 KiB
    /// may be on its way then, a longer one was received.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist. All others end the job: [`Error::MessageMismatch`] if the receiver
    /// asks for another length or type, [`Error::Timeout`], [`Error::LostRank`], [`Error::Aborted`],
    /// [`Error::Memory`].
    pub fn send<M>(&self, data: &M, to: u32, tag: u64) -> Result<(), Error>
    where
        M: ElementMemory<Engine = Host> + ?Sized,
    {
        let place = place(data.lend(), data.dtype());
        // SAFETY: it is borrowed until the operation has ended.
        let operation = unsafe { self.messenger.send(place, to, self.limits(tag), None) }?;
        self.finish(&operation).map(drop)
    }

    /// Receives the next message with a tag, and says who sent it.
    ///
    /// # Errors
    ///
    /// The errors of [`TaggedMessages::send`].
    pub fn recv<M>(
        &self,
        data: &mut M,
        from: impl Into<ReceiveSource>,
        tag: u64,
    ) -> Result<DeliveredMessage, Error>
    where
        M: MemoryMut<Engine = Host> + ?Sized,
    {
        let dtype = data.dtype();
        let lent = data.lend_mut();
        let mut place = place(lent, dtype);
        place.address = lent.as_mut_ptr();
        let limits = self.limits(tag);
        // SAFETY: it is borrowed until the operation has ended.
        let operation = unsafe { self.messenger.receive(place, from.into(), limits, None) }?;
        self.finish(&operation)
    }

    /// Starts to send. The buffer moves into the message, and comes back when it was sent.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the rank does not exist, or after an error. Other errors come with
    /// [`PendingMessage::wait`].
    pub fn send_async<M>(&self, data: M, to: u32, tag: u64) -> Result<PendingMessage<M>, Error>
    where
        M: ElementMemory<Engine = Host> + Send + 'static,
    {
        let buffer = Arc::new(MessageMemory::new(data));
        // SAFETY: only this function has it.
        let lent = unsafe { buffer.0.as_ref() };
        let place = place(lent.lend(), lent.dtype());
        let kept: Box<dyn std::any::Any + Send> = Box::new(buffer.clone());
        // SAFETY: it stays where it is until the operation has ended and dropped `kept`.
        let operation = unsafe { self.messenger.send(place, to, self.limits(tag), Some(kept)) }?;
        Ok(self.pending(operation, buffer))
    }

    /// Starts to receive. The buffer moves into the message, and comes back with what was received.
    ///
    /// # Errors
    ///
    /// The errors of [`TaggedMessages::send_async`].
    pub fn recv_async<M>(
        &self,
        data: M,
        from: impl Into<ReceiveSource>,
        tag: u64,
    ) -> Result<PendingMessage<M>, Error>
    where
        M: MemoryMut<Engine = Host> + Send + 'static,
    {
        let buffer = Arc::new(MessageMemory::new(data));
        // SAFETY: only this function has it.
        let lent = unsafe { &mut *buffer.0.as_ptr() };
        let dtype = lent.dtype();
        let bytes = lent.lend_mut();
        let mut place = place(bytes, dtype);
        place.address = bytes.as_mut_ptr();
        let kept: Box<dyn std::any::Any + Send> = Box::new(buffer.clone());
        let limits = self.limits(tag);
        // SAFETY: it stays where it is until the operation has ended and dropped `kept`, and is not shared.
        let operation = unsafe { self.messenger.receive(place, from.into(), limits, Some(kept)) }?;
        Ok(self.pending(operation, buffer))
    }

    fn pending<M>(
        &self,
        operation: Arc<MessageOperation>,
        buffer: Arc<MessageMemory<M>>,
    ) -> PendingMessage<M> {
        self.messenger.leave_running();
        PendingMessage { messenger: self.messenger.clone(), operation, buffer: Some(buffer) }
    }

    fn finish(&self, operation: &MessageOperation) -> Result<DeliveredMessage, Error> {
        self.messenger.wait(operation, None);
        operation.result().unwrap_or_else(|| Err(Error::Work("the message has no end".into())))
    }
}

impl<M> PendingMessage<M> {
    /// Waits for the end of the message; returns the buffer, and what was sent or received.
    ///
    /// # Errors
    ///
    /// The errors of [`TaggedMessages::send`].
    pub fn wait(mut self) -> Result<(M, DeliveredMessage), Error> {
        self.messenger.wait(&self.operation, None);
        self.take()
    }

    /// Waits for the end of the message, but no longer than that; returns true if it came.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.messenger.wait(&self.operation, Instant::now().checked_add(timeout))
    }

    /// Returns true if the message has ended, with or without success.
    pub fn is_completed(&self) -> bool {
        self.operation.is_done()
    }

    /// Returns the progress of the message.
    pub fn status(&self) -> WorkStatus {
        status(&self.operation)
    }

    /// Returns the result of a message that has ended.
    pub fn result(&self) -> Option<Result<DeliveredMessage, Error>> {
        self.operation.result()
    }

    /// Has a function called once when the message has ended, with its final status: on the thread that moves
    /// messages, so it should be short, or on this one if the message has ended before. It may start other messages,
    /// but not wait for them. A panic in it is caught.
    pub fn on_completion(&self, callback: impl FnOnce(WorkStatus) + Send + 'static) {
        let operation = self.operation.clone();
        let call = move || callback(status(&operation));
        if let Err(call) = self.operation.then(Box::new(call)) {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        }
    }

    fn take(&mut self) -> Result<(M, DeliveredMessage), Error> {
        let taken = || Error::Usage("the result of this message was taken before".into());
        let delivered = self.operation.result().unwrap_or_else(|| Err(taken()))?;
        let Some(mut buffer) = self.buffer.take() else { return Err(taken()) };
        // The thread that ended the message is about to release the buffer.
        loop {
            match Arc::try_unwrap(buffer) {
                Ok(kept) => return Ok((kept.into_inner(), delivered)),
                Err(shared) => buffer = shared,
            }
            std::thread::yield_now();
        }
    }
}

fn status(operation: &MessageOperation) -> WorkStatus {
    match operation.result() {
        None => WorkStatus::InProgress,
        Some(Ok(_)) => WorkStatus::Completed,
        Some(Err(Error::Timeout { .. })) => WorkStatus::TimedOut,
        Some(Err(_)) => WorkStatus::Failed,
    }
}

impl<M> Future for PendingMessage<M> {
    type Output = Result<(M, DeliveredMessage), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.operation.wakes(context.waker()) {
            true => Poll::Ready(self.get_mut().take()),
            false => Poll::Pending,
        }
    }
}

impl<M> Unpin for PendingMessage<M> {}

impl<M> std::fmt::Debug for PendingMessage<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingMessage").field("status", &self.status()).finish()
    }
}

impl std::fmt::Debug for TaggedMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Messages").field("timeout", &self.timeout).finish()
    }
}

impl Communicator {
    /// Returns what sends and receives messages with tags. Not collective. Dropping the communicator waits for what
    /// was sent, and ends receives without a matching send.
    ///
    /// # Errors
    ///
    /// The errors of a call on a communicator whose progress thread is gone.
    pub fn messages(&mut self) -> Result<TaggedMessages, Error> {
        self.check_process()?;
        let messenger = match &self.messenger {
            Some(messenger) => messenger.clone(),
            None => self.core()?.messenger(),
        };
        self.messenger = Some(messenger.clone());
        Ok(TaggedMessages { messenger, timeout: None })
    }
}
