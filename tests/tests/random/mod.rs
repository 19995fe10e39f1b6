//! Tests random programs, from a seed:
//!
//! * On 2 to 6 ranks the verifier's verdict, on the step graph and on the plans of both placements, is
//!   the oracle's; a plan made alone is the plan made among all; and a sample of what is proved runs on
//!   the real runtime, in passes, under changed schedules, and gives what the collective asks for.
//! * On 2 to 16 ranks the proof by symmetry proves only what unrolling proves, with the same counts, and
//!   refutes nothing else than unrolling does, but for waits, which its clock sees more strictly.
//! * Texts that are no programs do no harm.
//!
//! Programs that once showed a fault are kept in `kept.rs`, and tried again.
//!
//! `ROUNDS=20` tries twenty times as many, `SEED=7` others.

mod alike;
mod declared;
mod execution;
mod files;
mod grid;
mod judge;
mod kept;
mod make;
mod noise;
mod oracle;
mod parameters;
mod ranks;
mod skeletons;
mod slots;
mod wide;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use judge::{At, Verdict};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::program::ArgumentValue;
use roundelay_compiler::{Program, Shape};
use roundelay_tests::mutate::mutants;
use roundelay_tests::{SeededRandom, is_full, is_grid, read, roots, say};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Returns the dice of the `i`-th trial.
fn dice(i: u64) -> SeededRandom {
    SeededRandom(number("SEED", 1) << 32 ^ i)
}

/// The outcomes, counted.
#[derive(Default)]
struct Count {
    of: BTreeMap<&'static str, u64>,
    differences: Vec<String>,
}

impl Count {
    fn add(&mut self, what: &'static str, by: u64) {
        *self.of.entry(what).or_default() += by;
    }

    fn differs(&mut self, i: u64, text: &str, why: &str) {
        self.differences.push(format!("---- trial {i}: {why}\n{text}"));
    }

    fn finish(self, name: &str, least: &[(&str, u64)]) {
        let _ = writeln!(std::io::stderr(), "{name}: {:?}", self.of);
        assert!(
            self.differences.is_empty(),
            "{} differences\n{}",
            self.differences.len(),
            self.differences.join("\n")
        );
        for (what, least) in least {
            let is = self.of.get(what).copied().unwrap_or(0);
            assert!(is >= *least, "{what}: only {is}");
        }
    }
}

/// Changes one program in four at a random place, as the mutants of the library are.
fn changed(made: make::Made, dice: &mut SeededRandom) -> make::Made {
    if dice.below(4) > 0 {
        return made;
    }
    let mut all = mutants(&made.text);
    if all.is_empty() {
        return made;
    }
    make::Made { text: all.swap_remove(dice.below(all.len())).text, ..made }
}

/// Returns the verdict on the same program if its schedule asks for no number of slots.
fn with_any_slots(made: &make::Made, at: &At<'_>) -> Result<Verdict, String> {
    let (before, after) =
        made.text.split_once(" slots ").ok_or("refused for slots it did not ask for")?;
    let text = format!("{before} {}", after.trim_start_matches(|c: char| c.is_ascii_digit()));
    let made = make::Made { text, grid: made.grid, files: made.files.clone() };
    let source = made.read().map_err(|(s, d)| say(&s, &d))?;
    let name = at.program.declared_name();
    let program = source.programs.iter().find(|p| p.name == *name).ok_or("no algorithm")?;
    let values = at.program.parameters.iter().map(|p| (p.name.clone(), p.value));
    let values: Vec<_> = values.collect();
    let program = &program.with_arguments(&values).map_err(|d| d.message)?;
    At { program, sources: &source.sources, shape: at.shape.clone(), root: at.root }.judge()
}

/// Gives some parameters of a program, if it has any, other values: near their defaults, and within their bounds.
fn given(program: &Arc<Program>, dice: &mut SeededRandom) -> Arc<Program> {
    let mut values = Vec::new();
    for p in &program.parameters {
        let value = match p.default {
            ArgumentValue::Number(v) => {
                ArgumentValue::Number(v + [0, 0, 0, 1, 2, -1][dice.below(6)])
            }
            ArgumentValue::Truth(v) => ArgumentValue::Truth(v ^ (dice.below(3) == 0)),
        };
        if p.refusal(value).is_none() {
            values.push((p.name.clone(), value));
        }
    }
    program.with_arguments(&values).expect("values that the parameters may have")
}

/// Does something that must not panic.
fn guarded<T>(what: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| Err("panicked".into()))
}

