//! Tests ranks that are killed or stopped in the middle of a run: an error in time, and nothing left behind.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{RunOutput, command, roundelay};
use roundelay::{Communicator, RedOp};
use roundelay_tests::{port, test_arguments, until};
use rustix::process::{Pid, Signal, kill_process};

const RANKS: usize = 3;
/// No test comes near it unless something hangs.
const FOREVER: Duration = Duration::from_secs(300);

/// Returns the fields of `/proc/PID/stat` after the name.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect())
}

fn children(parent: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("a process table");
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| stat(*pid).is_some_and(|f| f[1] == parent.to_string());
    let mut found: Vec<i32> = pids.filter(ours).collect();
    found.sort_unstable();
    found
}

/// Returns the clock ticks that a process has used.
fn used(pid: i32) -> u64 {
    stat(pid).map_or(0, |f| f[11].parse().unwrap_or(0) + f[12].parse().unwrap_or(0))
}

/// Starts a run that goes on for ever, deep in its timed calls.
fn endless(timeout: &str, flight: &str) -> (Child, Vec<i32>) {
    let args = ["run", "all_reduce.ring", "-n", "3", "--bytes", "64K", "--iters", "1000000000"];
    let mut command = command(&[&args[..], &["--timeout", timeout, "--flight", flight]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary runs");
    let ranks = at_work(child.id());
    (child, ranks)
}

/// Returns the ranks, once each of them has computed for a while.
fn at_work(parent: u32) -> Vec<i32> {
    let mut ranks = Vec::new();
    let idle = || {
        signal(parent as i32, Signal::KILL);
        "the ranks did not come to work".into()
    };
    until(FOREVER, idle, || {
        ranks = children(parent);
        ranks.len() == RANKS && ranks.iter().all(|&pid| used(pid) >= 50)
    });
    ranks
}

fn ended(child: Child, ranks: &[i32]) -> RunOutput {
    let ran = RunOutput::of(child.wait_with_output().expect("it ends"));
    for pid in ranks {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is left behind");
    }
    ran
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process"), signal).expect("a signal is sent");
}

/// Checks that the dump names rank 1 and what became of it; who waits, in which line and after which events.
/// Returns the ranks that wait.
#[track_caller]
fn blames(file: &str, class: &str) -> Vec<u64> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let text = std::fs::read_to_string(path).expect("a dump");
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    let dump: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let verdict = &dump["verdict"];
    assert_eq!(verdict["class"], class, "{verdict}");
    assert_eq!(verdict["ranks"], serde_json::json!([1]), "{verdict}");
    let waiters: Vec<u64> =
        serde_json::from_value(verdict["waiters"].clone()).expect("a list of ranks");
    let flights = dump["flights"].as_array().expect("flights");
    for waiter in &waiters {
        let flight = flights.iter().find(|f| f["rank"] == *waiter).expect("its flight");
        let site = flight["waiting"]["site"].as_str();
        assert!(site.is_some_and(|s| s.contains("ring.algo:")), "{}", flight["waiting"]);
        assert!(flight["events"].as_array().is_some_and(|e| e.len() > 100), "{flight}");
    }
    let names: Vec<String> = flights
        .iter()
        .map(|flight| {
            let name = format!("{}-{file}", flight["rank"]);
            crate::support::file(&name, flight.to_string());
            name
        })
        .collect();
    diagnoses(&[file], class);
    // By the recorders alone, of which rank 1 has left none.
    diagnoses(&names.iter().map(String::as_str).collect::<Vec<_>>(), class);
    waiters
}

/// Checks that `doctor` names rank 1 and what became of it by these files.
#[track_caller]
fn diagnoses(files: &[&str], class: &str) {
    let report = roundelay(&[&["doctor", "--json"], files].concat()).ok().json();
    let [report] = &report[..] else { panic!("one object: {report:?}") };
    assert_eq!(report["verdict"]["class"], class, "{report}");
    assert_eq!(report["verdict"]["ranks"], serde_json::json!([1]), "{report}");
    let missing = &report["communicators"][0]["missing"];
    assert!(missing.as_array().is_some_and(|m| m.contains(&1.into())), "{report}");
    let text = roundelay(&[&["doctor"], files].concat()).ok().out;
    assert!(text.contains("cause: rank 1 ") && text.contains("no recorder"), "{text}");
}

#[test]
fn a_killed_rank_is_named_at_once() {
    let (child, ranks) = endless("300s", "killed.json");
    let began = Instant::now();
    signal(ranks[1], Signal::KILL);
    let ran = ended(child, &ranks);
    assert!(began.elapsed() < FOREVER / 2, "{:?}", began.elapsed());
    ran.fails(3, &["RL0704", "rank 1", "SIGKILL", "all_reduce.ring, step", "ring.algo:"]);
    // A death is reported so early that a rank may not have begun to wait.
    let waiters = blames("killed.json", "died");
    assert!(waiters.iter().all(|r| [0, 2].contains(r)), "{waiters:?}");
}

#[test]
fn a_stopped_rank_is_named_at_the_deadline() {
    // Longer than a rank may lag behind that has to share its core.
    let (child, ranks) = endless("6s", "stopped.json");
    // From outside, while it runs and while it waits; by any of its processes.
    let seen = |pid: i32| roundelay(&["doctor", "--pid", &pid.to_string(), "--json"]).ok().json();
    let report = &seen(ranks[2])[0];
    assert_eq!(report["communicators"][0]["missing"], serde_json::json!([]), "{report}");
    assert_ne!(report["verdict"]["class"], "stopped", "{report}");
    signal(ranks[1], Signal::STOP);
    let report = &seen(ranks[1])[0];
    assert_eq!(report["verdict"]["class"], "stopped", "{report}");
    assert_eq!(report["verdict"]["ranks"], serde_json::json!([1]), "{report}");
    let ran = ended(child, &ranks);
    ran.fails(3, &["RL0703", "rank 1 is stopped", "all_reduce.ring, step", "ring.algo:"]);
    assert_eq!(blames("stopped.json", "stopped"), [0, 2]);
}

/// More ranks than cores, and less time than the system's turns take: that is slow, and no circle of waits.
#[test]
fn busy_cores_are_no_cycle() {
    let args = ["run", "all_reduce.ring", "-n", "8", "--bytes", "64K", "--iters", "500"];
    let child = command(&[&args[..], &["--timeout", "5ms"]].concat()).output();
    let ran = RunOutput::of(child.expect("the binary runs"));
    assert!(!ran.err.contains("a cycle"), "{}", ran.err);
    // Whether it comes so far in time is for the machine to say.
    if ran.code != 0 {
        ran.fails(3, &["RL0703"]);
    }
}

#[test]
fn ranks_end_with_the_process_that_started_them() {
    let (mut child, ranks) = endless("60s", "never.json");
    child.kill().expect("the end");
    child.wait().expect("it ends");
    let gone = |pid: &i32| stat(*pid).is_none_or(|f| f[0] == "Z");
    until(FOREVER, || "ranks are left behind".into(), || ranks.iter().all(gone));
}

/// Is a rank, if it was started as one: makes calls until one fails, and prints why.
#[test]
fn calling_process() {
    if std::env::var_os("FAIL_RANK").is_none() {
        return;
    }
    let mut comm = Communicator::from_env().expect("a job");
    let mut data = [1f32; 64];
    let mut calls = 0;
    let error = loop {
        match comm.all_reduce(&mut data, RedOp::Max) {
            Ok(_) => calls += 1,
            Err(error) => break error,
        }
        if calls == 100 {
            writeln!(std::io::stdout(), "100 calls").expect("a pipe");
        }
    };
    writeln!(std::io::stdout(), "error: {error}").expect("a pipe");
}

/// Two hosts by label with two ranks each. From the other host no rank sees the process that is stopped; the rank
/// beside it does, and reports it.
#[test]
fn a_stopped_rank_is_seen_by_the_ranks_of_other_hosts() {
    let store = format!("127.0.0.1:{}", port());
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(test_arguments(module_path!(), "calling_process")).env("FAIL_RANK", "1");
        command.env("ROUNDELAY_RANK", rank.to_string()).env("ROUNDELAY_SIZE", "4");
        command.env("ROUNDELAY_STORE", &store).env("ROUNDELAY_HOST", format!("host {}", rank / 2));
        command.env("ROUNDELAY_HINTS", "timeout=3s").env("ROUNDELAY_TUNED", "");
        command.env_remove("ROUNDELAY_SECRET").env_remove("ROUNDELAY_SECRET_FILE");
        let mut child = command.stdout(Stdio::piped()).spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        (child, lines.map(|line| line.expect("a line")))
    };
    let mut ranks: Vec<_> = (0..4).map(start).collect();
    for (_, lines) in &mut ranks {
        assert!(lines.any(|line| line.ends_with("100 calls")), "a rank has not made its calls");
    }
    let (mut victim, _) = ranks.pop().expect("rank 3");
    let pid = Pid::from_child(&victim);
    kill_process(pid, Signal::STOP).expect("it is there");
    let errors: Vec<String> = ranks
        .iter_mut()
        .map(|(_, lines)| lines.find(|line| line.starts_with("error: ")).expect("an error"))
        .collect();
    kill_process(pid, Signal::KILL).expect("it is there");
    for child in ranks.iter_mut().map(|(child, _)| child).chain([&mut victim]) {
        child.wait().expect("an end");
    }
    for error in errors {
        assert!(error.contains("; rank 3 is stopped: let its process go on"), "{error}");
    }
}
