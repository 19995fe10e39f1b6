//! Tests `run --chaos`: ranks are killed, stopped, slow and late, connections are cut, and those that are left go on.

use std::process::Stdio;
use std::time::Duration;

use crate::support::{command, roundelay};
use roundelay_tests::{CheckNeeds, is_full, skip, until};
use serde_json::Value;

/// Runs a job under faults for longer and longer, until it has seen enough of them; no result may be wrong, and no wait
/// without end, however long it takes. A campaign: of these jobs, a sample of the tests runs `kill` alone.
fn chaos(args: &[&str], fault: &str) {
    if fault != "kill" && !is_full() {
        skip(CheckNeeds::FullRun, format!("a sample of the tests runs no job under `{fault}`"));
        return;
    }
    let mut result = Value::Null;
    for time in ["4s", "16s", "64s"] {
        let all = [&["run", "all_reduce", "--json", "--for", time, "--chaos"], args].concat();
        let ran = roundelay(&all);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        result = serde_json::from_str(ran.out.trim()).expect("one object");
        assert_eq!((&result["wrong"], &result["hangs"]), (&0.into(), &0.into()), "{result}");
        let left = serde_json::json!({"descriptors": 0, "threads": 0, "pinned_bytes": 0});
        assert_eq!(result["left"], left, "{result}");
        let many = |result: &Value, least| result.as_u64() > Some(least);
        // A generation that works was made in some time, and before its calls.
        let time = |which: &str| result[which]["median"].as_f64().unwrap_or(-1.0);
        let (made, works) = (time("reconfigure_ms"), time("recovery_ms"));
        assert!(result["generations"] == 0 || made > 0.0 && works > made, "{result}");
        let enough = many(&result["generations"], 1) && many(&result["calls"], 0);
        if enough && many(&result["faults"][fault], 0) {
            return;
        }
    }
    panic!("too little happened: {result}");
}

#[test]
fn ranks_that_are_killed_are_replaced() {
    chaos(&["kill=1/s", "-n", "3", "--bytes", "4,10K", "--seed", "5"], "kill");
}

#[test]
fn ranks_that_are_stopped_are_waited_for_or_left_out() {
    let faults = "stop=1/s,kill=0.3/s";
    let args = [faults, "-n", "3", "--bytes", "4,10K", "--timeout", "2s", "--seed", "3"];
    chaos(&[&args[..], &["--transport", "tcp"]].concat(), "stop");
}

/// A rank that is late by more than the timeout fails the others' call: all of them meet again.
#[test]
fn ranks_that_are_slow_or_late_come_again() {
    let args =
        ["slow=1/s,late=1/s", "-n", "3", "--bytes", "4,10K", "--timeout", "2s", "--seed", "4"];
    chaos(&args, "late");
    chaos(&[&args[..], &["--transport", "tcp"]].concat(), "slow");
}

/// Ranks of one host share memory, and others use TCP; which they are changes with each newcomer.
#[test]
fn ranks_of_two_hosts_are_replaced() {
    chaos(&["kill=1/s", "-n", "3", "--hosts", "2", "--bytes", "4,10K", "--seed", "9"], "kill");
}

/// Nothing else happens here: without an effect of the cuts there would be one generation.
#[test]
fn ranks_whose_connections_are_cut_go_on() {
    let args = ["cut=1/s", "-n", "3", "--bytes", "4,10K", "--timeout", "2s", "--seed", "7"];
    chaos(&[&args[..], &["--transport", "tcp"]].concat(), "cut");
}

#[test]
fn what_has_no_tcp_connections_cannot_be_cut() {
    for transport in [&[][..], &["--transport", "shm"], &["--hint", "transport=shm,tcp"]] {
        let args = [&["run", "all_reduce", "--chaos", "kill=1/s,cut=1/s"], transport].concat();
        let ran = roundelay(&args);
        assert_eq!(ran.code, 2, "{transport:?}: {}", ran.err);
        assert!(ran.err.contains("--transport tcp") && ran.out.is_empty(), "{}", ran.err);
    }
}

#[test]
fn what_it_cannot_run_is_refused() {
    for args in [
        ["run", "all_gather", "--chaos", "kill=1/s"],
        ["run", "all_reduce", "--chaos", "burn=1/s"],
        ["run", "all_reduce", "--for", "3s"],
    ] {
        let ran = roundelay(&args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
    }
    let ran = roundelay(&["run", "all_reduce.nosuch", "--chaos", "kill=1/s"]);
    assert!(ran.code == 1 || ran.code == 2, "{}", ran.err);
    assert!(ran.err.contains("nosuch"), "{}", ran.err);
    // Faults would leave no rank, and three ranks that are left could not run this.
    for (args, why) in
        [(["all_reduce", "2"], "three at least"), (["all_reduce.halving_doubling", "4"], "pow2")]
    {
        let ran = roundelay(&["run", args[0], "-n", args[1], "--chaos", "kill=1/s"]);
        assert!(ran.code == 1 || ran.code == 2, "{}", ran.err);
        assert!(ran.err.contains(why) && ran.out.is_empty(), "{}{}", ran.out, ran.err);
    }
}

/// Ranks end with the process that started them, however that ended.
#[test]
fn no_rank_outlives_the_program() {
    let args =
        ["run", "all_reduce", "-n", "3", "--chaos", "stop=5/s", "--for", "100s", "--bytes", "4"];
    let mut chaos = command(&args).stdout(Stdio::null()).spawn().expect("a process");
    let children = format!("/proc/{0}/task/{0}/children", chaos.id());
    let started = || -> Vec<String> {
        let listed = std::fs::read_to_string(&children).unwrap_or_default();
        listed.split_whitespace().map(str::to_owned).collect()
    };
    // Each has begun to be what it is.
    let is_rank = |rank: &String| said(rank).is_some_and(|said| said.contains("chaos-rank"));
    until(
        Duration::from_secs(60),
        || format!("{:?} are not three ranks", started()),
        || started().len() == 3 && started().iter().all(is_rank),
    );
    let ranks = started();
    chaos.kill().and_then(|()| chaos.wait()).expect("its end");
    for rank in ranks {
        let is_over = || said(&rank).is_none_or(|said| !said.contains("chaos-rank"));
        until(Duration::from_secs(60), || format!("rank {rank} lives on"), is_over);
    }
}

/// Returns the command line of a process; that of one that has ended is empty.
fn said(process: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{process}/cmdline")).ok()
}
