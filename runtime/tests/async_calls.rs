//! Tests work in the background: order, early drops, callbacks, deadlines, panics.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::support::{layout, threads};
use proptest::prelude::*;
use roundelay::{CallOptions, Communicator, Error, RedOp, Work, WorkStatus};
use roundelay_dsl::diag::codes;

const LONG: Duration = Duration::from_secs(30);

#[test]
fn results_come_back_with_their_buffers() {
    threads(layout(3, 1024), |comm, r| {
        let data = vec![r as i32; 100];
        let sum = comm.all_reduce_async(data, RedOp::Sum);
        let all = comm.all_gather_async(vec![0u8; 6], vec![r as u8; 2]);
        let mut shared = comm.alloc::<f64>(9).expect("memory");
        shared.fill(1.0);
        let part = comm.reduce_scatter_async(vec![0.0f64; 3], shared, RedOp::Sum);
        let root = comm.broadcast_async(Box::<[u32]>::from([r as u32; 4]), 2);
        let met = comm.barrier_async();
        met.wait().expect("all came");
        assert_eq!(sum.wait().expect("a sum"), vec![3; 100]);
        assert_eq!(all.wait().expect("blocks"), (vec![0, 0, 1, 1, 2, 2], vec![r as u8; 2]));
        assert_eq!(part.wait().expect("a part").0, vec![3.0; 3]);
        assert_eq!(root.wait().expect("the root's")[..], [2; 4]);
    });
}

/// The next step of a rank.
#[derive(Debug, Clone, Copy)]
enum Step {
    Call,
    Start,
    StartAndDrop,
    StartTwoInOne,
    WaitForOldest,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Call),
        Just(Step::Start),
        Just(Step::StartAndDrop),
        Just(Step::StartTwoInOne),
        Just(Step::WaitForOldest),
    ]
}

type Log = Arc<Mutex<Vec<u32>>>;

/// Makes the `number`-th call: its size and result tell it from the others.
fn call(comm: &mut Communicator, number: u32, log: &Log) -> Result<(), Error> {
    let len = 1 + number as usize * 37 % 600;
    let mut data = vec![number + comm.rank(); len];
    comm.all_reduce(&mut data, RedOp::Max)?;
    assert!(data.iter().all(|&x| x == number + comm.size() - 1), "call {number}");
    log.lock().expect("no panic").push(number);
    Ok(())
}

fn take(comm: &mut Communicator, steps: &[Step], log: &Log) {
    let mut pending: Vec<Work<()>> = Vec::new();
    let mut number = 0;
    for step in steps {
        let (first, log) = (number, log.clone());
        match step {
            Step::Call => call(comm, first, &log).expect("a call"),
            Step::Start => pending.push(comm.start(move |comm| call(comm, first, &log))),
            Step::StartAndDrop => drop(comm.start(move |comm| call(comm, first, &log))),
            Step::StartTwoInOne => pending.push(comm.start(move |comm| {
                call(comm, first, &log)?;
                call(comm, first + 1, &log)
            })),
            Step::WaitForOldest if pending.is_empty() => continue,
            Step::WaitForOldest => {
                pending.remove(0).wait().expect("work");
                continue;
            }
        }
        number += if matches!(step, Step::StartTwoInOne) { 2 } else { 1 };
    }
}

/// Returns the number of cases: 200, unless `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Ranks choose differently what they do in the background; the order of calls is the same.
    #[test]
    fn calls_happen_in_issue_order(
        steps in prop::collection::vec(step(), 1..14),
        other in any::<u64>(),
    ) {
        // What counts for the others is the sequence of calls, so rank 1 makes the same ones its own way.
        let turned: Vec<Step> = steps.iter().enumerate().map(|(i, &step)| match step {
            Step::Call | Step::Start | Step::StartAndDrop => {
                [Step::Call, Step::Start, Step::StartAndDrop][(other >> (2 * i)) as usize % 3]
            }
            step => step,
        }).collect();
        let ways = [steps, turned];
        let logs: Vec<Log> = (0..2).map(|_| Log::default()).collect();
        let ranks = roundelay::internal::local_with(layout(2, 1024)).expect("shared memory");
        std::thread::scope(|scope| {
            for (r, mut comm) in ranks.into_iter().enumerate() {
                let (ways, logs) = (&ways, &logs);
                // The communicator is dropped with work pending.
                scope.spawn(move || take(&mut comm, &ways[r], &logs[r]));
            }
        });
        for log in logs {
            let log = log.lock().expect("no panic");
            prop_assert!(log.iter().copied().eq(0..log.len() as u32), "{log:?}");
        }
    }
}

