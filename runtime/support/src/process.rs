//! The state of processes of this machine.

use std::sync::{Mutex, PoisonError};

/// Returns true if a process has ended. The system keeps the number of one that has ended until its parent has waited
/// for it, as a zombie.
pub fn has_gone(pid: i32) -> bool {
    let Some(process) = rustix::process::Pid::from_raw(pid) else { return false };
    let no_longer = rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH);
    no_longer || stat(pid).is_some_and(|stat| is_zombie(&stat))
}

/// Has the system keep the statuses of this process's ended children, while it lives. A program inherits from its
/// parent that SIGCHLD is ignored, and the system keeps none then: nothing could be waited for.
#[derive(Debug)]
pub struct ChildStatuses(());

/// The number of [`ChildStatuses`], and what was done on SIGCHLD before the first, if they have changed it.
static KEPT: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

impl ChildStatuses {
    /// Begins to keep them.
    pub fn keep() -> Self {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        if kept.0 > 1 {
            return ChildStatuses(());
        }
        // SAFETY: a plain structure, of which all zero is a value; the system fills it in.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above; nothing is changed.
        let asked = unsafe { libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut before) };
        let is_ignored = before.sa_sigaction == libc::SIG_IGN;
        if asked == 0 && (is_ignored || before.sa_flags & libc::SA_NOCLDWAIT != 0) {
            let mut action = before;
            action.sa_flags &= !libc::SA_NOCLDWAIT;
            if is_ignored {
                action.sa_sigaction = libc::SIG_DFL;
            }
            // SAFETY: the handler is the one that was there, or none, which ignores the signal as well.
            unsafe { libc::sigaction(libc::SIGCHLD, &raw const action, std::ptr::null_mut()) };
            kept.1 = Some(before);
        }
        ChildStatuses(())
    }
}

impl Drop for ChildStatuses {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 -= 1;
        if kept.0 == 0
            && let Some(before) = kept.1.take()
        {
            // SAFETY: what was done before.
            unsafe { libc::sigaction(libc::SIGCHLD, &raw const before, std::ptr::null_mut()) };
        }
    }
}

/// Describes a process that has ended.
pub fn no_longer(pid: i32) -> String {
    format!("its process {pid} no longer exists")
}

/// Returns the line of the system on a process, from its state on; `None` if there is none.
fn stat(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the state is in parentheses and may itself hold any character.
    stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned())
}

/// Returns true if a process is stopped by a signal or a debugger.
pub fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| has_stopped(&stat))
}

/// Returns true if a process has ended. One whose first thread has ended before others has that state too, and runs.
fn is_zombie(stat: &str) -> bool {
    /// The place of the number of threads behind the state.
    const THREADS: usize = 17;
    let threads = stat.split_ascii_whitespace().nth(THREADS).and_then(|n| n.parse::<u32>().ok());
    stat.starts_with(['Z', 'X']) && threads.is_none_or(|threads| threads <= 1)
}

fn has_stopped(stat: &str) -> bool {
    stat.starts_with(['T', 't'])
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, WaitIdOptions};

    use super::*;

    #[test]
    fn a_process_whose_parent_has_not_waited_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
        let pid = child.id().cast_signed();
        assert!(!has_gone(pid));
        child.kill().expect("a child");
        let raw = Pid::from_raw(pid).expect("a number");
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        rustix::process::waitid(rustix::process::WaitId::Pid(raw), options).expect("its end");
        assert_eq!(rustix::process::test_kill_process(raw), Ok(()), "its number is kept");
        assert!(has_gone(pid));
        child.wait().expect("its end");
        assert!(has_gone(pid));
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs() {
        let stat =
            |state, threads| format!("{state} 1 2 3 0 -1 4 5 0 0 0 0 0 0 0 20 0 {threads} 0");
        assert!(is_zombie(&stat('Z', 1)) && is_zombie(&stat('X', 0)));
        assert!(!is_zombie(&stat('Z', 2)) && !is_zombie(&stat('S', 1)));
        assert!(has_stopped(&stat('T', 1)) && !has_stopped(&stat('Z', 1)));
    }
}