/// Compares the verdicts on a program, at some shapes, with the oracle's, and executes some of what is proved.
fn compare_verdicts(count: &mut Count, i: u64, made: &make::Made, dice: &mut SeededRandom) {
    let source = match made.read() {
        Ok(source) => source,
        Err((sources, faults)) => {
            count.add("not resolved", 1);
            if number("SHOW", 0) > 0 {
                let _ =
                    writeln!(std::io::stderr(), "{i} {}\n{}", say(&sources, &faults), made.text);
            }
            return;
        }
    };
    let Some(program) = source.programs.iter().find(|p| p.name != "helper") else { return };
    let program = &given(program, dice);
    count.add("programs", 1);
    count.add("programs with parameters", u64::from(!program.parameters.is_empty()));
    count.add("programs with arguments", u64::from(program.name.contains('(')));
    let shapes: Vec<Shape> = match is_grid(program) {
        true => [[2, 2], [2, 3], [3, 2]].map(|axes| Shape { axes: axes.to_vec() }).to_vec(),
        false => (2..=6).map(Shape::flat).collect(),
    };
    for shape in shapes {
        let all = roots(program, shape.ranks() as u32);
        let root = all[dice.below(all.len())];
        let at = At { program, sources: &source.sources, shape, root };
        match guarded(|| at.judge()) {
            Err(why) => count.differs(i, &made.text, &why),
            Ok(Verdict::Unfit) => count.add("unfit shape", 1),
            Ok(Verdict::Refuted) => count.add("refuted", 1),
            // The oracle has as many slots as it likes.
            Ok(Verdict::Refused) if !made.text.contains(" slots ") => {
                count.add("more in flight than there can be", 1);
            }
            Ok(Verdict::Refused) => {
                count.add("refused for slots", 1);
                match guarded(|| with_any_slots(made, &at)) {
                    Ok(Verdict::Right(..)) => {}
                    Ok(_) => count.differs(i, &made.text, "refused with any number of slots"),
                    Err(why) => count.differs(i, &made.text, &why),
                }
            }
            Ok(Verdict::Right(instance, plans)) => {
                count.add("proved", 1);
                if dice.below(6) > 0 {
                    continue;
                }
                for proved in &plans {
                    match guarded(|| execution::execute(&instance, proved, dice)) {
                        Err(why) => {
                            let why = format!("on {}: executed: {why}", at.shape);
                            count.differs(i, &made.text, &why);
                        }
                        Ok(stats) => {
                            count.add("executed", 1);
                            count.add("executed in passes", u64::from(stats.passes > 1));
                            count.add("pulled", stats.pulled);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn verdicts_on_random_programs_equal_the_oracles() {
    let mut count = Count::default();
    for i in 0..400 * number("ROUNDS", 1) {
        let mut dice = dice(i);
        let (_, made) = make::any(i, &mut dice);
        let made = changed(made, &mut dice);
        compare_verdicts(&mut count, i, &made, &mut dice);
    }
    count.finish(
        "verdicts",
        &[
            ("proved", 500),
            ("refuted", 200),
            ("executed in passes", 50),
            ("programs with arguments", 10),
        ],
    );
}

/// Programs with parameters alone: `ROUNDELAY_CI=full` tries 20,000 of them, `PROGRAMS=1000` as many.
#[test]
fn verdicts_on_programs_with_parameters_equal_the_oracles() {
    let wanted = number("PROGRAMS", if is_full() { 20_000 } else { 60 });
    let mut count = Count::default();
    let judged = |count: &Count| count.of.get("programs with parameters").copied().unwrap_or(0);
    for i in (1 << 24).. {
        if judged(&count) >= wanted || !count.differences.is_empty() {
            break;
        }
        let mut dice = dice(i);
        let made = match dice.below(4) {
            0 => parameters::radix(&mut dice),
            _ => parameters::program(&mut dice),
        };
        let made = changed(made, &mut dice);
        compare_verdicts(&mut count, i, &made, &mut dice);
    }
    let least = [
        ("proved", wanted / 2),
        ("refuted", wanted / 8),
        ("programs with arguments", wanted / 8),
        ("executed", wanted / 16),
    ];
    count.finish("verdicts with parameters", &least);
}

#[test]
fn symmetry_proves_what_unrolling_proves() {
    let mut count = Count::default();
    let library: Vec<&str> = CATALOGUE.iter().map(|e| e.text).collect();
    let trials = 200 * number("ROUNDS", 1);
    for i in 0..library.len() as u64 + trials {
        let mut dice = dice(i);
        let text = match library.get(i as usize) {
            Some(text) => text.to_string(),
            None => {
                let mut text = match dice.below(2) {
                    0 => library[dice.below(library.len())].to_string(),
                    _ => make::program(&mut dice).text,
                };
                for _ in 0..dice.below(3) {
                    let mut all = mutants(&text);
                    if !all.is_empty() {
                        text = all.swap_remove(dice.below(all.len())).text;
                    }
                }
                text
            }
        };
        let Ok(source) = read("random.algo", &text) else { continue };
        let Some(program) = source.programs.iter().find(|p| p.name != "helper") else { continue };
        if program.kind.rooted() {
            continue;
        }
        if is_grid(program) {
            for axes in [[2, 2], [2, 3], [4, 2], [3, 4], [2, 8], [4, 4]] {
                let shape = Shape { axes: axes.to_vec() };
                let at = At { program, sources: &source.sources, shape, root: 0 };
                match guarded(|| at.symmetry()) {
                    Err(why) => count.differs(i, &text, &why),
                    Ok(None) => count.add("no symmetry on a grid", 1),
                    Ok(Some(_)) => count.add("symmetry on a grid", 1),
                }
            }
            continue;
        }
        for n in 2..=16 {
            // Beyond 8 some counts only.
            if n > 8 && dice.below(4) > 0 && !(n == 16 && i < library.len() as u64) {
                continue;
            }
            let at = At { program, sources: &source.sources, shape: Shape::flat(n), root: 0 };
            match guarded(|| at.symmetry()) {
                Err(why) => count.differs(i, &text, &why),
                Ok(None) => count.add("no symmetry", 1),
                Ok(Some(true)) => count.add("proved", 1),
                Ok(Some(false)) => count.add("refuted", 1),
            }
        }
    }
    count.finish("symmetry", &[("proved", 100), ("refuted", 50)]);
}

#[test]
fn no_text_does_harm() {
    let mut count = Count::default();
    for i in 0..600 * number("ROUNDS", 1) {
        let text = noise::text(&mut dice(i));
        match guarded(|| noise::survive(&text)) {
            Err(why) => count.differs(i, &text, &why),
            Ok(proved) => {
                count.add("texts", 1);
                count.add("proved", u64::from(proved > 0));
            }
        }
    }
    count.finish("noise", &[]);
}
