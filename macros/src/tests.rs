//! Compares a mistake in a file with that mistake in a function: one diagnostic, at the tokens that say the same.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;
use roundelay_compiler::EmbeddedAlgorithm;
use roundelay_dsl::diag::{Diagnostic, Diagnostics};
use roundelay_dsl::span::SourceMap;

use crate::parse::{self, ParseFault};
use crate::prototype::{MacroRole, MarkedFunction};
use crate::prove::prove;

type Found = Result<(), (SourceMap, Diagnostics)>;

fn of_file(text: &str) -> Found {
    let mut sources = SourceMap::new();
    let id = sources.add("twin.algo", text);
    match roundelay_dsl::parse(&sources, id) {
        Ok(tree) => refuted(EmbeddedAlgorithm::new(sources, tree)),
        Err(found) => Err((sources, found)),
    }
}

fn of_rust(attribute: &str, item: &str) -> Found {
    // In one text, as in a Rust file; an attribute of several words stands in parentheses.
    let text = format!("{attribute}\n{item}");
    let mut item = text.parse::<TokenStream>().expect("tokens").into_iter();
    let attribute = match item.next() {
        Some(TokenTree::Group(words)) => words.stream(),
        word => word.into_iter().collect(),
    };
    let item = item.collect();
    let marked = MarkedFunction { role: MacroRole::Algorithm, attribute, item };
    match parse::prototype(&marked, &[]) {
        Ok(p) => refuted(EmbeddedAlgorithm::new(p.pieces.sources, p.tree)),
        Err(ParseFault::Ours(pieces, found)) => Err((pieces.sources, found)),
        Err(ParseFault::Rust(e)) => panic!("{e}"),
    }
}

fn refuted(mut embedded: EmbeddedAlgorithm) -> Found {
    prove(&mut embedded, None, false).map(drop).map_err(|r| (r.sources, r.found))
}

/// Returns a whole file and a whole function around statements of both.
fn twins(collective: &str, file: &str, rust: &str) -> (Found, Found) {
    let file = format!("algorithm twin implements {collective} on n ranks {{ {file} }}");
    let rust = format!("fn twin(n: Ranks) {{ {rust} }}");
    (of_file(&file), of_rust(collective, &rust))
}

/// Returns the texts of a diagnostic, without names that the two forms of the language write differently.
fn said(d: &Diagnostic) -> String {
    let labels: Vec<&str> = d.labels.iter().map(|l| l.text.as_str()).collect();
    format!("{} {} {labels:?} {:?} {:?}", d.code, d.message, d.notes, d.helps)
}

