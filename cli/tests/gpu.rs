//! Tests GPUs on the command line: what is said where there are none, and everything where there are; results
//! of before.

use crate::support::{file, roundelay};
use roundelay_tests::{CheckNeeds, skip};
use serde_json::{Value, json};

/// Returns the reason why there are no GPUs here, if there are none.
fn fault() -> Option<String> {
    let info = roundelay(&["info", "--json"]).ok().json().remove(0);
    info["gpus"]["fault"].as_str().map(String::from)
}

#[test]
fn info_says_what_of_cuda_there_is() {
    let info = roundelay(&["info", "--json"]).ok().json().remove(0);
    let gpus = &info["gpus"];
    let devices = gpus["devices"].as_array().expect("devices");
    assert_eq!(gpus["fault"].is_string(), devices.is_empty(), "{gpus}");
    assert!(gpus["nccl"]["what"].is_string(), "{gpus}");
    let text = roundelay(&["info"]).ok().out;
    assert!(text.contains("\nGPUs:\n") && text.contains("  NCCL "), "{text}");
}

#[test]
fn a_library_that_is_none_is_named() {
    let nowhere = "/nowhere/libnccl.so.2";
    let mut command = crate::support::command(&["info", "--json"]);
    let output = command.env("ROUNDELAY_NCCL", nowhere).output().expect("the binary runs");
    let info = crate::support::RunOutput::of(output).ok().json().remove(0);
    let nccl = &info["gpus"]["nccl"];
    assert_eq!(nccl["found"], Value::Bool(false));
    assert!(nccl["what"].as_str().is_some_and(|w| w.contains(nowhere)), "{nccl}");
}

#[test]
fn without_gpus_every_verb_says_why() {
    let Some(why) = fault() else { return };
    for verb in [
        &["run", "all_reduce.ring", "-n", "2", "--device", "cuda"][..],
        &["bench", "all_reduce", "-n", "2", "--device", "cuda", "--vs", "nccl"],
        &["tune", "--device", "cuda", "-o", "never-written.toml"],
        &["stress", "-n", "2"],
    ] {
        roundelay(verb).fails(3, &["error[RL0710]", &why]);
    }
}

#[test]
fn with_gpus_a_call_is_right() {
    if fault().is_some() {
        return;
    }
    let rows = roundelay(&[
        "run",
        "all_reduce.one_shot",
        "-n",
        "2",
        "--device",
        "cuda",
        "--bytes",
        "1K,1M",
        "--iters",
        "5",
        "--json",
    ]);
    let rows = rows.ok().json();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row["wrong"] == 0 && row["transport"] == "nvlink"), "{rows:?}");
}

#[test]
fn a_size_that_is_refused_on_gpus_leaves_the_others() {
    if let Some(why) = fault() {
        return skip(CheckNeeds::Gpus, why);
    }
    for verb in ["run", "bench"] {
        // Packets go through staging memory, of which there is not as much.
        let ran = roundelay(&[
            verb,
            "all_reduce.one_shot",
            "-n",
            "2",
            "--device",
            "cuda",
            "--protocol",
            "packet",
            "--bytes",
            "1K,2G,2K",
            "--iters",
            "5",
            "--json",
        ]);
        let texts =
            ["all_reduce.one_shot, 2G: not run: ", "error[RL0706]", "1 of 3 sizes were not run"];
        let ran = ran.fails(1, &texts);
        let sizes: Vec<_> = ran.json().iter().filter_map(|row| row["bytes"].as_u64()).collect();
        assert_eq!(sizes, [1024, 2048], "{}\n{}", ran.out, ran.err);
    }
}

#[test]
fn calls_that_stress_has_no_time_for_are_not_wrong() {
    if let Some(why) = fault() {
        return skip(CheckNeeds::Gpus, why);
    }
    let args = ["stress", "-n", "2", "random", "--calls", "100000000", "--budget", "1s"];
    let ran = roundelay(&[&args[..], &["--json"]].concat()).fails(3, &[]);
    let row = ran.json().remove(0);
    assert!(row["passed"] == false && row["wrong"] == 0 && row["faults"] == json!([]), "{row}");
    assert!(row["left"].as_u64() > Some(0) && row["checks"].as_u64() > Some(0), "{row}");
    let ran = roundelay(&args).fails(3, &[]);
    assert!(ran.out.contains("  no time left: "), "{}", ran.out);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let wrong: [(&[&str], &str); 7] = [
        (&["run", "all_reduce", "--protocol", "put"], "--protocol is for --device cuda"),
        (&["run", "all_reduce", "--blocks", "4"], "--blocks is for --device cuda"),
        (&["bench", "all_reduce", "--graph", "4"], "--graph is for --device cuda"),
        (&["run", "all_reduce", "--device", "cuda", "--private"], "--private is not for --device"),
        (&["run", "all_reduce", "--device", "cuda", "--trace", "t"], "--trace is not for --device"),
        (&["bench", "all_reduce", "--vs", "nccl"], "add --device cuda"),
        (
            &["bench", "all_reduce", "--device", "cuda", "--vs", "gloo"],
            "--device cuda has --vs nccl",
        ),
    ];
    for (args, text) in wrong {
        roundelay(args).fails(2, &[text]);
    }
    roundelay(&["run", "all_reduce", "--device", "cuda", "--blocks", "0"]).fails(2, &["0"]);
    roundelay(&["stress", "nothing"]).fails(2, &["nothing"]);
}

