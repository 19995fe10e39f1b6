//! Tests hints, `explain COLLECTIVE` and `tune`, through the binary.

use std::path::PathBuf;

use crate::support::{RunOutput, command, file, roundelay};

/// Runs the binary with an environment.
fn with(args: &[&str], environment: &[(&str, &str)]) -> RunOutput {
    let mut command = command(args);
    command.envs(environment.iter().copied());
    RunOutput::of(command.output().expect("the binary runs"))
}

fn choice(args: &[&str], environment: &[(&str, &str)]) -> (String, String) {
    let mut all = vec!["explain", "all_reduce", "-n", "4", "--json"];
    all.extend(args);
    let found = &with(&all, environment).ok().json()[0];
    let text = |key: &str| found[key].as_str().expect(key).to_string();
    (text("algorithm"), text("source"))
}

/// Returns a folder of its own, empty.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

#[test]
fn a_choice_is_explained() {
    let args = ["explain", "reduce_scatter", "-n", "6", "--hosts", "6", "--bytes", "1M"];
    let ran = roundelay(&args).ok();
    let expected = "\
reduce_scatter of 1M on 6 ranks over 6 hosts: pairwise (cost model)
  proved for all n: hosts to 16777216 ranks, GPUs to 120
  algorithm             predicted   measured  why not
  pairwise                 812 us          -  chosen
  ring                     866 us          -  predicted 7% slower
  circulant                903 us          -  predicted 11% slower
  pat                      903 us          -  predicted 11% slower
  direct                   960 us          -  predicted 18% slower
  bine                          -          -  it requires pow2(n), which does not hold with n = 6
  recursive_halving             -          -  it requires pow2(n), which does not hold with n = 6
  swing                         -          -  it requires pow2(n), which does not hold with n = 6
  trivance                      -          -  it requires is_power(3, n), which does not hold with n = 6
";
    assert_eq!(ran.out, expected);
    assert_eq!(ran.out, roundelay(&args).ok().out, "the same every time");
}

#[test]
fn a_choice_is_data_too() {
    let args = ["explain", "all_reduce", "-n", "6", "--bytes", "8,1M", "--json"];
    let found = roundelay(&args).ok().json();
    assert_eq!(found.len(), 2);
    let lost = found[1]["lost"].as_array().expect("losers");
    assert_eq!(lost.len() + 1, roundelay_algorithms::of("all_reduce").count());
    let swing = lost.iter().find(|l| l["algorithm"] == "swing").expect("swing");
    assert_eq!(swing["code"], "RL0601");
    assert!(swing["predicted_us"].is_null());
    assert!(found[1]["predicted_us"].as_f64().expect("a time") > 1.0);
}

#[test]
fn levels_of_hints_through_the_binary() {
    let env = [("ROUNDELAY_HINTS", "algorithm=all_reduce.ring,broadcast.chain,timeout=9s")];
    let call = ["--hint", "algorithm=circulant"];
    assert_eq!(choice(&call, &env), ("circulant".into(), "hint on the call (algorithm)".into()));
    assert_eq!(choice(&[], &env), ("ring".into(), "ROUNDELAY_HINTS (algorithm)".into()));
    assert_eq!(choice(&[], &[]).1, "cost model");
    let latency = ["--bytes", "64M", "--hint", "objective=latency"];
    assert_eq!(choice(&latency, &[]).1, "hint on the call (objective)");
    roundelay(&["explain", "all_reduce", "--hint", "algoritm=ring"])
        .fails(2, &["did you mean `algorithm`?"]);
    with(&["explain", "all_reduce"], &[("ROUNDELAY_HINTS", "lossy=bf61")])
        .fails(2, &["ROUNDELAY_HINTS", "did you mean `bf16`?"]);
    roundelay(&["explain", "all_reduce", "-n", "6", "--hint", "algorithm=halving_doubling"])
        .fails(1, &["RL0601", "requires pow2(n), which does not hold with n = 6"]);
    roundelay(&["explain", "allreduce"]).fails(1, &["did you mean `all_reduce`?"]);
    roundelay(&["explain", "all_reduce", "-n", "5", "--hosts", "2"]).fails(2, &["evenly"]);
}

#[test]
fn all_hints_are_listed() {
    let listed = roundelay(&["explain", "hints", "--json"]).ok().json();
    let names: Vec<&str> = listed.iter().filter_map(|h| h["hint"].as_str()).collect();
    assert_eq!(names, roundelay::hints::TABLE.iter().map(|row| row.name).collect::<Vec<_>>());
    assert!(
        roundelay(&["explain", "hints"])
            .ok()
            .out
            .contains("deterministic=batch_invariant\n    takes ")
    );
}

