use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use super::*;

/// No child takes as long unless it hangs.
const LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// The ways to fork: as programs do, with handlers, and by the system call alone. A child of the second kind may find
/// the allocator locked by a thread that it has not, and `fork` waits for that lock: it makes children by calls alone.
const WAYS: [fn() -> i64; 2] = [fork, raw_clone];

fn fork() -> i64 {
    // SAFETY: the child makes system calls, loads and stores, and ends by `_exit`.
    let pid = unsafe { libc::fork() };
    pid.into()
}

fn raw_clone() -> i64 {
    // SAFETY: as above; the child has a copy of the memory.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) }
}

/// Returns the result of a function in a child: a number below 256. The function allocates nothing, and calls nothing
/// that waits for a lock, since other tests run in threads of this process.
fn in_child(way: fn() -> i64, body: impl FnOnce() -> u8) -> i32 {
    let pid = way();
    if pid == 0 {
        // SAFETY: it ends the child, with no destructor and no handler.
        unsafe { libc::_exit(body().into()) };
    }
    assert!(pid > 0, "{}", std::io::Error::last_os_error());
    exit_status(pid).expect("an exit in time")
}

/// Returns the exit status of a child; it is killed, and has none, if it takes longer than [`LIMIT`].
fn exit_status(pid: i64) -> Option<i32> {
    let pid = Pid::from_raw(pid as i32).expect("a child");
    let child = pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor of the child");
    if !poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&LIMIT)).is_ok_and(|ends| ends > 0) {
        let _ = kill_process(pid, Signal::KILL);
    }
    let ended = waitpid(Some(pid), WaitOptions::empty()).expect("its end");
    ended.and_then(|(_, status)| status.exit_status())
}

#[test]
fn an_object_knows_its_process_in_every_kind_of_child() {
    let own = OwnerProcess::here();
    assert!(own.is_here() && own.check("communicator").is_ok());
    for way in WAYS {
        assert_eq!(in_child(way, || own.is_here().into()), 0);
        let pid = std::process::id();
        let grandchild = move || in_child(way, || own.is_here().into()) as u8;
        assert_eq!(in_child(way, grandchild), 0);
        // Its own objects are its own, and have its number.
        let made = move || {
            let new = OwnerProcess::here();
            let is_own = new.is_here() && !own.is_here() && new.pid != pid;
            u8::from(is_own && new.pid == std::process::id())
        };
        assert_eq!(in_child(way, made), 1);
        assert!(own.is_here(), "what a child does is nothing to its parent");
    }
}

#[test]
fn without_pages_that_are_wiped_the_handler_clears_the_word() {
    let word: &AtomicU32 = Box::leak(Box::new(AtomicU32::new(7)));
    let own = OwnerProcess { word, pid: 7 };
    OwnerProcess::here();
    let cleared = move || {
        // As if it had been made so in the parent, whose word is not changed.
        CURRENT.store(std::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
        // SAFETY: it is what the library of C calls here.
        unsafe { after_fork() };
        u8::from(own.is_here())
    };
    assert_eq!(in_child(fork, cleared), 0);
    assert!(own.is_here());
}

#[test]
fn the_error_names_both_processes_and_the_remedy() {
    let own = OwnerProcess::here();
    let text = own.refusal("window").to_string();
    let pid = std::process::id();
    let begin = format!(
        "this window belongs to process {pid}, and process {pid}, which was forked from it"
    );
    assert!(text.starts_with(&begin), "{text}");
    assert!(
        text.ends_with(&format!("or make a communicator of its own in process {pid}")),
        "{text}"
    );
}

#[test]
fn a_connection_ends_with_its_process_though_children_live() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut far = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
    let (near, _) = listener.accept().expect("a connection");
    far.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    give_up_in_children(&near);
    // Something else that has the number of a socket that was closed.
    let (reused, other) = UnixStream::pair().expect("a pair");
    give_up_in_children(&reused);
    let mut reused = std::os::fd::OwnedFd::from(reused);
    rustix::io::dup3(&listener, &mut reused, rustix::io::DupFlags::CLOEXEC).expect("a copy");
    let (until, ends) = UnixStream::pair().expect("a pair");
    let pid = fork();
    if pid == 0 {
        drop(ends);
        let is_left = rustix::net::getpeername(&near).is_err();
        let is_kept = rustix::net::getsockname(&reused) == rustix::net::getsockname(&listener);
        // It lives until the parent has seen the end of the connection.
        let _ = rustix::io::read(&until, &mut [0u8; 1]);
        // SAFETY: as in `in_child`.
        unsafe { libc::_exit((is_left && is_kept).into()) };
    }
    drop((near, other));
    let mut rest = Vec::new();
    assert_eq!(far.read_to_end(&mut rest).expect("the end"), 0);
    drop(ends);
    assert_eq!(exit_status(pid), Some(1));
}
