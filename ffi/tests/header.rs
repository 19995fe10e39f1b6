//! The header in `include/` is what cbindgen makes of the source; `UPDATE_EXPECT=1` writes it anew.

use expect_test::expect_file;

#[test]
fn the_header_is_that_of_the_source() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_root_or_default(folder);
    let bindings = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut text = Vec::new();
    bindings.expect("cbindgen reads the source").write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
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
