//! Tests `roundelay atlas`: what its pages say, that their links lead somewhere, and what it refuses.

use std::path::PathBuf;

use crate::support::{file, roundelay};

/// A folder of the tests that is not there.
fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    path
}

fn read(folder: &std::path::Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns what the attributes of that name have in a page.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let lead = format!(" {name}=\"");
    page.split(&lead).skip(1).map(|rest| rest.split('"').next().expect("a value")).collect()
}

#[test]
fn pages_say_what_was_proved_and_lead_to_each_other() {
    let at = folder("atlas");
    let own = file(
        "even <b>.algo",
        "//! Sums on rank 0, 1 & on.\n\nalgorithm even implements all_reduce on n ranks {\n    requires n % 2 == 0\n    \
         each r where r > 0 { r -> 0 : reduce data }\n    each r where r > 0 { 0 -> r : copy data }\n}\n",
    );
    let names = ["all_reduce.ring", "all_reduce.two_level", "all_gather.k_bruck", &own];
    let run =
        roundelay(&[&["atlas", "--json", "-o", &at.display().to_string()], &names[..]].concat());
    let rows = run.ok().json();
    let formulas: Vec<_> =
        rows.iter().map(|r| (r["rounds"].as_str(), r["sent"].as_str())).collect();
    assert_eq!(
        formulas,
        [
            (Some("2 (n − 1)"), Some("2 (n − 1)/n")),
            (Some("2 ⌈log₂ node⌉ + 2 (gpu − 1)"), Some("2 (node·gpu − 1)/(node·gpu)")),
            (Some("⌈log_k n⌉"), Some("(n − 1)/n")),
            (Some("2"), Some("n − 1")),
        ]
    );
    assert_eq!(rows[3]["not_allowed"][0], "3");
    let index = read(&at, "index.html");
    assert!(index.contains("4 algorithms") && index.contains("2 (n − 1)/n"));
    for row in &rows {
        let name = format!("{}.html", row["algorithm"].as_str().expect("a name"));
        let page = read(&at, &name);
        assert!(attributes(&index, "href").contains(&name.as_str()), "{name}");
        for link in attributes(&page, "href").into_iter().chain(attributes(&page, "src")) {
            read(&at, link);
        }
        assert!(page.contains(">proved at "), "{name}");
        assert!(page.contains("<svg") && page.contains("The text"), "{name}");
    }
    // A text cannot end what it stands in.
    let page = read(&at, "all_reduce.even.html");
    assert!(page.contains("Sums on rank 0, 1 &amp; on.") && page.contains("even &lt;b&gt;.algo"));
    assert!(!page.contains("<b>") && page.contains("; not meant for 3, 5"));
    let kernels = page.split("On GPUs").nth(1).expect("kernels");
    assert!(kernels.contains("<td>packet") && kernels.contains("copy engines only copy"));
}

#[test]
fn measured_rows_are_drawn_on_the_page_of_their_algorithm() {
    let at = folder("atlas_rows");
    let run = ["bench", "all_reduce.ring", "-n", "2", "--bytes", "1K", "--iters", "3", "--json"];
    let rows = roundelay(&run).ok().out;
    let output = at.display().to_string();
    let atlas = |rows: &str| {
        roundelay(&["atlas", "all_reduce.ring", "all_reduce.swing", "-o", &output, "--rows", rows])
    };
    atlas(&file("atlas_rows.jsonl", &rows)).ok();
    assert!(read(&at, "all_reduce.ring.html").contains("<h2>Measured</h2>"));
    assert!(!read(&at, "all_reduce.swing.html").contains("<h2>Measured</h2>"));
    let damaged = file("atlas_damaged.jsonl", rows.trim_end().replace("time_us", "time"));
    atlas(&damaged).fails(1, &["RL0708", "line 1: no row of `bench --json`"]);
    atlas("missing.jsonl").fails(1, &["RL0708", "missing.jsonl"]);
}

#[test]
fn what_is_wrong_has_no_page() {
    let at = folder("atlas_wrong");
    let output = at.display().to_string();
    let short =
        "algorithm short implements all_reduce on n ranks {\n    r0 -> r1 : reduce data\n}\n";
    let short = file("atlas_short.algo", short.replace("r0 -> r1", "0 -> 1"));
    roundelay(&["atlas", "all_reduce.ring", &short, "-o", &output]).fails(1, &["RL05"]);
    assert!(!at.exists(), "nothing is written");
    roundelay(&["atlas", "all_reduce.ring", "all_reduce.ring", "-o", &output])
        .fails(2, &["all_reduce.ring is in library:all_reduce/ring.algo and in"]);
    roundelay(&["atlas", "all_reduce.rung", "-o", &output]).fails(1, &["did you mean"]);
    let taken = file("atlas_taken", "");
    roundelay(&["atlas", "all_reduce.ring", "-o", &taken]).fails(3, &["RL0711"]);
}
