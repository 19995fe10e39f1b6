//! Checks what a job leaves behind. Sockets without a file, as stores have them, are gone with the last
//! process or descriptor that has them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, wait};

use crate::deaths::{WORDS, words};

/// Other processes of the machine come and go: only what stays is left.
const STAYS: Duration = Duration::from_secs(3);

/// The descriptors and the memory that there were before a job.
pub(crate) struct Before {
    descriptors: usize,
    memory: BTreeSet<String>,
}

impl Before {
    pub(crate) fn now() -> Before {
        Before { descriptors: descriptors(), memory: memory() }
    }

    /// Fails if something is left that was not there before, even after `STAYS`.
    pub(crate) fn compare(&self) -> Result<(), String> {
        let deadline = Instant::now() + STAYS;
        loop {
            match self.compare_now() {
                Err(_) if Instant::now() < deadline => std::thread::yield_now(),
                verdict => return verdict,
            }
        }
    }

    fn compare_now(&self) -> Result<(), String> {
        let left = |what: &str, list: Vec<String>| match list.is_empty() {
            true => Ok(()),
            false => Err(format!("left behind: {what} {list:?}")),
        };
        // A child that was not waited for would be one still.
        if wait(WaitOptions::NOHANG).is_ok() {
            return Err("left behind: children".into());
        }
        left("processes", processes())?;
        let more = descriptors().saturating_sub(self.descriptors);
        left("descriptors", (0..more).map(|_| "one".into()).collect())?;
        left("shared memory", memory().difference(&self.memory).cloned().collect())
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Processes of this test, wherever they hang in the tree.
fn processes() -> Vec<String> {
    let marker = format!("{WORDS}={}", words().display());
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().into_string().ok());
    pids.filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()))
        .filter(|pid| {
            let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            variables.split(|&b| b == 0).any(|v| v == marker.as_bytes())
        })
        .collect()
}

/// Lists shared memory with a name, if it is ours, and without one in this process.
fn memory() -> BTreeSet<String> {
    let named = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let named = named.filter_map(|entry| entry.file_name().into_string().ok());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter(|line| line.contains("memfd:")).map(str::to_owned);
    named.filter(|name| name.contains("roundelay")).chain(mapped).collect()
}
