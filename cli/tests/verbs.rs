//! Tests verbs that start no ranks: routes, stages, drawings, headers, formats and pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::support::{command, file, roundelay};
use roundelay_algorithms::CATALOGUE;

#[test]
fn every_pair_has_a_link_and_a_reason() {
    let text = roundelay(&["route", "-n", "3", "--hosts", "2"]).ok().out;
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains("rank 0 -> rank 1: shm (same machine)"), "{text}");
    assert!(text.contains("rank 2 -> rank 0: tcp (another machine)"), "{text}");
    let args = ["route", "-n", "4", "--hosts", "2", "--device", "cuda"];
    let text = roundelay(&args).ok().out;
    assert_eq!(text.lines().count(), 12, "{text}");
    assert!(text.contains("rank 0 -> rank 1: nvlink (same host: kernels load"), "{text}");
    let far = "rank 1 -> rank 2: tcp (another machine: threads carry what kernels send)";
    assert!(text.contains(far), "{text}");
    let text = roundelay(&["route", "-n", "2", "--transport", "tcp", "--json"]).ok().out;
    assert!(text.contains("excludes shm"), "{text}");
    // One of the two ranks is notified of the fault first and only follows: its error must not hide the other's.
    for _ in 0..10 {
        roundelay(&["route", "-n", "2", "--hosts", "2", "--transport", "shm"])
            .fails(3, &["RL0709", "cannot reach rank"]);
    }
}

#[test]
fn the_doctor_refuses_what_is_not_of_one_job() {
    let flight = |rank: u32, ranks: u32| {
        format!(
            r#"{{"rank":{rank},"ranks":{ranks},"pid":1,"calls":3,"waiting":null,"error":null,"recorded":0,"events":[],"seen":[]}}"#
        )
    };
    let zero = file("doctor_0.json", flight(0, 2));
    let one = file("doctor_1.json", flight(1, 2));
    let other = file("doctor_3.json", flight(1, 3));
    let odd = file("doctor_odd.json", flight(2, 2));
    let none = file("doctor_none.json", r#"{"flights":[],"ranks":[]}"#);
    let text = file("doctor_text.json", "{}");
    let ran = roundelay(&["doctor", &zero, &one]).ok();
    assert!(ran.out.contains("no rank waits") && !ran.out.contains("no recorder"), "{}", ran.out);
    for (files, why) in [
        (&[&zero, &zero][..], "is of rank 0 too"),
        (&[&zero, &other], "it is of a job of 3 ranks"),
        (&[&zero, &odd], "it is of rank 2 of 2"),
        (&[&none], "the flight recorder of no rank"),
        (&[&text], "run --flight FILE"),
        (&[&"/nonexistent/flight.json".to_owned()], "No such file"),
    ] {
        let files: Vec<&str> = files.iter().map(|file| file.as_str()).collect();
        roundelay(&[&["doctor"], &files[..]].concat()).fails(1, &[why]);
    }
    let own = std::process::id().to_string();
    roundelay(&["doctor", "--pid", &own]).fails(1, &["RL0712", &own, "is no rank"]);
    roundelay(&["doctor"]).fails(2, &["<FILE>"]);
    roundelay(&["doctor", "--pid", &own, &zero]).fails(2, &["cannot be used with"]);
}

#[test]
fn show_prints_every_stage() {
    let show = |stage: &str, more: &[&str]| {
        let mut args = vec!["show", "all_reduce.ring", "--stage", stage];
        args.extend(more);
        roundelay(&args).ok().out
    };
    assert!(show("ast", &[]).contains("Each chunk goes round"));
    assert!(show("program", &[]).contains("program all_reduce.ring on (n)"));
    assert!(show("graph", &["-n", "2"]).contains("r0 -> r1 : reduce data[0]"));
    assert!(show("graph", &["-n", "2", "--dot"]).starts_with("digraph"));
    assert_eq!(show("plan", &["-n", "3"]).matches("plan all_reduce.ring rank").count(), 3);
    let device = show("device", &["-n", "3", "--protocol", "put", "--rank", "1"]);
    let older = show("device", &["-n", "3", "--way", "put", "--rank", "1"]);
    assert_eq!(older, device, "the flag's older name is an alias");
    assert!(device.starts_with("device program all_reduce.ring rank 1 of 3, put"), "{device}");
    assert!(device.contains("=> <data[2], #2 to r2>"), "{device}");
    roundelay(&["show", "all_reduce.ring", "--stage", "device", "--protocol", "pull"])
        .fails(2, &["`pull` is none of packet, staged, put, get, engine"]);
    roundelay(&["show", "barrier.dissemination", "--stage", "device", "--protocol", "packet"])
        .fails(1, &["RL0706", "a barrier's messages are empty"]);
    let one = show("plan", &["-n", "131072", "--rank", "7"]);
    assert!(one.starts_with("plan all_reduce.ring rank 7 of 131072"), "{}", &one[..80]);
    assert!(show("plan", &["-n", "2", "--out-of-place"]).contains("OutOfPlace"));
}

#[test]
fn draw_writes_a_page() {
    let page = file("ring.html", "");
    roundelay(&["draw", "all_reduce.ring", "-n", "4", "-o", &page]).ok();
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("<html") && page.contains("all_reduce.ring"));
}

