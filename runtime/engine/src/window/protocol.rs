//! The words by which a window's owner and its peers agree, where both map the same memory.
//!
//! An origin *announces* each access in a word of its own before it reads the owner's rights, and takes that back when
//! its last byte is written. An owner that withdraws rights clears their bits before it reads those words. Between the
//! store and the load of each there is a fence, so at least one of the two sees the other: either the origin finds that
//! it lacks the right, or the owner finds that it has to wait. A *signal* is a count that is raised by a release and
//! read by an acquire, so a thread that sees it sees what was written before. A *lock* is the number of its holder.
//!
//! Everything is written over [`AtomicWord`], so that the tests run the same lines on every order of memory operations
//! that the memory model of Rust allows (`loom`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A word that several threads use.
pub trait AtomicWord {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    fn exchange(&self, from: u64, to: u64, orders: (Ordering, Ordering)) -> Result<u64, u64>;
    /// Orders everything before it and everything after it.
    fn fence();
}

impl AtomicWord for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }

    #[inline]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }

    #[inline]
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_and(value, order)
    }

    #[inline]
    fn exchange(&self, from: u64, to: u64, orders: (Ordering, Ordering)) -> Result<u64, u64> {
        self.compare_exchange(from, to, orders.0, orders.1)
    }

    #[inline]
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// An access that was announced; it ends when dropped.
#[derive(Debug)]
pub struct WordAccess<'a, W: AtomicWord>(&'a W);

impl<W: AtomicWord> Drop for WordAccess<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// Announces an access in the origin's word; fails with the rights that there are if it needs others.
#[inline]
pub(super) fn enter<'a, W: AtomicWord>(
    busy: &'a W,
    rights: &W,
    needed: u64,
) -> Result<WordAccess<'a, W>, u64> {
    busy.fetch_add(1, Ordering::Relaxed);
    let access = WordAccess(busy);
    W::fence();
    let has = rights.load(Ordering::Acquire);
    if has & needed == needed { Ok(access) } else { Err(has) }
}

/// Withdraws rights: no access begins any more that needs them. Those that began end when [`is_quiet`].
pub(super) fn withdraw<W: AtomicWord>(rights: &W, bits: u64) {
    rights.fetch_and(!bits, Ordering::Relaxed);
    W::fence();
}

/// Returns true if an origin has no access under way, of those that began before rights were [withdrawn](withdraw).
pub(super) fn is_quiet<W: AtomicWord>(busy: &W) -> bool {
    busy.load(Ordering::Acquire) == 0
}

/// Signals: a thread that sees the signal sees everything that this thread has done before.
#[inline]
pub(super) fn signal<W: AtomicWord>(count: &W) {
    count.fetch_add(1, Ordering::Release);
}

