//! Tests parameters of algorithms on the command line.

use crate::support::{file, roundelay};

#[test]
fn parameters_are_given_and_swept() {
    let names = |args: &[&str]| -> Vec<String> {
        let rows = roundelay(args).ok().json();
        let mut names: Vec<String> =
            rows.iter().map(|l| l["algorithm"].as_str().unwrap_or_default().to_owned()).collect();
        names.dedup();
        names
    };
    let tree = "broadcast.k_nomial";
    let swept = ["k_nomial", "k_nomial(k = 4)", "k_nomial(k = 8)"];
    let values = ["check", tree, "-p", "k=2,4,8", "-n", "2..9", "--json"];
    assert_eq!(names(&values), swept);
    assert_eq!(names(&["check", "broadcast.k_nomial(k=4)", "-n", "5", "--json"]), swept[1..2]);
    let all = names(&["check", "broadcast", "-p", "k=3", "-n", "4", "--json"]);
    assert!(all.contains(&"binomial".into()) && all.contains(&"k_nomial(k = 3)".into()), "{all:?}");
    let small = ["--bytes", "64", "-n", "3", "--json"];
    assert_eq!(names(&[&["run", tree, "-p", "k=2,4,8"], &small[..]].concat()), swept);
    let bench = ["--iters", "3", "--turns", "1"];
    assert_eq!(
        names(&[&["bench", tree, "-p", "k=4..4"], &small[..], &bench].concat()),
        swept[1..2]
    );
    roundelay(&["check", tree, "-p", "k=9"]).fails(1, &["RL0215", "k goes from 2 to 8"]);
    roundelay(&["check", tree, "-p", "kk=4"]).fails(1, &["RL0215", "its parameters are k"]);
    roundelay(&["check", tree, "-p", "k"]).fails(2, &["write -p NAME=VALUE"]);
    roundelay(&["show", tree, "-p", "k=2,4"]).fails(2, &["2 values of parameters are given"]);
    roundelay(&["run", "broadcast", "-p", "k=2"]).fails(2, &["is chosen with its arguments"]);
    let shown = roundelay(&["show", tree, "-p", "k=3", "-n", "3"]).ok();
    assert!(shown.out.contains("broadcast.k_nomial(k = 3)"), "{}", shown.out);
    let explained = ["explain", "broadcast", "--hint", "algorithm=k_nomial(k=4)"];
    let explained = roundelay(&explained).ok();
    assert!(explained.out.contains("k_nomial(k = 4) (hint on the call"), "{}", explained.out);
}

#[test]
fn parameters_of_files_are_given_too() {
    let text = "algorithm one(k = 2, up = false) implements all_reduce on n ranks {
        requires k < n || up
        let d = 1
        for s in 0..k { let d = d * 2 each r { r -> r : copy data } }
        use all_reduce.ring
    }
    algorithm two implements all_reduce on n ranks { use one(k = 1) }";
    let path = file("parameters.algo", text);
    let ran = roundelay(&["check", &path, "-p", "k=1", "-p", "up=true,false", "-n", "3"]).ok();
    assert!(ran.out.contains("all_reduce.one(k = 1, up = true) ("), "{}", ran.out);
    assert!(ran.out.contains("all_reduce.two ("), "{}", ran.out);
    assert!(ran.err.contains("warning[RL0214]: `d` in a loop hides"), "{}", ran.err);
    let named = format!("{path}(k = 7)");
    let ran = roundelay(&[
        "run",
        &named,
        "--algorithm",
        "one",
        "-p",
        "up=true",
        "-n",
        "2",
        "--bytes",
        "8",
    ]);
    let out = ran.ok().out;
    assert!(out.contains("all_reduce.one(k = 7, up = true) on 2 ranks"), "{out}");
    assert!(out.contains(&format!("all_reduce.one(k = 7, up = true) ({path})")), "{out}");
    roundelay(&["check", &path, "-p", "up=3", "--algorithm", "one"]).fails(1, &["RL0206"]);
    let json = roundelay(&["check", &path, "-n", "3", "--json"]).ok().json();
    assert!(json[0]["diagnostics"].to_string().contains("RL0214"), "{}", json[0]);
}
