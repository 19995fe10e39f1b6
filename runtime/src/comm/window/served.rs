//! Operations on parts that their own processes serve.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::parts::{PartReach, WindowParts, WindowService};
use roundelay_engine::messages::{
    DeliveredMessage, MessageBuffer, MessageOperation, MessageShape, TransferKind,
};
use roundelay_engine::tunables::WINDOW_COPY_BYTES;
use roundelay_engine::window::{AtomicFetch, ServedPart, WindowRights};
use roundelay_support::error::{AccessRefusal, Error};

impl WindowParts {
    fn service(&self) -> Result<&WindowService, Error> {
        let none = || Error::Work("this window has parts that are served, and no service".into());
        self.service.as_ref().ok_or_else(none)
    }

    /// Begins an operation.
    ///
    /// # Safety
    ///
    /// The bytes at the address are good for it until it has ended.
    pub(super) unsafe fn begin(
        &self,
        remote: &ServedPart,
        what: TransferKind,
        (offset, address, bytes): (u64, *mut u8, usize),
    ) -> Result<std::sync::Arc<MessageOperation>, Error> {
        let place = MessageBuffer {
            address,
            shape: MessageShape { dtype: self.dtype, bytes: bytes as u64 },
        };
        let limits = (offset, self.timeout().max(Duration::from_nanos(1)));
        if matches!(what, TransferKind::Put(_) | TransferKind::Accumulate(..)) {
            remote.set_due(true);
        }
        // SAFETY: the caller's promise.
        unsafe { self.service()?.messenger.operate(what, place, remote.peer(), limits, None) }
    }

    /// Waits for an operation.
    pub(super) fn finish(&self, operation: &MessageOperation) -> Result<(), Error> {
        self.service()?.messenger.wait(operation, None);
        typed(operation.result(), &self.over, self.rank)
    }

    /// Ensures progress of operations without a waiter.
    pub(super) fn leave_running(&self) {
        self.service.iter().for_each(|service| service.messenger.leave_running());
    }

    /// Fails unless an operation may begin, as far as is known here.
    pub(super) fn check(
        &self,
        remote: &ServedPart,
        what: TransferKind,
        (offset, bytes): (u64, usize),
        describe: impl Fn() -> String,
    ) -> Result<(), Error> {
        let needed = match what {
            TransferKind::Get(_) => WindowRights::READ,
            TransferKind::Put(_) => WindowRights::WRITE,
            _ => WindowRights::ATOMICS,
        };
        let checked = remote.check(offset, bytes as u64, needed);
        checked.map_err(|refusal| self.refused(describe, refusal))
    }

    /// Puts or gets, piece by piece; returns when the bytes are the caller's again.
    ///
    /// # Safety
    ///
    /// The bytes at the address are good for it.
    pub(super) unsafe fn copy_served(
        &self,
        remote: &ServedPart,
        what: TransferKind,
        (offset, address, bytes): (u64, *mut u8, usize),
        describe: impl Fn() -> String,
    ) -> Result<(), Error> {
        self.check(remote, what, (offset, bytes), describe)?;
        let pieces = pieces(what, (offset, address, bytes));
        // SAFETY: parts of what the caller promises; all that was begun is waited for below.
        let pieces = pieces.map(|piece| unsafe { self.begin(remote, what, piece) });
        let begun: Vec<_> = pieces.collect();
        let finished = begun.into_iter().map(|operation| self.finish(&*operation?));
        finished.fold(Ok(()), Result::and)
    }

    /// Does an atomic operation on a word.
    pub(super) fn fetch_served(
        &self,
        remote: &ServedPart,
        offset: u64,
        fetch: AtomicFetch,
        describe: impl Fn() -> String,
    ) -> Result<u64, Error> {
        remote.check_word(offset).map_err(|refusal| self.refused(describe, refusal))?;
        let mut word = 0u64;
        let place = (offset, (&raw mut word).cast(), 8);
        // SAFETY: the word stays where it is until the operation has ended.
        let operation =
            unsafe { self.begin(remote, TransferKind::Fetch(remote.key(), fetch), place) }?;
        self.finish(&operation)?;
        Ok(word)
    }

