//! Tests that a process that was forked from a rank's is refused by all that it inherits, ends at once, and leaves the
//! ranks unharmed; and that it may have ranks of its own.
//!
//! Each test runs itself again, in a process of its own with few threads, which forks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use roundelay::endpoint::Endpoint;
use roundelay::launch::JobSetup;
use roundelay::transport::{Transport, TransportSet};
use roundelay::window::WindowRights;
use roundelay::{Communicator, Error, RedOp, Work};
use roundelay_tests::runs_alone;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

/// No child takes as long unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The ways to fork: as programs do, with handlers, and by the system call alone.
const WAYS: [fn() -> i64; 2] = [fork, raw_clone];

fn fork() -> i64 {
    // SAFETY: no other thread of this process is in the middle of anything: they wait.
    let pid = unsafe { libc::fork() };
    pid.into()
}

fn raw_clone() -> i64 {
    // SAFETY: as above; the child has a copy of the memory.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

/// Calls a function in a child, and returns true if it returned true, in time.
fn in_child(way: fn() -> i64, body: impl FnOnce() -> bool) -> bool {
    let pid = way();
    if pid == 0 {
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: it ends the child, with no handler.
        unsafe { libc::_exit(i32::from(!well)) };
    }
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    wait_for_child(pid) == Some(0)
}

/// Returns the exit status of a child; it is killed, and has none, if it takes longer than [`LIMIT`].
fn wait_for_child(pid: i64) -> Option<i32> {
    let pid = Pid::from_raw(pid as i32).expect("a child");
    let child = pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor of the child");
    let limit = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
    let mut ends = [PollFd::new(&child, PollFlags::IN)];
    if !poll(&mut ends, Some(&limit)).is_ok_and(|ended| ended > 0) {
        eprint("the child hangs");
        let _ = kill_process(pid, Signal::KILL);
    }
    let ended = waitpid(Some(pid), WaitOptions::empty()).expect("its end");
    ended.and_then(|(_, status)| status.exit_status())
}

#[expect(clippy::print_stderr, reason = "a child prints what is wrong before it ends")]
fn eprint(text: &str) {
    eprintln!("{text}");
}

/// Returns true if a call was refused since this process is a child.
fn refused<T>(name: &str, result: Result<T, Error>) -> bool {
    let own = std::process::id();
    match result {
        Err(Error::Forked { owner, caller, .. }) if caller == own && owner != own => true,
        Err(other) => {
            eprint(&format!("{name}: {other}"));
            false
        }
        Ok(_) => {
            eprint(&format!("{name}: no error"));
            false
        }
    }
}

fn over(transport: Transport) -> [Communicator; 2] {
    let ranks = match transport {
        Transport::Shm => Communicator::local(2).expect("two ranks"),
        _ => {
            let setup = JobSetup::new().transports(TransportSet::from(transport)).timeout(LIMIT);
            let (sender, notes) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let first = scope.spawn(|| {
                    Communicator::join_with(0, 2, &setup, |note| {
                        let note = note.unwrap_or_default().to_owned();
                        sender.send(note.clone()).expect("rank 1 waits");
                        Ok(note)
                    })
                });
                let note = notes.recv().expect("a note");
                let second = Communicator::join_with(1, 2, &setup, |_| Ok(note));
                [first.join().expect("no panic"), second].map(|rank| rank.expect("a rank")).into()
            })
        }
    };
    <[Communicator; 2]>::try_from(ranks).expect("two ranks")
}

/// Makes calls on both ranks, and fails unless their results are right.
fn go_on(ranks: &mut [Communicator; 2]) {
    let [first, second] = ranks;
    let calls = |comm: &mut Communicator| {
        for (value, count) in [(1.0f32, 2), (2.0, 4), (3.0, 1 << 16)] {
            let mut data = vec![value; count];
            comm.all_reduce(&mut data, RedOp::Sum).expect("the ranks go on");
            assert!(data.iter().all(|&x| x == 2.0 * value));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| calls(first));
        calls(second);
    });
}

const TRANSPORTS: [Transport; 2] = [Transport::Shm, Transport::Tcp];

