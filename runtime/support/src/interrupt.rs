//! Interrupts: a check that waiting threads make now and then, by which Ctrl-C ends a wait.
//!
//! An interpreter runs the handlers of signals between two of its own steps, so a signal does nothing while one of its
//! threads waits here. It sets a check, which runs them. A call that is interrupted ends its communicator, as one that
//! fails does: the other ranks may be in the middle of it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

use roundelay_dsl::diag::codes;

use crate::abort::{self, AbortRecord};
use crate::error::Error;
use crate::tunables::INTERRUPT_CHECK_INTERVAL;

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();

thread_local! {
    static CHECKS: Cell<ThreadChecks> = const { Cell::new(ThreadChecks::NEW) };
}

/// The checks of a thread.
#[derive(Clone, Copy)]
struct ThreadChecks {
    last: Option<Instant>,
    /// The last answer.
    is_requested: bool,
    is_asking: bool,
    /// The number of waits that an interrupt does not end, one inside another.
    deferred: u32,
}

impl ThreadChecks {
    const NEW: ThreadChecks =
        ThreadChecks { last: None, is_requested: false, is_asking: false, deferred: 0 };
}

/// Sets the function that waiting threads call at most every 50 ms. It returns true if the wait of the calling
/// thread is to end, and goes on to return true until that thread has returned to its caller. The first
/// function stays.
pub fn set_interrupt_check(check: fn() -> bool) {
    let _ = CHECK.set(check);
}

/// Returns true if [`is_requested`] would ask now.
pub fn is_due() -> bool {
    let ThreadChecks { last, is_requested, is_asking, deferred } = CHECKS.get();
    let is_early = last.is_some_and(|last| last.elapsed() < INTERRUPT_CHECK_INTERVAL);
    CHECK.get().is_some() && deferred == 0 && !is_asking && (is_requested || !is_early)
}

/// Returns true if the wait of this thread is to end. The thread holds no lock that an abort needs: a handler
/// of signals may end the communicator.
pub fn is_requested() -> bool {
    let Some(check) = CHECK.get().filter(|_| is_due()) else { return false };
    CHECKS.set(ThreadChecks { is_asking: true, ..CHECKS.get() });
    let is_requested = check();
    CHECKS.set(ThreadChecks {
        last: Some(Instant::now()),
        is_requested,
        is_asking: false,
        ..CHECKS.get()
    });
    is_requested
}

/// Returns true while this thread is in the function that is asked: in a handler of signals.
pub fn is_in_check() -> bool {
    CHECKS.get().is_asking
}

/// A wait that an interrupt does not end: its caller looks for signals itself.
pub struct DeferredInterrupt(());

impl DeferredInterrupt {
    /// Defers interrupts of this thread until it is dropped.
    pub fn begin() -> Self {
        DeferredInterrupt::count(1);
        DeferredInterrupt(())
    }

    fn count(change: i32) {
        let checks = CHECKS.get();
        CHECKS
            .set(ThreadChecks { deferred: checks.deferred.wrapping_add_signed(change), ..checks });
    }
}

impl Drop for DeferredInterrupt {
    fn drop(&mut self) {
        DeferredInterrupt::count(-1);
    }
}

/// Returns the error by which other ranks end when a rank is interrupted.
pub fn record(rank: u32) -> AbortRecord {
    AbortRecord { code: codes::ABORTED, rank, text: "a signal interrupted its wait".into() }
}

/// Returns the error of an interrupted wait, if this thread's is to end.
pub fn error(rank: u32) -> Option<Error> {
    is_requested().then(|| abort::consequence(rank, record(rank), None))
}
