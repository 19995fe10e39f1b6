//! Reports checks that cannot be made here: each where it is skipped, and all, counted, at the end.
//!
//! Every test program appends a line a check to a file beside the programs, with the process that started it:
//! under `cargo test` that is cargo, the same for all of them. The test program that comes last, `files`, prints the
//! sum.

use std::fmt::{Display, Write as _};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};

/// A requirement of a check that is not met everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckNeeds {
    /// NVIDIA GPUs.
    Gpus,
    /// Devices for RDMA.
    Rdma,
    /// The CUDA compiler.
    Nvrtc,
    /// A launcher of ranks.
    Launcher,
    /// Network namespaces.
    Namespaces,
    /// IPv6 on this machine.
    Ipv6,
    /// Other libraries beside ours.
    Peers,
    /// A solver of linear arithmetic.
    Solver,
    /// A program of the system.
    Tool,
    /// A machine without something that this one has.
    Without,
    /// A run of all tests, in place of a sample of those that take long.
    FullRun,
}

impl CheckNeeds {
    const ALL: [(CheckNeeds, &'static str, &'static str); 11] = [
        (CheckNeeds::Gpus, "NVIDIA GPUs", "a machine with GPUs: `tests/gpu.sh`"),
        (
            CheckNeeds::Rdma,
            "RDMA devices",
            "`tests/rdma.sh`, in virtual machines; or `--features rdma` where there are some",
        ),
        (
            CheckNeeds::Nvrtc,
            "the CUDA compiler",
            "`pip install nvidia-cuda-nvrtc`, and ROUNDELAY_NVRTC=PATH of libnvrtc",
        ),
        (
            CheckNeeds::Launcher,
            "a launcher",
            "`apt install openmpi-bin mpich`; `pip install torch`, and ROUNDELAY_TEST_TORCHRUN=PATH",
        ),
        (CheckNeeds::Namespaces, "network namespaces", "root, and `apt install iproute2`"),
        (CheckNeeds::Ipv6, "IPv6", "a machine with the address ::1"),
        (
            CheckNeeds::Peers,
            "other libraries",
            "what `roundelay bench --help` lists: `apt install g++ openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev`",
        ),
        (
            CheckNeeds::Solver,
            "z3",
            "`pip install z3-solver`, and ROUNDELAY_TEST_Z3=PATH of that environment's Python",
        ),
        (CheckNeeds::Tool, "programs of the system", "`apt install bsdutils`"),
        (CheckNeeds::Without, "a machine that lacks what this one has", "another machine"),
        (CheckNeeds::FullRun, "a full run", "`ROUNDELAY_CI=full`"),
    ];

    fn word(self) -> String {
        format!("{self:?}")
    }
}

/// Says why a check is skipped, and counts it.
pub fn skip(needs: CheckNeeds, why: impl Display) {
    let why = why.to_string().replace(['\n', '\t'], " ");
    let _ = writeln!(std::io::stderr().lock(), "skipped: {why}");
    let line = format!("{}\t{}\t{why}\n", parent_id(), needs.word());
    // A count that cannot be kept is no reason to fail.
    let file = book().and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
    file.map(|mut file| file.write_all(line.as_bytes()));
}

/// Returns the file of all that was skipped.
fn book() -> Option<PathBuf> {
    // PROFILE/deps/PROGRAM
    let program = std::env::current_exe().ok()?;
    Some(program.parent()?.parent()?.join("skipped-checks.txt"))
}

/// Reports the number of checks that the test programs of this run have skipped, what they lacked, and what
/// would make them run. Forgets what earlier runs have skipped.
pub fn skipped() -> String {
    let Some(path) = book() else { return summary("", 0) };
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let said = summary(&text, parent_id());
    let alive = |line: &&str| {
        let parent = line.split('\t').next().unwrap_or_default();
        Path::new("/proc").join(parent).exists() && parent != parent_id().to_string()
    };
    let kept: Vec<&str> = text.lines().filter(alive).collect();
    let _ = std::fs::write(&path, kept.iter().map(|line| format!("{line}\n")).collect::<String>());
    said
}

/// Summarizes the lines of a parent.
fn summary(text: &str, parent: u32) -> String {
    let parent = parent.to_string();
    let words: Vec<&str> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            (fields.next() == Some(parent.as_str())).then(|| fields.next()).flatten()
        })
        .collect();
    if words.is_empty() {
        return "no check was skipped\n".into();
    }
    let mut said = format!("{} checks were skipped, and count as passed above:\n", words.len());
    for (needs, what, remedy) in CheckNeeds::ALL {
        let count = words.iter().filter(|word| **word == needs.word()).count();
        if count > 0 {
            let _ = writeln!(said, "  {count:>4} for want of {what}; they run with {remedy}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_of_this_run_are_counted_by_what_they_need() {
        let text =
            "7\tGpus\tno driver\n7\tRdma\tno device\n8\tGpus\tanother run\n7\tGpus\tagain\n\n";
        let said = summary(text, 7);
        assert!(said.starts_with("3 checks were skipped"), "{said}");
        assert!(said.contains("   2 for want of NVIDIA GPUs; they run with"), "{said}");
        assert!(said.contains("   1 for want of RDMA devices"), "{said}");
        assert_eq!(said.lines().count(), 3);
        assert_eq!(summary(text, 9), "no check was skipped\n");
        assert!(
            CheckNeeds::ALL
                .iter()
                .all(|(needs, ..)| needs.word().chars().all(char::is_alphanumeric))
        );
    }
}
