//! The connection of two endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::key::Key;
use super::region::Part;
use super::target::{RemoteRegion, Target};
use crate::comm::{AbortHandle, Communicator, Kept, typed};
use roundelay_engine::executor::watchdog::{Trouble, examine};
use roundelay_engine::messages::{Messenger, Operation, Peer, Place, Shape, What};
use roundelay_engine::window::{Exposed, Remote};
use roundelay_net::dtype::DType;
use roundelay_net::error::{Error, Location, Refusal};
use roundelay_net::fork::OwnerProcess;
use roundelay_net::group::Group;
use roundelay_net::transport::Transports;

/// The tag of notifications: nothing else is sent on a link.
const NOTICE: u64 = 0;
const VALUE: Shape = Shape { dtype: DType::U64, bytes: 8 };

/// The connection of two endpoints ([`Endpoint::connect`](crate::Endpoint::connect)). Clones are the same; any thread
/// may use it. It is closed when the last of them and of its [`RemoteRegion`]s is dropped: keep one until work has
/// ended.
///
/// In errors the two ends are ranks 0 and 1, as [`Link::side`] says. An operation that fails by anything but
/// [`Error::Window`] ends the link, at both ends: in time or not at all, so that no memory is written later.
#[derive(Clone)]
pub struct Link {
    core: Arc<Core>,
}

/// The state of a link.
pub(super) struct Core {
    process: OwnerProcess,
    side: u32,
    /// The number of the peer's endpoint.
    endpoint: u64,
    transports: Transports,
    /// None once it was closed.
    comm: Mutex<Option<Communicator>>,
    messenger: Messenger,
    abort: AbortHandle,
    /// For whoever asks whether the peer is there.
    group: Mutex<Group>,
    closed: Arc<AtomicBool>,
    /// Waits for notifications that nobody waits in any more.
    notices: Mutex<VecDeque<Notice>>,
    /// The peer's regions that are open, by number.
    targets: Mutex<BTreeMap<u64, Weak<Target>>>,
}

/// A wait for a notification.
struct Notice {
    operation: Arc<Operation>,
    value: Arc<Kept<u64>>,
}

