//! Tests ranks that others start: real launchers, as far as this machine has them. Each test has them start
//! this same binary, with [`rank_process`] as the only test; every rank gets its store, leaves a note there,
//! reads those of all, and writes what it has seen to a file.
//!
//! A launcher that is not there is skipped with a word on standard error. srun is tested by
//! what it sets, in the unit tests.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use roundelay::Error;
use roundelay::launch::{membership, store};
use roundelay_tests::{end, port, test_arguments};

/// The variable that says where each rank writes what it has seen.
const OUT: &str = "TEST_OUT";
const SECRET: &str = "TEST_SECRET";
/// The variable of the longest time that ranks wait for each other, in milliseconds.
const TIMEOUT: &str = "TEST_TIMEOUT";
/// A torchrun to use instead of those in `PATH`.
const TORCHRUN: &str = "ROUNDELAY_TEST_TORCHRUN";
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(120);

/// Runs a rank of a job; not a test by itself.
#[test]
fn rank_process() {
    let Some(out) = std::env::var_os(OUT) else { return };
    let (text, status) = match run() {
        Ok(text) => (text, 0),
        Err(error) => (error.to_string(), 3),
    };
    let name = format!("{}", std::process::id());
    // Complete or not there.
    let (draft, last) = (Path::new(&out).join(".draft").join(&name), Path::new(&out).join(&name));
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, last)).expect("a file");
    std::process::exit(status);
}

fn run() -> Result<String, Error> {
    let Some(membership) = membership()? else { return Ok("alone".into()) };
    let timeout = std::env::var(TIMEOUT).ok().and_then(|text| text.parse().ok());
    let timeout = timeout.map_or(FOREVER, Duration::from_millis);
    let secret = std::env::var(SECRET).unwrap_or_default();
    let mut store = store(&membership, secret.as_bytes(), timeout)?;
    let (rank, size) = (membership.rank, membership.size);
    // A wait in vain must not spoil what comes after it.
    let soon = Instant::now() + Duration::from_millis(20);
    let vain = store.get("no rank leaves this", soon).expect_err("no rank does").to_string();
    assert!(vain.contains("`no rank leaves this`"), "{vain}");
    store.set(
        &format!("rank/{rank}"),
        format!("{} {}", std::process::id(), store.address()).as_bytes(),
    )?;
    let deadline = Instant::now() + timeout;
    let mut seen = Vec::new();
    for other in 0..size {
        let note = store.get(&format!("rank/{other}"), deadline)?;
        seen.push(String::from_utf8_lossy(&note).into_owned());
    }
    store.finish(deadline)?;
    Ok(format!("{rank} of {size} by {}: {}", membership.launcher.name(), seen.join(", ")))
}

/// A job that runs, and the folder that its ranks write to.
struct Job {
    folder: PathBuf,
    children: Vec<Child>,
    began: Instant,
}

impl Job {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("roundelay-{}-{name}", std::process::id()));
        fs::create_dir_all(folder.join(".draft")).expect("a folder");
        Job { folder, children: Vec::new(), began: Instant::now() }
    }

    /// Adds a process that is a rank or starts some.
    fn start(&mut self, command: &mut Command) {
        let log = File::create(self.folder.join(format!(".log{}", self.children.len())));
        let log = log.expect("a file");
        for (name, _) in std::env::vars_os() {
            if ["ROUNDELAY_RANK", "ROUNDELAY_SIZE", "ROUNDELAY_STORE"].iter().any(|n| name == *n)
                && command.get_envs().all(|(set, _)| set != name)
            {
                command.env_remove(name);
            }
        }
        command.env(OUT, &self.folder).env("TMPDIR", &self.folder).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a copy")).stderr(log);
        self.children.push(command.spawn().expect("a process"));
    }

    /// Waits for the end of all processes.
    fn end(mut self) -> End {
        let mut well = true;
        for child in &mut self.children {
            let left = FOREVER.saturating_sub(self.began.elapsed());
            well &= end(child, left).is_some_and(|status| status.success());
        }
        let (mut seen, mut logs) = (Vec::new(), String::new());
        for entry in fs::read_dir(&self.folder).expect("the folder").flatten() {
            let name = entry.file_name();
            let text = fs::read_to_string(entry.path());
            if name.to_string_lossy().parse::<u32>().is_ok() {
                seen.push(text.expect("what a rank wrote"));
            } else if let Ok(log) = text {
                logs.push_str(&log);
            }
        }
        seen.sort();
        fs::remove_dir_all(&self.folder).expect("an end");
        End { seen, well, logs }
    }

    /// Ends a job like [`Job::end`], and checks that all ranks met.
    fn met(self, size: usize, launcher: &str) {
        let End { seen, well, logs } = self.end();
        assert!(well && seen.len() == size, "{seen:?}\n{logs}");
        let (_, all) = seen[0].split_once(": ").unwrap_or_else(|| panic!("{seen:?}"));
        for (rank, text) in seen.iter().enumerate() {
            assert_eq!(*text, format!("{rank} of {size} by {launcher}: {all}"));
        }
        let here = |note: &str| note.ends_with(" 127.0.0.1") || note.ends_with(" ::1");
        assert!(all.split(", ").all(here), "{all}");
    }
}

