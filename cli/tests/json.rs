//! Tests `--json`: every verb prints objects, and `docs/json.md` has their fields.

use std::io::Write;
use std::process::Stdio;

use crate::support::{RunOutput, command, file, roundelay};
use serde_json::Value;

/// Returns the fields that the page names.
fn described() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");
    std::fs::read_to_string(page).expect("the page")
}

#[test]
fn every_verb_prints_objects_whose_fields_are_described() {
    let page = described();
    let pretty = file("json_pretty.algo", "algorithm a implements all_gather on n ranks {\n}\n");
    let picture = file("json.html", "");
    let pages = concat!(env!("CARGO_TARGET_TMPDIR"), "/json-man");
    let plan = file("json.plan", "");
    let calls: &[&[&str]] = &[
        &["check", "all_reduce.ring", "-n", "2,3"],
        &["run", "all_reduce", "-n", "2", "--bytes", "8", "--iters", "1"],
        &["bench", "broadcast", "-n", "2", "--bytes", "8", "--iters", "2"],
        &["show", "all_reduce.ring", "--stage", "ast"],
        &["show", "all_reduce.ring", "--stage", "program"],
        &["show", "all_reduce.ring", "--stage", "graph", "-n", "3"],
        &["show", "all_reduce.ring", "--stage", "plan", "-n", "3"],
        &["show", "all_reduce.ring", "--stage", "plan", "-n", "3", "--rank", "1"],
        &["show", "all_reduce.ring", "--stage", "plan", "-n", "3", "--rank", "1", "-o", &plan],
        &["show", &plan, "--stage", "plan"],
        &["show", "all_reduce.ring", "--stage", "device", "-n", "3"],
        &["show", "all_reduce.ring", "--stage", "cuda", "-n", "3"],
        &["fmt", &pretty],
        &["draw", "all_reduce.ring", "-o", &picture],
        &["emit", "--cuda-device", "all_reduce.ring", "-n", "2"],
        &["emit", "--cuda-device", "all_reduce.ring", "-n", "2", "-o", &picture],
        &["explain"],
        &["explain", "RL0501"],
        &["explain", "hints"],
        &["explain", "all_reduce"],
        &["tune", "broadcast", "-n", "2", "--bytes", "8", "--dry-run", "-o", "json.toml"],
        &["route", "-n", "2"],
        &["secret"],
        &["completions", "zsh"],
        &["man", pages],
        &["info"],
        &["info", "--topology"],
        &["info", "--tunables"],
    ];
    for args in calls {
        let lines = roundelay(&[args, &["--json"][..]].concat()).ok().json();
        assert!(!lines.is_empty(), "{args:?}");
        for line in lines {
            let line = line.as_object().unwrap_or_else(|| panic!("{args:?}: no object"));
            for field in line.keys() {
                assert!(page.contains(&format!("`{field}`")), "{args:?}: no `{field}`");
            }
        }
    }
}

#[test]
fn stages_are_data() {
    let show = |stage: &str| {
        let ran = roundelay(&["show", "all_reduce.ring", "--stage", stage, "-n", "3", "--json"]);
        ran.ok().json()
    };
    let tree = &show("ast")[0]["tree"]["items"][0]["Algorithm"];
    assert_eq!(
        (&tree["name"]["text"], tree["body"].as_array().map(Vec::len)),
        (&"ring".into(), Some(2))
    );
    let program = &show("program")[0];
    assert!(program["variables"].as_array().is_some_and(|v| v.contains(&"s".into())), "{program}");
    let steps = show("graph")[0]["steps"].as_array().cloned().expect("steps");
    assert_eq!(steps.len(), 12);
    assert_eq!((&steps[0]["op"], &steps[0]["from"]), (&"reduce".into(), &"data[0]".into()));
    assert_eq!(steps[3]["after"][0]["why"], "flow");
    let ranks = |stage: &str| -> Vec<Value> {
        show(stage).iter().map(|line| line["rank"].clone()).collect()
    };
    for stage in ["plan", "device", "cuda"] {
        assert_eq!(ranks(stage), [0, 1, 2].map(Value::from), "{stage}");
    }
    assert!(show("device")[1]["program"]["phases"].as_array().is_some_and(|p| !p.is_empty()));
}

/// A tree is a line a node: as short as what was written.
#[test]
fn trees_are_for_people() {
    let text = "algorithm a implements all_reduce on n ranks {
    requires n > 1 && pow2(n)
    chunks 2 * n
    for s in 0..n - 1 where s % 2 == 0 {
        if s == 0 { each r where r != 0 { r -> r + 1 - n * (r + 1 == n) : reduce data[r ..+ 2] } }
    }
    split data over p in 0..2 { use all_reduce.ring via p }
    schedule { pipeline 8 }
}
";
    let path = file("tree.algo", text.replace(" - n * (r + 1 == n)", ""));
    let tree = roundelay(&["show", &path, "--stage", "ast"]).ok().out;
    let wanted = "\
file
  algorithm a implements all_reduce on n  @1:1
    requires (&& (> n 1) (pow2 n))  @2:14
    chunks (* 2 n)  @3:12
    for s in 0..(- n 1) where (== (% s 2) 0)  @4:5
      if (== s 0)  @5:9
        each r where (!= r 0)  @5:21
          transfer r -> (+ r 1) : reduce data[r ..+ 2]  @5:43
    split data over p in 0..2  @7:5
      use all_reduce.ring via p  @7:33
    schedule  @8:5
      pipeline 8  @8:16
";
    assert_eq!(tree, wanted);
    let program = roundelay(&["show", "all_reduce.ring", "--stage", "program"]).ok().out;
    let wanted = "\
program all_reduce.ring on (n)
  chunks n
  for s in 0..(- n 1)
    each r
      r -> (% (+ r 1) n) : reduce data[(% (- r s) n)]
  for s in 0..(- n 1)
    each r
      r -> (% (+ r 1) n) : copy data[(% (- (+ r 1) s) n)]
";
    assert_eq!(program, wanted);
    // Every algorithm of the library has both.
    for e in roundelay_algorithms::CATALOGUE {
        let name = format!("{}.{}", e.collective, e.name);
        for stage in ["ast", "program"] {
            let shown = roundelay(&["show", &name, "--stage", stage]).ok().out;
            assert!(shown.lines().count() > 2 && shown.len() < 8000, "{name}: {shown}");
        }
    }
}

#[test]
fn fmt_says_what_became_of_each_file() {
    let ugly = "algorithm  a implements all_gather on n ranks{use all_gather.ring}";
    let path = file("json_ugly.algo", ugly);
    let states = |ran: &RunOutput| -> Vec<String> {
        ran.json().iter().map(|l| l["state"].as_str().expect("a state").to_owned()).collect()
    };
    let check = roundelay(&["fmt", "--check", &path, "--json"]).fails(1, &[]);
    assert_eq!(states(&check), ["unformatted"]);
    let ran = roundelay(&["fmt", &path, "nowhere.algo", &path, "--json"]).fails(1, &["RL0708"]);
    assert_eq!(states(&ran), ["formatted", "failed", "unchanged"]);
    let mut child = command(&["fmt", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(ugly.as_bytes()).expect("written");
    let ran = RunOutput::of(child.wait_with_output().expect("it ends"));
    let formatted = std::fs::read_to_string(&path).expect("the file");
    assert_eq!(
        (&ran.json()[0]["text"], states(&ran)),
        (&formatted.into(), vec!["formatted".into()])
    );
}
