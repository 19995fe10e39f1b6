//! Tests the verdicts of `check --json`, one input after the other, and that formatting changes none.

use crate::support::{file, roundelay};

/// Returns the verdicts of a check that ends with that code.
#[track_caller]
fn verdicts(code: i32, args: &[&str]) -> Vec<String> {
    let ran = roundelay(&[&["check"], args, &["--json"]].concat()).fails(code, &[]);
    let verdict =
        |line: &serde_json::Value| line["verdict"].as_str().expect("a verdict").to_owned();
    ran.json().iter().map(verdict).collect()
}

/// An algorithm with that body.
fn algorithm(body: &str) -> String {
    format!("algorithm a implements all_reduce on n ranks {{\n{body}\n}}\n")
}

#[test]
fn what_is_no_algorithm_is_invalid() {
    let reduce = "each r { r -> (r + 1) % n : reduce data }";
    let texts = [
        ("nothing", String::new()),
        ("no_algorithm", "fn f(x) = x\n".to_owned()),
        ("syntax", algorithm("each r { r -> : copy data }")),
        ("open", algorithm("/* each r { }")),
        ("name", algorithm("each r { r -> q : copy data }")),
        ("type", algorithm("requires n\n use ring")),
        ("used", algorithm("use all_reduce.rnig")),
        ("number", algorithm("chunks 99999999999999999999\n use ring")),
        ("schedule", algorithm(&format!("{reduce} schedule {{ pipeline 0 }}"))),
        ("import", format!("import \"nowhere.algo\"\n{}", algorithm("use ring"))),
        ("collective", algorithm("use ring").replace("all_reduce", "all_redcue")),
        ("syntax_and_depth", algorithm(&format!("let x = {}1", "(".repeat(30)))),
    ];
    for (name, text) in texts {
        let path = file(&format!("invalid_{name}.algo"), text);
        assert_eq!(verdicts(1, &[&path, "-n", "3"]), ["invalid"], "{name}");
    }
    let bytes = file("invalid_bytes.algo", [0x2f, 0x2f, 0xff, 0xfe, b'\n']);
    let nul = file("invalid_nul.algo", "// a\0\n");
    let plan = file("invalid.plan", "RLPLAN");
    for input in ["nowhere.algo", ".", "all_reduce.rnig", "all_redcue.ring", &bytes, &nul, &plan] {
        assert_eq!(verdicts(1, &[input]), ["invalid"], "{input}");
    }
}

#[test]
fn what_is_only_too_large_is_undecided() {
    let deep = format!("let x = {}1{}\n use ring", "(".repeat(300), ")".repeat(300));
    let doubled: String =
        (1..40).map(|i| format!("fn f{i}(x) = f{}(x) + f{}(x)\n", i - 1, i - 1)).collect();
    let doubled = format!("fn f0(x) = x\n{doubled}{}", algorithm("let y = f39(n)\n use ring"));
    let slots = "chunks 100 * n
        each r { for p in 0..n where p != r { for j in 0..100 { r -> p : copy data[100 * r + j] } } }";
    let texts = [
        ("text", format!("{}{}", "// comment\n".repeat(1 << 17), algorithm("use ring"))),
        ("depth", algorithm(&deep)),
        ("functions", doubled),
        ("chunks", algorithm("chunks 1000000000000\n use ring")),
        ("scratch", algorithm("scratch t[1000000000000]\n use ring")),
        ("parts", algorithm("split data over p in 0..1000000 { use ring }")),
        ("turns", algorithm("for s in 0..1000000000 { }\n use ring")),
        ("failures", algorithm("tolerates 2\n use ring")),
        ("slots", algorithm(slots).replace("all_reduce", "all_gather")),
    ];
    for (name, text) in texts {
        let path = file(&format!("undecided_{name}.algo"), text);
        let found = verdicts(1, &[&path, "-n", "3"]);
        assert_eq!(found, ["undecided"], "{name}");
    }
}

