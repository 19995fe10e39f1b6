//! The state of a link: its communicator, the operations on it, and its end.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::comm::{AbortHandle, Communicator, KeptOwner, typed};
use roundelay_engine::messages::{
    MessageBuffer, MessageOperation, MessageShape, RankMessenger, ReceiveSource, TransferKind,
};
use roundelay_engine::progress::peer_failure::{PeerFailure, examine};
use roundelay_engine::window::{ExposedPart, ServedPart, WindowBlock};
use roundelay_net::group::RankGroup;
use roundelay_net::transport::TransportSet;
use roundelay_support::dtype::DType;
use roundelay_support::error::{AccessRefusal, Error, ErrorLocation};
use roundelay_support::fork::OwnerProcess;

/// The tag of notifications: nothing else is sent on a link.
const NOTIFICATION_TAG: u64 = 0;
/// The shape of a notification's value.
const NOTIFICATION_SHAPE: MessageShape = MessageShape { dtype: DType::U64, bytes: 8 };

/// The state of a link.
pub(super) struct LinkState {
    process: OwnerProcess,
    side: u32,
    /// The number of the peer's endpoint.
    endpoint: u64,
    transports: TransportSet,
    /// None once the link was closed.
    comm: Mutex<Option<Communicator>>,
    messenger: RankMessenger,
    abort: AbortHandle,
    /// Shows whether the peer is alive.
    group: Mutex<RankGroup>,
    closed: Arc<AtomicBool>,
    /// Receives of notifications whose waits have timed out.
    notifications: Mutex<VecDeque<PendingNotification>>,
}

/// A receive of a notification.
struct PendingNotification {
    operation: Arc<MessageOperation>,
    value: Arc<KeptOwner<u64>>,
}

impl LinkState {
    /// Makes the link over a communicator of two.
    pub(super) fn new(
        mut comm: Communicator,
        endpoint: u64,
        timeout: Duration,
    ) -> Result<Arc<Self>, Error> {
        let abort = comm.abort_handle();
        let core = comm.core()?;
        let (messenger, group) = (core.messenger(), core.group.beside_windows());
        let (side, transports) = (core.rank(), core.transports());
        messenger.set_timeout(timeout);
        Ok(Arc::new(LinkState {
            process: OwnerProcess::here(),
            side,
            endpoint,
            transports,
            comm: Mutex::new(Some(comm)),
            messenger,
            abort,
            group: Mutex::new(group),
            closed: Arc::default(),
            notifications: Mutex::default(),
        }))
    }

    /// Serves the peer from now on: it may request regions at any time, so those whose keys it has are served before.
    pub(super) fn serve_peer(&self) -> Result<(), Error> {
        self.messenger.attend(self.peer())
    }

    pub(super) fn side(&self) -> u32 {
        self.side
    }

    pub(super) fn peer(&self) -> u32 {
        1 - self.side
    }

    pub(super) fn messenger(&self) -> &RankMessenger {
        &self.messenger
    }

