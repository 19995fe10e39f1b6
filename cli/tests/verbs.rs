//! Tests the verbs that start no ranks.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::support::{RunOutput, command, file, roundelay};
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
    for (collective, _) in roundelay_compiler::program::COLLECTIVES {
        for n in ["2", "7", "8", "9", "3x4", "700"] {
            let ran = roundelay(&["check", collective, "-n", n, "--json"]);
            for line in ran.json().iter().filter(|l| l["verdict"] == "proved") {
                let (rounds, bound) = (line["rounds"].as_u64(), line["rounds_bound"].as_u64());
                assert!(bound.is_none() || rounds >= bound, "{line}");
                assert!(bound.is_some() || n == "700", "{line}");
            }
        }
    }
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
fn info_lists_the_library() {
    let ran = roundelay(&["info"]).ok();
    for e in CATALOGUE {
        assert!(ran.out.contains(&format!("{}.{}", e.collective, e.name)));
    }
    let info = &roundelay(&["info", "--json"]).ok().json()[0];
    assert_eq!(info["algorithms"].as_array().map(Vec::len), Some(CATALOGUE.len()));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    // The feature of the program under test: what it says is what it does.
    let lacks = ran.out.contains("this build is without the feature `experimental`");
    let run = ["run", "all_reduce", "-n", "2", "--bytes", "64", "--hint", "gpu_direct=true"];
    match info["experimental"].as_bool().expect("a truth value") {
        true => assert!(!lacks && roundelay(&run).ok().out.contains("all_reduce")),
        false => {
            assert!(lacks, "{}", ran.out);
            roundelay(&run).fails(2, &["`gpu_direct=true`", "--features experimental"]);
        }
    }
}

#[test]
fn the_long_version_says_what_was_built() {
    let long = roundelay(&["--version"]).ok().out;
    for word in ["commit    ", "features  ", "target    x86_64-linux-gnu"] {
        let word = word.replace("x86_64", std::env::consts::ARCH);
        assert!(long.contains(&word), "{word} is not in {long}");
    }
    assert_eq!(roundelay(&["-V"]).ok().out, concat!("roundelay ", env!("CARGO_PKG_VERSION"), "\n"));
    let info = &roundelay(&["info", "--json"]).ok().json()[0];
    let features = info["features"].as_str().expect("a text");
    assert!(long.contains(&format!("features  {features}\n")), "{long}");
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
fn info_says_what_communicators_take() {
    let text = roundelay(&["info"]).ok().out;
    assert!(text.contains("descriptors 1\n") && text.contains("(data sockets "), "{text}");
    assert!(text.contains("131072 ranks: 17 steps"), "{text}");
    let info = &roundelay(&["info", "--json"]).ok().json()[0];
    let [shm, tcp, ..] = &info["communicators"].as_array().expect("probes")[..] else {
        panic!("two transports: {info}");
    };
    assert_eq!((&shm["transport"], &tcp["transport"]), (&"shm".into(), &"tcp".into()));
    assert_eq!((&shm["used"]["data_sockets"], &shm["used"]["descriptors"]), (&0.into(), &1.into()));
    let figure = |of: &serde_json::Value| of.as_u64().expect("a figure");
    assert!(figure(&shm["used"]["shared_bytes"]) > figure(&shm["joined"]["shared_bytes"]));
    // Eager: everything is connected once the ranks have joined.
    assert!(figure(&tcp["joined"]["data_sockets"]) > 0);
    assert_eq!(tcp["joined"]["descriptors"], tcp["used"]["descriptors"]);
    assert!(figure(&tcp["used"]["staging_bytes"]) > 0);
    let scale = &info["scale"];
    assert_eq!((&scale["ranks"], &scale["complete"]), (&131_072.into(), &131_072.into()));
    assert!(figure(&scale["store_a_rank"]) <= 3 && figure(&scale["links_a_rank"]) <= 2 * 17);
    assert!(scale["seconds"].as_f64().is_some_and(|seconds| seconds < 10.0), "{scale}");
}

#[test]
fn info_has_the_tunables_of_the_page() {
    let page = include_str!("../../docs/tunables.md");
    let lines = roundelay(&["info", "--tunables", "--json"]).ok().json();
    let text = roundelay(&["info", "--tunables"]).ok().out;
    let mut sections: Vec<(&str, usize)> = Vec::new();
    for line in &lines {
        let field = |name: &str| line[name].as_str().expect("a text");
        let (package, name, default) = (field("package"), field("name"), field("default"));
        let row = format!("| `{name}` | {default} | {} |", field("meaning"));
        assert!(
            page.contains(&row),
            "docs/tunables.md needs the row
{row}"
        );
        assert!(text.contains(&format!("  {name} ")), "{name}");
        let units = ["default_us", "default_bytes", "default_count"];
        assert_eq!(units.iter().filter(|unit| line[**unit].is_number()).count(), 1, "{line}");
        match sections.last_mut() {
            Some((last, count)) if *last == package => *count += 1,
            _ => sections.push((package, 1)),
        }
    }
    for (package, count) in &sections {
        let (_, section) = page
            .split_once(&format!(
                "
## {package}
"
            ))
            .expect("a section");
        let section = section
            .split(
                "
## ",
            )
            .next()
            .unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, *count, "{package}");
        assert!(
            text.contains(&format!(
                "{package}:
"
            )),
            "{package}"
        );
    }
    assert_eq!(
        sections.len(),
        7,
        "support, tls, net, engine, cuda, the library and the program: {sections:?}"
    );
    let timeout = lines.iter().find(|line| line["name"] == "DEFAULT_TIMEOUT").expect("the row");
    assert_eq!((&timeout["default"], &timeout["default_us"]), (&"30 s".into(), &3e7.into()));
    roundelay(&["info", "--tunables", "--topology"]).fails(2, &["cannot be used with"]);
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
