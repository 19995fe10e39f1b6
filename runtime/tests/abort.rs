//! Tests that an abort from another thread ends what is pending, and that nothing is written to a caller's buffer
//! once it has returned.

use std::sync::Arc;
use std::time::Duration;

use crate::support::layout;
use roundelay::launch::JobSetup;
use roundelay::memory::TypedMemory;
use roundelay::message::ReceiveSource;
use roundelay::transport::{SegmentLayout, Transport, TransportSet};
use roundelay::{AbortHandle, Communicator, DType, Error, RedOp, Work};

/// Bytes of a buffer, enough that the abort comes in the middle.
const BYTES: usize = 24 << 20;
const POISON: u8 = 0xa5;
/// Aborts that are tried, until one comes in the middle.
const TRIALS: usize = 40;

/// Memory of a caller that is looked at while a call has it.
#[derive(Clone, Copy)]
struct Watched(*mut u8);

// SAFETY: it is looked at byte by byte, as memory that others write.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Self {
        Watched(Box::leak(vec![POISON; BYTES].into_boxed_slice()).as_mut_ptr())
    }

    /// Lends it to a call.
    fn lend(self) -> &'static mut [u8] {
        // SAFETY: it was leaked, and is lent once; what looks at it meanwhile does so as below.
        unsafe { std::slice::from_raw_parts_mut(self.0, BYTES) }
    }

    fn at(self, index: usize) -> u8 {
        // SAFETY: in bounds; a byte that another thread may write is any byte.
        unsafe { self.0.add(index).read_volatile() }
    }

    fn copy(self) -> Vec<u8> {
        (0..BYTES).map(|index| self.at(index)).collect()
    }

    /// Returns true once a call has written somewhere.
    fn is_written(self) -> bool {
        (0..BYTES).step_by(BYTES / 64).any(|index| self.at(index) != POISON)
    }

    fn free(self) {
        // SAFETY: it was a box, and no call has it any more.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.0, BYTES)) });
    }
}

fn over(transport: Transport) -> Vec<Communicator> {
    match transport {
        Transport::Tcp => {
            let setup = |_| JobSetup::new().transports(TransportSet::TCP);
            Communicator::local_over(2, setup).expect("two ranks")
        }
        _ => roundelay::internal::local_with(SegmentLayout::new(2)).expect("shared memory"),
    }
}

/// The outcome of an abort.
#[derive(Debug, PartialEq, Eq)]
enum Trial {
    /// The work had ended before, or the system held the thread for too long.
    Void,
    Cut,
}

/// Aborts work that writes to watched memory once it has begun to, and compares that memory at the return of the
/// abort with what it is when the work has ended.
fn cut(
    watched: Watched,
    abort: &AbortHandle,
    is_over: impl Fn() -> bool,
    end: impl FnOnce() -> Result<(), Error>,
) -> Trial {
    while !watched.is_written() && !is_over() {
        std::thread::yield_now();
    }
    let silent = abort.abort("the test wishes so");
    let then = silent.then(|| watched.copy());
    let ended = end();
    assert!(!matches!(ended, Err(Error::Timeout { .. } | Error::LostRank { .. })), "{ended:?}");
    match then {
        Some(then) => assert!(then == watched.copy(), "it was written to after the abort"),
        None => return Trial::Void,
    }
    match ended {
        Ok(()) => Trial::Void,
        Err(error) => {
            assert!(error.to_string().contains("the test wishes so"), "{error}");
            Trial::Cut
        }
    }
}

/// As [`cut`], of a call in the background.
fn cut_work(watched: Watched, abort: &AbortHandle, work: &Work<()>) -> Trial {
    let end = || {
        assert!(work.wait_timeout(Duration::from_secs(60)), "the work hangs");
        work.error().map_or(Ok(()), Err)
    };
    cut(watched, abort, || work.is_completed(), end)
}

