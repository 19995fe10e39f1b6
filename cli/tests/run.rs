//! Tests `run` and `bench`: real data between real processes.

use std::process::{Command, Stdio};

use crate::support::{RunOutput, command, file, roundelay};
use roundelay::{DType, RedOp};
use roundelay_algorithms::CATALOGUE;
use roundelay_tests::{CheckNeeds, port, skip};
use serde_json::Value;

/// Runs, and returns the results, all of them right.
#[track_caller]
fn right(args: &[&str]) -> Vec<Value> {
    let mut all = vec!["run", "--json", "--iters", "1", "--warmup", "0"];
    all.extend(args);
    let lines = roundelay(&all).ok().json();
    assert!(!lines.is_empty());
    for line in &lines {
        assert_eq!(line["wrong"], 0, "{args:?}: {line}");
    }
    lines
}

#[test]
fn the_whole_library_is_right() {
    for e in CATALOGUE {
        let name = format!("{}.{}", e.collective, e.name);
        for placement in ["--in-place", "--out-of-place"] {
            right(&[&name, placement, "--bytes", "0,4,28,4092,70000", "--dtype", "f32"]);
        }
    }
}

#[test]
fn all_types_and_operators_are_right() {
    for &dtype in DType::ALL {
        for &op in RedOp::ALL {
            let (dtype, op) = (dtype.name(), op.name());
            let float = dtype.contains('f');
            let bits = matches!(op, "and" | "or" | "xor");
            let args = [
                "all_reduce.circulant",
                "-n",
                "3",
                "--bytes",
                "1000",
                "--dtype",
                dtype,
                "--op",
                op,
            ];
            let has = match dtype {
                "bool" => bits || matches!(op, "min" | "max"),
                _ => !(float && bits),
            };
            if has {
                right(&args);
            } else {
                let mut all = vec!["run"];
                all.extend(args);
                roundelay(&all).fails(1, &["RL0706", op]);
            }
        }
        right(&["all_to_all.pairwise", "-n", "3", "--bytes", "1000", "--dtype", dtype.name()]);
    }
}

#[test]
fn rank_counts_roots_and_memory() {
    for n in ["1", "2", "3", "5", "8"] {
        right(&["all_reduce.ring", "-n", n, "--bytes", "4092"]);
        right(&["broadcast.binomial", "-n", n, "--bytes", "4092", "--private"]);
    }
    right(&["gather.binomial", "-n", "5", "--root", "3", "--bytes", "4000"]);
    right(&["scatter.binomial", "-n", "5", "--root", "4", "--bytes", "4000", "--in-place"]);
    right(&["all_reduce.two_level", "-n", "2x3", "--bytes", "4000", "--slot-bytes", "256"]);
    right(&["all_reduce.compressed", "-n", "3", "--bytes", "100K"]);
    right(&["all_reduce.ring", "-n", "2", "--bytes", "4194316", "--private"]);
    let lines = right(&["all_reduce.swing", "-n", "2..5", "--bytes", "64"]);
    let ranks: Vec<u64> = lines.iter().filter_map(|l| l["ranks"].as_u64()).collect();
    assert_eq!(ranks, [2, 4]);
}

/// The choice is asked with the shape and the size at hand: a root may be one that the usual shape does not have.
#[test]
fn roots_of_chosen_algorithms() {
    for collective in ["broadcast", "reduce", "gather", "scatter"] {
        let lines = right(&[collective, "-n", "8", "--root", "5", "--bytes", "4K"]);
        assert_eq!((&lines[0]["ranks"], &lines[0]["root"]), (&8.into(), &5.into()));
        let bench =
            ["bench", collective, "-n", "8", "--root", "5", "--bytes", "4K", "--iters", "1"];
        roundelay(&bench).ok();
    }
    // Counts that do not have it are passed over, as those that an algorithm does not allow.
    let lines = right(&["broadcast", "-n", "2..6", "--root", "4", "--bytes", "64"]);
    let ranks: Vec<u64> = lines.iter().filter_map(|l| l["ranks"].as_u64()).collect();
    assert_eq!(ranks, [5, 6]);
    let none = roundelay(&["run", "broadcast", "--root", "4"]);
    none.fails(1, &["RL0605", "broadcast on 4 ranks has no rank 4"]);
}

#[test]
fn lossy_algorithms_are_for_sums_of_floats() {
    let compressed = ["run", "all_reduce.compressed", "-n", "2"];
    for more in [["--dtype", "i32"], ["--op", "max"]] {
        roundelay(&[&compressed[..], &more].concat()).fails(1, &["RL0706", "floats"]);
    }
}

