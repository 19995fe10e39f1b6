//! Strangers at every port of a job whose ranks compute, with a secret and without: they cost what SECURITY.md says,
//! and leave nothing behind.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{RunOutput, command};
use roundelay::{Communicator, Error, RedOp, limits};
use roundelay_tests::fuzz::mutated;
use roundelay_tests::{SeededRandom, listeners, port, test_arguments, until};

const RANKS: u32 = 2;
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(300);
/// The memory that allocators keep of what was freed.
const KEPT: u64 = 16 << 20;

/// Is a rank, if it was started as one: makes a call, and then computes without an end.
#[test]
fn rank_process() {
    if std::env::var_os("STRANGERS_RANK").is_none() {
        return;
    }
    let calls = || -> Result<Communicator, Error> {
        let mut comm = Communicator::from_env()?;
        comm.all_reduce(&mut [1f32; 64], RedOp::Sum)?;
        Ok(comm)
    };
    let _comm = calls().expect("a job");
    writeln!(std::io::stdout(), "computes").expect("a pipe");
    loop {
        std::thread::park();
    }
}

/// The ranks of a job, which end with it.
struct StrangerJob {
    store: String,
    secret: Option<&'static str>,
    ranks: Vec<Child>,
}

impl StrangerJob {
    fn start(secret: Option<&'static str>) -> StrangerJob {
        let store = format!("127.0.0.1:{}", port());
        let start = |rank: u32| {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(test_arguments(module_path!(), "rank_process"));
            command.env("STRANGERS_RANK", "1").env("ROUNDELAY_RANK", rank.to_string());
            command.env("ROUNDELAY_SIZE", RANKS.to_string()).env("ROUNDELAY_STORE", &store);
            command.env("ROUNDELAY_HINTS", "doctor=true,transport=tcp,timeout=300s");
            command.env_remove("ROUNDELAY_SECRET").env_remove("ROUNDELAY_SECRET_FILE");
            command.envs(secret.map(|secret| ("ROUNDELAY_SECRET", secret)));
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process")
        };
        let mut job = StrangerJob { ranks: (0..RANKS).map(start).collect(), store, secret };
        for rank in &mut job.ranks {
            let lines = BufReader::new(rank.stdout.take().expect("a pipe")).lines();
            let mut lines = lines.map(|line| line.expect("a line"));
            assert!(lines.any(|line| line.contains("computes")), "a rank has not joined");
        }
        job
    }

    /// Fails unless the doctor is let in.
    fn serves(&self) {
        let mut command =
            command(&["doctor", "--store", &self.store, "--json", "--timeout", "60s"]);
        command.env_remove("ROUNDELAY_SECRET").env_remove("ROUNDELAY_SECRET_FILE");
        command.envs(self.secret.map(|secret| ("ROUNDELAY_SECRET", secret)));
        RunOutput::of(command.output().expect("the binary runs")).ok();
    }
}

impl Drop for StrangerJob {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

/// The resources that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessResources {
    descriptors: usize,
    threads: u64,
    bytes: u64,
}

fn held(pid: u32) -> ProcessResources {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|line| line.split_ascii_whitespace().next());
        word.and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count();
    ProcessResources { descriptors, threads: number("Threads:"), bytes: number("VmRSS:") << 10 }
}

/// Returns the ports at which a process listens.
fn ports(pid: u32) -> Vec<u16> {
    listeners(pid).iter().map(SocketAddr::port).collect()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(FOREVER)).expect("a timeout");
    stream
}

/// Sends bytes, after which nothing comes.
fn say(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(port);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    stream
}

/// Starts a rank of a job of two, with a limit on its descriptors.
fn rank(rank: &str, store: &str, descriptors: u32) -> Child {
    let program = env!("CARGO_BIN_EXE_roundelay");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$@\"")).args(["sh", program]);
    command.args(["run", "all_reduce", "--size", "2", "--transport", "tcp", "--bytes", "64"]);
    command.args(["--iters", "2", "--timeout", "60s", "--rank", rank, "--store", store]);
    command.env_remove("ROUNDELAY_SECRET").env_remove("ROUNDELAY_SECRET_FILE");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

