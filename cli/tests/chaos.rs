//! Tests `run --chaos`: ranks are killed and stopped, and those that are left go on.

mod support;

use serde_json::Value;
use support::roundelay;

/// Runs a job under faults for longer and longer, until it has seen enough of them; no result may be wrong, and no wait
/// without end, however long it takes.
fn chaos(args: &[&str], fault: &str) {
    let mut told = Value::Null;
    for time in ["4s", "16s", "64s"] {
        let all = [&["run", "all_reduce", "--json", "--for", time, "--chaos"], args].concat();
        let ran = roundelay(&all);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        told = serde_json::from_str(ran.out.trim()).expect("one object");
        assert_eq!((&told["wrong"], &told["hangs"]), (&0.into(), &0.into()), "{told}");
        let many = |told: &Value, least| told.as_u64() > Some(least);
        let enough = many(&told["generations"], 1) && many(&told["calls"], 0);
        if enough && many(&told["faults"][fault], 0) {
            return;
        }
    }
    panic!("too little happened: {told}");
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

#[test]
fn what_it_cannot_play_is_refused() {
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
}