    /// Waits until all that was begun on a part has taken effect.
    pub(super) fn flush_served(&self, remote: &ServedPart) -> Result<(), Error> {
        remote.set_due(false);
        let nothing = (0, std::ptr::null_mut(), 0);
        // SAFETY: it has no bytes.
        let operation = unsafe { self.begin(remote, TransferKind::Flush(remote.key()), nothing) }?;
        self.finish(&operation)?;
        WindowParts::refusal(remote, self.rank, self.dtype.size() as u64)
    }

    /// Fails if an operation that no thread waited for was refused since that was asked last.
    pub(super) fn refusal(remote: &ServedPart, rank: u32, size: u64) -> Result<(), Error> {
        let Some((offset, refusal)) = remote.take_refusal() else { return Ok(()) };
        let (at, peer) = (offset / size, remote.peer());
        let what = format!("put or accumulate to rank {peer} at element {at}");
        Err(Error::Window { rank, what, refusal })
    }

    pub(super) fn served_signal(&self, remote: &ServedPart) -> Result<(), Error> {
        self.service()?.messenger.signal(remote.peer(), remote.key())
    }

    /// Waits for a signal of a rank that sends it.
    pub(super) fn served_wait(&self, remote: &ServedPart) -> Result<(), Error> {
        let part = (self.own.clone(), self.taken.clone());
        let messenger = &self.service()?.messenger;
        let operation = messenger.await_signal(remote.peer(), part, self.timeout())?;
        self.finish(&operation)
    }

    /// Waits until all that was begun on parts that are served has taken effect, or was refused.
    pub(super) fn settle(&self) -> Result<(), Error> {
        for reach in &self.peers {
            match reach {
                PartReach::Served(remote) if remote.set_due(false) => {
                    match self.flush_served(remote) {
                        Ok(()) | Err(Error::Window { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Tells peers whose devices access this rank's part by themselves what they may do now.
    pub(super) fn renew_grants(&self) {
        if let Some(WindowService { messenger, key }) = &self.service {
            messenger.renew_grants(*key);
        }
    }

    /// Serves this rank's part no longer, as `all` ranks do, or this one alone.
    pub(super) fn end_service(&self, all: bool) {
        let Some(WindowService { messenger, key }) = &self.service else { return };
        let remotes = self.peers.iter().filter_map(|reach| match reach {
            PartReach::Served(remote) => Some((remote.peer(), remote.key())),
            PartReach::Mapped(_) => None,
        });
        messenger.end_window(*key, &remotes.collect::<Vec<_>>(), all);
    }
}

/// Returns the pieces by which bytes are asked for: what is got comes in pieces that are each refused or given.
pub(crate) fn pieces(
    what: TransferKind,
    (offset, address, bytes): (u64, *mut u8, usize),
) -> impl Iterator<Item = (u64, *mut u8, usize)> {
    let whole = if matches!(what, TransferKind::Get(_)) { WINDOW_COPY_BYTES } else { bytes.max(1) };
    (0..bytes)
        .step_by(whole)
        .map(move |at| (offset + at as u64, address.wrapping_add(at), whole.min(bytes - at)))
}

/// Returns the result of an operation that has ended: an error that came since the window is over says so.
pub(crate) fn typed(
    result: Option<Result<DeliveredMessage, Error>>,
    over: &AtomicBool,
    rank: u32,
) -> Result<(), Error> {
    let result = result.unwrap_or_else(|| Err(Error::Work("the operation has no end".into())));
    match result {
        Err(Error::Window { rank, what, refusal }) => Err(Error::Window { rank, what, refusal }),
        Err(error) if !over.load(Ordering::Acquire) => Err(error),
        Err(_) => {
            let what = "an operation on a window".into();
            Err(Error::Window { rank, what, refusal: AccessRefusal::Over })
        }
        Ok(_) => Ok(()),
    }
}
