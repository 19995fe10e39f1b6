//! The words of a rank's part of a window, in memory that its peers map.
//!
//! ```text
//! line 0          the rights
//! line 1          the lock of accumulates
//! line 2 + 2 r    the signals of rank r
//! line 3 + 2 r    the accesses of rank r that are under way; 1 while it may begin others
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::protocol::{self, WordAccess};
use super::rights::WindowRights;
use roundelay_net::transport::shm::ShmSegment;
use roundelay_support::error::Error;

const LINE: u64 = 64;

/// The words of one rank's part.
#[derive(Clone)]
pub struct WindowBlock {
    /// The address of its first word, in the memory that is held.
    words: *const AtomicU64,
    at: u64,
    _segment: Arc<ShmSegment>,
}

// SAFETY: the address is one of the segment, which is held, and what lies there is accessed as atomics alone.
unsafe impl Send for WindowBlock {}
// SAFETY: as above.
unsafe impl Sync for WindowBlock {}

/// An access of an origin that the owner waits for.
pub type Announced<'a> = WordAccess<'a, AtomicU64>;

impl WindowBlock {
    /// Returns the bytes of a block for `ranks`.
    pub fn bytes(ranks: u32) -> u64 {
        LINE * (2 + 2 * u64::from(ranks))
    }

    /// Returns the block at an offset of the memory, which is reserved, of a window that a number of ranks use.
    pub fn new(segment: Arc<ShmSegment>, at: u64, ranks: u32) -> Result<Self, Error> {
        let words = segment.mapped(at, Self::bytes(ranks))?.cast_const().cast();
        Ok(WindowBlock { words, at, _segment: segment })
    }

    /// Returns the offset of the block in the memory.
    pub fn offset(&self) -> u64 {
        self.at
    }

    #[inline]
    fn word(&self, line: u64, word: u64) -> &AtomicU64 {
        // SAFETY: callers stay in the block of their ranks, which is mapped and aligned to a page.
        unsafe { &*self.words.add(((LINE * line) / 8 + word) as usize) }
    }

    #[inline]
    fn rights_word(&self) -> &AtomicU64 {
        self.word(0, 0)
    }

    #[inline]
    fn busy(&self, origin: u32) -> &AtomicU64 {
        self.word(3 + 2 * u64::from(origin), 0)
    }

    fn attached(&self, origin: u32) -> &AtomicU64 {
        self.word(3 + 2 * u64::from(origin), 1)
    }

    /// Returns the count of an origin's signals.
    #[inline]
    pub(crate) fn signals(&self, origin: u32) -> &AtomicU64 {
        self.word(2 + 2 * u64::from(origin), 0)
    }

    /// Gives rights, before peers know of the block.
    pub fn give(&self, rights: WindowRights) {
        self.rights_word().store(rights.bits(), Ordering::Release);
    }

    /// Returns the rights that peers have.
    #[inline]
    pub fn rights(&self) -> WindowRights {
        WindowRights::of_bits(self.rights_word().load(Ordering::Acquire))
    }

    /// Withdraws rights; [`Self::is_quiet`] returns when the accesses before that have ended.
    pub(crate) fn withdraw(&self, rights: WindowRights) {
        protocol::withdraw(self.rights_word(), rights.bits());
    }

    /// Returns true if an origin has no access under way.
    pub fn is_quiet(&self, origin: u32) -> bool {
        protocol::is_quiet(self.busy(origin))
    }

    /// Announces an access of an origin; fails with the rights that there are if it needs others.
    #[inline]
    pub(crate) fn enter(
        &self,
        origin: u32,
        needed: WindowRights,
    ) -> Result<Announced<'_>, WindowRights> {
        let entered = protocol::enter(self.busy(origin), self.rights_word(), needed.bits());
        entered.map_err(WindowRights::of_bits)
    }

    /// Takes back what [`Self::enter`] announced, where the access was forgotten.
    pub(super) fn leave(&self, origin: u32) {
        self.busy(origin).fetch_sub(1, Ordering::Release);
    }

    /// Signals in the name of an origin.
    #[inline]
    pub(crate) fn signal(&self, origin: u32) {
        protocol::signal(self.signals(origin));
    }

    /// Takes a signal of an origin, if one is there that was not taken.
    #[inline]
    pub fn take_signal(&self, origin: u32, taken: &AtomicU64) -> bool {
        protocol::take_signal(self.signals(origin), taken)
    }

    /// Records that an origin maps the block, or that it does not any more.
    pub(crate) fn attach(&self, origin: u32, attached: bool) {
        self.attached(origin).store(attached.into(), Ordering::Release);
    }

    /// Returns true if an origin may still look at the block.
    pub fn is_attached(&self, origin: u32) -> bool {
        self.attached(origin).load(Ordering::Acquire) != 0
    }

    /// Takes the lock of accumulates for a rank; fails with the rank that holds it.
    #[inline]
    pub(crate) fn try_lock(&self, own: u32) -> Result<BlockLock<'_>, u32> {
        let lock = self.word(1, 0);
        let taken = protocol::try_lock(lock, u64::from(own) + 1);
        taken.map(|()| BlockLock(lock)).map_err(|holder| (holder as u32).wrapping_sub(1))
    }
}

/// The lock of accumulates, while a rank holds it.
pub(crate) struct BlockLock<'a>(&'a AtomicU64);

impl Drop for BlockLock<'_> {
    #[inline]
    fn drop(&mut self) {
        protocol::unlock(self.0);
    }
}
