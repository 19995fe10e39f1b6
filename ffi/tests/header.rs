//! The header in `include/` is what cbindgen makes of the source; `UPDATE_EXPECT=1` writes it anew.

use expect_test::expect_file;

/// The types of numbers that are enumerations in C: their constants have the type in the source.
const ENUMERATIONS: [&str; 5] = ["rl_status", "rl_kind", "rl_dtype", "rl_op", "rl_memory"];

/// Returns a header in which each of those types is an enumeration of its constants, which come before the structures
/// that use it.
fn with_enumerations(header: &str, source: &str) -> String {
    let mut header = header.to_owned();
    for name in ENUMERATIONS {
        let typedef = format!("typedef int32_t {name};\n");
        let mut values = String::new();
        let tail = format!(": {name} = ");
        for line in source.lines() {
            let Some(rest) = line.strip_prefix("pub const ") else { continue };
            let Some((constant, value)) = rest.split_once(&tail) else { continue };
            let define = format!("#define {constant} {}\n", value.trim_end_matches(';'));
            let at =
                header.find(&define).unwrap_or_else(|| panic!("`{define}` is not in the header"));
            let comment = header[..at].rfind("\n\n").map_or(0, |end| end + 2);
            for line in header[comment..at].lines() {
                values.push_str(&format!("  {line}\n"));
            }
            values.push_str(&format!("  {constant} = {},\n", value.trim_end_matches(';')));
            header.replace_range(comment..at + define.len() + 1, "");
        }
        assert!(!values.is_empty(), "{name} has no constants");
        let whole = format!("typedef enum {name} {{\n{values}}} {name};\n");
        assert!(header.contains(&typedef), "`{typedef}` is not in the header");
        header = header.replace(&typedef, &whole);
    }
    header
}

#[test]
fn constants_of_a_type_become_an_enumeration() {
    let typed = |name: &str| format!("// Of {name}.\ntypedef int32_t {name};\n\n");
    let defined = |name: &str| format!("// One of {name}.\n#define ONE_OF_{name} 1\n\n");
    let constant = |name: &str| format!("pub const ONE_OF_{name}: {name} = 1;\n");
    let all = |of: &dyn Fn(&str) -> String| ENUMERATIONS.map(of).concat();
    let header = format!("// A header.\n\n{}{}int f(void);\n", all(&typed), all(&defined));
    let enumerated = with_enumerations(&header, &all(&constant));
    assert!(!enumerated.contains("#define"), "{enumerated}");
    let wanted =
        "// Of rl_op.\ntypedef enum rl_op {\n  // One of rl_op.\n  ONE_OF_rl_op = 1,\n} rl_op;\n";
    assert!(enumerated.contains(wanted), "{enumerated}");
}

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
    let source = concat!(include_str!("../src/abi/error.rs"), include_str!("../src/abi/values.rs"));
    let text = plain(&String::from_utf8(text).expect("a header is text"));
    let text = with_enumerations(&text, source);
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
        include_str!("../src/abi/collectives_exchange.rs"),
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