/// The picture of the front page is what its command writes.
#[test]
fn draw_writes_the_picture_of_the_front_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read =
        |page: &str| std::fs::read_to_string(root.join(page)).expect("a file of the repository");
    assert!(read("README.md").contains("](docs/ring.svg)"));
    let picture = file("ring.svg", "");
    roundelay(&["draw", "all_reduce.ring", "-n", "4", "-o", &picture]).ok();
    let picture = std::fs::read_to_string(picture).expect("the picture");
    let mend = "roundelay draw all_reduce.ring -n 4 -o docs/ring.svg";
    assert!(picture == read("docs/ring.svg"), "docs/ring.svg is not what `{mend}` writes");
    assert!(picture.starts_with("<svg ") && !picture.contains("<script"));
}

#[test]
fn draw_writes_a_page_of_a_refuted_algorithm_with_its_fault() {
    let text = "algorithm short implements all_reduce on n ranks {\n    chunks n\n    for s in 0..n - 1 {\n        \
                each r { r -> (r + 1) % n : reduce data[(r - s) % n] } } }\n";
    let (algorithm, page) = (file("short.algo", text), file("short.html", ""));
    roundelay(&["draw", &algorithm, "-n", "3", "-o", &page]).fails(1, &["RL0501", "are missing"]);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("role=\"alert\"") && page.contains("RL0501"), "{page:.400}");
    assert!(page.contains("id=\"s0\""), "its steps are drawn");
}

#[test]
fn emit_writes_a_header_for_kernels() {
    let header = file("two_shot.cuh", "");
    let emit = |more: &[&str]| {
        roundelay(&[&["emit", "--cuda-device", "all_reduce.two_shot", "-n", "3"], more].concat())
    };
    emit(&["-o", &header]).ok();
    let text = std::fs::read_to_string(header).expect("the header");
    assert!(text.contains("namespace all_reduce_two_shot {") && !text.contains("#include"));
    for rank in 0..3 {
        assert!(text.contains(&format!("case rank{rank}::IDENTITY:")), "{rank}");
    }
    let one = emit(&["--rank", "1", "--name", "mine", "--protocol", "get"]).ok().out;
    assert!(one.contains("namespace mine {") && one.contains("namespace rank1 {"));
    assert!(!one.contains("namespace rank0 {") && one.contains("mine::call(handle, data, count);"));
    emit(&["--rank", "3"]).fails(2, &["rank 3 is not one of 3 ranks"]);
    emit(&["--name", "2mine"]).fails(1, &["RL0706", "`2mine` is no name of a namespace"]);
    emit(&["--op", "xor"]).fails(1, &["RL0706", "`xor` of f32 has no meaning"]);
    roundelay(&["emit", "--cuda-device", "all_gather.direct", "--protocol", "engine"])
        .fails(1, &["RL0706", "copy engines are started by the host"]);
    roundelay(&["emit", "all_gather.direct"]).fails(2, &["--cuda-device"]);
}