/// Code, collective, statements of a file, statements of Rust, and the Rust that is underlined.
const MISTAKES: &[(&str, &str, &str, &str, &str)] = &[
    (
        "RL0501",
        "all_gather",
        "for s in 0..n-2 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }",
        "for s in 0..n - 2 { each(|r| r.to((r + 1) % n).copy(data[(r - s) % n])); }",
        "n - 2",
    ),
    (
        "RL0502",
        "all_reduce",
        "for s in 0..n { each r { r -> (r + 1) % n : reduce data } }",
        "for s in 0..n { each(|r| r.to((r + 1) % n).reduce(data)); }",
        "r.to((r + 1) % n).reduce(data)",
    ),
    (
        "RL0503",
        "all_gather",
        "each r { r -> (r + 1) % n : copy data[r] -> data[(r + 1) % n] }",
        "each(|r| r.to((r + 1) % n).copy(data[r]).into(data[(r + 1) % n]));",
        "r.to((r + 1) % n).copy(data[r]).into(data[(r + 1) % n])",
    ),
    (
        "RL0403",
        "all_reduce",
        "each r { r -> 0 : copy data }",
        "each(|r| r.to(0).copy(data));",
        "r.to(0).copy(data)",
    ),
    (
        "RL0401",
        "all_gather",
        "each r { r -> (r + 1) % n : copy data[r + 1] }",
        "each(|r| r.to((r + 1) % n).copy(data[r + 1]));",
        "r + 1",
    ),
    (
        "RL0402",
        "all_gather",
        "each r { r -> r + 1 : copy data[r] }",
        "each(|r| r.to(r + 1).copy(data[r]));",
        "r + 1",
    ),
    (
        "RL0201",
        "all_gather",
        "let dist = 1 each r { r -> (r + dits) % n : copy data[r] }",
        "let dist = 1; each(|r| r.to((r + dits) % n).copy(data[r]));",
        "dits",
    ),
    (
        "RL0206",
        "all_reduce",
        "tolerates n > 1 each r { r -> r ^ 1 : reduce data }",
        "tolerates(n > 1); each(|r| r.to(r ^ 1).reduce(data));",
        "n > 1",
    ),
    (
        "RL0208",
        "all_reduce",
        "tolerates 1 tolerates 1 each r { r -> r ^ 1 : reduce data }",
        "tolerates(1); tolerates(1); each(|r| r.to(r ^ 1).reduce(data));",
        "1",
    ),
    (
        "RL0208",
        "all_gather",
        "tolerates 1 each r { r -> r ^ 1 : copy data[r] }",
        "tolerates(1); each(|r| r.to(r ^ 1).copy(data[r]));",
        "1",
    ),
    (
        "RL0201",
        "all_reduce",
        "requires pow3(n) each r { r -> r ^ 1 : reduce data }",
        "requires(pow3(n)); each(|r| r.to(r ^ 1).reduce(data));",
        "pow3",
    ),
    (
        "RL0201",
        "all_reduce",
        "each r { r -> r ^ 1 : reduce dta }",
        "each(|r| r.to(r ^ 1).reduce(dta));",
        "dta",
    ),
    (
        "RL0202",
        "all_redcue",
        "each r { r -> r ^ 1 : reduce data }",
        "each(|r| r.to(r ^ 1).reduce(data));",
        "all_redcue",
    ),
    (
        "RL0203",
        "all_reduce",
        "chunks n use reduce_scatter.rign",
        "chunks(n); run(reduce_scatter::rign);",
        "rign",
    ),
    (
        "RL0204",
        "all_reduce",
        "scratch t[1] scratch t[2] each r { r -> r ^ 1 : reduce data }",
        "let t = scratch(1); let t = scratch(2); each(|r| r.to(r ^ 1).reduce(data));",
        "t",
    ),
    (
        "RL0206",
        "all_reduce",
        "each r { r -> (r + even(r)) % n : reduce data }",
        "each(|r| r.to((r + even(r)) % n).reduce(data));",
        "even(r)",
    ),
    (
        "RL0206",
        "all_reduce",
        "each r { if r & 1 { r -> 0 : reduce data } }",
        "each(|r| { if r & 1 { r.to(0).reduce(data); } });",
        "r & 1",
    ),
    (
        "RL0207",
        "all_reduce",
        "for k in 0..log2(n, 2) { each r { r -> r ^ 1 : reduce data } }",
        "for k in 0..log2(n, 2) { each(|r| r.to(r ^ 1).reduce(data)); }",
        "log2(n, 2)",
    ),
    (
        "RL0208",
        "all_reduce",
        "each r { each p { r -> p : reduce data } }",
        "each(|r| each(|p| r.to(p).reduce(data)));",
        "each(|p",
    ),
    (
        "RL0209",
        "all_reduce",
        "chunks n use reduce_scatter.ring use all_gather.ring schedule { pipelines 4 }",
        "chunks(n); run(reduce_scatter::ring); run(all_gather::ring); schedule().pipelines(4);",
        "pipelines",
    ),
    (
        "RL0211",
        "all_reduce",
        "each r { r -> r : copy input -> output } each r { r -> r ^ 1 : reduce data }",
        "each(|r| r.to(r).copy(input).into(output)); each(|r| r.to(r ^ 1).reduce(data));",
        "input",
    ),
    (
        "RL0212",
        "all_reduce",
        "each r { r -> r ^ 1 : reduce data as bf17 }",
        "each(|r| r.to(r ^ 1).reduce(data).wire::<bf17>());",
        "bf17",
    ),
    (
        "RL0404",
        "all_reduce",
        "scratch t[1] each r { r -> (r + 1) % n : copy t }",
        "let t = scratch(1); each(|r| r.to((r + 1) % n).copy(t));",
        "r.to((r + 1) % n).copy(t)",
    ),
    (
        "RL0406",
        "all_reduce",
        "scratch t[2] each r { r -> r : copy data[0] -> t[0..2] }",
        "let t = scratch(2); each(|r| r.to(r).copy(data[0]).into(t[0..2]));",
        "data[0]",
    ),
    (
        "RL0409",
        "all_reduce",
        "let k = log2(n - n) each r { r -> r ^ k : reduce data }",
        "let k = log2(n - n); each(|r| r.to(r ^ k).reduce(data));",
        "log2(n - n)",
    ),
    (
        "RL0601",
        "all_reduce",
        "requires n > 100 each r { r -> r ^ 1 : reduce data }",
        "requires(n > 100); each(|r| r.to(r ^ 1).reduce(data));",
        "n > 100",
    ),
    (
        "RL0602",
        "all_reduce",
        "each (i, j) { 0 -> 1 : reduce data }",
        "each(|(i, j)| 0.to(1).reduce(data));",
        "each(|(i, j)",
    ),
    (
        "RL0604",
        "reduce_scatter",
        "chunks 1 each r { r -> r ^ 1 : reduce data }",
        "chunks(1); each(|r| r.to(r ^ 1).reduce(data));",
        "1",
    ),
    (
        "RL0105",
        "all_reduce",
        "each r { r -> 9999999999999999999 : reduce data }",
        "each(|r| r.to(9999999999999999999).reduce(data));",
        "9999999999999999999",
    ),
];

