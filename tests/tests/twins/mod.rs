//! Tests algorithms of the library as Rust functions: the same plans, byte for byte, but for the names of source lines.

mod library;
mod parameters;

use std::sync::Arc;

use roundelay::{Algorithm, Prototype, RunnableAlgorithm};
use roundelay_compiler::{CompileOptions, Plan, Program, Shape, UnprovedPlan, compile};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::SourceMap;
use roundelay_tests::of_library;

use parameters::ParameterTwin;

/// Returns the plans of all ranks at a shape, encoded without source lines; `None` if the shape is not allowed.
///
/// # Panics
/// If the algorithm is refuted.
fn bytes(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    root: u32,
) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let paths = if program.weighted().is_some() { 1..=4 } else { 1..=1 };
    let ways = paths.flat_map(|p| program.style.placements().iter().map(move |&at| (p, at)));
    for (paths, placement) in ways {
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        let proved = match compile(program, sources, shape, &options, placement) {
            Ok(proved) => proved,
            Err(faults) if faults.iter().any(|d| d.code == codes::REQUIRES) => return None,
            Err(faults) => panic!("{}: {}", program.name, roundelay_tests::say(sources, &faults)),
        };
        all.extend(proved.into_plans().into_iter().map(|plan| without_lines(plan).encode()));
    }
    Some(all)
}

fn without_lines(plan: Plan) -> UnprovedPlan {
    let mut plan = plan.into_unproved();
    for site in &mut plan.part.sites {
        site.file.clear();
        site.text.clear();
        (site.line, site.column) = (0, 0);
    }
    plan
}

fn shapes(program: &Program) -> Vec<Shape> {
    match program.axes.grid {
        false => (2..=16).map(Shape::flat).collect(),
        true => [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (2, 4), (3, 3), (4, 3), (2, 8), (4, 4)]
            .map(|(a, b)| Shape { axes: vec![a, b] })
            .to_vec(),
    }
}

/// Returns those at which algorithms are compared with each of several arguments.
fn few_shapes(program: &Program) -> Vec<Shape> {
    match program.axes.grid {
        false => [2, 3, 4, 7, 9].map(Shape::flat).to_vec(),
        true => [(1, 2), (2, 2), (3, 2), (2, 4)].map(|(a, b)| Shape { axes: vec![a, b] }).to_vec(),
    }
}

fn compare(twin: &Prototype) {
    let twin: &Algorithm = twin.algorithm().expect("the prototype can be read");
    let entry = roundelay_algorithms::find(twin.collective(), twin.name());
    let entry = entry.unwrap_or_else(|| panic!("the library has no {twin}"));
    let (sources, program) = of_library(entry).expect("the library is sound");
    compare_at(twin, &program, &sources, &shapes(&program));
}

/// Compares the plans of a text with those of its twin at some shapes; returns those of the text.
fn compare_at(
    twin: &Algorithm,
    program: &Arc<Program>,
    sources: &SourceMap,
    shapes: &[Shape],
) -> Vec<Vec<Vec<u8>>> {
    let mut plans = Vec::new();
    for shape in shapes {
        let roots = if program.kind.rooted() { vec![0, 1] } else { vec![0] };
        for root in roots {
            let of_file = bytes(program, sources, shape, root);
            let of_rust = bytes(twin.program(), twin.sources(), shape, root);
            assert!(of_file == of_rust, "{twin} on {shape} ranks, root {root}");
            plans.extend(of_file);
        }
    }
    assert!(!plans.is_empty(), "{twin} runs nowhere");
    plans
}

#[test]
fn twins_have_the_plans_of_the_library() {
    assert!(library::TWINS.len() >= 8);
    library::TWINS.iter().for_each(compare);
}

/// Other values of parameters are other plans, under a name that shows them, and both forms have the same.
#[test]
fn twins_with_parameters_have_the_plans_of_their_texts() {
    assert!(parameters::TWINS.len() >= 20);
    for ParameterTwin { twin, text, arguments } in parameters::TWINS {
        let twin: &Algorithm = twin.algorithm().expect("the prototype can be read");
        let entry = roundelay_algorithms::find(twin.collective(), twin.name());
        let text = text.or_else(|| entry.map(|entry| entry.text)).expect("a text");
        let of_text = Algorithm::parse("parameters.algo", text).expect("a sound text");
        assert!(arguments.len() >= 3 && arguments[0].is_empty(), "{twin}");
        let mut seen = Vec::new();
        for argument in *arguments {
            let name = format!("{}{argument}", twin.name());
            let [twin, of_text] =
                [twin, &of_text].map(|a| a.named(&name).expect("arguments that it takes"));
            assert_eq!((twin.name(), of_text.name()), (&*name, &*name));
            let shapes = few_shapes(of_text.program());
            let plans = compare_at(&twin, of_text.program(), of_text.sources(), &shapes);
            assert!(!seen.contains(&plans), "{name} is like another");
            seen.push(plans);
        }
        for parameter in &of_text.program().parameters {
            let Some((least, most)) = parameter.bounds else { continue };
            for value in [least - 1, most + 1] {
                let name = format!("{}({} = {value})", twin.name(), parameter.name);
                let refused = [twin, &of_text].map(|a| a.named(&name).expect_err("out of bounds"));
                assert_eq!(refused.map(|e| e.code().0), ["RL0215"; 2], "{name}");
            }
        }
    }
}