#[test]
fn a_start_returns_at_once_and_work_overlaps() {
    let started = AtomicU32::new(0);
    threads(layout(2, 1 << 16), |comm, r| {
        if r == 1 {
            let began = Instant::now();
            while started.load(Ordering::Acquire) == 0 && began.elapsed() < LONG {
                std::thread::yield_now();
            }
        }
        let data = comm.alloc::<f32>(1 << 20).expect("memory");
        let large = comm.all_reduce_async(data, RedOp::Sum);
        let small: Vec<_> =
            (0..100).map(|i| comm.all_reduce_async(vec![i; 3], RedOp::Sum)).collect();
        if r == 0 {
            // Rank 1 has not even begun, and this thread goes on.
            assert!(!large.wait_timeout(Duration::from_millis(5)));
            assert!(matches!(large.status(), WorkStatus::NotStarted | WorkStatus::InProgress));
            assert!(small.iter().all(|work| work.status() == WorkStatus::NotStarted));
            started.store(1, Ordering::Release);
        }
        large.wait().expect("a sum");
        for (i, work) in small.into_iter().enumerate() {
            assert_eq!(work.wait().expect("a sum"), [2 * i as u32; 3]);
        }
    });
}

#[test]
fn callbacks_are_called_once_with_the_status() {
    threads(layout(2, 1024), |comm, _| {
        let (called, calls) = mpsc::channel();
        let (enter, entered) = mpsc::channel::<()>();
        let work = comm.start(move |comm| {
            entered.recv_timeout(LONG).expect("a go-ahead");
            comm.barrier()
        });
        for name in ["early", "second"] {
            let called = called.clone();
            work.on_completion(move |status| called.send((name, status)).expect("a listener"));
        }
        work.on_completion(|_| panic!("a callback that panics (as this test wants)"));
        assert!(!work.status().is_final());
        enter.send(()).expect("the work listens");
        assert!(work.wait_timeout(LONG));
        let late = called.clone();
        work.on_completion(move |status| late.send(("late", status)).expect("a listener"));
        for name in ["early", "second", "late"] {
            assert_eq!(calls.recv_timeout(LONG), Ok((name, WorkStatus::Completed)));
        }
        // After the work and the panic, all goes on.
        comm.barrier().expect("all came");
        let gone = comm.start(|_| Ok(5));
        assert!(gone.wait_timeout(LONG));
        drop(called);
        assert_eq!(calls.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(gone.wait(), Ok(5));
    });
}

#[test]
fn work_outlives_its_communicator() {
    let mut comm = Communicator::local(1).expect("memory").remove(0);
    let done = comm.start(|comm| Ok(comm.alloc::<u8>(3)?.len()));
    let runs = Arc::new(AtomicUsize::new(0));
    for _ in 0..20 {
        let runs = runs.clone();
        drop(comm.start(move |comm| {
            comm.barrier()?;
            runs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
    }
    // Waits for all of it.
    drop(comm);
    assert_eq!(runs.load(Ordering::Relaxed), 20);
    let (called, calls) = mpsc::channel();
    done.on_completion(move |status| called.send(status).expect("a listener"));
    assert_eq!(calls.recv_timeout(LONG), Ok(WorkStatus::Completed));
    assert_eq!(done.wait(), Ok(3));
}

/// Whenever a callback is given, before the end of the work or of the communicator or after.
#[test]
fn callbacks_are_called_once_whatever_ends_first() {
    for _ in 0..300 {
        let mut comm = roundelay::internal::local_with(layout(1, 256)).expect("memory").remove(0);
        let calls = Arc::new(AtomicU32::new(0));
        let work = comm.start(|comm| comm.barrier());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..3 {
                    let calls = calls.clone();
                    work.on_completion(move |status| {
                        assert_eq!(status, WorkStatus::Completed);
                        calls.fetch_add(1, Ordering::AcqRel);
                    });
                }
            });
            scope.spawn(move || drop(comm));
        });
        // The thread of the communicator has ended, so no thread is left to call anything.
        assert_eq!(calls.load(Ordering::Acquire), 3);
    }
}

