//! Tests wrong input: a clear error with its code, and the right exit code, soon.

use std::time::{Duration, Instant};

use crate::support::{file, roundelay};

#[track_caller]
fn refused(args: &[&str], texts: &[&str]) {
    let began = Instant::now();
    roundelay(args).fails(1, texts);
    // Nothing comes near it unless something hangs.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn files_that_hold_no_algorithm() {
    refused(&["check", "nowhere.algo"], &["RL0708", "nowhere.algo: no such file"]);
    refused(&["check", "."], &["RL0708", "directory"]);
    refused(&["check", &file("empty.algo", "")], &["RL0104"]);
    refused(&["check", &file("only_fn.algo", "fn f(x) = x\n")], &["RL0104"]);
    refused(&["run", &file("binary.algo", [0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe])], &["RL0103"]);
    refused(&["check", &file("large.algo", "// comment\n".repeat(1_000_000))], &["RL0102"]);
    let deep = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
    let deep = format!("algorithm a implements all_reduce on n ranks {{ let x = {deep} }}");
    refused(&["check", &file("deep.algo", deep)], &["RL0102", "nested"]);
}

#[test]
fn names_that_are_not_known() {
    refused(&["check", "all_redcue.ring"], &["RL0202", "did you mean `all_reduce`"]);
    refused(&["run", "all_reduce.rnig"], &["RL0203", "did you mean `all_reduce.ring`"]);
    let collective =
        "algorithm a implements all_redcue on n ranks { each r { r -> r : copy data } }";
    refused(&["check", &file("collective.algo", collective)], &["RL0202", "all_reduce"]);
    let name = "algorithm a implements all_reduce on n ranks { each r { r -> q : copy data } }";
    refused(&["check", &file("name.algo", name)], &["RL0201", "`q`"]);
    let one = "algorithm a implements all_gather on n ranks { use all_gather.ring }\n";
    let two = format!("{one}algorithm b implements all_gather on n ranks {{ use all_gather.a }}\n");
    let two = file("two.algo", two);
    refused(&["check", &two, "--algorithm", "c"], &["RL0203", "there are a, b"]);
    roundelay(&["run", &two]).fails(2, &["--algorithm"]);
    roundelay(&["check", &two, "--algorithm", "b", "-n", "3"]).ok();
}

#[test]
fn imports_lie_below_the_file_or_an_allowed_folder() {
    let text = |path: &str| {
        format!(
            "import \"{path}\"\nalgorithm a implements all_reduce on n ranks {{ use all_reduce.ring }}\n"
        )
    };
    let place =
        std::path::PathBuf::from(file("import_outside_tools.algo", "fn next(r, n) = r + 1\n"));
    let above = place.parent().expect("a folder");
    let own = above.join("import_folder");
    std::fs::create_dir_all(&own).expect("a folder");
    let at = |path: &str| {
        let main = own.join("main.algo");
        std::fs::write(&main, text(path)).expect("a file");
        main.display().to_string()
    };
    let ran = roundelay(&["check", &at("/etc/passwd"), "-n", "2"]);
    assert!(!ran.err.contains("root:"), "{}", ran.err);
    ran.fails(1, &["RL0210", "does not lie below", "--allow-import"]);
    let outside = at("../import_outside_tools.algo");
    refused(&["check", &outside, "-n", "2"], &["RL0210", "does not lie below"]);
    let allowed = above.display().to_string();
    roundelay(&["check", &outside, "-n", "2", "--allow-import", &allowed]).ok();
    // The ranks read it too.
    roundelay(&["run", &outside, "-n", "2", "--bytes", "64", "--allow-import", &allowed]).ok();
    let pipe = own.join("pipe.algo");
    let _ = std::fs::remove_file(&pipe);
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|s| s.success()));
    refused(&["check", &at("pipe.algo"), "-n", "2"], &["RL0210", "not a regular file"]);
}

