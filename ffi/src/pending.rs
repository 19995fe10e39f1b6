//! Operations in the background.

use std::time::Duration;

use roundelay::memory::TypedMemory;
use roundelay::message::{DeliveredMessage, PendingMessage};
use roundelay::{Error, Work, WorkStatus};

/// An operation in the background. Dropped, it goes on.
pub struct PendingOperation {
    what: PendingKind,
}

enum PendingKind {
    Work(Work<()>),
    Sent(PendingMessage<TypedMemory<&'static [u8]>>),
    Received(PendingMessage<TypedMemory<&'static mut [u8]>>),
}

impl PendingOperation {
    pub(crate) fn of(work: Work<()>) -> Self {
        PendingOperation { what: PendingKind::Work(work) }
    }

    pub(crate) fn sent(message: PendingMessage<TypedMemory<&'static [u8]>>) -> Self {
        PendingOperation { what: PendingKind::Sent(message) }
    }

    pub(crate) fn received(message: PendingMessage<TypedMemory<&'static mut [u8]>>) -> Self {
        PendingOperation { what: PendingKind::Received(message) }
    }

    /// Waits for the end of the operation, at most that long; returns `None` if it has not ended then.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), Error>> {
        // A wait without a deadline ends too: every wait inside an operation has one.
        while !self.wait_for(timeout.unwrap_or(Duration::from_secs(3600))) {
            if timeout.is_some() {
                return None;
            }
        }
        Some(match &self.what {
            PendingKind::Work(work) => work.error().map_or(Ok(()), Err),
            PendingKind::Sent(_) | PendingKind::Received(_) => {
                self.delivered().unwrap_or(Ok(None)).map(drop)
            }
        })
    }

    fn wait_for(&self, timeout: Duration) -> bool {
        match &self.what {
            PendingKind::Work(work) => work.wait_timeout(timeout),
            PendingKind::Sent(message) => message.wait_timeout(timeout),
            PendingKind::Received(message) => message.wait_timeout(timeout),
        }
    }

    fn delivered(&self) -> Option<Result<Option<DeliveredMessage>, Error>> {
        let delivered = match &self.what {
            PendingKind::Work(_) => return None,
            PendingKind::Sent(message) => message.result()?,
            PendingKind::Received(message) => message.result()?,
        };
        Some(delivered.map(Some))
    }

    /// Returns the rank that sent the message, once it has been sent or received.
    pub fn source(&self) -> Option<u32> {
        Some(self.delivered()?.ok()??.source)
    }

    /// Returns the progress of the operation.
    pub fn status(&self) -> WorkStatus {
        match &self.what {
            PendingKind::Work(work) => work.status(),
            PendingKind::Sent(message) => message.status(),
            PendingKind::Received(message) => message.status(),
        }
    }

    /// Has a function called once, when the operation has ended; see [`Work::on_completion`].
    pub fn on_completion(&self, callback: impl FnOnce(WorkStatus) + Send + 'static) {
        match &self.what {
            PendingKind::Work(work) => work.on_completion(callback),
            PendingKind::Sent(message) => message.on_completion(callback),
            PendingKind::Received(message) => message.on_completion(callback),
        }
    }
}