#[test]
fn results_have_the_columns_of_nccl_tests() {
    let lines = right(&["all_gather", "-n", "2", "--bytes", "1K,2K", "--dtype", "f64"]);
    assert_eq!(lines.len(), 2);
    let line = &lines[0];
    for key in ["algorithm", "collective", "ranks", "bytes", "dtype", "op", "transport"] {
        assert!(!line[key].is_null(), "{key}");
    }
    assert_eq!((&line["bytes"], &line["count"]), (&Value::from(1024), &Value::from(64)));
    let number = |key: &str| line[key].as_f64().expect("a number");
    assert!(number("time_us") > 0.0);
    let algbw = 1024.0 / number("time_us") / 1e3;
    assert!((number("algbw_gbs") / algbw - 1.0).abs() < 1e-6);
    assert!((number("busbw_gbs") / algbw - 0.5).abs() < 1e-6);
    let barrier = right(&["barrier", "-n", "3", "--bytes", "1,2,3"]);
    assert_eq!((barrier.len(), &barrier[0]["bytes"]), (1, &Value::from(0)));
}

#[test]
fn declared_collectives_run() {
    let text = "collective prefix on n ranks {
    input 2
    output 1
    each r { output[0] = reduce p in 0..n where p <= r : input[1] at p }
}
algorithm chain implements prefix on n ranks {
    each r { r -> r : copy input[1] -> output[0] }
    for s in 0..n-1 { s -> s + 1 : reduce output[0] }
}
";
    let path = file("prefix.algo", text);
    right(&[&path, "-n", "4", "--bytes", "4K", "--dtype", "i32"]);
}

#[test]
fn what_was_proved_and_the_seed_are_said() {
    let ran =
        roundelay(&["run", "all_reduce.ring", "-n", "2", "--bytes", "1K", "--seed", "7"]).ok();
    assert!(ran.out.starts_with("all_reduce.ring on 2 ranks: proved"), "{}", ran.out);
    assert!(ran.out.contains("seed 7, in place") && ran.out.contains("#wrong"));
}

/// The output says what was verified, and elements that were not counted are not reported as zero.
#[test]
fn as_much_is_verified_as_is_asked_for() {
    let run = ["run", "all_reduce.ring", "-n", "3", "--bytes", "4M", "--iters", "2", "--verify"];
    for (verify, words, wrong) in [
        ("full", "; every element is verified", Value::from(0)),
        (
            "sample",
            "; a sample is verified: the first and last 64 elements of each chunk",
            0.into(),
        ),
        ("off", "; nothing is verified", Value::Null),
    ] {
        let ran = roundelay(&[&run[..], &[verify]].concat()).ok();
        assert!(ran.out.contains(words), "{}", ran.out);
        let last: Vec<&str> =
            ran.out.lines().last().unwrap_or_default().split_whitespace().collect();
        assert_eq!(last[8], if wrong.is_null() { "-" } else { "0" }, "{last:?}");
        let line = &roundelay(&[&run[..], &[verify, "--json"]].concat()).ok().json()[0];
        assert_eq!((&line["wrong"], &line["verify"]), (&wrong, &verify.into()), "{line}");
    }
    // Also in bench, and in rows that are shown again.
    let bench =
        ["bench", "all_reduce.ring", "-n", "2", "--bytes", "8", "--verify", "off", "--json"];
    let rows = file("unverified.jsonl", roundelay(&bench).ok().out);
    let again = roundelay(&["bench", "--rows", &rows]).ok().out;
    let last: Vec<&str> = again.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(last[8], "-", "{again}");
    roundelay(&["run", "all_reduce", "--device", "cuda", "--verify", "sample"])
        .fails(2, &["--verify"]);
}

/// Work of more than a second says on a terminal what is done, also within a size.
#[test]
fn long_work_says_what_it_does() {
    let run = "run all_reduce.ring -n 2 --bytes 64M,64M --warmup 20 --iters 10";
    let line = format!("{} {run}", env!("CARGO_BIN_EXE_roundelay"));
    let mut script = Command::new("script");
    // A terminal that cannot move its cursor shows no progress.
    let script = script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let Ok(ran) = script.output() else {
        return skip(CheckNeeds::Tool, "there is no `script`, which makes a terminal");
    };
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && out.contains("64M: calls that are"), "{out}");
}

#[test]
fn what_does_not_fit_the_memory_is_an_error() {
    roundelay(&["run", "all_reduce.ring", "-n", "2", "--bytes", "1024G"])
        .fails(3, &["RL0705", "no room"]);
}

/// Ranks that are alone on their hosts share no memory, whatever they are allowed.
#[test]
fn the_transport_is_the_one_that_is_used() {
    for (n, hosts, transport) in [("2", "2", "tcp"), ("3", "3", "tcp"), ("3", "1", "shm")] {
        let run = ["all_reduce.ring", "-n", n, "--hosts", hosts, "--bytes", "64"];
        assert_eq!(right(&run)[0]["transport"], transport, "{n} ranks, {hosts} hosts");
    }
}