#[test]
fn all_calls_of_a_child_are_refused() {
    if !runs_alone(module_path!(), "all_calls_of_a_child_are_refused") {
        return;
    }
    for (transport, way) in TRANSPORTS.into_iter().flat_map(|t| WAYS.map(|way| (t, way))) {
        let mut ranks = over(transport);
        go_on(&mut ranks);
        let abort = ranks[0].abort_handle();
        let messages = ranks[0].messages().expect("messages");
        let comm = &mut ranks[0];
        let body = move || {
            let data = &mut [100.0f32; 4];
            let all = [
                refused("all_reduce", comm.all_reduce(data, RedOp::Sum)),
                refused("empty", comm.all_reduce(&mut data[..0], RedOp::Sum)),
                refused("barrier", comm.barrier()),
                refused("word", comm.all_gather_u64(7)),
                refused("send", comm.send(data, 1)),
                refused("recv", comm.recv(data, 1)),
                refused("batch", {
                    let mut batch = comm.batch();
                    batch.send(&[1.0f32], 1);
                    batch.run(comm)
                }),
                refused("tagged send", messages.send(data, 1, 5)),
                refused("tagged recv", messages.recv(data, 1, 5)),
                refused("started send", messages.send_async(vec![1.0f32], 1, 5)),
                refused("started recv", messages.recv_async(vec![1.0f32], 1, 5)),
                refused("messages", comm.messages()),
                refused("work", comm.start(|comm| comm.barrier()).wait()),
                refused("split", comm.split(&[0, 1])),
                refused("shrink", comm.shrink(Duration::from_secs(3))),
                refused("handle", comm.handle()),
                refused("alloc", comm.alloc::<f32>(4)),
                refused("window", comm.window(vec![0.0f32; 4].into())),
                refused(
                    "explain",
                    comm.explain("all_reduce", 8, roundelay::DType::F32, RedOp::Sum),
                ),
                refused("resources", comm.resources()),
                refused("topology", comm.topology()),
                refused("abort", abort.try_abort("the child ends it")),
                abort.abort("the child ends it") && !abort.is_aborted(),
            ];
            all.into_iter().all(|well| well)
        };
        assert!(in_child(way, body));
        go_on(&mut ranks);
    }
}