#[test]
fn words_of_others_do_not_act_on_a_terminal() {
    let bad = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";
    let text = format!("algorithm a implements all_reduce on n ranks {{ let {bad} = 1 }}");
    let named = file(&format!("escape{bad}.algo"), text);
    for args in [
        vec!["check", &named, "-n", "2"],
        vec!["check", bad],
        vec!["run", "all_reduce", "-n", "2", "--hint", bad],
        vec!["run", "all_reduce", "-n", "2", "--hint", &format!("interface={bad}")],
        vec!["explain", bad],
        vec!["doctor", bad],
        vec!["run", "all_reduce", &format!("--{bad}")],
        vec!["run", "all_reduce", "-n", bad],
    ] {
        let ran = roundelay(&args);
        assert_ne!(ran.code, 0);
        let acts = |c: &char| *c != '\n' && c.is_control() || *c == '\u{202e}';
        let found = ran.err.chars().chain(ran.out.chars()).find(acts);
        assert_eq!(found, None, "{args:?}: {:?}", ran.err);
    }
}

#[test]
fn recursion() {
    let function = "fn f(x) = f(x)\nalgorithm a implements barrier on n ranks { let y = f(n) }";
    refused(&["check", &file("recursion_fn.algo", function)], &["RL0205"]);
    let uses = "algorithm a implements all_reduce on n ranks { use all_reduce.a }";
    refused(&["check", &file("recursion_use.algo", uses)], &["RL0205"]);
}

#[test]
fn rank_counts() {
    for n in ["0", "x", "4..2", "2x0", ""] {
        roundelay(&["check", "all_reduce.ring", "-n", n]).fails(2, &["-n"]);
    }
    refused(&["check", "all_reduce.swing", "-n", "6"], &["RL0601", "pow2(n)", "n = 6"]);
    refused(&["run", "all_reduce.swing", "-n", "3..3"], &["RL0601"]);
    refused(&["check", "all_reduce.two_level", "-n", "6"], &["RL0602", "3x2"]);
    refused(&["run", "broadcast.binomial", "-n", "3", "--root", "3"], &["RL0605"]);
    // Too many to unroll, and no symmetry.
    let odd = file(
        "odd.algo",
        "algorithm odd implements all_gather on n ranks {
    each r { for p in 0..n where p != r {
        if r == 7 { r -> p : copy data[r] } else { r -> p : copy data[r] }
    } }
}",
    );
    let ran = roundelay(&["check", &odd, "-n", "9000", "--json"]);
    let ran = ran.fails(1, &["RL0603", "no symmetry"]);
    assert_eq!(ran.json()[0]["verdict"], "undecided");
}

#[test]
fn ranks_that_do_not_fit_refute_nothing() {
    for (args, code, help) in [
        (&["check", "all_reduce.two_level", "-n", "8"][..], "RL0602", "`-n 4x2`"),
        (&["check", "all_reduce.two_level", "-n", "7"], "RL0602", "`-n 2x2`"),
        (&["check", "all_reduce.swing", "-n", "6"], "RL0601", "pow2(n)"),
        (&["check", "broadcast.chain", "-n", "4", "--root", "4"], "RL0605", "from 0 to 3"),
    ] {
        let ran = roundelay(args).fails(1, &[code, help]);
        assert!(ran.out.contains("not allowed") && !ran.out.contains("refuted"), "{}", ran.out);
        let line = &roundelay(&[args, &["--json"]].concat()).json()[0];
        assert_eq!(line["verdict"], "not_allowed");
    }
}

#[test]
fn limits_are_named() {
    let text = "algorithm a implements all_reduce on n ranks {
    chunks 1000000000000
    each r { r -> (r + 1) % n : reduce data }
}";
    let said = ["RL0604", "1000000000000 chunks", "from 1 to 4194304 chunks"];
    refused(&["check", &file("chunks.algo", text)], &said);
}

#[test]
fn a_thousand_faults_are_not_a_thousand_errors() {
    let lines: String =
        (0..1000).map(|i| format!("    r -> r : copy data[unknown{i}]\n")).collect();
    let text = format!("algorithm a implements all_reduce on n ranks {{ each r {{\n{lines}}} }}\n");
    let ran = roundelay(&["check", &file("thousand.algo", text)]).fails(1, &["and 950 more"]);
    assert_eq!(ran.err.matches("error[RL0201]").count(), 50);
}

#[test]
fn hints_that_contradict_the_name() {
    let run = ["run", "all_reduce.ring", "-n", "2", "--bytes", "8", "--hint"];
    let hinted = |hint: &str| roundelay(&[&run[..], &[hint]].concat());
    hinted("algorithm=two_shot")
        .fails(2, &["algorithm=two_shot", "all_reduce.ring", "`all_reduce`"]);
    hinted("algorithm=ring").ok();
    // It says nothing of this collective.
    hinted("algorithm=broadcast.chain").ok();
    let idle = hinted("objective=latency").ok();
    assert!(idle.err.contains("objective choose among algorithms"), "{}", idle.err);
}