#[test]
fn fmt_is_idempotent_on_the_library() {
    for e in CATALOGUE {
        let path = file(&format!("fmt_{}_{}.algo", e.collective, e.name), e.text);
        roundelay(&["fmt", &path]).ok();
        let once = std::fs::read_to_string(&path).expect("the file");
        roundelay(&["fmt", "--check", &path]).ok();
        roundelay(&["fmt", &path]).ok();
        assert_eq!(once, std::fs::read_to_string(&path).expect("the file"), "{}", e.path);
    }
}

#[test]
fn fmt_checks_and_streams() {
    let ugly = "algorithm  a implements all_gather on n ranks{use all_gather.ring}";
    let path = file("ugly.algo", ugly);
    let ran = roundelay(&["fmt", "--check", &path]).fails(1, &[]);
    assert_eq!(ran.out.trim(), path);
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), ugly);
    roundelay(&["fmt", &path, "nowhere.algo"]).fails(1, &["RL0708"]);
    roundelay(&["fmt", "--check", &path]).ok();
    let mut child = command(&["fmt", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    child.stdin.take().expect("a pipe").write_all(ugly.as_bytes()).expect("written");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        std::fs::read_to_string(&path).expect("a file")
    );
}

#[test]
fn explain_has_all_pages() {
    let list = roundelay(&["explain", "--json"]).ok();
    for entry in list.json() {
        let code = entry["code"].as_str().expect("a code").to_owned();
        let page = roundelay(&["explain", &code.to_lowercase()]).ok();
        assert!(page.out.starts_with(&format!("# {code}: ")), "{code}");
    }
    roundelay(&["explain", "RL0599"]).fails(2, &["RL0501"]);
}

#[test]
fn shells_complete_the_verbs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = roundelay(&["completions", shell]).ok().out;
        for word in ["check", "bench", "completions", "--json"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.contains(word), "{shell}: no {word}");
        }
        assert!(!script.contains("chaos-rank"), "{shell} completes what is hidden");
    }
    roundelay(&["completions", "csh"]).fails(2, &["bash", "csh"]);
}

#[test]
fn every_verb_has_a_manual_page() {
    let dir = concat!(env!("CARGO_TARGET_TMPDIR"), "/man");
    let _ = std::fs::remove_dir_all(dir);
    let pages = roundelay(&["man", dir]).ok().out;
    let help = roundelay(&["--help"]).ok().out;
    let verbs = help.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    let verbs = verbs.map_while(|line| line.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 12 && pages.lines().count() == verbs.len() + 1, "{verbs:?}: {pages}");
    for verb in verbs {
        let page = std::fs::read_to_string(format!("{dir}/roundelay-{verb}.1")).expect("a page");
        assert!(page.contains(".SH SYNOPSIS") && page.contains("json"), "{verb}: {page}");
    }
    let file = format!("{dir}/roundelay.1");
    roundelay(&["man", &format!("{file}/below")]).fails(3, &["the manual pages", &file]);
}

#[test]
fn every_help_has_an_example() {
    for verb in ["check", "run", "bench", "show", "draw", "atlas", "emit", "fmt", "explain", "tune"]
    {
        let ran = roundelay(&[verb, "--help"]).ok();
        assert!(ran.out.contains(&format!("roundelay {verb}")) && ran.out.contains("Example"));
    }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_fault() {
    for args in [&["check", "all_reduce", "-n", "2..9"][..], &["explain", "RL0501"], &["--help"]] {
        let mut child = command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let mut first = String::new();
        let mut out = BufReader::with_capacity(1, child.stdout.take().expect("a pipe"));
        out.read_line(&mut first).expect("a line");
        drop(out);
        let status = child.wait().expect("it ends");
        let mut err = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("text");
        assert_eq!((status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}