#[test]
fn hints_hold_for_jobs() {
    let run = ["run", "all_reduce", "-n", "3", "--bytes", "1K", "--iters", "3", "--json"];
    let with_hints = |hints: &[&str]| {
        let mut args = run.to_vec();
        hints.iter().for_each(|h| args.extend(["--hint", h]));
        roundelay(&args)
    };
    let algorithm = |hints: &[&str]| with_hints(hints).ok().json()[0]["algorithm"].clone();
    assert_eq!(algorithm(&["algorithm=ring", "timeout=20s", "slot_bytes=4K"]), "ring");
    assert_eq!(algorithm(&["algorithm=compressed", "lossy=bf16"]), "compressed");
    assert!(["one_shot", "two_shot"].map(Into::into).contains(&algorithm(&["deterministic=true"])));
    let ordered = with_hints(&["deterministic=batch_invariant", "algorithm=ring"]);
    ordered.fails(2, &["depends on the place of an element", "all_reduce/ring.algo:"]);
    with_hints(&["algorithm=swing"]).fails(1, &["requires pow2(n)"]);
    with_hints(&["algorithm=compressed"]).fails(2, &["lossy=bf16 is not given"]);
    let bench = ["bench", "broadcast", "-n", "2", "--bytes", "1K", "--iters", "3", "--json"];
    let mut args = bench.to_vec();
    args.extend(["--hint", "algorithm=scatter_all_gather"]);
    assert_eq!(roundelay(&args).ok().json()[0]["algorithm"], "scatter_all_gather");
}

#[test]
fn tune_says_what_it_would_do() {
    let folder = folder("tune_dry");
    let table = folder.join("tuned.toml").display().to_string();
    let args = ["tune", "--dry-run", "-n", "2,4", "-o", &table];
    let ran = roundelay(&args).ok();
    for collective in ["all_reduce", "broadcast", "all_to_all", "reduce_scatter"] {
        assert!(ran.out.contains(&format!("{collective} ")), "{}", ran.out);
    }
    assert!(ran.out.contains("points, 0 of them known; about "), "{}", ran.out);
    assert!(!ran.out.contains("sendrecv"), "it has one algorithm");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0, "nothing is written");
    roundelay(&["tune", "allreduce"]).fails(2, &["did you mean `all_reduce`?"]);
    roundelay(&["tune", "-n", "2x2", "-o", &table]).fails(2, &["one axis"]);
}

#[test]
fn rows_hold_for_the_transport_they_were_measured_over() {
    let folder = folder("tune_transports");
    let table = folder.join("tuned.toml").display().to_string();
    let tune = |transport: &str, more: &[&str]| {
        let args = ["tune", "broadcast", "-n", "2", "--bytes", "1K", "--budget", "5ms"];
        roundelay(&[&args[..], &["--transport", transport, "-o", &table, "--json"], more].concat())
    };
    let over = |lines: &[serde_json::Value], transport: &str, state: &str| {
        let of = |l: &&serde_json::Value| l["transport"] == transport && l["state"] == state;
        lines.iter().filter(of).count()
    };
    let source = |hints: &[&str]| {
        let explain = ["explain", "broadcast", "-n", "2", "--bytes", "1K", "--json"];
        let ran = with(&[&explain[..], hints].concat(), &[("ROUNDELAY_TUNED", &table)]).ok();
        ran.json()[0]["source"].as_str().expect("a source").to_owned()
    };
    let measured = tune("tcp", &[]).ok().json();
    assert_eq!(over(&measured, "tcp", "measured"), measured.len(), "{measured:?}");
    assert_eq!(source(&["--hint", "transport=tcp"]), "tuned table");
    assert_eq!(source(&[]), "cost model", "TCP says nothing of shared memory");
    // What is known of one transport is not measured again, and not taken for the other's.
    let planned = tune("shm,tcp", &["--dry-run"]).ok().json();
    let known = planned.iter().filter(|l| l["time_us"].is_number());
    assert!(
        known.clone().count() > 0 && known.clone().all(|l| l["transport"] == "tcp"),
        "{planned:?}"
    );
    let both = tune("shm,tcp", &[]).ok().json();
    assert_eq!(over(&both, "tcp", "known"), measured.len(), "{both:?}");
    assert!(over(&both, "shm", "measured") > 0 && over(&both, "shm", "known") == 0, "{both:?}");
    assert_eq!(source(&[]), "tuned table");
    tune("tpc", &[]).fails(2, &["tcp"]);
}

