//! Sleep and wake-up of the threads of a rank, on words of the control pages.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use super::layout::{PRESENCE_LINE, SLEEP_WORDS};
use super::segment::Segment;

/// The thread of a rank that sleeps: the one that makes its calls, the one that moves its messages with tags, or one that
/// waits for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleeper {
    /// Calls of all ranks.
    Calls,
    /// Messages between two ranks.
    Messages,
    /// Operations on windows.
    Windows,
}

/// The bit of a bed that says that its rank was woken, and does not run yet. The others are 0 while it is awake,
/// else the core on which it went to sleep, plus 1.
const WOKEN: u32 = 1 << 31;

/// Wakes whoever sleeps on a word.
#[inline]
pub(super) fn wake(bed: &AtomicU32) {
    if bed.load(Ordering::Relaxed) != 0 {
        rouse(bed);
    }
}

#[cold]
fn rouse(bed: &AtomicU32) {
    let was = bed.load(Ordering::Relaxed);
    let asleep = was != 0 && was & WOKEN == 0;
    // It fails if another rank wakes the sleeper, or it wakes by itself.
    if asleep
        && bed.compare_exchange(was, was | WOKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let _ = futex::wake(bed, futex::Flags::empty(), 1);
    }
}

/// Returns the core on which the thread runs, plus 1.
fn core() -> u32 {
    rustix::thread::sched_getcpu() as u32 + 1
}

impl Segment {
    /// Returns the word on which a thread of a rank sleeps, see [`WOKEN`]. As wide as futexes are.
    pub(super) fn bed(&self, rank: u32, sleeper: Sleeper) -> &AtomicU32 {
        let words =
            std::ptr::from_ref(self.word(self.layout.rank_line(rank, PRESENCE_LINE) + SLEEP_WORDS));
        // SAFETY: the halves of words of this line that are only accessed through this, up to `COMMUNICATOR`.
        unsafe { &*words.cast::<AtomicU32>().add(sleeper as usize) }
    }

    /// Announces that a rank is about to sleep: it polls once more, and whoever does something for it from
    /// now on wakes it. A peer does not wait until what it did is seen before it looks whether somebody
    /// sleeps, which would cost every message a fence: so a wake-up may be missed, and nobody sleeps for
    /// long.
    pub fn announce_sleep(&self, rank: u32, sleeper: Sleeper) {
        self.bed(rank, sleeper).store(core(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until the rank is woken, if it was not since it said so, or so long.
    pub fn sleep(&self, rank: u32, sleeper: Sleeper, most: Duration) {
        let bed = self.bed(rank, sleeper);
        let asleep = bed.load(Ordering::Relaxed);
        if asleep & WOKEN == 0 {
            let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
            // Whatever it says, everything is looked at again.
            let _ = futex::wait(bed, futex::Flags::empty(), asleep, Some(&most));
        }
        self.rise(rank, sleeper);
    }

    /// Records that a rank is awake.
    pub(crate) fn rise(&self, rank: u32, sleeper: Sleeper) {
        self.bed(rank, sleeper).store(0, Ordering::Relaxed);
    }

    /// Returns true if one of these ranks was woken on the caller's core and does not run yet, so that it waits
    /// for the core that the caller holds.
    pub fn owes_core(&self, ranks: impl Iterator<Item = u32>, sleeper: Sleeper) -> bool {
        let mut beds = ranks.map(|rank| self.bed(rank, sleeper).load(Ordering::Relaxed));
        beds.any(|bed| bed & WOKEN != 0 && bed == WOKEN | core())
    }

    /// Wakes a rank if it sleeps.
    #[inline]
    pub fn wake(&self, rank: u32, sleeper: Sleeper) {
        wake(self.bed(rank, sleeper));
    }
}