/// Tries until an abort came in the middle of a call, over both kinds of link. The other rank runs `peer`.
fn in_the_middle(
    own: impl Fn(&mut Communicator, Watched) -> Trial,
    peer: impl Fn(&mut Communicator) + Sync,
) {
    for transport in [Transport::Shm, Transport::Tcp] {
        let cut = (0..TRIALS).any(|_| {
            let mut ranks = over(transport);
            let (mut other, mut first) = (ranks.remove(1), ranks.remove(0));
            let watched = Watched::new();
            let trial = std::thread::scope(|scope| {
                let peer = &peer;
                scope.spawn(move || peer(&mut other));
                own(&mut first, watched)
            });
            drop(first);
            watched.free();
            trial == Trial::Cut
        });
        assert!(cut, "no abort in {TRIALS} came in the middle over {transport}");
    }
}

fn typed(memory: &'static mut [u8]) -> TypedMemory<&'static mut [u8]> {
    TypedMemory::write(memory, DType::U8).expect("bytes")
}

#[test]
fn calls_in_the_background_write_nothing_after_an_abort() {
    in_the_middle(
        |comm, watched| {
            let abort = comm.abort_handle();
            let work =
                comm.start(move |comm| comm.all_reduce(&mut typed(watched.lend()), RedOp::Sum));
            // What was started after it ends too, and was never begun.
            let next = comm.start(|comm| comm.barrier());
            let trial = cut_work(watched, &abort, &work);
            assert!(next.wait().is_err(), "after the abort");
            assert!(comm.barrier().is_err(), "after the abort");
            trial
        },
        |comm| drop(comm.all_reduce(&mut vec![1u8; BYTES], RedOp::Sum)),
    );
}

#[test]
fn averages_write_nothing_after_an_abort() {
    in_the_middle(
        |comm, watched| {
            let abort = comm.abort_handle();
            let work =
                comm.start(move |comm| comm.all_reduce(&mut typed(watched.lend()), RedOp::Avg));
            cut_work(watched, &abort, &work)
        },
        |comm| drop(comm.all_reduce(&mut vec![7u8; BYTES], RedOp::Avg)),
    );
}

#[test]
fn messages_write_nothing_after_an_abort() {
    in_the_middle(
        |comm, watched| {
            let abort = comm.abort_handle();
            let messages = comm.messages().expect("messages");
            let buffer = typed(watched.lend());
            let pending =
                messages.recv_async(buffer, ReceiveSource::Rank(1), 7).expect("a receive");
            let never =
                messages.recv_async(vec![0u8; 4], ReceiveSource::Any, 8).expect("a receive");
            let trial = cut(
                watched,
                &abort,
                || pending.is_completed(),
                || {
                    assert!(pending.wait_timeout(Duration::from_secs(60)), "the message hangs");
                    pending.result().expect("it has ended").map(drop)
                },
            );
            assert!(never.is_completed(), "an abort ends what is pending before it returns");
            assert!(messages.recv(&mut [0u8], 1, 9).is_err(), "after the abort");
            trial
        },
        |comm| {
            let messages = comm.messages().expect("messages");
            let content = vec![3u8; BYTES];
            // It goes on and on.
            while messages.send(&content, 0, 7).is_ok() {}
        },
    );
}

#[test]
fn an_abort_needs_no_thread_that_makes_calls() {
    let mut ranks = roundelay::internal::local_with(layout(2, 4096)).expect("shared memory");
    let abort = Arc::new(ranks[0].abort_handle());
    // This work waits for rank 1, which never comes: the handle of pending work is there at once.
    let work = ranks[0].start(|comm| comm.barrier());
    let again = ranks[0].abort_handle();
    assert!(!again.is_aborted());
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let abort = abort.clone();
            std::thread::spawn(move || abort.abort(&format!("thread {i}")))
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    assert!(again.is_aborted() && ranks[1].abort_handle().is_aborted());
    let error = work.wait().expect_err("it was aborted").to_string();
    assert!(error.contains("abort was called: thread"), "{error}");
}