impl Core {
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
        Ok(Arc::new(Core {
            process: OwnerProcess::here(),
            side,
            endpoint,
            transports,
            comm: Mutex::new(Some(comm)),
            messenger,
            abort,
            group: Mutex::new(group),
            closed: Arc::default(),
            notices: Mutex::default(),
            targets: Mutex::default(),
        }))
    }

    /// Hears the peer from now on: it asks for regions at any time, so those that it knows of are served before.
    pub(super) fn attend(&self) -> Result<(), Error> {
        self.messenger.attend(self.peer())
    }

    pub(super) fn side(&self) -> u32 {
        self.side
    }

    pub(super) fn peer(&self) -> u32 {
        1 - self.side
    }

    pub(super) fn messenger(&self) -> &Messenger {
        &self.messenger
    }

    /// Returns the flag that is true once the link was closed here.
    pub(super) fn closed(&self) -> &Arc<AtomicBool> {
        &self.closed
    }

    /// Fails unless an operation can begin: `what` says which.
    pub(super) fn usable(&self, what: impl Fn() -> String) -> Result<(), Error> {
        self.process.check("link")?;
        if self.closed.load(Ordering::Acquire) {
            return Err(self.refused(what(), Refusal::Over));
        }
        if !self.abort.is_aborted() {
            return Ok(());
        }
        let (rank, name, text) = (self.side, "link".into(), what());
        let location = Location { rank, name, step: 0, site: String::new(), text };
        Err(self.group.lock().aborted(Some(location)))
    }

    pub(super) fn refused(&self, what: String, refusal: Refusal) -> Error {
        Error::Window { rank: self.side, what, refusal }
    }

    /// Says of what could not begin on a link that has ended meanwhile why it has.
    fn begun<T>(&self, begun: Result<T, Error>) -> Result<T, Error> {
        begun
            .map_err(|error| self.usable(|| "an operation on a link".into()).err().unwrap_or(error))
    }

    /// Begins an operation on a peer's region.
    ///
    /// # Safety
    ///
    /// The bytes at the address are good for it until it has ended.
    pub(super) unsafe fn begin(
        &self,
        what: What,
        (offset, address, bytes): (u64, *mut u8, usize),
    ) -> Result<Arc<Operation>, Error> {
        let place = Place { address, shape: Shape { dtype: DType::U8, bytes: bytes as u64 } };
        let limits = self.limits(offset);
        // SAFETY: the caller's promise.
        self.begun(unsafe { self.messenger.operate(what, place, self.peer(), limits, None) })
    }

    /// Begins to send a notification.
    ///
    /// # Safety
    ///
    /// The value lies there until the operation has ended.
    pub(super) unsafe fn begin_notice(&self, value: *const u64) -> Result<Arc<Operation>, Error> {
        let place = Place { address: value.cast_mut().cast(), shape: VALUE };
        let limits = self.limits(NOTICE);
        // SAFETY: the caller's promise.
        self.begun(unsafe { self.messenger.send(place, self.peer(), limits, None) })
    }

    fn limits(&self, tag: u64) -> (u64, Duration) {
        (tag, self.messenger.timeout().max(Duration::from_nanos(1)))
    }

    /// Waits for an operation.
    pub(super) fn finish(&self, operation: &Operation) -> Result<(), Error> {
        self.messenger.wait(operation, None);
        typed(operation.result(), &self.closed, self.side)
    }

    /// Serves a region of this endpoint to the peer; does nothing on a link that has ended.
    pub(super) fn serve(self: &Arc<Self>, part: &Part) -> Result<(), Error> {
        let mut comm = self.comm.lock();
        let Some(comm) = comm.as_mut().filter(|_| !self.abort.is_aborted()) else { return Ok(()) };
        let (words, block) = comm.core()?.cut_words()?;
        let Some(exposed) = part.expose(self, block, Box::new(words)) else { return Ok(()) };
        let served = self.serve_exposed(part.number(), exposed);
        if self.abort.is_aborted() { Ok(()) } else { served }
    }

    fn serve_exposed(&self, number: u64, exposed: Arc<Exposed>) -> Result<(), Error> {
        self.messenger.serve_window(number, Some(exposed), Vec::new(), &[])
    }

    /// Returns the open part of a peer's region.
    fn target(self: &Arc<Self>, key: Key) -> Result<Arc<Target>, Error> {
        let mut targets = self.targets.lock();
        if let Some(target) = targets.get(&key.number).and_then(Weak::upgrade) {
            return Ok(target);
        }
        let remote = Arc::new(Remote::new(self.peer(), key.number, key.bytes, key.rights));
        let remotes = vec![remote.clone()];
        self.begun(self.messenger.serve_window(0, None, remotes, &[self.peer()]))?;
        let target = Arc::new(Target::new(self.clone(), remote));
        targets.insert(key.number, Arc::downgrade(&target));
        Ok(target)
    }

    /// Forgets a peer's region that nobody has open any more.
    pub(super) fn forget(&self, number: u64) {
        let mut targets = self.targets.lock();
        if targets.get(&number).is_some_and(|target| target.strong_count() == 0) {
            targets.remove(&number);
            self.messenger.end_window(0, &[(self.peer(), number)], false);
        }
    }

    /// Returns true unless the link was closed or has failed, or the peer is known to be gone.
    pub(super) fn is_open(&self) -> bool {
        if !self.process.is_here() || self.closed.load(Ordering::Acquire) || self.abort.is_aborted()
        {
            return false;
        }
        let group = self.group.lock();
        group.listen();
        let is_gone = matches!(examine(&group, self.peer(), 0, None), Some(Trouble::Gone(_)));
        !is_gone && !group.is_aborted()
    }

    pub(super) fn abort(&self, why: &str) {
        self.abort.abort(why);
    }

    pub(super) fn close(&self) {
        if !self.process.is_here() {
            return;
        }
        self.closed.store(true, Ordering::Release);
        let comm = self.comm.lock().take();
        drop(comm);
        self.notices.lock().clear();
    }

    fn wait_notice(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        self.usable(|| format!("wait for a notification of rank {}", self.peer()))?;
        let waiting = self.notices.lock().pop_front();
        let notice = waiting.map_or_else(|| self.post_notice(), Ok)?;
        if !self.messenger.wait(&notice.operation, Instant::now().checked_add(timeout)) {
            self.notices.lock().push_front(notice);
            return Ok(None);
        }
        typed(notice.operation.result(), &self.closed, self.side)?;
        // SAFETY: the operation has ended, so nobody writes it any more.
        Ok(Some(unsafe { notice.value.as_ptr().read() }))
    }

    fn post_notice(&self) -> Result<Notice, Error> {
        let value = Arc::new(Kept::new(0u64));
        let place = Place { address: value.as_ptr().cast(), shape: VALUE };
        let limits = (NOTICE, Duration::MAX);
        let kept = Some(Box::new(value.clone()) as Box<_>);
        let peer = Peer::Rank(self.peer());
        // SAFETY: it lies there until the operation has ended and dropped what is kept.
        let operation = self.begun(unsafe { self.messenger.receive(place, peer, limits, kept) })?;
        Ok(Notice { operation, value })
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        match self.process.is_here() {
            true => self.close(),
            // The threads that wait for these are the parent's.
            false => std::mem::forget(std::mem::take(&mut self.notices)),
        }
    }
}

