//! The engine's own thread, and whoever does its work for windows meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::engine::Engine;
use super::{Messenger, REST, Shared, Turn, lock};
use roundelay_net::endpoints::{Dozing, SHORT};
use roundelay_net::group::Server;
use roundelay_net::interrupt::Deferred;

/// The time after which a thread that has nothing to do ends.
const IDLE: Duration = Duration::from_secs(1);
/// The time between two looks of the thread: at the least, where the last one took over, and at the most.
const NAP: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(1));
/// The time without anything to do after which the thread sleeps until it is woken.
const ATTENTIVE: Duration = Duration::from_millis(10);

impl Messenger {
    /// Has the engine's own thread stay while windows are served.
    pub(super) fn renew_service(&self) {
        if !self.is_here() {
            return;
        }
        self.entered(|engine| {
            let serves = engine.as_ref().is_some_and(Engine::serves);
            // Within the engine's lock, so that whoever looks last says so last.
            let mut state = lock(&self.shared.turn);
            (state.serves, state.renewed) = (serves, state.renewed + 1);
            if serves && !state.has_thread {
                self.spawn(&mut state);
            }
        });
        self.shared.wanted.notify_all();
        self.nudge();
    }

    /// Wakes threads that sleep on sockets.
    pub(super) fn nudge(&self) {
        if self.shared.dozing.load(Ordering::SeqCst) > 0 {
            let written = |fd: &OwnedFd| rustix::io::write(fd, &1u64.to_ne_bytes());
            let _ = self.shared.nudge.get().and_then(Option::as_ref).map(written);
        }
    }

    /// Sleeps until a socket has something, without the lock.
    pub(super) fn doze(&self, dozing: &Dozing, most: Duration) {
        let Shared { nudge, dozing: count, .. } = &*self.shared;
        let made = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let nudge = nudge.get_or_init(made);
        count.fetch_add(1, Ordering::SeqCst);
        dozing.sleep(nudge.as_ref().map(AsFd::as_fd), most);
        count.fetch_sub(1, Ordering::SeqCst);
        if let Some(nudge) = nudge {
            let _ = rustix::io::read(nudge, &mut [0u8; 8]);
        }
    }

    /// Has the engine's own thread go on with what has not ended, and with what a socket has not taken yet, if nobody
    /// waits for it.
    pub(super) fn hand_over(&self) {
        let Shared { waiting, turn, wanted, .. } = &*self.shared;
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
                self.nudge();
            }
            return;
        }
        self.spawn(&mut state);
    }

    fn spawn(&self, state: &mut Turn) {
        let (own, rank) = (self.clone(), self.shared.rank);
        let name = format!("roundelay-m{rank}");
        // Without a thread the messages move when somebody waits for them.
        let thread = std::thread::Builder::new().name(name).spawn(move || own.serve());
        state.has_thread = thread.is_ok();
    }

    /// Moves the engine while nobody waits.
    fn serve(&self) {
        // Signals are for threads that wait.
        let _deferred = Deferred::begin();
        let Shared { turn, wanted, waiting, waits, serving, .. } = &*self.shared;
        let mut known = 0;
        let (mut nap, mut idle) = (NAP.0, Instant::now());
        let (mut rest, mut heard) = (SHORT, Instant::now());
        let mut state = lock(turn);
        loop {
            let left = IDLE.saturating_sub(idle.elapsed());
            if !self.is_here() || state.is_over || left.is_zero() && !state.is_due && !state.serves
            {
                (state.has_thread, state.is_attentive) = (false, false);
                return;
            }
            // A thread that has just waited may wait again soon: what it waits for would wake this one too, if this one
            // slept on the sockets.
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
                let serves = self.rest(&mut rest, &mut heard);
                (nap, idle) = (NAP.0, Instant::now());
                let is_idle = self.is_idle();
                state = lock(turn);
                // Windows may have come since it looked.
                state.serves &= serves || state.renewed != renewed;
                if !is_idle {
                    state.is_due = false;
                    self.take_over(state);
                    state = lock(turn);
                }
                continue;
            }
            state.is_attentive = state.is_due || state.serves || idle.elapsed() < ATTENTIVE;
            let time = if state.is_attentive { nap } else { left };
            let waited = wanted.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Whoever wakes this thread may be about to wait.
            let mut took_over = !std::mem::take(&mut state.is_attentive);
            if !took_over && std::mem::take(&mut state.is_due) {
                idle = Instant::now();
                took_over = self.take_over(state);
                state = lock(turn);
            }
            nap = if took_over { NAP.0 } else { (2 * nap).min(NAP.1) };
        }
    }

    /// Does what peers want of windows, and sleeps until they want more; returns false if none are served any more.
    /// Whoever waits for operations moves the engine meanwhile.
    fn rest(&self, nap: &mut Duration, heard: &mut Instant) -> bool {
        let Shared { clock, .. } = &*self.shared;
        clock.announce();
        let mut found = None;
        let ended = self.entered(|engine| {
            let engine = engine.as_mut()?;
            if heard.elapsed() >= REST.0 {
                engine.group.listen();
                *heard = Instant::now();
            }
            let moved = engine.progress();
            self.shared.served.fetch_add(u64::from(moved), Ordering::Relaxed);
            let ended = std::mem::take(&mut engine.ended);
            let is_still = !moved && engine.is_idle();
            let is_seen = engine.is_connected();
            found = Some((is_still, is_seen, engine.serves(), engine.dozing(true)));
            Some(ended)
        });
        self.tell(ended.unwrap_or_default());
        let Some((is_still, is_connected, serves, dozing)) = found else { return false };
        match () {
            () if !is_still || !serves => *nap = SHORT,
            () if dozing.is_blind() && is_connected => {
                clock.sleep(REST.1);
                return serves;
            }
            () if dozing.is_seen() && is_connected => self.doze(&dozing, REST.0),
            () => {
                self.doze(&dozing, *nap);
                *nap = (2 * *nap).min(REST.1);
            }
        }
        clock.rise();
        serves
    }

    /// Moves the engine until somebody waits, if nobody does and it has something to do; returns true if so.
    fn take_over(&self, mut state: MutexGuard<'_, Turn>) -> bool {
        let Shared { waiting, turn, changed, .. } = &*self.shared;
        let is_awaited = || waiting.load(Ordering::SeqCst) > 0;
        // Whoever waits hands over again.
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
        self.peek(|engine| is_idle = engine.is_idle());
        is_idle
    }

    fn set_background(&self, is_background: bool) {
        let waiting = is_background.then(|| self.shared.waiting.clone());
        self.peek(|engine| engine.group.contention.set_background(waiting));
    }
}

impl Server for Messenger {
    fn serve(&self) {
        let Shared { engine, served, .. } = &*self.shared;
        let Some(mut guard) = engine.try_lock() else { return };
        let Some(engine) = guard.as_mut() else { return };
        let moved = engine.progress();
        let ended = std::mem::take(&mut engine.ended);
        drop(guard);
        served.fetch_add(u64::from(moved), Ordering::Relaxed);
        self.tell(ended);
    }

    fn served(&self) -> u64 {
        self.shared.served.load(Ordering::Relaxed)
    }

    fn count(&self, serves: bool) {
        let Shared { serving, .. } = &*self.shared;
        match serves {
            true => serving.fetch_add(1, Ordering::SeqCst),
            false => serving.fetch_sub(1, Ordering::SeqCst),
        };
    }
}
