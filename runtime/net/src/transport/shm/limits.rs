//! Finds out how much memory may still be taken. The system would rather end a process than refuse it pages
//! of shared memory, so large reservations are compared with what is there first.

use std::path::Path;

use crate::tunables::CHECKED_RESERVATION_BYTES;
use roundelay_support::error::ByteCount;

/// Returns the reason for which that much more memory should not be taken, if there is one.
pub(super) fn objection(wanted: u64) -> Option<String> {
    if wanted < CHECKED_RESERVATION_BYTES {
        return None;
    }
    let machine = available().map(|free| (free, "the machine has"));
    let container = container().map(|free| (free, "the memory limit of the container leaves"));
    let (free, who) = machine.into_iter().chain(container).min_by_key(|&(free, _)| free)?;
    (wanted > free).then(|| format!("{who} {}", ByteCount(free)))
}

fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The names of one version of control groups.
struct GroupFiles {
    /// The folder of all groups.
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with the bytes of cached files, which go when memory is wanted.
    cached: &'static str,
}

const VERSION_1: GroupFiles = GroupFiles {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};
const VERSION_2: GroupFiles = GroupFiles {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file ",
};

/// Returns the bytes that the tightest control group above this process leaves.
fn container() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups(&text).into_iter().filter_map(|(files, path)| files.least(&path)).min()
}

/// Returns the control groups that a process is in and that limit memory, of the lines that the system has on it.
fn groups(text: &str) -> Vec<(GroupFiles, String)> {
    let group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_start_matches('/').to_owned();
        match controllers {
            "" => Some((VERSION_2, path)),
            list => list.split(',').any(|c| c == "memory").then_some((VERSION_1, path)),
        }
    };
    text.lines().filter_map(group).collect()
}

impl GroupFiles {
    /// Returns the least that a group and those above it leave. In a container the path may be the host's.
    fn least(&self, path: &str) -> Option<u64> {
        let root = Path::new(self.root);
        let group = root.join(path);
        let above = group.ancestors().take_while(|group| group.starts_with(root));
        above.filter_map(|group| self.left(group)).min()
    }

    fn left(&self, group: &Path) -> Option<u64> {
        let number =
            |name| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
        let (most, used) = (number(self.limit)?, number(self.used)?);
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(self.cached));
        let cached = cached.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        Some(most.saturating_sub(used.saturating_sub(cached)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_absurd_is_refused() {
        assert_eq!(objection(1 << 20), None);
        let text = objection(1 << 60).expect("no machine has that much");
        assert!(text.contains("iB"), "{text}");
    }

    #[test]
    fn limits_of_both_versions_of_control_groups_are_read() {
        let folder = std::env::temp_dir().join(format!("roundelay-limits-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
        put("memory.stat", "inactive_file 50\ntotal_inactive_file 100\n");
        put("memory.limit_in_bytes", "1000\n");
        put("memory.usage_in_bytes", "700\n");
        assert_eq!((VERSION_1.left(&folder), VERSION_2.left(&folder)), (Some(400), None));
        put("memory.max", "1000\n");
        put("memory.current", "700\n");
        assert_eq!(VERSION_2.left(&folder), Some(350));
        put("memory.max", "max\n");
        assert_eq!(VERSION_2.left(&folder), None);
        std::fs::remove_dir_all(&folder).expect("it goes");
        let found = |text: &str| {
            let all = groups(text).into_iter();
            all.map(|(files, path)| format!("{}/{path}", files.root)).collect::<Vec<_>>()
        };
        assert_eq!(found("0::/user.slice\n"), ["/sys/fs/cgroup/user.slice"]);
        let first = "12:cpu,cpuacct:/a\n7:memory:/docker/1:2\n1:name=systemd:/\n0::/\n";
        assert_eq!(found(first), ["/sys/fs/cgroup/memory/docker/1:2", "/sys/fs/cgroup/"]);
    }
}
