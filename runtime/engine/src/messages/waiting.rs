//! Waits for operations: the thread that waits drives progress, one thread at a time.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::FairMutexGuard;

use super::engine::MessageEngine;
use super::messenger::{MessengerState, RankMessenger, lock};
use super::operation::{MessageOperation, OperationCompletion};
use crate::progress::wait::{WaitAction, WaitLoop};
use crate::tunables::{CHANGE_CHECK_INTERVAL, SERVE_BLIND_SLEEP_MAX, SERVE_LINGER_TIMEOUT};
use roundelay_net::tunables::BLIND_SLEEP_MAX;
use roundelay_support::interrupt::{self, DeferredInterrupt};

/// Closes a rank's messages when it is dropped: the rank leaves.
pub(crate) struct MessengerGuard(pub(crate) RankMessenger);

impl Drop for MessengerGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl RankMessenger {
    /// Waits until an operation has ended; returns false if it has not by then.
    pub fn wait(&self, operation: &MessageOperation, until: Option<Instant>) -> bool {
        self.wait_unless(operation, until, &|| false)
    }

    /// Waits until an operation has ended, as [`Self::wait`], or `is_so`, which is polled, returns true.
    pub fn wait_unless(
        &self,
        operation: &MessageOperation,
        until: Option<Instant>,
        is_so: &dyn Fn() -> bool,
    ) -> bool {
        if operation.is_done() {
            self.hand_over();
            return true;
        }
        let MessengerState { waiting, waits, leaving, clock, turn, changed, .. } = &*self.shared;
        waiting.fetch_add(1, Ordering::SeqCst);
        waits.fetch_add(1, Ordering::Relaxed);
        clock.ring();
        // The operation continues after a wait that ends without it.
        let _deferred = until.map(|_| DeferredInterrupt::begin());
        let is_left = || leaving.load(Ordering::SeqCst);
        let is_over = || until.is_some_and(|at| Instant::now() >= at) || is_so();
        let mut state = lock(turn);
        while !operation.is_done() && !is_over() {
            if state.is_taken || is_left() {
                let left = until.map_or(CHANGE_CHECK_INTERVAL, |at| {
                    at.saturating_duration_since(Instant::now())
                });
                let waited = changed.wait_timeout(state, left.min(CHANGE_CHECK_INTERVAL));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state.is_taken = true;
                drop(state);
                self.drive_until(&mut |_| operation.is_done() || is_over() || is_left());
                state = lock(turn);
                state.is_taken = false;
                changed.notify_all();
            }
            if interrupt::is_due() {
                drop(state);
                self.check_interrupts();
                state = lock(turn);
            }
        }
        drop(state);
        waiting.fetch_sub(1, Ordering::SeqCst);
        self.hand_over();
        operation.is_done()
    }

    /// Waits until all sends have been passed on, and ends all other operations: the rank leaves. Later calls fail.
    pub(crate) fn close(&self) {
        if !self.is_here() {
            return;
        }
        let drained = || {
            let mut all = true;
            self.with_engine(|engine| all = engine.check_usable().is_err() || engine.is_drained());
            all
        };
        if !drained() {
            let MessengerState { waiting, leaving, clock, turn, changed, .. } = &*self.shared;
            waiting.fetch_add(1, Ordering::SeqCst);
            leaving.store(true, Ordering::SeqCst);
            clock.ring();
            let began = Instant::now();
            let mut state = lock(turn);
            while state.is_taken {
                let waited = changed.wait_timeout(state, CHANGE_CHECK_INTERVAL);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            state.is_taken = true;
            drop(state);
            let mut is_over = false;
            loop {
                self.drive_until(&mut |engine| {
                    let moved = engine.last_moved().map_or(began, |moved| moved.max(began));
                    let is_late = moved.elapsed() >= SERVE_LINGER_TIMEOUT && !engine.has_sends();
                    is_over = engine.check_usable().is_err() || engine.is_drained() || is_late;
                    is_over
                });
                if is_over || !interrupt::is_due() {
                    break;
                }
                self.check_interrupts();
            }
            lock(turn).is_taken = false;
            waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let mut state = lock(&self.shared.turn);
        state.is_over = true;
        drop(state);
        self.shared.changed.notify_all();
        self.shared.wanted.notify_all();
        self.shared.clock.ring();
        self.wake_sleepers();
        let engine = self.with_engine_slot(|engine| {
            engine.iter_mut().for_each(MessageEngine::close);
            engine.take()
        });
        if let Some(mut engine) = engine {
            std::mem::take(&mut engine.ended).into_iter().for_each(OperationCompletion::notify);
        }
    }

    /// Ends all operations of a rank whose job was aborted; they access no memory afterwards. Waits until then at most
    /// for the thread that drives progress; returns true if the operations have ended.
    pub(crate) fn cancel(&self, until: Instant) -> bool {
        let MessengerState { engine, clock, .. } = &*self.shared;
        clock.ring();
        let Some(mut guard) = engine.try_lock_until(until) else { return false };
        let ended = guard.as_mut().map(|engine| {
            engine.cancel();
            std::mem::take(&mut engine.ended)
        });
        drop(guard);
        self.notify_completions(ended.unwrap_or_default());
        true
    }

    /// Aborts the job if a signal interrupts the wait of this thread, which holds no lock: a handler may abort it, too.
    #[cold]
    fn check_interrupts(&self) {
        if !interrupt::is_requested() {
            return;
        }
        self.with_engine_slot(|engine| {
            if let Some(engine) = engine {
                engine.group.abort(&interrupt::record(self.shared.rank));
            }
        });
    }

    /// Drives progress until `ends` returns true, or interrupts have to be checked. The thread holds the turn.
    pub(super) fn drive_until(&self, ends: &mut dyn FnMut(&mut MessageEngine) -> bool) {
        let MessengerState { engine, crowded, .. } = &*self.shared;
        let mut wait = WaitLoop::new(Duration::MAX, *crowded).without_interrupts();
        // A callback may have forked, and this may be the child.
        while self.is_here() {
            let mut guard = engine.lock();
            loop {
                let Some(moved) = guard.as_mut() else { return };
                if moved.progress() {
                    // A wait for messages publishes nothing.
                    let _ = wait.progress();
                }
                let is_end = ends(moved);
                if is_end || !moved.ended.is_empty() {
                    let ended = std::mem::take(&mut moved.ended);
                    drop(guard);
                    self.notify_completions(ended);
                    if is_end {
                        return;
                    }
                    break;
                }
                wait = wait.for_sockets(moved.has_sockets());
                match wait.pause(&mut moved.group) {
                    WaitAction::Again => {}
                    WaitAction::Doze => {
                        let dozing = moved.dozing(false);
                        drop(guard);
                        self.sleep_on_sockets(
                            &dozing,
                            if dozing.is_seen() { SERVE_BLIND_SLEEP_MAX } else { BLIND_SLEEP_MAX },
                        );
                        break;
                    }
                    WaitAction::Examine | WaitAction::Aborted | WaitAction::Expired => {
                        moved.examine();
                        if interrupt::is_due() {
                            return;
                        }
                    }
                }
                FairMutexGuard::bump(&mut guard);
            }
        }
    }
}