    /// Returns the flag that is true once the link was closed here.
    pub(super) fn closed(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    /// Fails unless an operation can begin; `what` describes the operation.
    pub(super) fn check_usable(&self, what: impl Fn() -> String) -> Result<(), Error> {
        self.process.check("link")?;
        if self.closed.load(Ordering::Acquire) {
            return Err(self.refused(what(), AccessRefusal::Over));
        }
        if !self.abort.is_aborted() {
            return Ok(());
        }
        let (rank, name, text) = (self.side, "link".into(), what());
        let location = ErrorLocation { rank, name, step: 0, site: String::new(), text };
        Err(self.group.lock().aborted(Some(location)))
    }

    pub(super) fn refused(&self, what: String, refusal: AccessRefusal) -> Error {
        Error::Window { rank: self.side, what, refusal }
    }

    /// Replaces the error of an operation that could not begin by the cause of the link's end, if it has ended.
    fn with_cause<T>(&self, begun: Result<T, Error>) -> Result<T, Error> {
        begun.map_err(|error| {
            self.check_usable(|| "an operation on a link".into()).err().unwrap_or(error)
        })
    }

    /// Starts an operation on a region of the peer.
    ///
    /// # Safety
    ///
    /// The bytes at the address can be read or written, as the operation needs, until it has ended.
    pub(super) unsafe fn start(
        &self,
        what: TransferKind,
        (offset, address, bytes): (u64, *mut u8, usize),
    ) -> Result<Arc<MessageOperation>, Error> {
        let place = MessageBuffer {
            address,
            shape: MessageShape { dtype: DType::U8, bytes: bytes as u64 },
        };
        let limits = self.limits(offset);
        // SAFETY: the caller's promise.
        self.with_cause(unsafe { self.messenger.operate(what, place, self.peer(), limits, None) })
    }

    /// Starts to send a notification.
    ///
    /// # Safety
    ///
    /// The value lies there until the operation has ended.
    pub(super) unsafe fn start_notification(
        &self,
        value: *const u64,
    ) -> Result<Arc<MessageOperation>, Error> {
        let place = MessageBuffer { address: value.cast_mut().cast(), shape: NOTIFICATION_SHAPE };
        let limits = self.limits(NOTIFICATION_TAG);
        // SAFETY: the caller's promise.
        self.with_cause(unsafe { self.messenger.send(place, self.peer(), limits, None) })
    }

    fn limits(&self, tag: u64) -> (u64, Duration) {
        (tag, self.messenger.timeout().max(Duration::from_nanos(1)))
    }

    /// Waits for an operation.
    pub(super) fn finish(&self, operation: &MessageOperation) -> Result<(), Error> {
        self.messenger.wait(operation, None);
        typed(operation.result(), &self.closed, self.side)
    }

    /// Serves a part to the peer, which `expose` makes of words of this link; does nothing if it makes none, or on a
    /// link that has ended.
    pub(super) fn serve(
        &self,
        number: u64,
        expose: impl FnOnce(WindowBlock, Box<dyn Any + Send>) -> Option<Arc<ExposedPart>>,
    ) -> Result<(), Error> {
        let mut comm = self.comm.lock();
        let Some(comm) = comm.as_mut().filter(|_| !self.abort.is_aborted()) else { return Ok(()) };
        let (words, block) = comm.core()?.cut_words()?;
        let Some(exposed) = expose(block, Box::new(words)) else { return Ok(()) };
        let served = self.messenger.serve_window(number, Some(exposed), Vec::new(), &[]);
        if self.abort.is_aborted() { Ok(()) } else { served }
    }

    /// Opens a part of the peer, so that operations on it may begin.
    pub(super) fn open_part(&self, remote: Arc<ServedPart>) -> Result<(), Error> {
        self.with_cause(self.messenger.serve_window(0, None, vec![remote], &[self.peer()]))
    }

    /// Closes a part of the peer.
    pub(super) fn close_part(&self, number: u64) {
        self.messenger.end_window(0, &[(self.peer(), number)], false);
    }

    /// Fails in a process that was forked from the one that made the link.
    pub(super) fn check_process(&self) -> Result<(), Error> {
        self.process.check("link")
    }

    /// Returns the number of the peer's endpoint.
    pub(super) fn endpoint(&self) -> u64 {
        self.endpoint
    }

    pub(super) fn transports(&self) -> TransportSet {
        self.transports
    }

    /// Returns true unless the link was closed or has failed, or the peer is known to be lost.
    pub(super) fn is_open(&self) -> bool {
        if !self.process.is_here() || self.closed.load(Ordering::Acquire) || self.abort.is_aborted()
        {
            return false;
        }
        let group = self.group.lock();
        group.listen();
        let is_gone = matches!(examine(&group, self.peer(), 0, None), Some(PeerFailure::Gone(_)));
        !is_gone && !group.is_aborted()
    }

    /// Ends the link at both ends, with this cause.
    pub(super) fn abort(&self, why: &str) {
        self.abort.abort(why);
    }

    /// Ends the link at this end.
    pub(super) fn close(&self) {
        if !self.process.is_here() {
            return;
        }
        self.closed.store(true, Ordering::Release);
        let comm = self.comm.lock().take();
        drop(comm);
        self.notifications.lock().clear();
    }

    /// Waits for a notification; returns `None` if none comes in time.
    pub(super) fn wait_notification(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        self.check_usable(|| format!("wait for a notification of rank {}", self.peer()))?;
        let waiting = self.notifications.lock().pop_front();
        let notice = waiting.map_or_else(|| self.post_notification(), Ok)?;
        if !self.messenger.wait(&notice.operation, Instant::now().checked_add(timeout)) {
            self.notifications.lock().push_front(notice);
            return Ok(None);
        }
        typed(notice.operation.result(), &self.closed, self.side)?;
        // SAFETY: the operation has ended, so it is written no more.
        Ok(Some(unsafe { notice.value.as_ptr().read() }))
    }

    fn post_notification(&self) -> Result<PendingNotification, Error> {
        let value = Arc::new(KeptOwner::new(0u64));
        let place = MessageBuffer { address: value.as_ptr().cast(), shape: NOTIFICATION_SHAPE };
        let limits = (NOTIFICATION_TAG, Duration::MAX);
        let kept = Some(Box::new(value.clone()) as Box<_>);
        let peer = ReceiveSource::Rank(self.peer());
        // SAFETY: it lies there until the operation has ended and dropped what is kept.
        let operation =
            self.with_cause(unsafe { self.messenger.receive(place, peer, limits, kept) })?;
        Ok(PendingNotification { operation, value })
    }
}

impl Drop for LinkState {
    fn drop(&mut self) {
        match self.process.is_here() {
            true => self.close(),
            // Their waiters are threads of the parent.
            false => std::mem::forget(std::mem::take(&mut self.notifications)),
        }
    }
}
