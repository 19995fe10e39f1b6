//! Tests the verb `check`.

use crate::support::{RunOutput, command, file, roundelay};

#[test]
fn check_proves_and_measures() {
    let ran =
        roundelay(&["check", "all_reduce.ring", "-n", "2..9", "--bytes", "1M", "--json"]).ok();
    let lines = ran.json();
    assert_eq!(lines.len(), 8);
    let four = &lines[2];
    assert_eq!(four["algorithm"], "ring");
    assert_eq!(four["collective"], "all_reduce");
    assert_eq!(four["ranks"], 4);
    assert_eq!(four["verdict"], "proved");
    assert_eq!(four["method"], "unrolled");
    assert_eq!(four["rounds"], 6);
    assert_eq!(four["bytes_per_rank"], 1.5 * f64::from(1 << 20));
    assert_eq!(four["bytes_per_rank"], four["bytes_per_rank_bound"]);
    assert_eq!(four["bitwise"], true);
    assert_eq!((&four["order"], &four["batch_invariant"]), (&"by chunk".into(), &false.into()));
    let reason = four["order_reason"].as_str().expect("a reason");
    assert!(reason.contains("ring.algo:") && reason.contains("data[0] is"), "{reason}");
    assert_eq!((&lines[0]["order"], &lines[0]["order_reason"]), (&"ascending".into(), &().into()));
    let ran = roundelay(&["check", "all_reduce.two_shot", "-n", "4"]).ok();
    assert!(ran.out.contains("ascending, batch-invariant"), "{}", ran.out);
    assert_eq!(four["diagnostics"].as_array().map(Vec::len), Some(0));
}

#[test]
fn check_passes_over_what_requires_forbids() {
    let ran = roundelay(&["check", "all_reduce.halving_doubling", "-n", "2..9"]).ok();
    assert!(ran.out.contains("does not allow n = 3, 5..7, 9"), "{}", ran.out);
    assert_eq!(ran.out.matches("proved").count(), 3);
    let ran = roundelay(&["check", "all_reduce.two_level", "--json"]).ok();
    let shapes: Vec<String> = ran.json().iter().map(|l| l["shape"].to_string()).collect();
    assert_eq!(shapes, [r#""2x2""#, r#""2x3""#, r#""3x2""#, r#""2x4""#]);
}

/// A warning is said once, is in the object of each count, and fails nothing; `run` does not know of it.
#[test]
fn check_warns_of_what_is_not_needed() {
    let text = "algorithm a implements all_gather on n ranks {
    for s in 0..n { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }
}";
    let path = file("wasteful.algo", text);
    let ran = roundelay(&["check", &path, "-n", "2..5"]).ok();
    assert_eq!(ran.err.matches("warning[RL0506]").count(), 1, "{}", ran.err);
    assert!(ran.err.contains("on 2 ranks, 2 of 4 transfers"), "{}", ran.err);
    assert_eq!(ran.out.matches("proved").count(), 4, "{}", ran.out);
    for line in roundelay(&["check", &path, "-n", "2..5", "--json"]).ok().json() {
        let found = &line["diagnostics"][0];
        assert_eq!((&line["verdict"], &found["code"]), (&"proved".into(), &"RL0506".into()));
        assert_eq!((&found["severity"], &found["line"]), (&"warning".into(), &2.into()), "{line}");
    }
    let ran = roundelay(&["run", &path, "-n", "2", "--bytes", "8", "--iters", "1"]).ok();
    assert!(!(ran.err + &ran.out).contains("RL0506"));
}

/// Ranks of a declared collective may be meant to hold different sums, which are not compared.
#[test]
fn check_compares_sums_that_are_to_be_the_same() {
    let of = |to: &str, body: &str| {
        let text = format!(
            "collective sums on n ranks {{
    input 1
    output 1
    each r {{ output[0] = reduce p in 0..{to} : input[0] at p }}
}}
algorithm a implements sums on n ranks {{
    each r {{ r -> r : copy input -> output }}
    {body}
}}"
        );
        let path = file(&format!("sums_{}.algo", to.len()), &text);
        roundelay(&["check", &path, "-n", "4"]).ok().out
    };
    let prefix =
        "for k in 0..2 { let d = 1 << k each r where r + d < n { r -> r + d : reduce output } }";
    assert!(of("r+1", prefix).contains("equal sums, equal bits"));
    let all = "each r { for p in 0..n where p != r { r -> p : reduce input -> output } }";
    assert!(of("n", all).contains("equal sums, equal bits"));
    let around = "0 -> 1 : reduce output  2 -> 3 : reduce output  1 -> 3 : reduce output
    0 -> 2 : reduce output  1 -> 0 : reduce input -> output
    for p in 2..4 { p -> 0 : reduce input -> output }
    3 -> 1 : copy output  1 -> 2 : copy output";
    assert!(of("n   ", around).contains("equal sums differ in bits"));
}

