//! Waits for what happens in other processes.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The polling interval for state that sends no notification when it changes.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until a condition holds on something that gives no sign, as `/proc` does not.
///
/// # Panics
/// After `limit`, with what `missing` says.
#[track_caller]
pub fn until(limit: Duration, missing: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "{}", missing());
        std::thread::park_timeout(LOOK);
    }
}

/// Waits for the end of a child; kills it after `limit`, and then says nothing.
///
/// # Panics
/// If it is not a child of this process, or the system has no descriptors for processes.
pub fn end(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let pid = Pid::from_child(child);
    let ended = pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor of the child");
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let began = Instant::now();
    let mut ends = [PollFd::new(&ended, PollFlags::IN)];
    while began.elapsed().as_secs() < limit.tv_sec as u64 {
        if poll(&mut ends, Some(&limit)).is_ok_and(|n| n > 0) {
            return Some(child.wait().expect("its status"));
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
