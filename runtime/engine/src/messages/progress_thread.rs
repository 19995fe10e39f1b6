//! The progress thread of a rank's messages, and threads that serve windows in its place.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::engine::MessageEngine;
use super::messenger::{MessengerState, ProgressTurn, RankMessenger, lock};
use crate::tunables::{
    PROGRESS_IDLE_TIMEOUT, PROGRESS_INTERVAL_MAX, PROGRESS_INTERVAL_MIN, PROGRESS_POLL_TIME,
    SERVE_BLIND_SLEEP_MAX, SERVE_VISIBLE_SLEEP_MAX,
};
use roundelay_net::endpoints::SocketSleep;
use roundelay_net::group::WindowServer;
use roundelay_net::tunables::BLIND_SLEEP_MAX;
use roundelay_support::interrupt::DeferredInterrupt;

impl RankMessenger {
    /// Keeps the progress thread alive while windows are served.
    pub(super) fn update_service(&self) {
        if !self.is_here() {
            return;
        }
        self.with_engine_slot(|engine| {
            let serves = engine.as_ref().is_some_and(MessageEngine::serves_windows);
            // Within the engine's lock, so that the latest state is stored last.
            let mut state = lock(&self.shared.turn);
            (state.serves, state.renewed) = (serves, state.renewed + 1);
            if serves && !state.has_thread {
                self.spawn(&mut state);
            }
        });
        self.shared.wanted.notify_all();
        self.wake_sleepers();
    }

    /// Wakes the threads that sleep on sockets.
    pub(super) fn wake_sleepers(&self) {
        if self.shared.dozing.load(Ordering::SeqCst) > 0 {
            let written = |fd: &OwnedFd| rustix::io::write(fd, &1u64.to_ne_bytes());
            let _ = self.shared.nudge.get().and_then(Option::as_ref).map(written);
        }
    }

    /// Sleeps until a socket is ready, without the engine's lock.
    pub(super) fn sleep_on_sockets(&self, dozing: &SocketSleep, timeout: Duration) {
        let MessengerState { nudge, dozing: count, .. } = &*self.shared;
        let made = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let nudge = nudge.get_or_init(made);
        count.fetch_add(1, Ordering::SeqCst);
        dozing.sleep(nudge.as_ref().map(AsFd::as_fd), timeout);
        count.fetch_sub(1, Ordering::SeqCst);
        if let Some(nudge) = nudge {
            let _ = rustix::io::read(nudge, &mut [0u8; 8]);
        }
    }

    /// Hands progress over to the progress thread, if operations or unsent bytes are left and no thread waits for
    /// operations.
    pub(super) fn hand_over(&self) {
        let MessengerState { waiting, turn, wanted, .. } = &*self.shared;
        if !self.is_here() {
            return;
        }
        if waiting.load(Ordering::SeqCst) > 0 || self.is_idle() {
            return;
        }
        let mut state = lock(turn);
        state.is_due = true;
        if state.has_thread {
            if !state.is_attentive {
                wanted.notify_all();
                self.wake_sleepers();
            }
            return;
        }
        self.spawn(&mut state);
    }

    fn spawn(&self, state: &mut ProgressTurn) {
        let (own, rank) = (self.clone(), self.shared.rank);
        let name = format!("roundelay-m{rank}");
        // Without a progress thread, messages progress while a thread waits for them.
        let thread = std::thread::Builder::new().name(name).spawn(move || own.run());
        state.has_thread = thread.is_ok();
    }

    /// Drives progress while no thread waits: the loop of the progress thread.
    fn run(&self) {
        // Signals interrupt threads that wait.
        let _deferred = DeferredInterrupt::begin();
        let MessengerState { turn, wanted, waiting, waits, serving, .. } = &*self.shared;
        let mut known = 0;
        let (mut nap, mut idle) = (PROGRESS_INTERVAL_MIN, Instant::now());
        let (mut rest, mut examined_at) = (BLIND_SLEEP_MAX, Instant::now());
        let mut state = lock(turn);
        loop {
            let left = PROGRESS_IDLE_TIMEOUT.saturating_sub(idle.elapsed());
            if !self.is_here() || state.is_over || left.is_zero() && !state.is_due && !state.serves
            {
                (state.has_thread, state.is_attentive) = (false, false);
                return;
            }
            // A thread that has just waited may wait again soon: its messages would wake this thread too, if it slept
            // on the sockets.
            let now = waits.load(Ordering::Relaxed);
            let has_waited = std::mem::replace(&mut known, now) != now;
            let is_moved = state.is_taken
                || has_waited
                || waiting.load(Ordering::SeqCst) > 0
                || serving.load(Ordering::SeqCst) > 0;
            if state.serves && !state.is_due && !is_moved {
                state.is_attentive = false;
                let renewed = state.renewed;
                drop(state);
                let serves = self.rest(&mut rest, &mut examined_at);
                (nap, idle) = (PROGRESS_INTERVAL_MIN, Instant::now());
                let is_idle = self.is_idle();
                state = lock(turn);
                // Windows may have been added since.
                state.serves &= serves || state.renewed != renewed;
                if !is_idle {
                    state.is_due = false;
                    self.take_over(state);
                    state = lock(turn);
                }
                continue;
            }
            state.is_attentive =
                state.is_due || state.serves || idle.elapsed() < PROGRESS_POLL_TIME;
            let time = if state.is_attentive { nap } else { left };
            let waited = wanted.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // The thread that wakes this one may be about to wait.
            let mut took_over = !std::mem::take(&mut state.is_attentive);
            if !took_over && std::mem::take(&mut state.is_due) {
                idle = Instant::now();
                took_over = self.take_over(state);
                state = lock(turn);
            }
            nap = if took_over {
                PROGRESS_INTERVAL_MIN
            } else {
                (2 * nap).min(PROGRESS_INTERVAL_MAX)
            };
        }
    }