impl Link {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Link { core }
    }

    /// Returns the number by which errors name this end of the link: 0 or 1, the other one's is 1 or 0.
    pub fn side(&self) -> u32 {
        self.core.side
    }

    /// Returns the transport that carries the link.
    pub fn transports(&self) -> Transports {
        self.core.transports
    }

    /// Returns true unless the link was closed, has failed, or the peer is known to be gone.
    pub fn is_open(&self) -> bool {
        self.core.is_open()
    }

    /// Sets the longest time without progress of a wait on this link: by default that of the endpoint's settings, 30 s.
    pub fn set_timeout(&self, timeout: Duration) {
        self.core.messenger.set_timeout(timeout);
    }

    /// Returns the peer's region of that key. Nothing is sent: whether the key is good shows when it is used.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the bytes are no key, or that of a region of another endpoint; [`Error::Window`] and
    /// [`Error::Aborted`] once the link has ended.
    pub fn region(&self, key: &[u8]) -> Result<RemoteRegion, Error> {
        let key = Key::decode(key)?;
        if key.endpoint != self.core.endpoint {
            let text =
                "this is the key of a region of another endpoint: use it on a link to that one";
            return Err(Error::Usage(text.into()));
        }
        self.core.usable(|| format!("open a region of rank {}", self.core.peer()))?;
        Ok(RemoteRegion::new(self.core.target(key)?))
    }

    /// Notifies the peer by a value, after everything that this thread has done on the link before. Returns at once,
    /// unless the peer has left 64 notifications untaken: then when it takes them.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] once the link was closed; otherwise those that end it: [`Error::Timeout`],
    /// [`Error::LostRank`], [`Error::Aborted`].
    pub fn notify(&self, value: u64) -> Result<(), Error> {
        self.core.usable(|| format!("notify rank {}", self.core.peer()))?;
        // SAFETY: it is waited for before the value goes.
        let operation = unsafe { self.core.begin_notice(&value) }?;
        self.core.finish(&operation)
    }

    /// Waits for a notification of the peer, and takes it: whoever has it sees what the peer wrote before. Returns
    /// `None` if none comes in time; the link is then as before. Notifications are taken in their order.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if the link is closed here; otherwise those that end it: [`Error::LostRank`] and
    /// [`Error::Aborted`].
    pub fn wait_notification(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        self.core.wait_notice(timeout)
    }

    /// Fails in a process that was forked from the one that made the link.
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<(), Error> {
        self.core.process.check("link")
    }

    /// Closes the link: what was written has come to the peer's system, waits of other threads end by
    /// [`Error::Window`], and the peer's operations fail from then on. It waits 2 s at most for what the peer has not
    /// taken. Not to be called by a callback of [`Work`](crate::Work).
    pub fn close(&self) {
        self.core.close();
    }

    /// Ends the link at both ends, from any thread and without a wait: operations that are pending, and those that
    /// follow, fail by [`Error::Aborted`] with this cause.
    pub fn abort(&self, why: &str) {
        self.core.abort(why);
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Core { side, transports, closed, .. } = &*self.core;
        f.debug_struct("Link")
            .field("side", side)
            .field("transports", &transports.to_string())
            .field("closed", &closed.load(Ordering::Relaxed))
            .finish()
    }
}
