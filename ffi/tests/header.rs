//! The header in `include/` is what cbindgen makes of the source; `UPDATE_EXPECT=1` writes it anew.

use expect_test::expect_file;

/// Returns a header without what speaks to readers of Rust: headings of sections on safety, whose sentences stay, and
/// links.
fn plain(header: &str) -> String {
    header.replace("// # Safety\n//\n", "").replace("[`", "`").replace("`]", "`")
}

#[test]
fn headings_of_rust_are_taken_out() {
    let text =
        "// Does it.\n//\n// # Safety\n//\n// `out` is a place, as of [`g`].\nint f(void);\n";
    assert_eq!(plain(text), "// Does it.\n//\n// `out` is a place, as of `g`.\nint f(void);\n");
}

#[test]
fn the_header_is_that_of_the_source() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_root_or_default(folder);
    let bindings = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("cbindgen reads the source").write(&mut text);
    let text = plain(&String::from_utf8(text).expect("a header is text"));
    for trace in ["# Safety", "[`", "](", "::"] {
        assert!(!text.contains(trace), "`{trace}` is Rust's");
    }
    expect_file!["../include/roundelay.h"].assert_eq(&text);
}

#[test]
fn every_function_is_declared() {
    let header = include_str!("../include/roundelay.h");
    let sources = [
        include_str!("../src/abi/algorithm.rs"),
        include_str!("../src/abi/collectives.rs"),
        include_str!("../src/abi/comm.rs"),
        include_str!("../src/abi/endpoint.rs"),
        include_str!("../src/abi/error.rs"),
        include_str!("../src/abi/messages.rs"),
        include_str!("../src/abi/window.rs"),
        include_str!("../src/abi/work.rs"),
    ];
    let mut functions = 0;
    for line in sources.iter().flat_map(|source| source.lines()) {
        let Some((_, rest)) = line.split_once("extern \"C\" fn rl_") else { continue };
        let name = rest.split('(').next().unwrap_or_default();
        assert!(header.contains(&format!("rl_{name}(")), "rl_{name} is not in the header");
        functions += 1;
    }
    assert!(functions > 60, "{functions}");
}