#[test]
fn choices_are_judged_by_what_is_measured() {
    let folder = folder("tune_check");
    let table = folder.join("tuned.toml").display().to_string();
    let tune = ["tune", "all_reduce", "-n", "2", "--bytes", "1M", "--in-place", "--budget", "20ms"];
    let check = [&tune[..], &["--check", "--json"]].concat();
    let judged = roundelay(&check).ok().json();
    let [point, last] = judged.as_slice() else { panic!("{judged:?}") };
    assert_eq!(point["source"], "cost model");
    let times = point["times"].as_array().expect("times");
    let names: Vec<&str> = times.iter().filter_map(|t| t[0].as_str()).collect();
    assert!(names.len() > 5 && names[0] == point["best"], "{point}");
    let (best, chosen) = (point["best_us"].as_f64(), point["time_us"].as_f64());
    assert!(best > Some(0.0) && chosen >= best, "{point}");
    let good = point["ratio"].as_f64() <= Some(1.1);
    assert_eq!(last["summary"]["within"], u64::from(good), "{last}");
    assert_eq!(last["summary"]["misses"].as_array().map(Vec::len), Some(usize::from(!good)));
    // What a table praises is chosen, and judged like everything else.
    roundelay(&[&tune[..], &["-o", &table]].concat()).ok();
    let text = std::fs::read_to_string(&table).expect("a table");
    let (rest, _) = text.split_once("us = {").expect("times");
    std::fs::write(&table, format!("{rest}us = {{ double_binary_tree = 0.1 }}\n"))
        .expect("written");
    let judged = with(&check, &[("ROUNDELAY_TUNED", &table)]).ok().json();
    assert_eq!(judged[0]["source"], "tuned table");
    assert_eq!(judged[0]["chosen"], "double_binary_tree");
    // Whether it is a miss is for the measurement to say.
    let good = judged[0]["ratio"].as_f64() <= Some(1.1);
    let misses = judged[1]["summary"]["misses"].as_array().expect("misses");
    let chosen: Vec<_> = misses.iter().map(|miss| miss["chosen"].as_str()).collect();
    assert_eq!(chosen, vec![Some("double_binary_tree"); usize::from(!good)], "{judged:?}");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 2, "a check writes nothing");
    roundelay(&[&check[..], &["-o", &table]].concat()).fails(2, &["--check"]);
}

#[test]
fn what_is_tuned_is_chosen() {
    let folder = folder("tune_real");
    let table = folder.join("tuned.toml").display().to_string();
    let args = [
        "tune",
        "all_reduce",
        "-n",
        "2",
        "--bytes",
        "1K",
        "--in-place",
        "--budget",
        "5ms",
        "-o",
        &table,
    ];
    let json = [&args[..], &["--json"]].concat();
    let measured = roundelay(&json).ok().json();
    assert!(
        measured.len() > 3 && measured.iter().all(|m| m["state"] == "measured"),
        "{measured:?}"
    );
    // In three rounds. A run that was cut off left half a line; the rest is not measured again.
    let raw = folder.join("tuned.jsonl");
    let text = std::fs::read_to_string(&raw).expect("raw results");
    let rows = |text: &str| text.lines().filter(|line| line.ends_with('}')).count();
    assert_eq!(rows(&text), 3 * measured.len(), "{text}");
    std::fs::write(&raw, format!("{text}{{\"machine\"")).expect("written");
    let again = roundelay(&json).ok().json();
    assert!(again.iter().all(|m| m["state"] == "known"), "{again:?}");
    // More rounds add to them, and the medians of all count.
    let more = roundelay(&[&json[..], &["--rounds", "5"]].concat()).ok().json();
    assert!(more.iter().all(|m| m["state"] == "measured"), "{more:?}");
    let text = std::fs::read_to_string(&raw).expect("raw results");
    assert_eq!(rows(&text), 5 * measured.len(), "{text}");
    let one = more[0]["algorithm"].as_str().expect("a name");
    let lines =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut times: Vec<f64> =
        lines.filter(|l| l["algorithm"] == one).filter_map(|l| l["us"].as_f64()).collect();
    times.sort_by(f64::total_cmp);
    assert_eq!(more[0]["time_us"].as_f64(), Some(times[2]), "of {times:?}");
    let measured = more;
    let path = table.as_str();
    let env = [("ROUNDELAY_TUNED", path)];
    let explain = ["explain", "all_reduce", "-n", "2", "--bytes", "1K", "--json"];
    let found = &with(&explain, &env).ok().json()[0];
    assert_eq!(found["source"], "tuned table");
    // Of those that are alike but for noise any may be chosen.
    let chosen = measured.iter().find(|m| m["algorithm"] == found["algorithm"]).expect("chosen");
    let (least, time) = (measured[0]["time_us"].as_f64(), chosen["time_us"].as_f64());
    assert!(time <= least.map(|us| us * 1.03), "{time:?} and {least:?}");
    assert_eq!(found["measured_us"], chosen["time_us"]);
    // Another machine's table does not apply; a damaged one is an error with its line.
    let text = std::fs::read_to_string(path).expect("the table");
    let cores = text.lines().find(|l| l.starts_with("cores")).expect("cores").to_string();
    let stale = file("stale.toml", text.replace(&cores, "cores = 4000"));
    let found = &with(&explain, &[("ROUNDELAY_TUNED", &stale)]).ok().json()[0];
    assert_eq!(found["source"], "cost model");
    let remark = found["remarks"][0].as_str().expect("a remark");
    assert!(remark.contains("measured on 4000 cores"), "{remark}");
    let damaged = file("damaged.toml", text.replace("bytes = 1024", "bytes = many"));
    with(&explain, &[("ROUNDELAY_TUNED", &damaged)]).fails(2, &["is damaged: line "]);
    with(&explain, &[("ROUNDELAY_TUNED", "nowhere.toml")]).fails(2, &["nowhere.toml"]);
}
