//! Tests the verb `info` and the long version.

use crate::support::roundelay;
use roundelay_algorithms::CATALOGUE;

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
