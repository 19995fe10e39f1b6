//! Memory of this process that peers may read and write.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::endpoint::Shared;
use super::key::Key;
use super::link::Core;
use crate::comm::Kept;
use roundelay_engine::window::{self, Block, Exposed, Place, Rights, Span};
use roundelay_net::dtype::DType;
use roundelay_net::error::{Error, Location, Refusal};
use roundelay_net::fork::OwnerProcess;
use roundelay_net::interrupt;
use roundelay_net::secret::random;

/// The time between two looks whether a peer's access is over.
const LOOK: Duration = Duration::from_micros(100);

/// Memory that the peers of an [`Endpoint`](crate::Endpoint) may read and write by its key.
///
/// Dropped, it is revoked as by [`Region::revoke`], but without a wait: accesses that have begun end, and the buffer is
/// dropped after the last of them.
pub struct Region<B> {
    endpoint: Arc<Shared>,
    part: Arc<Part>,
    buffer: Option<Arc<Kept<B>>>,
    process: OwnerProcess,
}

/// A region as links serve it.
pub(super) struct Part {
    endpoint: u64,
    number: u64,
    span: Span,
    rights: Rights,
    ended: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// Whatever owns the memory; none once nobody is to get at it any more.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    served: Vec<Served>,
}

/// A region as one link serves it.
struct Served {
    link: Weak<Core>,
    side: u32,
    exposed: Arc<Exposed>,
}

impl Part {
    pub(super) fn new(
        endpoint: u64,
        span: Span,
        rights: Rights,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        let number = random().map(u64::from_le_bytes)?;
        // Atomic operations are those of windows.
        let rights = rights.without(Rights::ATOMICS);
        let state = Mutex::new(State { owner: Some(owner), served: Vec::new() });
        Ok(Part { endpoint, number, span, rights, ended: AtomicBool::new(false), state })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns what a link serves, with the words that are the link's; none once the region has ended.
    pub(super) fn expose(
        &self,
        link: &Arc<Core>,
        block: Block,
        words: Box<dyn Any + Send>,
    ) -> Option<Arc<Exposed>> {
        let mut state = self.state.lock();
        let memory = Box::new(state.owner.clone()?);
        block.give(self.rights);
        let place = Place::new(self.span, DType::U8, block);
        let exposed = Arc::new(Exposed::new(place, window::Kept { memory, words }));
        state.served.retain(|served| served.link.strong_count() > 0);
        let served =
            Served { link: Arc::downgrade(link), side: link.side(), exposed: exposed.clone() };
        state.served.push(served);
        Some(exposed)
    }

    /// Lets no access begin any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let mut state = self.state.lock();
        state.owner = None;
        for Served { link, exposed, .. } in &state.served {
            exposed.withdraw(Rights::ALL);
            if let Some(link) = link.upgrade() {
                link.messenger().end_window(self.number, &[], false);
            }
        }
    }

    /// Waits until no access is under way, and lets go of the memory.
    fn quiet(&self, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now().checked_add(timeout);
        let served = std::mem::take(&mut self.state.lock().served);
        for Served { link, side, exposed } in served {
            // A link that is being dropped has accesses until it has ended them.
            while !exposed.place().block().is_quiet(1 - side) {
                if let Some(link) = link.upgrade().filter(|link| !link.is_open()) {
                    // What it had begun is given up.
                    link.abort("its peer is gone");
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(late(side, timeout));
                }
                if let Some(error) = interrupt::error(side) {
                    return Err(error);
                }
                std::thread::sleep(LOOK);
            }
            drop(exposed.take());
        }
        Ok(())
    }
}

fn late(rank: u32, after: Duration) -> Error {
    let peer = 1 - rank;
    let awaited = format!("rank {peer} to end its access");
    let (name, text) = ("revoke".into(), format!("wait for {awaited}"));
    let location = Location { rank, name, step: 0, site: String::new(), text };
    let remark =
        format!("; is the process of rank {peer} stopped? abort the link to have the memory back");
    Error::Timeout { location: location.into(), awaited, peer, after, remark }
}