#[test]
fn what_a_rank_holds_is_not_for_its_children() {
    if !runs_alone(module_path!(), "what_a_rank_holds_is_not_for_its_children") {
        return;
    }
    for (transport, way) in TRANSPORTS.into_iter().flat_map(|t| WAYS.map(|way| (t, way))) {
        let mut ranks = over(transport);
        go_on(&mut ranks);
        let [first, second] = &mut ranks;
        let windows = std::thread::scope(|scope| {
            let make = |comm: &mut Communicator| {
                let mapped = comm.alloc::<u64>(8)?;
                Ok([comm.window(mapped)?, comm.window(vec![0u64; 8].into())?])
            };
            let its = scope.spawn(move || make(second));
            [make(first), its.join().expect("no panic")]
                .map(|made: Result<_, Error>| made.expect("windows"))
        });
        // Neither ends before the other rank answers, which is after the children were there.
        let messages = first.messages().expect("messages");
        let mut pending = first.start(|comm| comm.barrier());
        let receive = messages.recv_async(vec![0u64; 2], 1, 9).expect("a receive");
        let (own, work, message) = (&windows[0], &mut pending, &receive);
        let body = || {
            let mut well = true;
            for window in own {
                let data = &mut [7u64; 2];
                well &= refused("put", window.put(data, 1, 0));
                well &= refused("put_async", window.put_async(vec![7u64; 2], 1, 0).wait());
                well &= refused("get", window.get(data, 1, 0));
                well &= refused("accumulate", window.accumulate(data, RedOp::Sum, 1, 0));
                well &= refused("fetch_add", window.fetch_add(1, 1, 0));
                well &= refused("compare_swap", window.compare_swap(0, 1, 1, 0));
                well &= refused("signal", window.signal(1));
                well &= refused("wait_signal", window.wait_signal(1));
                well &= refused("take_signal", window.take_signal(1));
                well &= refused("flush", window.flush(1));
                well &= refused("flush_async", window.flush_async(1).wait());
                well &= refused("read", window.read(0, data));
                well &= refused("write", window.write(0, data));
                well &= refused("withdraw", window.withdraw(WindowRights::ALL));
                well &= refused("attributes", window.attributes(1));
                well &= refused("map", window.map_remote(1).map(drop));
            }
            well &= work.is_completed() && work.wait_timeout(LIMIT);
            well &= refused("error", work.error().map_or(Ok(()), Err));
            let poll = pin!(&mut *work).poll(&mut Context::from_waker(Waker::noop()));
            well &= matches!(poll, Poll::Ready(result) if refused("poll", result.clone()));
            well &= message.is_completed() && message.wait_timeout(LIMIT);
            well & refused(
                "message",
                message.result().unwrap_or(Err(Error::Work("pending".into()))),
            )
        };
        assert!(in_child(way, body));
        let [mut first, mut second] = ranks;
        // All copies of a child are dropped, and that ends at once and changes nothing.
        let pid = way();
        if pid == 0 {
            drop((windows, pending, receive, messages, first, second));
            // SAFETY: as in `in_child`.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: it is a child of this process.
        assert_eq!(unsafe { libc::waitpid(pid as i32, &raw mut status, 0) }, pid as i32);
        assert_eq!(status, 0);
        second.barrier().expect("rank 0 has started one");
        pending.wait().expect("it was answered");
        second.messages().and_then(|m| m.send(&[4u64, 5], 0, 9)).expect("rank 0 receives");
        assert_eq!(receive.wait().expect("it was answered").0, [4, 5]);
        let [own, its] = windows;
        std::thread::scope(|scope| {
            scope.spawn(|| used(&mut first, own, 1));
            used(&mut second, its, 0);
        });
        go_on(&mut [first, second]);
    }
}

/// Uses windows of both kinds, which no rank has written to, and frees them.
fn used(comm: &mut Communicator, windows: [roundelay::window::Window<u64>; 2], peer: u32) {
    for window in windows {
        window.put(&[u64::from(peer) + 1], peer, 3).expect("a put");
        window.signal(peer).expect("a signal");
        window.wait_signal(peer).expect("a signal");
        let buffer = window.free(comm).expect("the buffer");
        assert_eq!(buffer[..], [0, 0, 0, u64::from(1 - peer) + 1, 0, 0, 0, 0]);
    }
}

#[test]
fn links_regions_and_endpoints_are_not_for_children() {
    if !runs_alone(module_path!(), "links_regions_and_endpoints_are_not_for_children") {
        return;
    }
    for (transport, way) in TRANSPORTS.into_iter().flat_map(|t| WAYS.map(|way| (t, way))) {
        let setup = JobSetup::new().transports(TransportSet::from(transport)).timeout(LIMIT);
        let [a, b] = [&setup; 2].map(|setup| Endpoint::bind(setup).expect("an endpoint"));
        let connect = |own: &Endpoint, peer: &Endpoint| own.connect_async(&peer.address(), LIMIT);
        let begun = [connect(&a, &b), connect(&b, &a)];
        let [to_b, to_a] = begun.map(|work: Work<_>| work.wait().expect("a link"));
        let region = b.register(vec![0u8; 16], WindowRights::ALL).expect("a region");
        let there = to_b.region(&region.key()).expect("its key");
        let body = || {
            let data = &mut [7u8; 4];
            let mut well = !to_b.is_open() && a.is_closed();
            well &= refused("connect", a.connect(&b.address(), LIMIT));
            well &= refused("register", a.register(vec![0u8], WindowRights::ALL));
            well &= refused("region", to_b.region(&region.key()));
            well &= refused("write", there.put(data, 0));
            well &= refused("read", there.get(data, 0));
            well &= refused("notify", to_b.signal(1));
            well &= refused("wait", to_a.wait_signal(LIMIT));
            well &= refused("own read", region.read(0, data));
            well &= refused("own write", region.write(0, data));
            to_b.abort("the child ends it");
            to_b.close();
            a.close();
            well
        };
        assert!(in_child(way, body));
        assert!(to_b.is_open() && !a.is_closed());
        there.put_signal(&[3u8; 4], 2, 11).expect("the link goes on");
        assert_eq!(to_a.wait_signal(LIMIT).expect("the link goes on"), Some(11));
        let pid = way();
        if pid == 0 {
            drop((there, region, to_a, to_b, a, b));
            // SAFETY: as in `in_child`.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: it is a child of this process.
        unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
        there.put_signal(&[4u8; 4], 8, 12).expect("the link goes on");
        assert_eq!(to_a.wait_signal(LIMIT).expect("the link goes on"), Some(12));
        let expected = [0, 0, 3, 3, 3, 3, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0];
        assert_eq!(region.revoke().expect("the buffer"), expected);
    }
}

#[test]
fn a_child_may_have_ranks_of_its_own() {
    if !runs_alone(module_path!(), "a_child_may_have_ranks_of_its_own") {
        return;
    }
    let mut ranks = over(Transport::Shm);
    go_on(&mut ranks);
    for way in WAYS {
        let first = &mut ranks[0];
        let body = move || {
            // A raw clone leaves no locks to be held by others: they all wait.
            let mut own = over(Transport::Shm);
            go_on(&mut own);
            let grandchild = || refused("of a parent", own[0].barrier());
            refused("of the parent", first.barrier()) && in_child(fork, grandchild)
        };
        assert!(in_child(way, body));
        go_on(&mut ranks);
    }
}

#[test]
fn work_that_forks_is_not_gone_on_with_by_the_child() {
    if !runs_alone(module_path!(), "work_that_forks_is_not_gone_on_with_by_the_child") {
        return;
    }
    let [mut first, mut second] = over(Transport::Shm);
    let forked = first.start(|_| Ok(fork()));
    let later = first.start(|comm| comm.barrier());
    // In the child the progress thread ends, and with it the child.
    let pid = forked.wait().expect("it forks");
    assert!(wait_for_child(pid).is_some(), "the child hangs");
    second.barrier().expect("rank 0 has started one");
    later.wait().expect("rank 1 has answered");
    go_on(&mut [first, second]);
}
