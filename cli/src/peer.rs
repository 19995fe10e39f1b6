//! Other libraries, measured by a small program that is compiled for each (`peers/mpi.c`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::args::Peer;
use crate::job::{Case, Job, Proof};

const SOURCE: &str = include_str!("../peers/mpi.c");

/// The types and operators that the program knows.
const TYPES: [&str; 8] = ["f32", "f64", "i8", "u8", "i32", "u32", "i64", "u64"];
const OPS: [&str; 4] = ["sum", "prod", "min", "max"];

/// How long a peer may take for one size.
const PATIENCE: Duration = Duration::from_secs(300);

/// An MPI that may be installed.
struct Mpi {
    name: &'static str,
    which: Peer,
    compiler: &'static str,
    launcher: &'static str,
    /// Arguments of the launcher.
    args: &'static [&'static str],
}

const MPIS: [Mpi; 2] = [
    Mpi {
        name: "ompi",
        which: Peer::Ompi,
        compiler: "mpicc.openmpi",
        launcher: "mpirun.openmpi",
        args: &["--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1"],
    },
    Mpi {
        name: "mpich",
        which: Peer::Mpich,
        compiler: "mpicc.mpich",
        launcher: "mpiexec.mpich",
        args: &[],
    },
];

/// A peer that was compiled and can be run.
pub(crate) struct Ready {
    mpi: &'static Mpi,
    program: PathBuf,
}

/// The peers that were asked for, and a folder that lives as long as they are needed.
pub(crate) struct Peers {
    folder: Option<PathBuf>,
    /// Those that can be run.
    pub(crate) ready: Vec<Ready>,
    /// The others, with the reason.
    pub(crate) missing: Vec<String>,
}

impl Peers {
    /// Compiles the program for each peer.
    pub(crate) fn new(wanted: &[Peer]) -> Peers {
        let mut peers = Peers { folder: None, ready: Vec::new(), missing: Vec::new() };
        if wanted.is_empty() {
            return peers;
        }
        let folder = std::env::temp_dir().join(format!("roundelay-peers-{}", std::process::id()));
        let source = folder.join("mpi.c");
        let made = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&source, SOURCE));
        peers.folder = Some(folder.clone());
        for mpi in MPIS.iter().filter(|m| wanted.contains(&Peer::Mpi) || wanted.contains(&m.which))
        {
            let compiled = match &made {
                Ok(()) => compile(mpi, &source, folder.join(mpi.name)),
                Err(e) => Err(format!("{}: {e}", folder.display())),
            };
            match compiled {
                Ok(program) => peers.ready.push(Ready { mpi, program }),
                Err(why) => peers.missing.push(format!("{}: {why}", mpi.name)),
            }
        }
        peers
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn compile(mpi: &Mpi, source: &Path, program: PathBuf) -> Result<PathBuf, String> {
    let mut command = Command::new(mpi.compiler);
    command.args(["-O3", "-w", "-o"]).arg(&program).arg(source).stdin(Stdio::null());
    match command.output() {
        Err(_) => Err(format!("{} is not installed", mpi.compiler)),
        Ok(out) if !out.status.success() => {
            Err(format!("{} failed: {}", mpi.compiler, last_line(&out.stderr)))
        }
        Ok(_) => Ok(program),
    }
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.lines()
        .rev()
        .find(|l| l.contains(char::is_alphanumeric))
        .unwrap_or("no message")
        .trim()
        .into()
}

impl Ready {
    /// Its name.
    pub(crate) fn name(&self) -> &'static str {
        self.mpi.name
    }

    /// Microseconds a call, and wrong elements.
    pub(crate) fn measure(
        &self,
        job: &Job,
        proof: &Proof,
        case: &Case,
        ranks: u64,
    ) -> Result<(f64, u64), String> {
        let (dtype, op) = (job.dtype.name(), job.op.name());
        if !TYPES.contains(&dtype) || !OPS.contains(&op) {
            return Err(format!(
                "it is measured for {} and {} only",
                TYPES.join(", "),
                OPS.join(", ")
            ));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        let pin = ranks <= cores;
        let flag = |b: bool| u8::from(b).to_string();
        let mut command = Command::new(self.mpi.launcher);
        command.args(self.mpi.args).args(["-n", &ranks.to_string()]).arg(&self.program);
        command.args([&proof.collective, dtype, op, &case.count.to_string()]);
        command.args([job.root.to_string(), flag(proof.piece.in_place()), flag(pin)]);
        command.args([
            job.warmup.to_string(),
            job.iters.unwrap_or(0).to_string(),
            job.budget.to_string(),
        ]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        if !pin {
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("{}: {e}", self.mpi.launcher))?;
        let out = finish(child)?;
        let text = String::from_utf8_lossy(&out.stdout);
        let numbers = text.lines().rev().find_map(|line| {
            let (time, wrong) = line.trim().split_once(' ')?;
            Some((time.parse().ok()?, wrong.parse().ok()?))
        });
        match numbers {
            Some(numbers) if out.status.success() => Ok(numbers),
            _ => Err(last_line(&out.stderr)),
        }
    }
}

/// Waits for a peer, and ends it if it takes too long.
fn finish(mut child: Child) -> Result<std::process::Output, String> {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if Instant::now() > deadline {
            // The launcher ends its ranks when it is asked to.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            std::thread::sleep(Duration::from_secs(2));
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("no result in {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().map_err(|e| e.to_string())
}