impl<B> Region<B> {
    pub(super) fn new(endpoint: Arc<Shared>, part: Arc<Part>, buffer: Arc<Kept<B>>) -> Self {
        Region { endpoint, part, buffer: Some(buffer), process: OwnerProcess::here() }
    }

    /// Returns the bytes by which a peer names the region: 36 of them, with a random number of 64 bits. Whoever has
    /// them, and a link to the endpoint, has its rights.
    pub fn key(&self) -> Vec<u8> {
        let Part { endpoint, number, span, rights, .. } = &*self.part;
        Key { endpoint: *endpoint, number: *number, bytes: span.bytes(), rights: *rights }.encode()
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.part.span.bytes() as usize
    }

    /// Returns true if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the rights that peers have.
    pub fn rights(&self) -> Rights {
        match self.part.ended.load(Ordering::Acquire) {
            true => Rights::NONE,
            false => self.part.rights,
        }
    }

    /// Returns the address of its first byte, for code that knows when no peer uses it: after a notification, say.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.part.span.at(0, 0).unwrap_or(std::ptr::null_mut())
    }

    /// Copies bytes of the region, from byte `at` on. What a peer writes there at the same time may be seen in part; an
    /// aligned word of 8 bytes is read whole.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn read(&self, at: u64, data: &mut [u8]) -> Result<(), Error> {
        self.process.check("region")?;
        // SAFETY: it is borrowed.
        let read = unsafe { self.part.span.get((at, data.len()), data.as_mut_ptr(), || true) };
        read.map(drop).map_err(|refusal| self.refused("read", at, data.len(), refusal))
    }

    /// Writes bytes of the region, as [`Region::read`] reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if they lie beyond the end.
    pub fn write(&self, at: u64, data: &[u8]) -> Result<(), Error> {
        self.process.check("region")?;
        // SAFETY: it is borrowed.
        let written = unsafe { self.part.span.put((at, data.len()), data.as_ptr(), || true) };
        written.map(drop).map_err(|refusal| self.refused("write", at, data.len(), refusal))
    }

    fn refused(&self, name: &str, at: u64, bytes: usize, refusal: Refusal) -> Error {
        let what = format!("{name} {bytes} bytes at byte {at} of its own region");
        Error::Window { rank: 0, what, refusal }
    }

    /// Revokes the key. Links that are being made do not serve it any more, so that those that do are known.
    fn end(&self) {
        self.endpoint.forget(self.part.number);
        self.part.end();
    }

    /// Revokes the key, and gives the buffer back: no peer reads or writes it any more. It waits for accesses that have
    /// begun; those that come later are refused.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if a peer does not end in time what it has begun. The region is revoked then too, but that
    /// access may still go on: the buffer is dropped after it, or with the link.
    pub fn revoke(mut self) -> Result<B, Error> {
        self.process.check("region")?;
        self.end();
        self.part.quiet(self.endpoint.timeout())?;
        let gone = || Error::Work("the buffer of a region is gone".into());
        let mut buffer = self.buffer.take().ok_or_else(gone)?;
        // A link that is closed at this moment is about to let go of it.
        loop {
            match Arc::try_unwrap(buffer) {
                Ok(kept) => return Ok(kept.into_inner()),
                Err(shared) => buffer = shared,
            }
            std::thread::yield_now();
        }
    }
}

impl<B> Drop for Region<B> {
    fn drop(&mut self) {
        // A process that was forked from the endpoint's ends nothing.
        if !self.process.is_here() {
            std::mem::forget(self.buffer.take());
            return;
        }
        self.end();
    }
}

impl<B> std::fmt::Debug for Region<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rights = self.rights().to_string();
        f.debug_struct("Region").field("len", &self.len()).field("rights", &rights).finish()
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
