//! A region of the peer, and the operations on it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::key::RegionKey;
use super::link_state::LinkState;
use crate::comm::{
    ElementMemory, Host, KeptOwner, MemoryMut, Work, ended, gather, pieces, promised,
};
use roundelay_engine::messages::{MessageOperation, TransferKind};
use roundelay_engine::window::{AtomicFetch, ServedPart, WindowRights};
use roundelay_support::error::{ByteCount, Error};
use roundelay_support::fork::OwnerProcess;

/// A region of the peer of a [`EndpointLink`](crate::endpoint::EndpointLink). Clones are the same; any thread may use
/// it. Places are counted in bytes.
///
/// Operations of one thread take effect in the order in which they were begun; nothing else is ordered. An aligned word
/// of 8 bytes is written and read whole, and [changed](RemoteRegion::fetch_add) in one step.
#[derive(Clone)]
pub struct RemoteRegion {
    target: Arc<OpenRegion>,
}

/// A region of the peer that is open, which its clones share.
pub(super) struct OpenRegion {
    link: Arc<LinkState>,
    open: Arc<OpenRegions>,
    remote: Arc<ServedPart>,
    process: OwnerProcess,
}

/// The regions of the peer of a link that are open, by number: all clones of a region share one.
pub(super) struct OpenRegions {
    link: Arc<LinkState>,
    targets: Mutex<BTreeMap<u64, Weak<OpenRegion>>>,
}

/// Bytes of a caller, at an offset of the region.
type CallerBytes = (u64, *mut u8, usize);

impl OpenRegions {
    pub(super) fn new(link: Arc<LinkState>) -> Self {
        OpenRegions { link, targets: Mutex::default() }
    }

    /// Returns the region of a key, and opens it unless it is open.
    pub(super) fn open(self: &Arc<Self>, key: RegionKey) -> Result<Arc<OpenRegion>, Error> {
        let mut targets = self.targets.lock();
        if let Some(target) = targets.get(&key.number).and_then(Weak::upgrade) {
            return Ok(target);
        }
        let link = self.link.clone();
        let remote = Arc::new(ServedPart::new(link.peer(), key.number, key.bytes, key.rights));
        link.open_part(remote.clone())?;
        let process = OwnerProcess::here();
        let target = Arc::new(OpenRegion { link, open: self.clone(), remote, process });
        targets.insert(key.number, Arc::downgrade(&target));
        Ok(target)
    }

    /// Closes a region whose last clone was dropped.
    fn close(&self, number: u64) {
        let mut targets = self.targets.lock();
        if targets.get(&number).is_some_and(|target| target.strong_count() == 0) {
            targets.remove(&number);
            self.link.close_part(number);
        }
    }
}

impl OpenRegion {
    fn describe(&self, name: &str, (at, _, bytes): CallerBytes) -> String {
        let bytes = ByteCount(bytes as u64);
        format!("{name} {bytes} at byte {at} of a region of rank {}", self.link.peer())
    }

    /// Fails unless an operation may begin, as far as is known here.
    fn check(&self, name: &str, place: CallerBytes, needed: WindowRights) -> Result<(), Error> {
        self.link.check_usable(|| self.describe(name, place))?;
        let checked = self.remote.check(place.0, place.2 as u64, needed);
        checked.map_err(|refusal| self.link.refused(self.describe(name, place), refusal))
    }

    /// Starts a write, and a notification after it if there is a value.
    ///
    /// # Safety
    ///
    /// The bytes and the value lie there until all operations have ended.
    unsafe fn post_write(
        &self,
        place: CallerBytes,
        value: Option<*const u64>,
    ) -> Vec<Result<Arc<MessageOperation>, Error>> {
        let key = self.remote.key();
        let mut begun = Vec::with_capacity(3);
        if place.2 > 0 {
            // SAFETY: the caller's promise.
            begun.push(unsafe { self.link.start(TransferKind::Put(key), place) });
        }
        if let Some(value) = value.filter(|_| begun.iter().all(Result::is_ok)) {
            // SAFETY: the caller's promise.
            begun.push(unsafe { self.link.start_notification(value) });
        }
        // SAFETY: it has no bytes.
        begun.push(unsafe {
            self.link.start(TransferKind::Flush(key), (0, std::ptr::null_mut(), 0))
        });
        begun
    }

    /// Starts a read.
    ///
    /// # Safety
    ///
    /// The bytes can be written until all operations have ended.
    unsafe fn post_read(&self, place: CallerBytes) -> Vec<Result<Arc<MessageOperation>, Error>> {
        let what = TransferKind::Get(self.remote.key());
        // SAFETY: segments of the memory that the caller promises.
        pieces(what, place).map(|piece| unsafe { self.link.start(what, piece) }).collect()
    }