#[test]
fn check_shows_the_smallest_failing_count() {
    let text = "algorithm a implements all_reduce on n ranks {
    each r { r -> (r + 1) % n : reduce data }
}";
    let path = file("small.algo", text);
    let ran = roundelay(&["check", &path, "-n", "2..5"]).fails(1, &["RL0501", "on 3 ranks"]);
    assert_eq!(ran.err.matches("error[").count(), 1, "{}", ran.err);
    assert_eq!((ran.out.matches("proved").count(), ran.out.matches("refuted").count()), (1, 3));
}

/// The bound is one: of ranks that may send as many messages at once as the algorithm's do.
#[test]
fn rounds_are_no_fewer_than_their_bound() {
    let ran = roundelay(&["check", "all_reduce.one_shot", "-n", "9"]).ok();
    assert!(ran.out.contains(" 1 (1, 8 ports) "), "{}", ran.out);
    let ring = roundelay(&["check", "all_reduce.ring", "-n", "9"]).ok();
    assert!(ring.out.contains(" 16 (4) "), "{}", ring.out);
    let mut seen = std::collections::BTreeSet::new();
    for (collective, _) in roundelay_compiler::program::COLLECTIVES {
        for n in ["2,7,8,9,700", "3x4"] {
            let ran = roundelay(&["check", collective, "-n", n, "--json"]);
            for line in ran.json().iter().filter(|l| l["verdict"] == "proved") {
                let (rounds, bound) = (line["rounds"].as_u64(), line["rounds_bound"].as_u64());
                assert!(bound.is_none() || rounds >= bound, "{line}");
                assert!(bound.is_some() || line["shape"] == "700", "{line}");
                seen.insert(line["shape"].to_string());
            }
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
}

#[test]
fn check_takes_whole_collectives() {
    let ran = roundelay(&["check", "broadcast", "-n", "4", "--json"]).ok();
    assert_eq!(ran.json().len(), roundelay_algorithms::of("broadcast").count());
}

/// Names are names, whatever lies in the folder; what has a path or an ending is a file.
#[test]
fn files_do_not_take_the_place_of_names() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("named");
    std::fs::create_dir_all(folder.join("broadcast")).expect("a folder");
    let text = "algorithm mine implements all_reduce on n ranks { use all_reduce.ring }";
    for name in ["all_reduce", "all_reduce.ring", "mine", "all_reduce.mine", "my.algo"] {
        std::fs::write(folder.join(name), text).expect("a file");
    }
    let algorithms = |name: &str| {
        let mut check = command(&["check", name, "-n", "2", "--json"]);
        let ran = RunOutput::of(check.current_dir(&folder).output().expect("the binary runs"));
        let names: Vec<String> =
            ran.json().iter().filter_map(|l| Some(l["algorithm"].as_str()?.to_owned())).collect();
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        (names, ran.err)
    };
    let library = |collective: &str| roundelay_algorithms::of(collective).count();
    let (names, said) = algorithms("all_reduce");
    assert!(names.len() > 5 && names.len() <= library("all_reduce"), "{names:?}");
    assert!(
        said.contains(
            "note: `all_reduce` is not the file of that name here, which is `./all_reduce`"
        ),
        "{said}"
    );
    // A folder is not even mentioned.
    let (names, said) = algorithms("broadcast");
    assert!(names.len() > 2 && !said.contains("note:"), "{names:?} {said}");
    assert_eq!(algorithms("all_reduce.ring").0, ["ring"]);
    for name in ["./all_reduce", "./all_reduce.ring", "mine", "all_reduce.mine", "my.algo"] {
        assert_eq!(algorithms(name), (vec!["mine".to_owned()], String::new()), "{name}");
    }
}

/// Only those algorithms of a collective count that allow the ranks.
#[test]
fn algorithms_of_a_collective_that_do_not_allow_the_ranks_are_no_fault() {
    let lines = roundelay(&["check", "all_reduce", "-n", "6", "--json"]).ok().json();
    let verdict = |name: &str| {
        let line = lines.iter().find(|l| l["algorithm"] == name);
        line.and_then(|l| l["verdict"].as_str().map(str::to_owned)).expect("a verdict")
    };
    assert_eq!(
        [verdict("ring"), verdict("swing"), verdict("two_level")],
        ["proved", "not_allowed", "not_allowed"]
    );
}
