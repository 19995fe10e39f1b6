//! A region as the links of its endpoint serve it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::key::RegionKey;
use super::link_state::LinkState;
use crate::tunables::QUIET_POLL_INTERVAL;
use roundelay_engine::window::{
    self, ExposedPart, MemorySpan, PartMemory, WORD_BYTES, WindowBlock, WindowRights,
};
use roundelay_support::dtype::DType;
use roundelay_support::error::{Error, ErrorLocation};
use roundelay_support::interrupt;
use roundelay_support::secret::random;

/// A region of this process, with the links that serve it.
pub(super) struct ServedRegion {
    endpoint: u64,
    number: u64,
    span: MemorySpan,
    rights: WindowRights,
    ended: AtomicBool,
    state: Mutex<ServedState>,
}

/// What is served of a region, and to which links.
struct ServedState {
    /// The owner of the memory; none once the region has ended.
    owner: Option<Arc<dyn Any + Send + Sync>>,
    served: Vec<ServedLink>,
}

/// A region as one link serves it.
struct ServedLink {
    link: Weak<LinkState>,
    side: u32,
    exposed: Arc<ExposedPart>,
}

impl ServedRegion {
    /// Makes a region of memory, with a random number.
    pub(super) fn new(
        endpoint: u64,
        span: MemorySpan,
        rights: WindowRights,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, Error> {
        if rights.contains(WindowRights::ATOMICS) {
            check_words(&span)?;
        }
        let number = random().map(u64::from_le_bytes)?;
        let state = Mutex::new(ServedState { owner: Some(owner), served: Vec::new() });
        Ok(ServedRegion { endpoint, number, span, rights, ended: AtomicBool::new(false), state })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn span(&self) -> &MemorySpan {
        &self.span
    }

    /// Returns the key by which peers name it.
    pub(super) fn key(&self) -> RegionKey {
        let ServedRegion { endpoint, number, rights, .. } = *self;
        RegionKey { endpoint, number, bytes: self.span.bytes(), rights }
    }

    /// Returns the rights that peers have: none once it has ended.
    pub(super) fn rights(&self) -> WindowRights {
        if self.ended.load(Ordering::Acquire) { WindowRights::NONE } else { self.rights }
    }

    /// Serves the region on a link; does nothing if either has ended.
    pub(super) fn serve_on(&self, link: &Arc<LinkState>) -> Result<(), Error> {
        link.serve(self.number, |block, words| self.expose(link, block, words))
    }

    /// Returns the part that a link serves, with words of the link; none once the region has ended.
    fn expose(
        &self,
        link: &Arc<LinkState>,
        block: WindowBlock,
        words: Box<dyn Any + Send>,
    ) -> Option<Arc<ExposedPart>> {
        let mut state = self.state.lock();
        let memory = Box::new(state.owner.clone()?);
        block.give(self.rights);
        let place = PartMemory::new(self.span, DType::U8, block);
        let exposed = Arc::new(ExposedPart::new(place, window::PartOwners { memory, words }));
        state.served.retain(|served| served.link.strong_count() > 0);
        let served =
            ServedLink { link: Arc::downgrade(link), side: link.side(), exposed: exposed.clone() };
        state.served.push(served);
        Some(exposed)
    }

    /// Withdraws all rights: no access may begin any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let mut state = self.state.lock();
        state.owner = None;
        for ServedLink { link, exposed, .. } in &state.served {
            exposed.withdraw(WindowRights::ALL);
            if let Some(link) = link.upgrade() {
                link.messenger().end_window(self.number, &[], false);
            }
        }
    }

    /// Waits until no access is under way, and releases the memory.
    pub(super) fn wait_quiet(&self, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now().checked_add(timeout);
        let served = std::mem::take(&mut self.state.lock().served);
        for ServedLink { link, side, exposed } in served {
            // A link that is being dropped ends its accesses last.
            while !exposed.place().block().is_quiet(1 - side) {
                if let Some(link) = link.upgrade().filter(|link| !link.is_open()) {
                    // The accesses that it has announced are abandoned.
                    link.abort("its peer is gone");
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(access_timeout(side, timeout));
                }
                if let Some(error) = interrupt::error(side) {
                    return Err(error);
                }
                std::thread::sleep(QUIET_POLL_INTERVAL);
            }
            drop(exposed.take());
        }
        Ok(())
    }
}

#[cfg(test)]
impl ServedRegion {
    /// Announces a write of the peer of the first link.
    pub(super) fn announce_access(&self) -> Option<window::PeerAccess> {
        let state = self.state.lock();
        let served = state.served.first()?;
        served.exposed.enter(1 - served.side, WindowRights::WRITE).ok()
    }
}

/// Fails unless the words of a region, which are counted from its first byte, are aligned in memory.
fn check_words(span: &MemorySpan) -> Result<(), Error> {
    match span.at(0, WORD_BYTES) {
        Ok(address) if !(address as u64).is_multiple_of(WORD_BYTES) => Err(Error::Usage(format!(
            "memory with the right `atomics` begins at a multiple of 8 bytes, and this at {address:p}: register \
             aligned memory, or without that right"
        ))),
        // Shorter memory has no words.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the error of a peer that does not end its access.
fn access_timeout(rank: u32, after: Duration) -> Error {
    let peer = 1 - rank;
    let awaited = format!("rank {peer} to end its access");
    let (name, text) = ("revoke".into(), format!("wait for {awaited}"));
    let location = ErrorLocation { rank, name, step: 0, site: String::new(), text };
    let remark =
        format!("; is the process of rank {peer} stopped? abort the link to have the memory back");
    Error::Timeout { location: location.into(), awaited, peer, after, remark }
}