    /// Serves the windows once, and sleeps until peers have requests again; returns false if no window is served any
    /// more. A thread that waits for operations drives progress meanwhile.
    fn rest(&self, nap: &mut Duration, examined_at: &mut Instant) -> bool {
        let MessengerState { clock, .. } = &*self.shared;
        clock.announce();
        let mut found = None;
        let ended = self.with_engine_slot(|engine| {
            let engine = engine.as_mut()?;
            if examined_at.elapsed() >= SERVE_VISIBLE_SLEEP_MAX {
                engine.group.listen();
                *examined_at = Instant::now();
            }
            let moved = engine.progress();
            self.shared.served.fetch_add(u64::from(moved), Ordering::Relaxed);
            let ended = std::mem::take(&mut engine.ended);
            let is_still = !moved && engine.is_idle();
            let is_seen = engine.is_connected();
            found = Some((is_still, is_seen, engine.serves_windows(), engine.dozing(true)));
            Some(ended)
        });
        self.notify_completions(ended.unwrap_or_default());
        let Some((is_still, is_connected, serves, dozing)) = found else { return false };
        match () {
            () if !is_still || !serves => *nap = BLIND_SLEEP_MAX,
            () if dozing.is_blind() && is_connected => {
                clock.sleep(SERVE_BLIND_SLEEP_MAX);
                return serves;
            }
            () if dozing.is_seen() && is_connected => {
                self.sleep_on_sockets(&dozing, SERVE_VISIBLE_SLEEP_MAX);
            }
            () => {
                self.sleep_on_sockets(&dozing, *nap);
                *nap = (2 * *nap).min(SERVE_BLIND_SLEEP_MAX);
            }
        }
        clock.rise();
        serves
    }

    /// Drives progress until a thread waits for operations, if none does and there is work; returns true if there was.
    fn take_over(&self, mut state: MutexGuard<'_, ProgressTurn>) -> bool {
        let MessengerState { waiting, turn, changed, .. } = &*self.shared;
        let is_awaited = || waiting.load(Ordering::SeqCst) > 0;
        // A thread that waits hands over again.
        if state.is_taken || is_awaited() {
            return false;
        }
        state.is_taken = true;
        drop(state);
        let was_idle = self.is_idle();
        if !was_idle {
            self.set_background(true);
            let is_over = || lock(turn).is_over;
            self.drive_until(&mut |engine| engine.is_idle() || is_awaited() || is_over());
            self.set_background(false);
        }
        let is_idle = self.is_idle();
        let mut state = lock(turn);
        state.is_taken = false;
        state.is_due |= !is_idle;
        drop(state);
        changed.notify_all();
        !was_idle
    }

    fn is_idle(&self) -> bool {
        let mut is_idle = true;
        self.with_engine(|engine| is_idle = engine.is_idle());
        is_idle
    }

    fn set_background(&self, is_background: bool) {
        let waiting = is_background.then(|| self.shared.waiting.clone());
        self.with_engine(|engine| engine.group.contention.set_background(waiting));
    }
}

impl WindowServer for RankMessenger {
    fn serve(&self) {
        let MessengerState { engine, served, .. } = &*self.shared;
        let Some(mut guard) = engine.try_lock() else { return };
        let Some(engine) = guard.as_mut() else { return };
        let moved = engine.progress();
        let ended = std::mem::take(&mut engine.ended);
        drop(guard);
        served.fetch_add(u64::from(moved), Ordering::Relaxed);
        self.notify_completions(ended);
    }

    fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    fn count(&self, serves: bool) {
        let MessengerState { serving, .. } = &*self.shared;
        match serves {
            true => serving.fetch_add(1, Ordering::SeqCst),
            false => serving.fetch_sub(1, Ordering::SeqCst),
        };
    }
}