/// The end of a job.
#[derive(Debug)]
struct End {
    /// The lines that the ranks wrote, sorted.
    seen: Vec<String>,
    /// True if all processes that the test started ended with status 0.
    well: bool,
    /// The output of these processes.
    logs: String,
}

impl End {
    /// Returns true if a rank failed with an error that has these words.
    fn said(&self, words: &[&str]) -> bool {
        self.seen.iter().any(|text| words.iter().all(|word| text.contains(word)))
    }
}

fn skip(why: &str) {
    roundelay_tests::skip(roundelay_tests::CheckNeeds::Launcher, why);
}

/// Returns the arguments with which this program is a rank.
fn rank_arguments() -> [String; 4] {
    test_arguments(module_path!(), "rank_process")
}

fn this() -> PathBuf {
    std::env::current_exe().expect("this program")
}

fn rank_of(size: u32, rank: u32, store: &str) -> Command {
    let mut command = Command::new(this());
    command.args(rank_arguments()).env("ROUNDELAY_RANK", rank.to_string());
    command.env("ROUNDELAY_SIZE", size.to_string()).env("ROUNDELAY_STORE", store);
    command
}

/// Returns a launcher with these first arguments, if it is there and works.
fn launcher(program: &str, args: &[&str]) -> Option<Command> {
    let probe = Command::new(program).args(args).args(["-n", "1", "true"]).output();
    let well = probe.is_ok_and(|output| output.status.success());
    if !well {
        skip(&format!("`{program} -n 1 true` does not work here"));
        return None;
    }
    let mut command = Command::new(program);
    command.args(args);
    Some(command)
}

#[test]
fn ranks_meet_that_a_person_started() {
    for host in ["127.0.0.1", "localhost"] {
        let store = format!("{host}:{}", port());
        let mut job = Job::new(host);
        // The one that serves the store comes last.
        for rank in (0..3).rev() {
            job.start(rank_of(3, rank, &store).env(SECRET, "swordfish"));
        }
        job.met(3, "by hand");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let store = format!("127.0.0.1:{}", port());
    let mut job = Job::new("missing");
    for rank in [0, 1, 3] {
        job.start(rank_of(4, rank, &store).env(TIMEOUT, if rank == 0 { "6000" } else { "3000" }));
    }
    let end = job.end();
    // Others may not have come yet either when the first gives up.
    let named = ["rank 2 has", "ranks 2, 3 have", "ranks 1, 2 have", "ranks 1, 2, 3 have"]
        .map(|words| end.said(&[&format!("{words} not come")]));
    assert!(!end.well && named.contains(&true), "{end:?}");
}

#[test]
fn a_rank_without_the_secret_is_left_outside() {
    let store = format!("127.0.0.1:{}", port());
    let mut job = Job::new("secret");
    job.start(rank_of(2, 0, &store).env(TIMEOUT, "3000").env(SECRET, "swordfish"));
    job.start(rank_of(2, 1, &store).env(TIMEOUT, "3000").env(SECRET, "sardine"));
    let end = job.end();
    assert!(!end.well && end.said(&["rank 1 is not let in", "ROUNDELAY_SECRET"]), "{end:?}");
    assert!(end.said(&["rank 1 has not come"]), "{end:?}");
}

#[test]
fn open_mpi_starts_ranks() {
    let args = ["--allow-run-as-root", "--oversubscribe"];
    let Some(mut mpirun) = launcher("mpirun.openmpi", &args) else { return };
    let mut job = Job::new("openmpi");
    job.start(mpirun.args(["-n", "4"]).arg(this()).args(rank_arguments()));
    // Another one at the same time is another job.
    let Some(mut mpirun) = launcher("mpirun.openmpi", &args) else { return };
    let mut other = Job::new("openmpi-too");
    other.start(mpirun.args(["-n", "3"]).arg(this()).args(rank_arguments()));
    job.met(4, "Open MPI");
    other.met(3, "Open MPI");
}

#[test]
fn open_mpi_starts_ranks_that_meet_where_they_are_told() {
    let args = ["--allow-run-as-root", "--oversubscribe"];
    let Some(mut mpirun) = launcher("mpirun.openmpi", &args) else { return };
    let mut job = Job::new("openmpi-store");
    mpirun.env("ROUNDELAY_STORE", format!("localhost:{}", port()));
    job.start(mpirun.args(["-n", "2"]).arg(this()).args(rank_arguments()));
    job.met(2, "Open MPI");
}

#[test]
fn mpich_starts_ranks() {
    let Some(mut mpiexec) = launcher("mpiexec.mpich", &[]) else { return };
    let mut job = Job::new("mpich");
    job.start(
        mpiexec.args(["-n", "4"]).arg(this()).args(rank_arguments()).env(SECRET, "swordfish"),
    );
    job.met(4, "PMI");
}

#[test]
fn one_rank_needs_nobody() {
    let Some(mut mpiexec) = launcher("mpiexec.mpich", &[]) else { return };
    let mut job = Job::new("mpich-one");
    job.start(mpiexec.args(["-n", "1"]).arg(this()).args(rank_arguments()));
    job.met(1, "PMI");
}

/// A torchrun, and the version of its PyTorch.
struct Torchrun {
    program: OsString,
    python: PathBuf,
    version: (u32, u32),
}

/// Returns the one to be tested, if there is one. Asking it for its version takes seconds: once is enough.
fn torchrun() -> Option<&'static Torchrun> {
    static FOUND: OnceLock<Option<Torchrun>> = OnceLock::new();
    let found = FOUND.get_or_init(find_torchrun).as_ref();
    if found.is_none() {
        skip(&format!("no torchrun works here: put one into PATH or {TORCHRUN}"));
    }
    found
}