/// Takes one signal of those that were not taken yet; returns true if there was one.
#[inline]
pub(super) fn take_signal<W: AtomicWord>(count: &W, taken: &W) -> bool {
    let mut seen = taken.load(Ordering::Relaxed);
    while count.load(Ordering::Acquire) > seen {
        match taken.exchange(seen, seen + 1, (Ordering::Relaxed, Ordering::Relaxed)) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Takes a lock that is free; fails with the number of its holder.
#[inline]
pub(super) fn try_lock<W: AtomicWord>(lock: &W, own: u64) -> Result<(), u64> {
    lock.exchange(0, own, (Ordering::Acquire, Ordering::Relaxed)).map(drop)
}

/// Releases a lock.
#[inline]
pub(super) fn unlock<W: AtomicWord>(lock: &W) {
    lock.store(0, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    use loom::thread;

    use super::*;

    impl AtomicWord for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            self.load(order)
        }

        fn store(&self, value: u64, order: Ordering) {
            self.store(value, order);
        }

        fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
            self.fetch_add(value, order)
        }

        fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
            self.fetch_sub(value, order)
        }

        fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
            self.fetch_and(value, order)
        }

        fn exchange(&self, from: u64, to: u64, orders: (Ordering, Ordering)) -> Result<u64, u64> {
            self.compare_exchange(from, to, orders.0, orders.1)
        }

        fn fence() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    const WRITE: u64 = 2;

    /// A window of one value. Loom fails if two threads use the value at once, or in no order.
    struct ModelWindow {
        rights: AtomicU64,
        busy: [AtomicU64; 2],
        signals: AtomicU64,
        taken: AtomicU64,
        lock: AtomicU64,
        value: UnsafeCell<u64>,
    }

    fn model() -> Arc<ModelWindow> {
        Arc::new(ModelWindow {
            rights: AtomicU64::new(WRITE),
            busy: [AtomicU64::new(0), AtomicU64::new(0)],
            signals: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            lock: AtomicU64::new(0),
            value: UnsafeCell::new(0),
        })
    }

    impl ModelWindow {
        fn add(&self, value: u64) {
            // SAFETY: loom checks that no other thread uses the value now.
            self.value.with_mut(|place| unsafe { *place += value });
        }

        fn get(&self) -> u64 {
            // SAFETY: as above.
            self.value.with(|place| unsafe { *place })
        }

        /// Writes if there is the right to.
        fn put(&self, origin: usize, enter: EnterFn) -> bool {
            let access = enter(&self.busy[origin], &self.rights, WRITE);
            if access.is_ok() {
                self.add(1);
            }
            access.is_ok()
        }
    }

    type EnterFn =
        for<'a> fn(&'a AtomicU64, &AtomicU64, u64) -> Result<WordAccess<'a, AtomicU64>, u64>;

    fn put_and_signal(signal: fn(&AtomicU64)) {
        loom::model(move || {
            let window = model();
            let origin = {
                let window = window.clone();
                thread::spawn(move || {
                    assert!(window.put(0, enter));
                    signal(&window.signals);
                })
            };
            while !take_signal(&window.signals, &window.taken) {
                thread::yield_now();
            }
            assert_eq!(window.get(), 1, "a stale value");
            assert!(!take_signal(&window.signals, &window.taken), "it was taken");
            origin.join().expect("the origin");
        });
    }

    fn withdrawal(enter: EnterFn, withdraw: fn(&AtomicU64, u64)) {
        loom::model(move || {
            let window = model();
            let origin = {
                let window = window.clone();
                thread::spawn(move || window.put(0, enter))
            };
            withdraw(&window.rights, WRITE);
            while !is_quiet(&window.busy[0]) {
                thread::yield_now();
            }
            // It is the owner's alone now.
            let before = window.get();
            window.add(10);
            assert_eq!(window.get(), before + 10);
            let wrote = origin.join().expect("the origin");
            assert_eq!(window.get(), 10 + u64::from(wrote));
            assert!(!window.put(1, enter), "there is no right any more");
        });
    }

    #[test]
    fn a_signal_is_seen_after_the_put_before_it() {
        put_and_signal(signal);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_signal_without_release_is_found_out() {
        put_and_signal(|count| {
            count.fetch_add(1, Ordering::Relaxed);
        });
    }

    #[test]
    fn nothing_is_written_once_the_right_was_withdrawn() {
        withdrawal(enter, withdraw);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn an_origin_that_looks_before_it_announces_is_found_out() {
        withdrawal(
            |busy, rights, needed| {
                let has = rights.load(Ordering::Acquire);
                busy.fetch_add(1, Ordering::Relaxed);
                let access = WordAccess(busy);
                if has & needed == needed { Ok(access) } else { Err(has) }
            },
            withdraw,
        );
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_withdrawal_without_a_fence_is_found_out() {
        withdrawal(enter, |rights, bits| {
            rights.fetch_and(!bits, Ordering::Relaxed);
        });
    }

    #[test]
    fn two_that_accumulate_lose_nothing() {
        loom::model(|| {
            let window = model();
            let accumulate = |window: &ModelWindow, own: u64| {
                while try_lock(&window.lock, own).is_err() {
                    thread::yield_now();
                }
                window.add(own);
                unlock(&window.lock);
            };
            let other = {
                let window = window.clone();
                thread::spawn(move || accumulate(&window, 1))
            };
            accumulate(&window, 2);
            other.join().expect("the other");
            assert_eq!(window.get(), 3);
        });
    }
}