#[test]
fn a_rank_that_does_not_come_is_a_timeout() {
    let ended = AtomicU32::new(0);
    threads(layout(2, 1024), |comm, r| {
        if r == 1 {
            let began = Instant::now();
            while ended.load(Ordering::Acquire) == 0 && began.elapsed() < LONG {
                std::thread::yield_now();
            }
            return;
        }
        let brief = CallOptions::new().timeout(Duration::from_millis(50));
        let began = Instant::now();
        let late = comm.with(brief).all_reduce_async(vec![0u8; 8], RedOp::Sum);
        let after = comm.barrier_async();
        assert!(late.wait_timeout(LONG));
        assert_eq!(late.status(), WorkStatus::TimedOut);
        let took = began.elapsed();
        let error = late.wait().expect_err("no rank came");
        assert!(took >= Duration::from_millis(50), "{took:?}");
        assert!(matches!(error, Error::Timeout { peer: 1, after, .. } if after.as_millis() == 50));
        assert!(error.to_string().contains("rank 1"), "{error}");
        // What comes after finds the communicator out of use, and does not wait.
        assert!(after.wait_timeout(LONG));
        assert_eq!(after.status(), WorkStatus::Failed);
        assert!(after.wait().is_err());
        ended.store(1, Ordering::Release);
    });
}

#[test]
fn options_last_as_long_as_their_guard() {
    let mut comm = Communicator::local(1).expect("memory").remove(0);
    let mut data = [1u8];
    let zero = || CallOptions::new().timeout(Duration::ZERO);
    for _ in 0..2 {
        let error = comm.with(zero()).all_reduce(&mut data, RedOp::Sum).expect_err("no time");
        assert!(
            matches!(&error, Error::Usage(text) if text.contains("timeout of zero")),
            "{error}"
        );
        let failed = comm.with(zero()).start(|comm| comm.barrier());
        assert!(matches!(failed.wait(), Err(Error::Usage(_))));
        comm.all_reduce(&mut data, RedOp::Sum).expect("time enough");
    }
    {
        let mut outer = comm.with(zero());
        let mut inner = outer.with(CallOptions::new().timeout(LONG));
        inner.with(CallOptions::new()).barrier().expect("time enough");
        drop(inner);
        outer.barrier().expect_err("no time");
    }
    comm.barrier().expect("time enough");
}

#[test]
fn a_panic_fails_its_work_only() {
    threads(layout(2, 1024), |comm, r| {
        let panics = comm.start(move |comm| -> Result<(), Error> {
            comm.barrier()?;
            panic!("wanted by this test, on rank {r}")
        });
        let fine = comm.all_reduce_async(vec![1u8; 3], RedOp::Sum);
        let error = panics.wait().expect_err("a panic");
        let wanted = format!("the work panicked: wanted by this test, on rank {r}");
        assert_eq!((error.code(), error), (codes::WORK, Error::Work(wanted)));
        assert_eq!(fine.wait().expect("a sum"), [2; 3]);
        // A result that panics when it is dropped, because no waiter is left.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("wanted by this test, too");
            }
        }
        let (go, wait) = mpsc::channel::<()>();
        drop(comm.start(move |_| {
            wait.recv_timeout(LONG).expect("a go-ahead");
            Ok(Bomb)
        }));
        go.send(()).expect("the work listens");
        comm.barrier().expect("all came");
    });
}