fn find_torchrun() -> Option<Torchrun> {
    let named = std::env::var_os(TORCHRUN).map(PathBuf::from).filter(|path| path.exists());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = named.into_iter().chain(std::env::split_paths(&path).map(|p| p.join("torchrun")));
    for program in program.filter(|p| p.is_file()) {
        // The interpreter that its first line names.
        let line = fs::read(&program).ok().and_then(|text| {
            let line = String::from_utf8_lossy(&text).lines().next()?.to_owned();
            line.strip_prefix("#!")?.split_whitespace().next().map(PathBuf::from)
        });
        let Some(python) = line else { continue };
        let code = "import torch; print(*torch.__version__.split('.')[:2])";
        let Ok(output) = Command::new(&python).args(["-c", code]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
        if let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) {
            return Some(Torchrun { program: program.into(), python, version: (major, minor) });
        }
    }
    None
}

impl Torchrun {
    /// Starts that many of this program. PyTorch 1.13 as Debian has it fails with Python 3.11
    /// unless it is given a place for the output of each rank.
    fn command(&self, ranks: u32) -> Command {
        let mut command = Command::new(&self.program);
        let each: Vec<String> = (0..ranks).map(|rank| format!("{rank}:1")).collect();
        command.arg("--no_python").arg(format!("--nproc_per_node={ranks}"));
        command.args(["-r", &each.join(","), "-t", &each.join(",")]);
        command
    }
}

#[test]
fn torchrun_starts_ranks_that_stand_alone() {
    let Some(torchrun) = torchrun() else { return };
    let mut job = Job::new("torchrun");
    job.start(torchrun.command(3).arg("--standalone").arg(this()).args(rank_arguments()));
    job.met(3, "torchrun");
}

#[test]
fn torchrun_starts_ranks_at_a_fixed_address() {
    let Some(torchrun) = torchrun() else { return };
    let mut job = Job::new("torchrun-fixed");
    let mut command = torchrun.command(2);
    command.arg("--master_addr=127.0.0.1").arg(format!("--master_port={}", port()));
    job.start(command.arg(this()).args(rank_arguments()));
    job.met(2, "torchrun");
}

#[test]
fn two_agents_of_torchrun_are_one_job() {
    let Some(torchrun) = torchrun() else { return };
    let mut job = Job::new("torchrun-two");
    let port = port();
    for node in 0..2 {
        let mut command = torchrun.command(2);
        command.arg("--nnodes=2").arg(format!("--node_rank={node}"));
        command.arg("--master_addr=127.0.0.1").arg(format!("--master_port={port}"));
        job.start(command.arg(this()).args(rank_arguments()));
    }
    if torchrun.version >= (2, 2) {
        return job.met(4, "torchrun");
    }
    let end = job.end();
    assert!(!end.well && end.said(&["PyTorch before 2.2"]), "{end:?}");
}

#[test]
fn both_kinds_of_tcp_store_are_understood() {
    let Some(torchrun) = torchrun() else { return };
    if torchrun.version < (2, 4) {
        return skip(&format!("PyTorch {:?} does not have both kinds of store", torchrun.version));
    }
    for kind in ["True", "False"] {
        let code = format!(
            "import sys, torch.distributed as d\n\
             s = d.TCPStore('127.0.0.1', 0, None, True, wait_for_workers=False, use_libuv={kind})\n\
             print(s.port, flush=True)\n\
             sys.stdin.read()"
        );
        let mut server = Command::new(&torchrun.python)
            .args(["-c", &code])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut line = String::new();
        let out = server.stdout.take().expect("its output");
        BufReader::new(out).read_line(&mut line).expect("a port");
        let mut job = Job::new(&format!("tcpstore-{kind}"));
        for rank in 0..4 {
            let mut command = Command::new(this());
            command.args(rank_arguments()).env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", line.trim());
            command.env("TORCHELASTIC_RUN_ID", "a/b").env("TORCHELASTIC_USE_AGENT_STORE", "True");
            command.env("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
            job.start(&mut command);
        }
        job.met(4, "torchrun");
        drop(server.stdin.take());
        server.wait().expect("the end of the server");
    }
}