#[test]
fn what_is_wrong_is_refuted_and_what_is_right_is_proved() {
    for (name, body) in [
        ("missing", "each r { r -> (r + 1) % n : reduce data }"),
        ("index", "0 -> 1 : copy data[1]"),
        ("no_chunks", "chunks 0\n use ring"),
        ("arithmetic", "let x = 1 / (n - n)\n use ring"),
    ] {
        let path = file(&format!("refuted_{name}.algo"), algorithm(body));
        assert_eq!(verdicts(1, &[&path, "-n", "3"]), ["refuted"], "{name}");
    }
    let right = file("proved.algo", algorithm("use ring"));
    assert_eq!(verdicts(0, &[&right, "-n", "3,4"]), ["proved", "proved"]);
    let odd = file("not_allowed.algo", algorithm("requires n % 2 == 0\n use ring"));
    assert_eq!(verdicts(1, &[&odd, "-n", "3"]), ["not_allowed"]);
    assert_eq!(verdicts(1, &["broadcast.chain", "-n", "3", "--root", "3"]), ["not_allowed"]);
    // Nothing is checked where the command line is wrong.
    assert_eq!(verdicts(2, &["all_reduce.ring", "-n", "0"]), [""; 0]);
}

/// Characters that end lines, or are blanks, for others than the grammar.
#[test]
fn formatting_keeps_comments_and_what_they_stand_in() {
    let odd =
        ["\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}", "\u{a0}", "\u{feff}", "\rx", "\u{1c}"];
    for (i, odd) in odd.into_iter().enumerate() {
        let text = format!(
            "// a comment\n// and{odd}\nalgorithm c implements broadcast on n ranks {{\n    // and{odd} another{odd}\n    use broadcast.chain\n}}\n"
        );
        let path = file(&format!("odd{i}.algo"), text.replace('\n', " \t\r\n"));
        assert_eq!(verdicts(0, &[&path, "-n", "3"]), ["proved"], "{odd:?} before");
        roundelay(&["fmt", &path]).ok();
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), text, "{odd:?}");
        roundelay(&["fmt", "--check", &path]).ok();
        assert_eq!(verdicts(0, &[&path, "-n", "3"]), ["proved"], "{odd:?} after");
    }
}

#[test]
fn every_rank_count_is_proved_at_once_or_it_is_said_why_not() {
    assert_eq!(verdicts(0, &["all_reduce.ring", "-n", "3", "--all-n"]), ["proved", "proved"]);
    // Wrong with 777 ranks only.
    let text = "algorithm a implements all_gather on n ranks {
    for s in 0..n-1 { each r where n != 777 || r != 5 { r -> (r + 1) % n : copy data[(r - s) % n] } }
}
";
    let path = file("wrong_once.algo", text);
    let ran = roundelay(&["check", &path, "-n", "3", "--all-n", "--json"]).fails(1, &[]);
    let rows = ran.json();
    assert_eq!(rows[0]["verdict"], "proved");
    assert_eq!(rows[1]["verdict"], "refuted", "{}", rows[1]);
    assert_eq!(rows[1]["candidate"], 777, "{}", rows[1]);
    assert_eq!(rows[1]["line"], 2, "{}", rows[1]);
    let code = rows[1]["diagnostics"][0]["code"].as_str().expect("a counter-example");
    assert!(code.starts_with("RL04") || code.starts_with("RL05"), "{}", rows[1]);
    let ran = roundelay(&["check", &path, "-n", "3", "--all-n"]).fails(1, &["with 777 ranks"]);
    let said = "not proved for all n: ";
    assert!(ran.out.contains(said) && ran.out.contains("wrong at n = 777"), "{}", ran.out);
    // Too many ranks to be tried.
    let path = file("wrong_far.algo", text.replace("777", "1000003"));
    let ran = roundelay(&["check", &path, "-n", "3", "--all-n", "--json"]).fails(1, &[]);
    let row = &ran.json()[1];
    assert_eq!((&row["verdict"], &row["candidate"]), (&"undecided".into(), &1_000_003.into()));
    assert_eq!(row["diagnostics"].as_array().map(Vec::len), Some(0), "{row}");
    let ran = roundelay(&["check", &path, "-n", "3"]).ok();
    let said = "n = 3 (unrolled); perhaps wrong at n = 1000003";
    assert!(ran.out.contains(said), "{}", ran.out);
}