#[test]
fn the_same_mistake_has_the_same_diagnostic() {
    let mut wrong = Vec::new();
    for (code, collective, file, rust, underlined) in MISTAKES {
        let (of_file, of_rust) = twins(collective, file, rust);
        let (file_sources, file) = of_file.expect_err(file);
        let (rust_sources, rust) = of_rust.expect_err(rust);
        let all = |found: &Diagnostics| found.iter().map(said).collect::<Vec<_>>();
        // The trace quotes statements as they were written.
        let own_words = ["RL0501", "RL0502", "RL0503", "RL0601"].contains(code);
        match own_words {
            true => assert_eq!(file[0].message, rust[0].message),
            false => assert_eq!(all(&file), all(&rust)),
        }
        assert_eq!(rust[0].code.0, *code, "{file:?}");
        let span = |d: &Diagnostic| d.span().expect("a place");
        let at = rust_sources.snippet(span(&rust[0]));
        if at != *underlined {
            wrong.push(format!("{code}: `{at}` and not `{underlined}`"));
        }
        assert!(!file_sources.snippet(span(&file[0])).is_empty());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn constants_are_seen_by_the_whole_algorithm() {
    let ring = "each(|r| r.to((r + 1) % n).copy(data[(r - s) % n]));";
    let of = |default: &str, constants: &str| {
        let attribute = format!("(all_gather, parameters(k = {default} in LEAST..=2 * MOST))");
        let item =
            format!("fn twin(n: Ranks, k: i64) {{ {constants} for s in 0..n - 1 {{ {ring} }} }}");
        of_rust(&attribute, &item)
    };
    let constants = "const LEAST: i64 = -1; requires(k <= MOST + 4); const MOST: i64 = 4;";
    assert!(of("8", constants).is_ok());
    for (default, constants, code, at) in [
        ("9", constants, "RL0215", "9"),
        ("8", "const LEAST: i64 = 1;", "RL0201", "MOST"),
        ("8", "const LEAST: i64 = 1; const MOST: i64 = n;", "RL0201", "n"),
        ("8", "const LEAST: i64 = 1; const MOST: i64 = 4 as i64;", "RL0101", "4 as i64"),
        ("8", "const LEAST: i64 = 1; const MOST: i64 = 4; const MOST: i64 = 5;", "RL0204", "MOST"),
        (
            "8",
            "const LEAST: i64 = 1; const MOST: i64 = 4; for s in 0..1 { const A: i64 = 1; }",
            "RL0101",
            "const A: i64 = 1;",
        ),
    ] {
        let (sources, found) = of(default, constants).expect_err(constants);
        let place = sources.snippet(found[0].span().expect("a place"));
        assert_eq!((found[0].code.0, place), (code, at), "{constants}");
    }
}

#[test]
fn lines_and_columns_are_those_of_the_text() {
    let item = "pub fn twin(n: Ranks) {\n    // one round\n    each(|r| r.to(5).copy(data[x]));\n}";
    let Err((sources, found)) = of_rust("all_gather", item) else { panic!("`x` is not declared") };
    let span = found[0].span().expect("a place");
    // The attribute stands in line 1.
    assert_eq!(sources.line_column(span), (4, 32));
    assert!(sources.line_text(span).contains("each(|r|"));
}

#[test]
fn tokens_without_places_have_a_text_too() {
    let tokens = quote!(
        fn twin(n: Ranks) {
            each(|r| r.to(0).reduce(data));
        }
    );
    let marked =
        MarkedFunction { role: MacroRole::Algorithm, attribute: quote!(all_reduce), item: tokens };
    let Ok(prototype) = parse::prototype(&marked, &[]) else { panic!("it can be read") };
    let source = prototype.pieces.sources.get(prototype.tree.span.source);
    assert!(source.text.contains("fn twin ( n : Ranks )"), "{}", source.text);
}

#[test]
fn nesting_without_end_is_refused() {
    let deep = format!("fn twin(n: Ranks) {{ let x = {}1{}; }}", "(".repeat(500), ")".repeat(500));
    let chain = format!("fn twin(n: Ranks) {{ let x = {}1; }}", "1 + ".repeat(2000));
    let signs = format!("fn twin(n: Ranks) {{ let x = {}1; }}", "-".repeat(2000));
    for item in [deep, chain, signs] {
        let item = item.parse().expect("tokens");
        let marked =
            MarkedFunction { role: MacroRole::Algorithm, attribute: quote!(all_reduce), item };
        let text = match parse::prototype(&marked, &[]) {
            Err(ParseFault::Rust(e)) => e.to_string(),
            Err(ParseFault::Ours(_, found)) => found[0].code.to_string(),
            Ok(_) => panic!("it is read"),
        };
        assert!(text.contains("RL0102"), "{text}");
    }
}

/// Words of functions, right and wrong.
const WORDS: &[&str] = &[
    "each(|r| r.to(1).copy(data));",
    "each",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "|r|",
    "r",
    ".to(p)",
    ".copy(",
    "data",
    "data[0..n]",
    "for s in 0..n",
    "if r > 0",
    "else",
    "let x =",
    ";",
    ",",
    "1",
    "..",
    "n",
    "%",
    "+",
    "-",
    "run(",
    "reduce_scatter::ring",
    "schedule()",
    ".pipeline(4)",
    "chunks(n);",
    "scratch(1)",
    "split(data, 0..2, |t|",
    "(i, j)",
    "cyclic(0, n)",
    ".by(2)",
    ".take(1)",
    "::<bf16>()",
    "!",
    "==",
];

/// Whatever tokens stand in a function: diagnostics, and no panic. The words come from a seed and not from a generator
/// of another package, which would be built for macros once more, with other features of what both need.
#[test]
fn any_function_is_read_or_refused() {
    let mut seed = 1u64;
    let mut below = |n: usize| {
        // The constants of Knuth's MMIX generator, of which the upper bits are good.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % n as u64) as usize
    };
    let mut read = 0;
    for _ in 0..1000 {
        let words: Vec<&str> = (0..below(25)).map(|_| WORDS[below(WORDS.len())]).collect();
        let item = format!("fn twin(n: Ranks) {{ {} }}", words.join(" "));
        let Ok(item) = item.parse::<TokenStream>() else { continue };
        read += 1;
        let marked =
            MarkedFunction { role: MacroRole::Algorithm, attribute: quote!(all_reduce), item };
        if let Err(ParseFault::Ours(_, found)) = parse::prototype(&marked, &[]) {
            assert!(!found.is_empty(), "{words:?}");
        }
    }
    assert!(read > 100, "{read} of 1000 are tokens");
}

#[test]
fn a_part_has_its_former_name_too() {
    let with = |word: &str| {
        let body = format!("chunks(n); {word}(reduce_scatter::ring); {word}(all_gather::ring);");
        of_rust("all_reduce", &format!("fn twin(n: Ranks) {{ {body} }}"))
    };
    assert!(with("run").is_ok() && with("play").is_ok());
    assert!(with("jump").is_err());
}
