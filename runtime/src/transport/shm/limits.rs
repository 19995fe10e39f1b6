//! Finds out how much memory may still be taken. The system would rather end a process than refuse it pages
//! of shared memory, so large reservations are compared with what is there first.

use std::path::Path;

use crate::error::Bytes;

/// The least reservation that is worth the look, in bytes.
const WORTH: u64 = 1 << 20;

/// Returns the reason for which that much more memory should not be taken, if there is one.
pub(crate) fn objection(wanted: u64) -> Option<String> {
    if wanted < WORTH {
        return None;
    }
    let machine = available().map(|free| (free, "the machine has"));
    let container = container().map(|free| (free, "the memory limit of the container leaves"));
    let (free, who) = machine.into_iter().chain(container).min_by_key(|&(free, _)| free)?;
    (wanted > free).then(|| format!("{who} {}", Bytes(free)))
}

fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// Returns the bytes that the tightest control group above this process leaves.
fn container() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(path);
    group.ancestors().take_while(|g| g.starts_with(root)).filter_map(left).min()
}

fn left(group: &Path) -> Option<u64> {
    let number = |name| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let (most, used) = (number("memory.max")?, number("memory.current")?);
    // Cached files go when memory is wanted.
    let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let cached = cached.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    Some(most.saturating_sub(used.saturating_sub(cached)))
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
}