#[test]
fn strangers_that_take_all_descriptors_keep_no_rank_out() {
    let port = port();
    let store = format!("127.0.0.1:{port}");
    let zero = rank("0", &store, 64);
    let mut first = None;
    until(
        FOREVER,
        || "no store".into(),
        || {
            first = TcpStream::connect(("127.0.0.1", port)).ok();
            first.is_some()
        },
    );
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(port)).collect();
    let began = Instant::now();
    let one = rank("1", &store, 1024);
    for rank in [one, zero] {
        RunOutput::of(rank.wait_with_output().expect("its output")).ok();
    }
    // Sooner than strangers are turned away by time.
    assert!(began.elapsed() < limits::STORE.patience, "{:?}", began.elapsed());
    drop((first, silent));
}

/// `ROUNDS=1000` says a thousand times as much, `SEED=7` other things.
#[test]
fn strangers_cost_a_bounded_part_and_leave_nothing_behind() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let samples: Vec<Vec<u8>> = roundelay::internal::wires()
        .into_iter()
        .filter(|wire| wire.name.contains("hello") || wire.name.contains("frame"))
        .flat_map(|wire| wire.samples)
        .collect();
    assert!(samples.len() > 2);
    // The strangers are this process's.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).expect("descriptors");
    std::thread::scope(|scope| {
        for secret in [None, Some("what the ranks know")] {
            let samples = &samples;
            scope.spawn(move || {
                let job = StrangerJob::start(secret);
                job.serves();
                for (rank, child) in job.ranks.iter().enumerate() {
                    let (pid, ports) = (child.id(), ports(child.id()));
                    // The store and the reporter, and the listener.
                    assert_eq!(ports.len(), if rank == 0 { 3 } else { 2 }, "{ports:?}");
                    let mut before = held(pid);
                    until(
                        FOREVER,
                        || "it does not rest".into(),
                        || {
                            let now = held(pid);
                            std::mem::replace(&mut before, now).descriptors == now.descriptors
                        },
                    );
                    // The last of them stay until all has been said.
                    let mut last = VecDeque::new();
                    for trial in 0..300 * number("ROUNDS", 1) {
                        let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
                        let mut bytes = Vec::new();
                        for _ in 0..1 + dice.below(4) {
                            bytes.extend(mutated(&samples[dice.below(samples.len())], &mut dice));
                        }
                        last.push_back(say(ports[dice.below(ports.len())], &bytes));
                        if last.len() > 32 {
                            last.pop_front();
                        }
                    }
                    for mut stream in last {
                        let _ = stream.read_to_end(&mut Vec::new());
                    }
                    let began = Instant::now();
                    let most = limits::STORE.places();
                    let crowd: Vec<TcpStream> = (0..2 * most)
                        .flat_map(|_| ports.iter().map(|&port| connect(port)))
                        .collect();
                    let missing = || format!("strangers stay: {:?}, before {before:?}", held(pid));
                    let mut seen = 0;
                    until(2 * limits::STORE.patience, missing, || {
                        let more = held(pid).descriptors.saturating_sub(before.descriptors);
                        seen = seen.max(more);
                        assert!(more <= most * ports.len() + 8, "{more} descriptors of strangers");
                        // Those of them that are left are the last.
                        more == 0 && seen > 0
                    });
                    assert!(seen >= most, "{seen} were there at one time");
                    assert!(began.elapsed() > limits::STORE.patience / 2);
                    drop(crowd);
                    let after = held(pid);
                    assert_eq!(after.threads, before.threads, "{after:?}, before {before:?}");
                    assert!(after.bytes < before.bytes + KEPT, "{after:?}, before {before:?}");
                }
                job.serves();
            });
        }
    });
}