    /// Applies an atomic operation to the word at an offset; returns what it was.
    fn fetch(&self, at: u64, fetch: AtomicFetch) -> Result<u64, Error> {
        let mut word = 0u64;
        let place = (at, (&raw mut word).cast::<u8>(), size_of::<u64>());
        let describe = || self.describe(fetch.name(), place);
        self.link.check_usable(describe)?;
        let checked = self.remote.check_word(at);
        checked.map_err(|refusal| self.link.refused(describe(), refusal))?;
        let what = TransferKind::Fetch(self.remote.key(), fetch);
        // SAFETY: the word stays where it is until the operation has ended, which is waited for.
        let operation = unsafe { self.link.start(what, place) }?;
        self.link.finish(&operation)?;
        Ok(word)
    }

    /// Waits for all operations; returns the first error.
    fn finish(&self, begun: Vec<Result<Arc<MessageOperation>, Error>>) -> Result<(), Error> {
        let finished = begun.into_iter().map(|operation| self.link.finish(&*operation?));
        finished.fold(Ok(()), Result::and)
    }

    /// Returns the work of operations that were started.
    fn work<B: Send + 'static>(
        &self,
        begun: Vec<Result<Arc<MessageOperation>, Error>>,
        kept: KeptOwner<B>,
    ) -> Work<B> {
        let work = gather(begun, (self.link.closed(), self.link.side()), kept);
        self.link.messenger().leave_running();
        work
    }
}

/// Fails if the peer has refused a write: from then on it refuses all that need the same right or are out of bounds.
fn check_refusal(remote: &ServedPart) -> Result<(), Error> {
    let Some((offset, refusal)) = remote.refusal() else { return Ok(()) };
    let peer = remote.peer();
    let what = format!("write at byte {offset} of a region of rank {peer}");
    Err(Error::Window { rank: 1 - peer, what, refusal })
}

impl Drop for OpenRegion {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.open.close(self.remote.key());
        }
    }
}

impl RemoteRegion {
    pub(super) fn new(target: Arc<OpenRegion>) -> Self {
        RemoteRegion { target }
    }

    /// Returns its length in bytes, as in its key.
    pub fn len(&self) -> usize {
        self.target.remote.bytes() as usize
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rights on it that are known last.
    pub fn rights(&self) -> WindowRights {
        self.target.remote.rights()
    }

    /// Writes to the region, from byte `at` on. Returns when it is there.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if it lies beyond the end, the region does not allow it, or its key is none or was revoked:
    /// nothing is written then, but by a write during which it was revoked, and the link stays usable. All others end
    /// the link: [`Error::Timeout`], [`Error::LostRank`], [`Error::Aborted`].
    pub fn put<M>(&self, data: &M, at: u64) -> Result<(), Error>
    where
        M: ElementMemory<Engine = Host> + ?Sized,
    {
        self.write_and(data, at, None)
    }

    /// Writes to the region as [`RemoteRegion::put`] does, and notifies the peer by a value: a thread that has taken
    /// the [signal](crate::endpoint::EndpointLink::wait_signal) sees what was written. If the peer has just revoked the
    /// region the notification comes all the same.
    ///
    /// # Errors
    ///
    /// The errors of [`RemoteRegion::put`].
    pub fn put_signal<M>(&self, data: &M, at: u64, value: u64) -> Result<(), Error>
    where
        M: ElementMemory<Engine = Host> + ?Sized,
    {
        self.write_and(data, at, Some(&value))
    }

    fn write_and<M>(&self, data: &M, at: u64, value: Option<&u64>) -> Result<(), Error>
    where
        M: ElementMemory<Engine = Host> + ?Sized,
    {
        let (target, lent) = (&self.target, data.lend());
        let place = (at, lent.as_ptr().cast_mut(), lent.len());
        target.check("write", place, WindowRights::WRITE)?;
        // SAFETY: it is borrowed, only read, and waited for.
        let begun = unsafe { target.post_write(place, value.map(std::ptr::from_ref)) };
        target.finish(begun)?;
        check_refusal(&target.remote)
    }

    /// Reads from the region, from byte `at` on. Sees what this thread has written before.
    ///
    /// # Errors
    ///
    /// The errors of [`RemoteRegion::put`].
    pub fn get<M>(&self, data: &mut M, at: u64) -> Result<(), Error>
    where
        M: MemoryMut<Engine = Host> + ?Sized,
    {
        let lent = data.lend_mut();
        let place = (at, lent.as_mut_ptr(), lent.len());
        self.target.check("read", place, WindowRights::READ)?;
        // SAFETY: it is borrowed, and waited for.
        self.target.finish(unsafe { self.target.post_read(place) })
    }

    /// Adds to the 64-bit word that begins at byte `at`, wrapping around, and returns what it was: in one step with
    /// regard to [`RemoteRegion::fetch_add`] and [`RemoteRegion::compare_swap`] of all peers of the region, and to
    /// atomic operations of its owner's processors. It is a word in the peer's byte order.
    ///
    /// # Errors
    ///
    /// The errors of [`RemoteRegion::put`], and [`Error::Window`] if `at` is no multiple of 8.
    pub fn fetch_add(&self, value: u64, at: u64) -> Result<u64, Error> {
        self.target.fetch(at, AtomicFetch::Add(value))
    }

    /// Stores `to` in the 64-bit word that begins at byte `at` if it is `from`, and returns what it was: in one step, as
    /// [`RemoteRegion::fetch_add`] adds.
    ///
    /// # Errors
    ///
    /// The errors of [`RemoteRegion::fetch_add`].
    pub fn compare_swap(&self, from: u64, to: u64, at: u64) -> Result<u64, Error> {
        self.target.fetch(at, AtomicFetch::Swap(from, to))
    }

    /// Starts [`RemoteRegion::put`]. The buffer comes back with the result.
    pub fn put_async<M>(&self, data: M, at: u64) -> Work<M>
    where
        M: ElementMemory<Engine = Host> + Send + 'static,
    {
        self.start_write(data, at, None)
    }

    /// Starts [`RemoteRegion::put_signal`]. The buffer comes back with the result.
    pub fn put_signal_async<M>(&self, data: M, at: u64, value: u64) -> Work<M>
    where
        M: ElementMemory<Engine = Host> + Send + 'static,
    {
        self.start_write(data, at, Some(value))
    }

    fn start_write<M>(&self, data: M, at: u64, value: Option<u64>) -> Work<M>
    where
        M: ElementMemory<Engine = Host> + Send + 'static,
    {
        let kept = KeptOwner::new((data, value));
        // SAFETY: nothing else has it yet.
        let lent = unsafe { &*kept.as_ptr() }.0.lend();
        let place = (at, lent.as_ptr().cast_mut(), lent.len());
        // SAFETY: they lie there as long as they are kept, and are only read.
        unsafe { self.start(place, kept) }
    }

    /// Starts [`RemoteRegion::put`] of bytes at an address, and with a value as
    /// [`put_signal`](RemoteRegion::put_signal) does. `owner` is dropped when it has ended.
    ///
    /// # Safety
    ///
    /// The bytes can be read until `owner` is dropped.
    pub unsafe fn put_at_async(
        &self,
        (address, bytes): (*const u8, usize),
        at: u64,
        value: Option<u64>,
        owner: Box<dyn Any + Send>,
    ) -> Work<()> {
        let place = (at, address.cast_mut(), bytes);
        // SAFETY: the caller's promise.
        unsafe { self.start(place, KeptOwner::new((owner, value))) }.map(drop)
    }

    /// Starts a write, with a notification if there is a value.
    ///
    /// # Safety
    ///
    /// The bytes can be read as long as the owner is kept.
    unsafe fn start<O: Send + 'static>(
        &self,
        place: CallerBytes,
        kept: KeptOwner<(O, Option<u64>)>,
    ) -> Work<O> {
        let target = &self.target;
        if let Err(error) = target.check("write", place, WindowRights::WRITE) {
            return ended(Err(error));
        }
        // SAFETY: nothing else has it yet.
        let value = unsafe { &*kept.as_ptr() }.1.as_ref().map(std::ptr::from_ref);
        // SAFETY: the bytes and the value lie there as long as they are kept, and are only read.
        let begun = unsafe { target.post_write(place, value) };
        let (promise, work) = promised();
        // The thread that drives progress must not hold the last reference to the link.
        let remote = target.remote.clone();
        target.work(begun, kept).on_end(move |result| {
            promise.end(result.and_then(|(owner, _)| check_refusal(&remote).map(|()| owner)));
        });
        work
    }

