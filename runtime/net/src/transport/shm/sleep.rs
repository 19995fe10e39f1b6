//! Sleep and wake-up of the threads of a rank, on words of the control pages.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex::{self, Timespec};

use super::layout::{PRESENCE_LINE, SLEEP_WORDS};
use super::segment::ShmSegment;

/// The thread of a rank that sleeps: the one that makes its calls, the one that moves its messages with tags, or one
/// that waits for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleeperRole {
    /// Calls of all ranks.
    Calls,
    /// Messages between two ranks.
    Messages,
    /// Operations on windows.
    Windows,
}

/// The bit of a sleep word that is set while its thread was woken and does not run yet. The other bits are 0 while the
/// thread is awake, else the core on which it went to sleep, plus 1.
const WOKEN: u32 = 1 << 31;

/// Wakes the thread that sleeps on a word.
#[inline]
pub(super) fn wake(sleep_word: &AtomicU32) {
    if sleep_word.load(Ordering::Relaxed) != 0 {
        wake_sleeper(sleep_word);
    }
}

#[cold]
fn wake_sleeper(sleep_word: &AtomicU32) {
    let was = sleep_word.load(Ordering::Relaxed);
    let asleep = was != 0 && was & WOKEN == 0;
    // It fails if another rank wakes the sleeper, or it wakes by itself.
    if asleep
        && sleep_word
            .compare_exchange(was, was | WOKEN, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        let _ = futex::wake(sleep_word, futex::Flags::empty(), 1);
    }
}

/// Returns the core on which the thread runs, plus 1.
fn core() -> u32 {
    rustix::thread::sched_getcpu() as u32 + 1
}

impl ShmSegment {
    /// Returns the word on which a thread of a rank sleeps, see [`WOKEN`]. As wide as futexes are.
    pub(super) fn sleep_word(&self, rank: u32, sleeper: SleeperRole) -> &AtomicU32 {
        let words =
            std::ptr::from_ref(self.word(self.layout.rank_line(rank, PRESENCE_LINE) + SLEEP_WORDS));
        // SAFETY: the halves of words of this line that are only accessed through this, up to `COMMUNICATOR`.
        unsafe { &*words.cast::<AtomicU32>().add(sleeper as usize) }
    }

    /// Announces that a rank is about to sleep: it polls once more, and a peer that does something for it from
    /// now on wakes it. A peer does not fence between what it did and its look at this word, which would cost every
    /// message a fence: so a wake-up may be missed, and sleeps are short.
    pub fn announce_sleep(&self, rank: u32, sleeper: SleeperRole) {
        self.sleep_word(rank, sleeper).store(core(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Sleeps until the rank is woken, unless that happened since the announcement, or for `most`.
    pub fn sleep(&self, rank: u32, sleeper: SleeperRole, most: Duration) {
        let sleep_word = self.sleep_word(rank, sleeper);
        let asleep = sleep_word.load(Ordering::Relaxed);
        if asleep & WOKEN == 0 {
            let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
            // Whatever the result, everything is polled again.
            let _ = futex::wait(sleep_word, futex::Flags::empty(), asleep, Some(&most));
        }
        self.rise(rank, sleeper);
    }

    /// Records that a rank is awake.
    pub(crate) fn rise(&self, rank: u32, sleeper: SleeperRole) {
        self.sleep_word(rank, sleeper).store(0, Ordering::Relaxed);
    }

    /// Returns true if one of these ranks was woken on the caller's core and does not run yet, so that it waits
    /// for the core that the caller holds.
    pub fn owes_core(&self, ranks: impl Iterator<Item = u32>, sleeper: SleeperRole) -> bool {
        let mut sleep_words =
            ranks.map(|rank| self.sleep_word(rank, sleeper).load(Ordering::Relaxed));
        sleep_words.any(|sleep_word| sleep_word & WOKEN != 0 && sleep_word == WOKEN | core())
    }

    /// Wakes a rank if it sleeps.
    #[inline]
    pub fn wake(&self, rank: u32, sleeper: SleeperRole) {
        wake(self.sleep_word(rank, sleeper));
    }
}
