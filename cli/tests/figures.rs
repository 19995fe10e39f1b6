//! Tests `bench --fill`: the figures of documents come from the rows that are kept.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::support::{RunOutput, command, roundelay};

/// The documents with figures, and the charts that they name.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/performance.md"];
const CHARTS: [&str; 1] = ["docs/all_reduce.svg"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns an empty folder.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn fill(folder: &Path, documents: &[&str]) -> RunOutput {
    let mut command = command(&["bench", "--fill", &documents.join(",")]);
    RunOutput::of(command.current_dir(folder).output().expect("the binary runs"))
}

#[test]
fn the_figures_of_the_documents_are_those_of_the_rows() {
    let copy = folder("documents");
    fs::create_dir(copy.join("docs")).expect("a folder");
    let rows = fs::canonicalize(root().join("docs/results")).expect("rows");
    symlink(rows, copy.join("docs/results")).expect("a link");
    for document in DOCUMENTS {
        fs::copy(root().join(document), copy.join(document)).expect("a copy");
    }
    fill(&copy, &DOCUMENTS).ok();
    for file in DOCUMENTS.iter().chain(&CHARTS) {
        let text = |folder: &Path| fs::read_to_string(folder.join(file)).unwrap_or_default();
        let (is, made) = (text(&root()), text(&copy));
        assert!(made.contains("<!-- begin: ") || made.starts_with("<svg"), "{file} has no figure");
        let differs = is.lines().zip(made.lines()).position(|(a, b)| a != b).map_or(0, |at| at + 1);
        let mend = format!("roundelay bench --fill {}", DOCUMENTS.join(","));
        assert!(is == made, "{file}:{differs} is not what `{mend}` makes of docs/results");
    }
}

/// The front page's output of a bench on GPUs consists of lines that its command prints.
#[test]
fn the_output_on_the_front_page_is_that_of_its_rows() {
    let text = fs::read_to_string(root().join("README.md")).expect("README.md");
    let (_, block) = text.split_once("$ roundelay bench --rows ").expect("a command");
    let (rows, block) = block.split_once('\n').expect("its output");
    let (shown, _) = block.split_once("```").expect("the end of the block");
    let rows = root().join(rows).display().to_string();
    let printed = roundelay(&["bench", "--rows", &rows]).ok().out;
    for line in shown.lines() {
        assert!(printed.lines().any(|made| made == line), "README.md: not printed: {line}");
    }
    assert!(shown.contains("nccl"), "README.md shows no peer");
}

fn row(time_us: f64, peer: Option<(&str, f64)>) -> String {
    let peer = peer.map_or(String::new(), |(p, r)| format!(r#","peer":"{p}","ratio":{r}"#));
    format!(
        r#"{{"algorithm":"ring","collective":"all_reduce","ranks":4,"bytes":1024,"count":256,"dtype":"f32","op":"sum","root":-1,"transport":"shm","time_us":{time_us},"wrong":0{peer}}}"#
    )
}

#[test]
fn a_region_shows_the_medians_of_the_runs_that_it_names() {
    let folder = folder("region");
    for (run, times) in [(1, (4.0, 2.0)), (2, (5.0, 0.5)), (3, (6.0, 0.75))] {
        let rows = [row(times.0, None), row(1.0, Some(("mpi", times.1)))].join("\n");
        fs::write(folder.join(format!("rows-{run}.jsonl")), rows).expect("rows");
    }
    let text = "# A page\n\n<!-- begin: table rows-*.jsonl -->\nwhat was here\n<!-- end -->\n\nbetween\n\n\
                <!-- begin: summary\nfour ranks: rows-1.jsonl\n-->\n<!-- end -->\nafter\n\
                <!-- begin: summary by-peer\nfour ranks: rows-1.jsonl\n-->\n<!-- end -->\n";
    fs::write(folder.join("page.md"), text).expect("a page");
    assert_eq!(fill(&folder, &["page.md"]).ok().out, "page.md: rewritten\n");
    let wanted = "# A page\n\n<!-- begin: table rows-*.jsonl -->\n\n4 ranks, f32, shm\n\n\
                  | | 1K |\n|---|---|\n| all_reduce | 5.000 us, **0.75** mpi |\n\n\
                  The time of the best peer over ours is 0.75 in the geometric mean of 1 point and 0.75 at the least; ours is\n\
                  slower at 1: all_reduce 1K (0.75, mpi).\n\n<!-- end -->\n\nbetween\n\n\
                  <!-- begin: summary\nfour ranks: rows-1.jsonl\n-->\n\n\
                  | | points | mean | least | ours slower |\n|---|---|---|---|---|\n\
                  | four ranks | 1 | 2.00 | 2.00 | 0 |\n\n<!-- end -->\nafter\n\
                  <!-- begin: summary by-peer\nfour ranks: rows-1.jsonl\n-->\n\n\
                  | | points | mean | least | ours slower | mean by peer |\n|---|---|---|---|---|---|\n\
                  | four ranks | 1 | 2.00 | 2.00 | 0 | mpi 2.00 |\n\n<!-- end -->\n";
    assert_eq!(fs::read_to_string(folder.join("page.md")).expect("a page"), wanted);
    assert_eq!(fill(&folder, &["page.md"]).ok().out, "page.md: as it was\n");
}

#[test]
fn a_region_that_cannot_be_made_is_named_by_its_line() {
    let folder = folder("wrong");
    fs::write(folder.join("rows.jsonl"), row(1.0, None)).expect("rows");
    let both = [row(1.0, None), row(2.0, Some(("mpi", 2.0)))].join("\n");
    fs::write(folder.join("ours.jsonl"), both).expect("rows");
    for (region, why) in [
        (
            "<!-- begin: table nowhere.jsonl -->\n<!-- end -->",
            "page.md:2: there is no file nowhere.jsonl",
        ),
        ("<!-- begin: table no*.jsonl -->\n<!-- end -->", "page.md:2: there is no file no*.jsonl"),
        ("<!-- begin: table rows.jsonl -->\n<!-- end -->", "page.md:2: no row has a peer"),
        ("<!-- begin: table -->\n<!-- end -->", "page.md:2: no row has a peer"),
        ("<!-- begin: chart a.svg -->\n<!-- end -->", "page.md:2: a chart has a file"),
        (
            "<!-- begin: chart a.svg reduce rows.jsonl -->\n<!-- end -->",
            "page.md:2: no row is of reduce",
        ),
        (
            "<!-- begin: summary\nrows.jsonl\n-->\n<!-- end -->",
            "page.md:2: a line is no `label: files`",
        ),
        ("<!-- begin: picture -->\n<!-- end -->", "page.md:2: a region is"),
        ("<!-- begin: summary\n", "page.md:2: the comment has no end"),
        (
            "<!-- begin: table ours.jsonl -->\n<!-- begin: table ours.jsonl -->\n<!-- end -->",
            "page.md:2: the region has no end",
        ),
    ] {
        let text = format!("# A page\n{region}\n");
        fs::write(folder.join("page.md"), &text).expect("a page");
        fill(&folder, &["page.md"]).fails(1, &[why]);
        assert_eq!(fs::read_to_string(folder.join("page.md")).expect("a page"), text);
    }
    fill(&folder, &["none.md"]).fails(1, &["none.md"]);
}
