//! Counts what a process holds, and what of it stays behind.

use std::fmt;

use roundelay::{Communicator, Error};
use serde::{Deserialize, Serialize};

/// The resources of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeldResources {
    descriptors: u64,
    threads: u64,
    /// Bytes that devices keep in place; none counted where a communicator has some.
    pinned: Option<u64>,
}

/// The resources that stayed behind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeakedResources {
    descriptors: u64,
    threads: u64,
    pinned_bytes: u64,
}

impl HeldResources {
    /// Counts what this process holds now.
    pub(super) fn now() -> Self {
        let count = |folder: &str| std::fs::read_dir(folder).map_or(0, |all| all.count() as u64);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let pinned = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
        let pinned = pinned.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
        HeldResources {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            pinned: pinned.map(|kib| kib << 10),
        }
    }

    /// Counts what this process holds beside a communicator. What devices keep in place is the communicator's.
    pub(super) fn beside(comm: &mut Communicator) -> Result<Self, Error> {
        // A rank that can be connected to has a listener.
        comm.handle()?;
        let needs = comm.resources()?.descriptors;
        let HeldResources { descriptors, threads, .. } = HeldResources::now();
        Ok(HeldResources { descriptors: descriptors.saturating_sub(needs), threads, pinned: None })
    }

    /// Returns what it holds beyond what it held at another time.
    pub(super) fn beyond(&self, before: &HeldResources) -> LeakedResources {
        LeakedResources {
            descriptors: self.descriptors.saturating_sub(before.descriptors),
            threads: self.threads.saturating_sub(before.threads),
            pinned_bytes: self.pinned.unwrap_or(0).saturating_sub(before.pinned.unwrap_or(0)),
        }
    }
}

/// Returns the names of this process's threads.
pub(super) fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

impl LeakedResources {
    /// Returns the larger one of each.
    pub(super) fn most(self, other: LeakedResources) -> LeakedResources {
        LeakedResources {
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
            pinned_bytes: self.pinned_bytes.max(other.pinned_bytes),
        }
    }
}

impl fmt::Display for LeakedResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeakedResources { descriptors, threads, pinned_bytes } = self;
        write!(f, "{descriptors} descriptors, {threads} threads, {pinned_bytes} pinned bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_behind_is_counted() {
        let before = HeldResources { descriptors: 5, threads: 2, pinned: Some(4096) };
        let after = HeldResources { descriptors: 7, threads: 1, pinned: Some(4097) };
        let left = after.beyond(&before);
        assert_eq!(left, LeakedResources { descriptors: 2, threads: 0, pinned_bytes: 1 });
        assert_eq!(before.beyond(&after).most(left), LeakedResources { threads: 1, ..left });
        // Where a communicator has some there are none that should not be.
        assert_eq!(HeldResources { pinned: None, ..after }.beyond(&before).pinned_bytes, 0);
    }

    #[test]
    fn a_process_counts_its_own() {
        // Other tests run beside this one: what is here is the least that there can be.
        let open = || std::fs::File::open("/proc/self/status").expect("a file");
        let files: Vec<_> = (0..40).map(|_| open()).collect();
        let (begin, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        let held = HeldResources::now();
        assert!(held.descriptors >= files.len() as u64 && held.threads >= 2, "{held:?}");
        assert!(held.pinned.is_some(), "the system says how much is pinned");
        assert!(threads().len() >= 2, "{:?}", threads());
        drop(begin);
        let _ = thread.join();
    }
}
