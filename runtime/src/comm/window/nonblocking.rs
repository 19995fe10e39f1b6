//! Operations on windows that go on in the background.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::element_window::Window;
use super::operations::WindowCopy;
use super::parts::{PartReach, WindowParts};
use super::served::{pieces, typed};
use crate::comm::work::{Work, WorkPromise, promised};
use roundelay_engine::messages::{MessageOperation, TransferKind};
use roundelay_support::dtype::{Element, RedOp};
use roundelay_support::error::Error;

/// The owner of memory that stays where it is.
pub(crate) struct KeptOwner<B>(NonNull<B>);

// SAFETY: it owns the value, of which one thread at a time has an address.
unsafe impl<B: Send> Send for KeptOwner<B> {}
// SAFETY: a shared one gives an address, and no access.
unsafe impl<B: Send> Sync for KeptOwner<B> {}

impl<B> KeptOwner<B> {
    pub(crate) fn new(owner: B) -> Self {
        KeptOwner(NonNull::from(Box::leak(Box::new(owner))))
    }

    pub(crate) fn as_ptr(&self) -> *mut B {
        self.0.as_ptr()
    }

    pub(crate) fn into_inner(self) -> B {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: it was a box, and is not dropped as one any more.
        *unsafe { Box::from_raw(kept.0.as_ptr()) }
    }
}

impl<B> Drop for KeptOwner<B> {
    fn drop(&mut self) {
        // SAFETY: it was a box.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Pieces of an operation that have not ended.
struct PendingPieces<B> {
    left: usize,
    error: Option<Error>,
    kept: Option<KeptOwner<B>>,
    promise: WorkPromise<B>,
}

impl<B> PendingPieces<B> {
    /// Ends the work once all pieces have.
    fn piece(begun: &Mutex<Self>, result: Result<(), Error>) {
        let mut state = begun.lock();
        state.left -= 1;
        if let Err(error) = result {
            state.error.get_or_insert(error);
        }
        if state.left > 0 {
            return;
        }
        let (error, kept) = (state.error.take(), state.kept.take());
        let result = match (error, kept) {
            (Some(error), _) => Err(error),
            (None, Some(kept)) => Ok(kept.into_inner()),
            (None, None) => Err(Error::Work("the memory of the operation is gone".into())),
        };
        state.promise.end(result);
    }
}

impl WindowParts {
    /// Starts to put, get or accumulate; on a part that is mapped, it is done at once.
    ///
    /// # Safety
    ///
    /// The bytes at the address are good for it as long as `kept` lives, and for it alone.
    pub(super) unsafe fn start<B: Send + 'static>(
        &self,
        copy: WindowCopy,
        (offset, address, bytes): (u64, *mut u8, usize),
        peer: u32,
        kept: KeptOwner<B>,
    ) -> Work<B> {
        let place = (offset, bytes);
        let what = || self.describe(copy, place, peer);
        let remote = match self.reach(peer, what) {
            Ok(PartReach::Served(remote)) if bytes > 0 => remote.clone(),
            _ => {
                // SAFETY: what the caller promises.
                let done = unsafe { self.copy(copy, place, address, peer) };
                return ended(done.map(|()| kept.into_inner()));
            }
        };
        let asked = copy.asked(&remote);
        let checked = self.combines(copy, place).map_err(|refusal| self.refused(what, refusal));
        let checked = checked.and_then(|()| self.check(&remote, asked, place, what));
        if let Err(error) = checked {
            return ended(Err(error));
        }
        let pieces = pieces(asked, (offset, address, bytes));
        // SAFETY: parts of what the caller promises.
        let operations = pieces.map(|piece| unsafe { self.begin(&remote, asked, piece) });
        let work = gather(operations.collect(), (&self.over, self.rank), kept);
        self.leave_running();
        work
    }

    /// Starts a flush.
    pub(super) fn start_flush(&self, peer: u32) -> Work<()> {
        let remote = match self.reach(peer, || format!("flush to rank {peer}")) {
            Ok(PartReach::Served(remote)) => remote.clone(),
            _ => return ended(self.flush(peer)),
        };
        remote.set_due(false);
        let nothing = (0, std::ptr::null_mut(), 0);
        // SAFETY: it has no bytes.
        let operation = unsafe { self.begin(&remote, TransferKind::Flush(remote.key()), nothing) };
        let (rank, size) = (self.rank, self.dtype.size() as u64);
        let flushed = gather(vec![operation], (&self.over, rank), KeptOwner::new(()));
        self.leave_running();
        let (promise, work) = promised();
        flushed.on_end(move |result| {
            promise.end(result.and_then(|()| WindowParts::refusal(&remote, rank, size)));
        });
        work
    }
}

/// Returns the work that ends with operations, of which one that ends after `over` says so.
pub(crate) fn gather<B: Send + 'static>(
    operations: Vec<Result<Arc<MessageOperation>, Error>>,
    (over, rank): (&Arc<AtomicBool>, u32),
    kept: KeptOwner<B>,
) -> Work<B> {
    let (promise, work) = promised();
    let begun = PendingPieces { left: operations.len(), error: None, kept: Some(kept), promise };
    let begun = Arc::new(Mutex::new(begun));
    for operation in operations {
        let (shared, over) = (begun.clone(), over.clone());
        match operation {
            Err(error) => PendingPieces::piece(&shared, Err(error)),
            Ok(operation) => {
                let own = operation.clone();
                let ends = move || PendingPieces::piece(&shared, typed(own.result(), &over, rank));
                if let Err(ends) = operation.then(Box::new(ends)) {
                    ends();
                }
            }
        }
    }
    work
}