#[test]
fn a_badge_says_for_which_rank_counts_an_algorithm_is_proved() {
    let badges = |args: &[&str]| {
        let ran = roundelay(&[&["check"], args, &["--json"]].concat()).ok();
        let badge = |row: &serde_json::Value| row["badge"].as_str().map(str::to_owned);
        ran.json().iter().filter_map(badge).collect::<Vec<String>>()
    };
    assert_eq!(badges(&["all_reduce.ring", "-n", "3,4"]), ["all_n", "all_n"]);
    assert_eq!(badges(&["all_reduce.halving_doubling", "-n", "4"]), ["all_allowed_n"]);
    // Nothing that is wrong has a badge, and a grid has that of its shape.
    let grid = roundelay(&["check", "all_reduce.two_level", "-n", "2x2"]).ok().out;
    assert!(grid.contains("badge  2x2 (unrolled)"), "{grid}");
    assert_eq!(badges(&["all_reduce.two_level", "-n", "2x2"]), ["unrolled"]);
    let text =
        algorithm("each r where n == 3 { for p in 0..n where p != r { r -> p : reduce data } }");
    let wrong = file("badge_wrong.algo", text);
    let ran = roundelay(&["check", &wrong, "-n", "3,4", "--json"]).fails(1, &[]);
    let rows = ran.json();
    assert_eq!((&rows[0]["badge"], &rows[1]["badge"]), (&"unrolled".into(), &().into()));
    let ring = roundelay(&["check", "all_reduce.ring", "-n", "3", "--json"]).ok();
    let ranks = &ring.json()[0]["badge_ranks"];
    assert_eq!((&ranks["hosts"], &ranks["gpus"]), (&(1 << 24).into(), &120.into()));
    let ring = roundelay(&["check", "all_reduce.ring"]).ok().out;
    assert!(ring.contains("badge  all n: hosts to 16777216 ranks, GPUs to 120"), "{ring}");
}

#[test]
fn certificates_are_written_of_what_is_proved() {
    let path = file("ring.cert", "");
    let arguments = ["all_reduce.ring", "-n", "3", "--certificate", &path];
    assert_eq!(verdicts(0, &arguments), ["proved", "proved"]);
    let written = std::fs::read_to_string(&path).expect("a file");
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../algorithms/proofs/all_reduce.ring.cert");
    assert_eq!(written, std::fs::read_to_string(kept).expect("the certificate of the library"));
    // Several algorithms have one file, and one that is not proved leaves it as it was.
    let text = "algorithm a implements broadcast on n ranks { use broadcast.chain }
algorithm b implements broadcast on n ranks { use broadcast.binomial }
";
    let both = file("both.algo", text);
    roundelay(&["check", &both, "-n", "3", "--certificate", &path]).ok();
    let written = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(written.matches("roundelay certificate 1\n").count(), 2, "{written}");
    let wrong =
        text.replace("use broadcast.binomial", "each r where r > n { r -> root : copy data }");
    let wrong = file("one_wrong.algo", wrong);
    let ran = roundelay(&["check", &wrong, "-n", "1", "--certificate", &path]).fails(1, &[]);
    assert!(ran.out.contains("no certificate is written: 1 of 2 algorithms"), "{}", ran.out);
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), written);
    // A plan has none.
    let plan = file("rank0.plan", "");
    roundelay(&["show", "all_reduce.ring", "-n", "2", "--rank", "0", "-o", &plan]).ok();
    roundelay(&["check", &plan, "--certificate", &path]).fails(2, &["a plan has no certificate"]);
}

#[test]
fn a_text_is_checked_again_when_it_is_saved() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let right = "algorithm a implements barrier on n ranks {
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data } }
}
";
    let path = file("watched.algo", right.replace("n-1", "n-2"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_roundelay"));
    command.args(["check", &path, "-n", "5", "--watch", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    let mut rows = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut verdict = || {
        let row = rows.next().expect("a row").expect("a line");
        let row: serde_json::Value = serde_json::from_str(&row).expect("JSON");
        row["verdict"].as_str().expect("a verdict").to_owned()
    };
    assert_eq!(verdict(), "refuted");
    // It looks after the file once it has said so.
    let mut said = BufReader::new(child.stderr.take().expect("its remarks")).lines();
    let watching = |line: &String| line.contains("watching") && line.contains("watched.algo");
    assert!(said.by_ref().map_while(Result::ok).any(|line| watching(&line)));
    std::fs::write(&path, right).expect("it is saved");
    assert_eq!(verdict(), "proved");
    assert!(said.by_ref().map_while(Result::ok).any(|line| watching(&line)));
    std::fs::remove_file(&path).expect("it is removed");
    assert_eq!(verdict(), "invalid");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let of_library = ["check", "all_reduce.ring", "-n", "3", "--watch"];
    roundelay(&of_library).fails(2, &["--watch", "in no file"]);
}
