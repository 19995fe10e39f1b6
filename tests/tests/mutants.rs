//! Tests the verifier against the oracle: small changes to every algorithm of the library. What the data shows
//! to be right is proved, and what it shows to be wrong is refuted, without exception.
//!
//! `MUTANTS=2000` tries more of each algorithm, `ONLY=all_reduce/ring` one of them only.

use std::collections::BTreeMap;
use std::sync::Arc;

use roundelay_algorithms::{CATALOGUE, CatalogueEntry};
use roundelay_compiler::interpret::failure::interpret_failure;
use roundelay_compiler::interpret::interpret;
use roundelay_compiler::{
    BufferPlacement, CompileOptions, Program, ProgramInstance, Shape, compile, graph, verify,
};
use roundelay_dsl::diag::{Diagnostics, codes};
use roundelay_dsl::span::SourceMap;
use roundelay_tests::mutate::{TextMutant, mutants};
use roundelay_tests::{SeededRandom, instance_over, is_grid, paths, read, say as line};

/// Mutants tried of each algorithm.
const TRIED: usize = 80;

/// The outcomes of the mutants of one algorithm.
#[derive(Default)]
struct Count {
    mutants: usize,
    refuted: usize,
    equivalent: usize,
    differences: Vec<String>,
}

fn shapes(program: &Program) -> Vec<Shape> {
    if is_grid(program) {
        [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec()
    } else {
        (2..=9).map(Shape::flat).collect()
    }
}

/// Picks mutants of all kinds in turn, so that none crowds out the others; half of them, or more
/// where there are few, are changed a second time.
fn pick(text: &str, tried: usize, dice: &mut SeededRandom) -> Vec<TextMutant> {
    let mut kinds: BTreeMap<&str, Vec<TextMutant>> = BTreeMap::new();
    for m in mutants(text) {
        kinds.entry(m.kind).or_default().push(m);
    }
    let mut picked = Vec::new();
    while picked.len() < tried / 2 && kinds.values().any(|k| !k.is_empty()) {
        for list in kinds.values_mut().filter(|k| !k.is_empty()) {
            picked.push(list.swap_remove(dice.below(list.len())));
        }
    }
    let first = picked.len();
    while picked.len() < tried && first > 0 {
        let once = picked[dice.below(first)].clone();
        let mut again = mutants(&once.text);
        if !again.is_empty() {
            let twice = again.swap_remove(dice.below(again.len()));
            picked
                .push(TextMutant { change: format!("{}, {}", once.change, twice.change), ..twice });
        }
    }
    picked
}

/// Returns the number of paths to try an algorithm with: two where it divides its data over them.
fn several(program: &Program) -> u32 {
    2.min(*paths(program).end())
}

/// Returns the verifier's verdict: graph, then both placements' plans.
fn proved(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    root: u32,
) -> Result<(), Diagnostics> {
    let options = CompileOptions { root, paths: several(program), ..CompileOptions::default() };
    for placement in [BufferPlacement::InPlace, BufferPlacement::OutOfPlace] {
        compile(program, sources, shape, &options, placement)?;
    }
    Ok(())
}

/// Returns true if the refusal is about resources, which the oracle knows nothing of.
fn resources(faults: &Diagnostics) -> bool {
    faults.iter().all(|d| d.code == codes::SLOTS || d.code == codes::TOO_BIG)
}

/// Verdicts on one shape; whether it is right.
fn judge(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    root: u32,
) -> Result<Option<bool>, String> {
    let Ok(Some(instance)) = instance_over(program, shape, root, several(program)) else {
        return Ok(None);
    };
    let oracle = interpret(&instance, 1);
    let verdict = graph::unroll(&instance).and_then(verify::verify).map(|_| ());
    let full = proved(program, sources, shape, root);
    let right = oracle.as_ref().is_ok_and(|o| o.right);
    let goes_on = program.tolerates.is_none() || survives(&instance);
    let say = |r: &Result<(), Diagnostics>| match r {
        Ok(()) => "proved".to_string(),
        Err(d) => line(sources, d),
    };
    let agrees = |r: &Result<(), Diagnostics>, right: bool| match r {
        Ok(()) => right,
        Err(d) => !right || resources(d),
    };
    // Some runs need not show a point of failure, and show no order of additions.
    let refuted = full.as_ref().is_err_and(|d| d.iter().all(|d| d.code == codes::DISAGREE));
    let full_agrees = agrees(&full, right && goes_on) || refuted && program.tolerates.is_some();
    if agrees(&verdict, right) && full_agrees {
        return Ok(Some(right && goes_on && !refuted));
    }
    let why = match oracle {
        Ok(o) if o.right => "right".to_string(),
        Ok(o) => o.why,
        Err(d) => say(&Err(d)),
    };
    Err(format!(
        "on {shape} root {root}: oracle: {why}; graph: {}; plans: {}",
        say(&verdict),
        say(&full)
    ))
}

/// Returns true if an algorithm goes on in some runs in which a rank fails.
fn survives(instance: &ProgramInstance) -> bool {
    let run = |seed| interpret_failure(instance, seed).is_ok_and(|outcome| outcome.right);
    (1..150u64).all(|seed| run(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn try_all(entry: &CatalogueEntry) -> Count {
    let mut count = Count::default();
    let mut dice = SeededRandom(entry.text.len() as u64);
    let tried = std::env::var("MUTANTS").ok().and_then(|v| v.parse().ok()).unwrap_or(TRIED);
    for m in pick(entry.text, tried, &mut dice) {
        let Ok(source) = read("mutant.algo", &m.text) else { continue };
        let Some(program) = source.programs.iter().find(|p| p.name == entry.name) else { continue };
        let (mut some, mut right) = (false, true);
        for shape in shapes(program) {
            let last = shape.ranks() as u32 - 1;
            for root in if program.kind.rooted() { vec![0, last] } else { vec![0] } {
                match judge(program, &source.sources, &shape, root) {
                    Ok(None) => {}
                    Ok(Some(verdict)) => {
                        some = true;
                        right &= verdict;
                    }
                    Err(difference) => {
                        count.differences.push(format!(
                            "{}.{} {}: {}\n    {difference}",
                            entry.collective, entry.name, m.kind, m.change
                        ));
                    }
                }
            }
        }
        count.mutants += usize::from(some);
        count.refuted += usize::from(some && !right);
        count.equivalent += usize::from(some && right);
    }
    count
}

#[test]
fn verdicts_on_mutants_equal_the_oracles() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut table =
        format!("{:<32}{:>8}{:>8}{:>11}\n", "algorithm", "mutants", "refuted", "equivalent");
    let mut differences = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.path.contains(&only)) {
        let count = try_all(entry);
        let name = format!("{}.{}", entry.collective, entry.name);
        table += &format!(
            "{name:<32}{:>8}{:>8}{:>11}\n",
            count.mutants, count.refuted, count.equivalent
        );
        // Of one statement fewer changes make sense.
        let least = if entry.name == "multipath" { 10 } else { 20 };
        if count.mutants < least {
            differences.push(format!("{name}: {} mutants only", count.mutants));
        }
        differences.extend(count.differences);
    }
    assert!(
        differences.is_empty(),
        "{table}\n{} differences\n{}",
        differences.len(),
        differences.join("\n")
    );
    use std::io::Write;
    let _ = std::io::stderr().write_all(table.as_bytes());
}