/// Returns work that has ended.
pub(crate) fn ended<B>(result: Result<B, Error>) -> Work<B> {
    let (promise, work) = promised();
    promise.end(result);
    work
}

impl<T: Element> Window<T> {
    /// Starts [`Window::put`]. The elements come back with the result; a [flush](Window::flush) or a
    /// [signal](Window::signal) may be started before.
    ///
    /// ```
    /// # roundelay::internal::each_rank(2, |comm| {
    /// let window = comm.window(comm.alloc::<f32>(4)?)?;
    /// let other = 1 - comm.rank();
    /// let put = window.put_async(vec![1.5; 4], other, 0);
    /// window.signal(other)?;
    /// // ... compute something else ...
    /// let data = put.wait()?;
    /// window.wait_signal(other)?;
    /// # assert_eq!(window.free(comm)?[..], data);
    /// # Ok(())
    /// # });
    /// ```
    pub fn put_async<B>(&self, data: B, peer: u32, at: usize) -> Work<B>
    where
        B: Deref<Target = [T]> + Send + 'static,
    {
        self.read_async(WindowCopy::Put, data, peer, at)
    }

    /// Starts [`Window::accumulate`]. The elements come back with the result.
    pub fn accumulate_async<B>(&self, data: B, op: RedOp, peer: u32, at: usize) -> Work<B>
    where
        B: Deref<Target = [T]> + Send + 'static,
    {
        self.read_async(WindowCopy::Accumulate(op), data, peer, at)
    }

    fn read_async<B>(&self, copy: WindowCopy, data: B, peer: u32, at: usize) -> Work<B>
    where
        B: Deref<Target = [T]> + Send + 'static,
    {
        let kept = KeptOwner::new(data);
        // SAFETY: only this function has it.
        let lent: &[T] = unsafe { &*kept.as_ptr() };
        let (offset, bytes) = Self::place(at, lent.len());
        let place = (offset, lent.as_ptr().cast_mut().cast(), bytes);
        // SAFETY: they lie there as long as it is kept, and are only read.
        unsafe { self.parts.start(copy, place, peer, kept) }
    }

    /// Starts [`Window::get`] into elements that come back with the result.
    pub fn get_async<B>(&self, data: B, peer: u32, at: usize) -> Work<B>
    where
        B: DerefMut<Target = [T]> + Send + 'static,
    {
        let kept = KeptOwner::new(data);
        // SAFETY: only this function has it.
        let lent: &mut [T] = unsafe { &mut *kept.as_ptr() };
        let (offset, bytes) = Self::place(at, lent.len());
        let place = (offset, lent.as_mut_ptr().cast(), bytes);
        // SAFETY: they lie there as long as it is kept, and nothing else touches them.
        unsafe { self.parts.start(WindowCopy::Get, place, peer, kept) }
    }

    /// Starts [`Window::flush`], after everything that was started on that peer's part before.
    pub fn flush_async(&self, peer: u32) -> Work<()> {
        self.parts.start_flush(peer)
    }
}
