//! Interrupts: a check that waiting threads make now and then, by which Ctrl-C ends a wait.
//!
//! An interpreter runs the handlers of signals between two of its own steps, so a signal does nothing while one of its
//! threads waits here. It sets a check, which runs them. A call that is interrupted ends its communicator, as one that
//! fails does: the other ranks may be in the middle of it.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;

use crate::abort::{self, AbortRecord};
use crate::error::Error;

/// The time between two checks of a thread.
pub const INTERVAL: Duration = Duration::from_millis(50);
/// The number of steps of a call that never waits between two looks at the clock.
pub(crate) const STEPS: u32 = 32;

static CHECK: OnceLock<fn() -> bool> = OnceLock::new();

thread_local! {
    static CHECKS: Cell<Checks> = const { Cell::new(Checks::NEW) };
}

/// The checks of a thread.
#[derive(Clone, Copy)]
struct Checks {
    last: Option<Instant>,
    /// The last answer.
    is_requested: bool,
    is_asking: bool,
    /// The number of waits that an interrupt does not end, one inside another.
    deferred: u32,
}

impl Checks {
    const NEW: Checks = Checks { last: None, is_requested: false, is_asking: false, deferred: 0 };
}

/// Sets the function that waiting threads call at most every 50 ms. It returns true if the wait of the calling thread is to
/// end, and goes on to return true until that thread has returned to its caller. The first function stays.
pub fn set_interrupt_check(check: fn() -> bool) {
    let _ = CHECK.set(check);
}

/// Returns true if [`is_requested`] would ask now.
pub(crate) fn is_due() -> bool {
    let Checks { last, is_requested, is_asking, deferred } = CHECKS.get();
    let is_early = last.is_some_and(|last| last.elapsed() < INTERVAL);
    CHECK.get().is_some() && deferred == 0 && !is_asking && (is_requested || !is_early)
}

/// Returns true if the wait of this thread is to end. The thread holds no lock that an abort needs: a handler of signals
/// may end the communicator.
pub(crate) fn is_requested() -> bool {
    let Some(check) = CHECK.get().filter(|_| is_due()) else { return false };
    CHECKS.set(Checks { is_asking: true, ..CHECKS.get() });
    let is_requested = check();
    CHECKS.set(Checks {
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
pub(crate) struct Deferred(());

impl Deferred {
    pub(crate) fn new() -> Self {
        Deferred::count(1);
        Deferred(())
    }

    fn count(change: i32) {
        let checks = CHECKS.get();
        CHECKS.set(Checks { deferred: checks.deferred.wrapping_add_signed(change), ..checks });
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        Deferred::count(-1);
    }
}

/// Returns the error by which other ranks end when a rank is interrupted.
pub(crate) fn record(rank: u32) -> AbortRecord {
    AbortRecord { code: codes::ABORTED, rank, text: "a signal interrupted its wait".into() }
}

/// Returns the error of an interrupted wait, if this thread's is to end.
pub fn error(rank: u32) -> Option<Error> {
    is_requested().then(|| abort::consequence(rank, record(rank), None))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::Communicator;
    use crate::Setup;

    use super::*;

    thread_local! {
        static WANTED: Cell<bool> = const { Cell::new(false) };
    }
    static IS_ASKED: AtomicBool = AtomicBool::new(false);

    /// Interrupts threads that have said so, once their wait has begun.
    fn check() -> bool {
        IS_ASKED.fetch_or(WANTED.get(), Ordering::Relaxed);
        WANTED.get()
    }

    /// Waits, and returns how the wait was ended by an interrupt.
    fn interrupted<R>(wait: impl FnOnce() -> Result<R, Error>) -> Error {
        set_interrupt_check(check);
        WANTED.set(true);
        let began = Instant::now();
        let error = wait().err().expect("no other rank comes");
        WANTED.set(false);
        assert!(began.elapsed() < Duration::from_secs(20), "{error}");
        assert!(error.to_string().contains("a signal interrupted its wait"), "{error}");
        error
    }

    #[test]
    fn calls_and_messages_of_a_rank_end_by_an_interrupt_and_the_others_are_told() {
        for by_message in [false, true] {
            let mut ranks = Communicator::local(2).expect("ranks");
            ranks.iter_mut().for_each(|rank| rank.set_timeout(Duration::from_secs(60)));
            let messages = ranks[0].messages().expect("messages");
            interrupted(|| match by_message {
                false => ranks[0].barrier(),
                true => messages.recv(&mut [0u8], 1, 7).map(drop),
            });
            let told = ranks[1].barrier().expect_err("rank 0 has ended it").to_string();
            assert!(told.contains("rank 0 failed: a signal interrupted its wait"), "{told}");
        }
        assert!(IS_ASKED.load(Ordering::Relaxed));
    }

    #[test]
    fn a_call_after_started_work_ends_by_an_interrupt() {
        let mut ranks = Communicator::local(2).expect("ranks");
        ranks[0].set_timeout(Duration::from_secs(60));
        let work = ranks[0].start(|comm| comm.barrier());
        interrupted(|| ranks[0].barrier());
        assert!(work.wait().is_err());
    }

    #[test]
    fn a_wait_with_an_end_of_its_own_is_not_interrupted() {
        set_interrupt_check(check);
        let mut ranks = Communicator::local(2).expect("ranks");
        let messages = ranks[0].messages().expect("messages");
        let message = messages.start_recv(vec![0u8; 1], 1, 7).expect("a message");
        WANTED.set(true);
        assert!(!message.wait_timeout(INTERVAL * 4));
        WANTED.set(false);
        ranks[1].messages().expect("messages").send(&[5u8], 0, 7).expect("it is awaited");
        assert_eq!(message.wait().expect("a message").0, [5]);
    }

    #[test]
    fn a_rank_that_joins_ends_by_an_interrupt() {
        let setup = Setup::default().timeout(Duration::from_secs(60));
        // No rank is where the note leads to.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its number");
        for rank in [0, 1] {
            let share =
                |note: Option<&str>| Ok(note.map_or_else(|| format!("a job;{at}"), String::from));
            interrupted(|| Communicator::join_with(rank, 2, &setup, share));
        }
    }
}