#[test]
fn sizes_that_are_none() {
    roundelay(&["bench", "all_reduce.ring", "-n", "2", "-b", "1M", "-e", "1K"])
        .fails(2, &["from -b 1M to -e 1K"]);
}

#[test]
fn wrong_algorithms() {
    let wrong = |name: &str, code: &str, chunks: &str, body: &str| {
        let text = format!(
            "algorithm a implements all_gather on n ranks {{\n    {chunks}\n    {body}\n}}\n"
        );
        refused(&["check", &file(name, text), "-n", "3"], &[code, name]);
    };
    let ring = "each r { r -> (r + 1) % n : copy data[(r - s) % n] }";
    wrong("index.algo", "RL0401", "chunks n", "each r { r -> r : copy data[r + 1] }");
    wrong("writes.algo", "RL0403", "chunks n", "each r { r -> 0 : copy data[r] -> data[1] }");
    wrong("missing.algo", "RL0501", "chunks n", &format!("for s in 0..n-2 {{ {ring} }}"));
    let slots =
        "each r { for p in 0..n where p != r { for k in 0..3 { r -> p : copy data[3*r+k] } } }
    schedule { slots 1 }";
    wrong("slots.algo", "RL0301", "chunks 3 * n", slots);
    let twice = "algorithm a implements all_reduce on n ranks {
    for s in 0..n { each r { r -> (r + 1) % n : reduce data } }
}";
    refused(&["check", &file("twice.algo", twice), "-n", "3"], &["RL0502", "twice.algo:2"]);
}

#[test]
fn several_faults_are_told_at_once() {
    let text = "algorithm a implements all_reduce on n ranks { each r { r -> q : copy data } }
algorithm b implements all_redcue on n ranks { each r { r -> r : copy data } }";
    refused(&["check", &file("several.algo", text)], &["RL0201", "RL0202"]);
}

#[test]
fn plans_that_were_damaged() {
    let plan = file("rank0.plan", "");
    roundelay(&[
        "show",
        "all_reduce.ring",
        "--stage",
        "plan",
        "-n",
        "4",
        "--rank",
        "0",
        "-o",
        &plan,
    ])
    .ok();
    let bytes = std::fs::read(&plan).expect("the plan was written");
    let whole = roundelay(&["check", &plan, "--json"]).ok();
    assert_eq!(whole.json()[0]["verdict"], "consistent");
    refused(&["check", &file("short.plan", &bytes[..bytes.len() / 2])], &["RL0701"]);
    refused(&["check", &file("header.plan", &bytes[..5])], &["RL0701"]);
    for at in [0, 9, 20, 50, bytes.len() - 1] {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        refused(&["check", &file(&format!("flipped{at}.plan"), flipped)], &["RL0701"]);
    }
    roundelay(&["run", &plan]).fails(2, &["rank 0 alone"]);
}

#[test]
fn usage() {
    for args in [
        &["chekc"][..],
        &["check"],
        &["run", "all_reduce.ring", "--dtype", "f8"],
        &["run", "all_reduce.ring", "--bytes", "4Q"],
        &["run", "all_reduce.ring", "--timeout", "soon"],
        &["run", "all_reduce.ring", "--in-place", "--out-of-place"],
        &["show", "all_reduce.ring", "--stage", "plan", "-n", "4", "--rank", "4"],
        &["show", "all_reduce.ring", "--stage", "graph", "-n", "2,3"],
    ] {
        roundelay(args).fails(2, &["error"]);
    }
}

#[test]
fn faults_as_json() {
    let text = "algorithm a implements all_reduce on n ranks {\n  each r { r -> q : copy data }\n}";
    let ran = roundelay(&["check", &file("json.algo", text), "--json"]).fails(1, &[]);
    let found = &ran.json()[0];
    assert_eq!(found["verdict"], "invalid");
    let d = &found["diagnostics"][0];
    assert_eq!((d["code"].as_str(), d["line"].as_u64()), (Some("RL0201"), Some(2)));
    assert!(d["column"].as_u64() > Some(1) && d["message"].as_str().is_some());
}