#[test]
fn work_may_start_work_and_callbacks_too() {
    threads(layout(2, 1024), |comm, _| {
        let inner = comm.start(|comm| {
            let mut data = [1u32];
            let pending = comm.all_reduce_async(vec![1u32; 4], RedOp::Sum);
            comm.all_reduce(&mut data, RedOp::Sum)?;
            Ok((data[0], pending))
        });
        let (outer, pending) = inner.wait().expect("work");
        assert_eq!((outer, pending.wait().expect("a sum")), (2, vec![2; 4]));
    });
    // A callback that owns the communicator may start more, but neither call nor wait.
    let comm = Communicator::local(1).expect("memory").remove(0);
    let comm = Arc::new(Mutex::new(comm));
    let first = comm.lock().expect("no panic").start(|comm| comm.barrier());
    let (report, reported) = mpsc::channel();
    let mine = comm.clone();
    first.on_completion(move |_| {
        let mut comm = mine.lock().expect("no panic");
        let call = comm.barrier();
        let later = comm.start(|_| Ok(7));
        let waited = later.wait_timeout(LONG);
        report.send((call, waited, later)).expect("a listener");
    });
    first.wait().expect("work");
    let (call, waited, later) = reported.recv_timeout(LONG).expect("the callback's findings");
    assert!(matches!(call, Err(Error::Usage(_))) && !waited);
    assert_eq!(later.wait(), Ok(7));
    // The last to own it is a callback, on the progress thread itself.
    let last = comm.lock().expect("no panic").start(|_| Ok(()));
    let (report, reported) = mpsc::channel();
    last.on_completion(move |_| {
        drop(comm);
        report.send(()).expect("a listener");
    });
    reported.recv_timeout(LONG).expect("no deadlock");
}

#[test]
fn work_is_a_future() {
    struct Flag(AtomicU32);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Release);
        }
    }
    let mut comm = Communicator::local(1).expect("memory").remove(0);
    let (go, wait) = mpsc::channel::<()>();
    let work = comm.start(move |_| {
        wait.recv_timeout(LONG).expect("a go-ahead");
        Ok("done")
    });
    let flag = Arc::new(Flag(AtomicU32::new(0)));
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    let mut work = std::pin::pin!(work);
    assert!(work.as_mut().poll(&mut context).is_pending());
    go.send(()).expect("the work listens");
    let began = Instant::now();
    while flag.0.load(Ordering::Acquire) == 0 && began.elapsed() < LONG {
        std::thread::yield_now();
    }
    assert_eq!(work.as_mut().poll(&mut context), Poll::Ready(Ok("done")));
    assert!(matches!(work.as_mut().poll(&mut context), Poll::Ready(Err(Error::Usage(_)))));
}

/// Returns the time for which a thread of this process has run.
fn ran(thread: i32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat"));
    let stat = stat.expect("the kernel counts the time of threads");
    let nanoseconds = stat.split(' ').next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}

#[test]
fn a_progress_thread_sleeps_while_nobody_waits_for_it() {
    const COMPUTES: Duration = Duration::from_millis(300);
    let mut ranks = Communicator::local(2).expect("two ranks");
    let (report, thread) = mpsc::channel();
    let work = ranks[0].start(move |comm| {
        report.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("the test listens");
        comm.barrier()
    });
    let thread = thread.recv_timeout(LONG).expect("the thread begins");
    let (began, before) = (Instant::now(), ran(thread));
    while began.elapsed() < COMPUTES {
        std::hint::spin_loop();
    }
    let ran = ran(thread) - before;
    assert!(ran < COMPUTES / 5, "it ran for {ran:?} of {COMPUTES:?} in which nothing came");
    ranks[1].barrier().expect("both are there");
    work.wait().expect("both are there");
}