#[test]
fn what_would_be_tuned_is_planned_anywhere() {
    let ran = roundelay(&["tune", "--device", "cuda", "-n", "4", "--dry-run", "-o", "none.toml"]);
    let out = ran.ok().out;
    let points = out.split_whitespace().nth(2).and_then(|word| word.parse::<u32>().ok());
    assert!(points.is_some_and(|points| points > 100), "{out}");
}

const ROWS: &str = r#"
{"step":"bandwidth","date":"2026-11-21T19:00:00Z"}
{"algorithm":"ring","collective":"all_reduce","ranks":4,"bytes":4096,"count":1024,"dtype":"f32","op":"sum","root":-1,"transport":"nvlink","time_us":8.0,"algbw_gbs":0.5,"busbw_gbs":0.8,"wrong":0,"how":{"way":"put","blocks":32},"graph":20}
{"algorithm":"default","collective":"all_reduce","ranks":4,"bytes":4096,"count":1024,"dtype":"f32","op":"sum","root":-1,"transport":"nvlink","time_us":16.0,"algbw_gbs":0.3,"busbw_gbs":0.4,"wrong":0,"graph":20,"peer":"nccl","ratio":2.0}
{"algorithm":"default","collective":"all_reduce","ranks":4,"bytes":4096,"count":1024,"dtype":"f32","op":"sum","root":-1,"transport":"nvlink","time_us":6.0,"algbw_gbs":0.3,"busbw_gbs":0.4,"wrong":0,"graph":20,"peer":"nccl-sym","ratio":0.75}
{"summary":{"peer":"nccl","collective":"all_reduce","points":1}}
"#;

#[test]
fn results_of_before_are_shown_as_new_ones_are() {
    let (rows, plot) = (file("gpu-rows.jsonl", ROWS), file("gpu-rows.svg", ""));
    let ran = roundelay(&["bench", "--rows", &rows, "--markdown", "--plot", &plot]).ok();
    for text in [
        "all_reduce, 4 ranks, f32, sum, nvlink, in a graph\n",
        "all_reduce.ring put x32\n",
        "nccl-sym (ratio 0.75)\n",
        "slower than the best peer at 1 of 1 points",
        "| all_reduce | 8.000 us, **0.75** nccl-sym |",
    ] {
        assert!(ran.out.contains(text), "no `{text}` in\n{}", ran.out);
    }
    assert!(std::fs::read_to_string(&plot).is_ok_and(|svg| svg.contains("nccl-sym")));
    let again = roundelay(&["bench", "--rows", &rows, "--json"]).ok().json();
    assert_eq!(again.len(), 3 + 3, "the rows, and a summary for each peer and the best");
    // Several runs give the medians, of times and of ratios.
    let runs = [(8.0, 2.0), (4.0, 3.0), (9.0, 9.0)].map(|(time, ratio)| {
        let (time, ratio) = (format!("{time:?}"), format!("{ratio:?}"));
        let text =
            ROWS.replace("8.0", &time).replace("\"ratio\":2.0", &format!("\"ratio\":{ratio}"));
        file(&format!("gpu-rows-{time}.jsonl"), &text)
    });
    let ran = roundelay(&["bench", "--rows", &runs.join(",")]).ok();
    for text in ["8.000", "nccl (ratio 3.00)", "nccl-sym (ratio 0.75)"] {
        assert!(ran.out.contains(text), "no `{text}` in\n{}", ran.out);
    }
    let short = file("gpu-short.jsonl", ROWS.lines().nth(2).expect("a row"));
    let other = format!("{rows},{short}");
    roundelay(&["bench", "--rows", &other])
        .fails(1, &["gpu-short.jsonl", "its rows are not those of"]);
    let none = file("gpu-none.jsonl", "{}\n");
    roundelay(&["bench", "--rows", &none]).fails(1, &["it has no row"]);
    roundelay(&["bench", "--rows", "/nowhere.jsonl"]).fails(1, &["/nowhere.jsonl"]);
    roundelay(&["bench"]).fails(2, &["<FILE|NAME>"]);
}
