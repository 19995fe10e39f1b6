//! Proves every algorithm of the library, one test each: for all legal rank counts in 2..=64 and at 100, 127,
//! 128, 255 and 256, in both placements; and runs it on the oracle for few ranks.
//!
//! Rooted algorithms are proved for every root of few ranks. All counts are proved on the graph;
//! plans of more than [`PLANS_UP_TO`] ranks are proved at the named counts, and some others.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use roundelay_algorithms::{CATALOGUE, CatalogueEntry, sweep};
use roundelay_compiler::interpret::interpret;
use roundelay_compiler::{BufferPlacement, CompileOptions, Program, Shape, compile, graph, verify};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::{
    instance, instance_over, is_full, is_grid, of_library, paths, read, roots, say,
};

/// Named rank counts beyond 64.
const LARGE: [u32; 5] = [100, 127, 128, 255, 256];
const GRIDS: [[u32; 2]; 16] = [
    [1, 1],
    [1, 2],
    [2, 1],
    [2, 2],
    [2, 3],
    [3, 2],
    [2, 4],
    [4, 2],
    [3, 3],
    [4, 4],
    [8, 2],
    [2, 8],
    [3, 5],
    [16, 4],
    [10, 10],
    [16, 16],
];
/// The largest number of ranks that the oracle runs.
const RUN_UP_TO: u64 = 17;
/// Plans of all counts are proved up to here.
const PLANS_UP_TO: u64 = 64;
/// The most ranks at which algorithms with arguments are proved, where not all cases are asked for: then 64.
const INSTANCES_UP_TO: u64 = 20;
/// The most ranks at which algorithms that are split over paths are proved with up to four of them.
const PATHS_UP_TO: u64 = 16;

/// Returns a test for each algorithm.
pub(crate) fn trials() -> Vec<Trial> {
    let name = |entry: &CatalogueEntry| format!("library::{}.{}", entry.collective, entry.name);
    let mut trials: Vec<Trial> =
        CATALOGUE.iter().map(|entry| Trial::test(name(entry), || holds(entry))).collect();
    let instances = CATALOGUE.iter().flat_map(|entry| sweep(entry).into_iter().skip(1));
    trials.extend(instances.map(|entry| Trial::test(name(entry), || holds(entry))));
    trials.push(Trial::test("library::a broken ring is refuted", broken));
    trials
}

fn shapes(program: &Program) -> Vec<Shape> {
    if is_grid(program) {
        GRIDS.map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (1..=64).chain(LARGE).map(Shape::flat).collect()
    }
}

fn holds(entry: &CatalogueEntry) -> Result<(), Failed> {
    let (sources, program) = of_library(entry)?;
    let is_instance = entry.name.contains('(');
    let most = if is_full() { 64 } else { INSTANCES_UP_TO };
    let mut legal = 0;
    for shape in shapes(&program).into_iter().filter(|s| !is_instance || s.ranks() <= most) {
        for root in roots(&program, shape.ranks() as u32) {
            // Of many ranks what is split over paths is tried with one.
            let few = shape.ranks() <= PATHS_UP_TO;
            for paths in paths(&program).filter(|&paths| few || paths == 1) {
                legal += u32::from(proved(&program, &sources, &shape, root, paths)?);
            }
        }
    }
    if legal == 0 { Err("no legal rank count".into()) } else { Ok(()) }
}

/// Proves one shape, and for few ranks asks the oracle. False where `requires` forbids the shape.
fn proved(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    root: u32,
    paths: u32,
) -> Result<bool, Failed> {
    let at = |what: &str, why: String| {
        Failed::from(format!("on {shape} ranks, root {root}, {paths} paths: {what}: {why}"))
    };
    let instance = instance_over(program, shape, root, paths);
    let instance = instance.map_err(|d| at("instance", say(sources, &d)))?;
    let Some(instance) = instance else { return Ok(false) };
    if shape.ranks() <= PLANS_UP_TO || root == 0 {
        let options = CompileOptions { root, paths, ..CompileOptions::default() };
        for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
            compile(program, sources, shape, &options, placement)
                .map_err(|d| at(&format!("{placement:?}"), say(sources, &d)))?;
        }
    } else {
        graph::unroll(&instance)
            .and_then(verify::verify)
            .map_err(|d| at("graph", say(sources, &d)))?;
    }
    if shape.ranks() <= RUN_UP_TO {
        let outcome =
            interpret(&instance, shape.ranks()).map_err(|d| at("oracle", say(sources, &d)))?;
        if !outcome.right {
            return Err(at("oracle", outcome.why));
        }
    }
    Ok(true)
}

fn broken() -> Result<(), Failed> {
    let text = "algorithm ring implements all_reduce on n ranks {
        chunks n
        for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
        for s in 0..n-2 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
    }";
    let source = read("broken.algo", text).map_err(|(s, d)| say(&s, &d))?;
    for n in 2..=9 {
        let shape = Shape::flat(n);
        let refuted = compile(
            &source.programs[0],
            &source.sources,
            &shape,
            &CompileOptions::default(),
            BufferPlacement::InPlace,
        );
        if !refuted.is_err_and(|d| d.iter().all(|d| d.code.0 == "RL0501")) {
            return Err(format!("not refuted on {n} ranks").into());
        }
        let instance =
            instance(&source.programs[0], &shape, 0).map_err(|d| say(&source.sources, &d))?;
        let outcome = instance.map(|i| interpret(&i, 1));
        if !outcome.is_some_and(|o| o.is_ok_and(|o| !o.right)) {
            return Err(format!("the oracle takes it for right on {n} ranks").into());
        }
    }
    Ok(())
}