/// Ranks that say why they cannot begin have not died.
#[test]
fn a_transport_that_is_not_there_is_refused_in_its_own_words() {
    let run = ["run", "all_reduce", "-n", "4", "--bytes", "1K", "--transport", "rdma"];
    let ran = roundelay(&run);
    if ran.code == 0 {
        return skip(CheckNeeds::Without, "this machine has RDMA");
    }
    let ran = ran.fails(3, &["RL0709", "has no RDMA"]);
    assert!(!ran.err.contains("died") && !ran.err.contains("status 3"), "{}", ran.err);
}

#[test]
fn an_algorithm_over_several_hosts_can_be_chosen() {
    let lines = right(&["all_reduce", "-n", "4", "--hosts", "2", "--bytes", "8,1M"]);
    assert!(lines.iter().any(|line| line["algorithm"] == "two_level"), "{lines:?}");
    assert!(lines.iter().all(|line| line["transport"] == "shm+tcp"), "{lines:?}");
}

/// Runs a command of the shell with the program as `$0`, within a minute.
fn shell(before: &str, args: &str) -> std::process::Output {
    let line = format!("{before} exec timeout -k 5 60 \"$0\" {args}");
    let program = env!("CARGO_BIN_EXE_roundelay");
    Command::new("bash").args(["-c", &line, program]).output().expect("a shell")
}

#[test]
fn ranks_are_waited_for_where_their_signals_are_ignored() {
    for args in ["run all_reduce -n 2 --bytes 4K", "bench all_reduce -n 2 -b 8 -e 8 --iters 2"] {
        let ran = shell("trap '' CHLD;", args);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{args}: {said}");
    }
}

#[test]
fn a_small_job_needs_few_addresses() {
    for args in ["-n 4", "-n 8", "-n 2 --transport tcp"] {
        let ran = shell("ulimit -v 8388608;", &format!("run all_reduce --bytes 64K {args}"));
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{args}: {said}");
    }
}

#[test]
fn too_few_descriptors_are_no_fault_of_others() {
    let mut full = 0;
    for limit in 8..24 {
        for transport in ["tcp", "shm"] {
            let limits = format!("ulimit -n {limit};");
            let args =
                format!("run all_reduce --bytes 4K -n 4 --transport {transport} --timeout 3s");
            let ran = shell(&limits, &args);
            let said = String::from_utf8_lossy(&ran.stderr);
            if ran.status.code() != Some(0) {
                full += 1;
                assert_eq!(ran.status.code(), Some(3), "{limit} over {transport}: {said}");
                assert!(said.contains("Too many open files"), "{limit} over {transport}: {said}");
                assert!(said.contains("ulimit -n"), "{limit} over {transport}: {said}");
                assert!(!said.contains("make sure that rank"), "{limit} over {transport}: {said}");
            }
        }
    }
    assert!(full > 0, "some of these are too few");
}

#[test]
fn a_size_that_is_refused_leaves_the_others() {
    // No arena and no machine has as much.
    let sizes = ["--bytes", "1K,1000G,2K", "--iters", "3", "--json"];
    for verb in
        [&["run", "all_reduce.ring", "-n", "2"][..], &["bench", "all_reduce.ring", "-n", "2"]]
    {
        for transport in ["shm", "tcp"] {
            let args = [verb, &sizes[..], &["--transport", transport]].concat();
            let ran = roundelay(&args).fails(
                3,
                &[
                    "all_reduce.ring, 1000G: not run: no room for a buffer",
                    "error[RL0705]",
                    "1 of 3 sizes were not run",
                ],
            );
            let sizes: Vec<_> = ran.json().iter().filter_map(|row| row["bytes"].as_u64()).collect();
            assert_eq!(sizes, [1024, 2048], "{}\n{}", ran.out, ran.err);
        }
    }
    // Ranks that were started by hand fail each.
    let store = format!("127.0.0.1:{}", port());
    let start = |rank| {
        let member = ["--rank", rank, "--size", "2", "--store", &store];
        let mut own = command(&[&["run", "all_reduce.ring"], &member[..], &sizes].concat());
        own.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    };
    let ranks = ["0", "1"].map(start);
    for (rank, child) in ranks.into_iter().enumerate() {
        let ran = RunOutput::of(child.wait_with_output().expect("a rank ends"));
        let ran = ran.fails(3, &["error[RL0705]", "1 of 3 sizes were not run"]);
        assert_eq!(ran.json().len(), if rank == 0 { 2 } else { 0 }, "{}", ran.out);
    }
    // Of the only size the failure says everything.
    let only = ["run", "all_reduce.ring", "-n", "2", "--bytes", "1000G"];
    let ran = roundelay(&only).fails(3, &["error[RL0705]"]);
    assert!(!ran.err.contains("not run"), "{}", ran.err);
}
