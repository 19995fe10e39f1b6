//! Tests that an interrupt ends whatever a rank waits in.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roundelay_support::error::Error;
use roundelay_support::interrupt::set_interrupt_check;
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;

use crate::Communicator;
use crate::launch::JobSetup;

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
        let error = ranks[1].barrier().expect_err("rank 0 has ended it").to_string();
        assert!(error.contains("rank 0 failed: a signal interrupted its wait"), "{error}");
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
    let message = messages.recv_async(vec![0u8; 1], 1, 7).expect("a message");
    WANTED.set(true);
    assert!(!message.wait_timeout(INTERRUPT_CHECK_INTERVAL * 4));
    WANTED.set(false);
    ranks[1].messages().expect("messages").send(&[5u8], 0, 7).expect("it is awaited");
    assert_eq!(message.wait().expect("a message").0, [5]);
}

#[test]
fn a_rank_that_joins_ends_by_an_interrupt() {
    let setup = JobSetup::default().timeout(Duration::from_secs(60));
    // No rank is where the note leads to.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("its number");
    for rank in [0, 1] {
        let share =
            |note: Option<&str>| Ok(note.map_or_else(|| format!("a job;{at}"), String::from));
        interrupted(|| Communicator::join_with(rank, 2, &setup, share));
    }
}