#[test]
fn all_texts_with_parameters_have_a_twin() {
    let with = roundelay_algorithms::CATALOGUE
        .iter()
        .filter(|entry| entry.text.contains(&format!("algorithm {}(", entry.name)));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/parameters");
    let files = std::fs::read_dir(folder).expect("the texts").count();
    let of_library = parameters::TWINS.iter().filter(|twin| twin.text.is_none());
    assert_eq!(of_library.count(), with.count());
    assert_eq!(parameters::TWINS.iter().filter(|twin| twin.text.is_some()).count(), files);
}

#[test]
fn a_file_that_was_embedded_has_the_plans_of_the_library() {
    static RING: Prototype =
        roundelay::algo_file!("../../../algorithms/all_reduce/ring.algo", check(2..=5));
    static GRID: Prototype =
        roundelay::algo_file!("../../../algorithms/all_reduce/two_level.algo", check((2, 3)));
    [&RING, &GRID].into_iter().for_each(compare);
}

#[test]
fn arguments_are_a_part_of_the_identity() {
    use parameters::{BOTH, both};
    let of_rust: &Algorithm = both.algorithm().expect("a prototype");
    let of_text = Algorithm::parse("both.algo", BOTH).expect("a sound text");
    let shape = Shape::flat(5);
    let plans = |a: &Algorithm| bytes(a.program(), a.sources(), &shape, 1).expect("it is proved");
    let mut seen = Vec::new();
    for name in ["both", "both(m = 2)", "both(up = false)", "both(m = 4, up = false)"] {
        let [of_rust, of_text] =
            [of_rust, &of_text].map(|a| a.named(name).expect("arguments that it takes"));
        assert_eq!((of_rust.name(), of_text.name()), (name, name));
        assert!(plans(&of_rust) == plans(&of_text), "{name}");
        assert!(!seen.contains(&plans(&of_text)), "{name} is like another");
        seen.push(plans(&of_text));
    }
    // A default that is given changes nothing.
    let same = of_text.named("both(up = true, m = 3)").expect("defaults");
    assert!(same.name() == "both" && plans(&same) == seen[0]);
    let refused = of_text.named("both(m = true)").expect_err("no number");
    assert_eq!(refused.code().0, "RL0206", "{refused}");
    // Another default is another algorithm.
    let other = Algorithm::parse("both.algo", &BOTH.replace("m = 3", "m = 4")).expect("a text");
    assert!(!seen.contains(&plans(&other)));
}

#[test]
fn another_algorithm_has_another_identity() {
    let ring = library::all_reduce::ring.algorithm().expect("a prototype");
    let other = library::all_reduce::bidirectional_ring.algorithm().expect("a prototype");
    let shape = Shape::flat(4);
    let [a, b] = [ring, other].map(|a| bytes(a.program(), a.sources(), &shape, 0));
    assert!(a.is_some() && a != b);
}

#[test]
fn lines_are_those_of_the_rust_file() {
    let ring = library::all_reduce::ring.algorithm().expect("a prototype");
    let place = ring.program().style.placements()[0];
    let shape = Shape::flat(3);
    let proved = compile(ring.program(), ring.sources(), &shape, &CompileOptions::default(), place);
    let plans = proved.expect("it is proved").into_plans();
    let text = include_str!("library.rs");
    for site in &plans[0].part.sites {
        assert!(site.file.ends_with("twins/library.rs"), "{}", site.file);
        let line = text.lines().nth(site.line as usize - 1).unwrap_or_default();
        assert!(line.contains(&site.text), "{}: `{}` is not in `{line}`", site.line, site.text);
        assert_eq!(line.find(&site.text), Some(site.column as usize - 1));
    }
    assert!(!plans[0].part.sites.is_empty());
}

#[test]
fn helpers_have_the_meaning_of_the_language() {
    assert_eq!(library::helpers::reach(1), -1);
    assert_eq!([1, 2, 3, 5, 6, 7].map(|v| library::helpers::parent(v, 8)), [2, 4, 2, 6, 4, 6]);
    assert_eq!(library::helpers::partner(0, 1, 8), 7);
}

#[test]
fn the_identity_is_that_of_what_is_meant() {
    let hash = |text: &str| {
        let source =
            roundelay_tests::read("a.algo", text).map_err(|(s, d)| roundelay_tests::say(&s, &d));
        let source = source.expect("a sound text");
        let (program, shape) = (&source.programs[0], Shape::flat(4));
        let place = program.style.placements()[0];
        let proved = compile(program, &source.sources, &shape, &CompileOptions::default(), place);
        proved.expect("it is proved").plans()[0].header.hash
    };
    let text = "algorithm star implements all_reduce on n ranks {
        each r where r != 0 { r -> 0 : reduce data }
        each r where r != 0 { 0 -> r : copy data }
    }";
    let same = "// the centre\nalgorithm star implements all_reduce on m ranks {
        requires m > 1
        each p { if p != 0 { p -> 0 : reduce data } }
        each q { if q != 0 { 0 -> q : copy data } }
    }";
    assert_eq!(hash(text), hash(same));
    for (from, to) in [
        ("star", "sun"),
        ("ranks {", "ranks { chunks 2"),
        ("0 -> r : copy data", "0 -> r : copy data as f32"),
        ("0 -> r : copy data }", "0 -> r : copy data } schedule { pipeline 2 }"),
        ("where r != 0 { r ->", "where r > 0 { r ->"),
    ] {
        let other = text.replace(from, to);
        assert_ne!(text, other);
        assert_ne!(hash(text), hash(&other), "{other}");
    }
}