    /// Starts [`RemoteRegion::get`] into bytes at an address. `owner` is dropped when it has ended.
    ///
    /// # Safety
    ///
    /// The bytes can be written, and are accessed by nothing else, until `owner` is dropped.
    pub unsafe fn get_at_async(
        &self,
        (address, bytes): (*mut u8, usize),
        at: u64,
        owner: Box<dyn Any + Send>,
    ) -> Work<()> {
        // SAFETY: the caller's promise.
        unsafe { self.start_read((at, address, bytes), KeptOwner::new(owner)) }.map(drop)
    }

    /// Starts a read.
    ///
    /// # Safety
    ///
    /// The bytes can be written as long as the owner is kept, and are accessed by nothing else.
    unsafe fn start_read<O: Send + 'static>(
        &self,
        place: CallerBytes,
        kept: KeptOwner<O>,
    ) -> Work<O> {
        match self.target.check("read", place, WindowRights::READ) {
            Err(error) => ended(Err(error)),
            Ok(()) if place.2 == 0 => ended(Ok(kept.into_inner())),
            // SAFETY: the caller's promise.
            Ok(()) => self.target.work(unsafe { self.target.post_read(place) }, kept),
        }
    }

    /// Starts [`RemoteRegion::get`] into a buffer that comes back with the result.
    pub fn get_async<M>(&self, data: M, at: u64) -> Work<M>
    where
        M: MemoryMut<Engine = Host> + Send + 'static,
    {
        let kept = KeptOwner::new(data);
        // SAFETY: nothing else has it yet.
        let lent = unsafe { &mut *kept.as_ptr() }.lend_mut();
        let place = (at, lent.as_mut_ptr(), lent.len());
        // SAFETY: they lie there as long as they are kept, and are accessed by nothing else.
        unsafe { self.start_read(place, kept) }
    }
}

impl std::fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rights = self.rights().to_string();
        f.debug_struct("RemoteRegion").field("len", &self.len()).field("rights", &rights).finish()
    }
}
