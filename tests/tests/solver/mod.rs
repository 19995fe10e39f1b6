//! Compares the refuter of `roundelay_compiler::all_n` with z3, on random obligations of the forms that proofs for
//! every rank count have: what is refuted has no solution, and a solution that is found is one.
//!
//! `ROUNDELAY_TEST_Z3` names a Python that has the package `z3-solver`. 400 obligations are tried, 4,000 with
//! `ROUNDELAY_CI=full`, and as many as `OBLIGATIONS=100000` says.

mod formulas;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::{env, thread};

use formulas::FormulaMaker;
use roundelay_compiler::all_n::{ProofObligation, RefuteOutcome, StepBudget, refute};
use roundelay_tests::{CheckNeeds, SeededRandom, is_full, skip};

const STEPS: u64 = 30_000;

/// Returns the Python that has z3, or says why the check is skipped.
fn python() -> Option<String> {
    let python = env::var("ROUNDELAY_TEST_Z3").ok().filter(|path| !path.is_empty());
    if python.is_none() {
        skip(CheckNeeds::Solver, "no z3: ROUNDELAY_TEST_Z3 names no Python that has it");
    }
    python
}

/// Writes an obligation and what the refuter says of it.
fn describe(obligation: &ProofObligation, outcome: &RefuteOutcome) -> String {
    match outcome {
        RefuteOutcome::Proved(_) => format!("{obligation}outcome refuted\n"),
        RefuteOutcome::Unproved { model: Some(model), .. } => {
            let values: Vec<String> = model.iter().map(i128::to_string).collect();
            format!("{obligation}outcome model {}\n", values.join(" "))
        }
        RefuteOutcome::Unproved { model: None, .. } => format!("{obligation}outcome none\n"),
    }
}

/// Compares outcomes with z3; returns the counts that it prints, by word, and its output.
fn compare(python: &str, text: String) -> (BTreeMap<String, usize>, String) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/solver/oracle.py");
    let mut command = Command::new(python);
    command.arg(oracle).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut oracle = command.spawn().unwrap_or_else(|e| panic!("{python}: {e}"));
    let mut input = oracle.stdin.take().expect("a pipe");
    let writer = thread::spawn(move || input.write_all(text.as_bytes()));
    let output = oracle.wait_with_output().expect("its output");
    writer.join().expect("no panic").expect("the oracle reads all");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{said}");
    let count = |line: &str| {
        let (word, number) = line.strip_prefix("count ")?.split_once(' ')?;
        Some((word.to_owned(), number.parse().ok()?))
    };
    (said.lines().filter_map(count).collect(), said)
}

/// Compares a share of random obligations; returns the counts.
fn compare_share(python: &str, seed: u64, obligations: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for block in 0..obligations.div_ceil(1_000) {
        let mut text = String::new();
        for at in block * 1_000..obligations.min((block + 1) * 1_000) {
            let random = SeededRandom((seed << 32) + at as u64);
            let obligation = FormulaMaker::make(random, &format!("random {seed}/{at}"));
            let outcome = refute(&obligation, &mut StepBudget::new(STEPS));
            text += &describe(&obligation, &outcome);
        }
        let (found, said) = compare(python, text);
        assert_eq!(found["wrong"], 0, "{said}");
        for (word, count) in found {
            *counts.entry(word).or_default() += count;
        }
    }
    counts
}

#[test]
fn refutations_and_models_are_those_of_z3() {
    let Some(python) = python() else { return };
    let sample = if is_full() { 4_000 } else { 400 };
    let asked = env::var("OBLIGATIONS").map(|count| count.parse().expect("a number"));
    let (count, shares): (usize, usize) = (asked.unwrap_or(sample), 2);
    let counts = thread::scope(|scope| {
        let share = |seed| {
            let python = &python;
            scope.spawn(move || compare_share(python, seed, count / shares))
        };
        let shares: Vec<_> = (0..shares as u64).map(share).collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for share in shares {
            for (word, count) in share.join().expect("a share") {
                *counts.entry(word).or_default() += count;
            }
        }
        counts
    });
    assert_eq!(counts["obligations"], count);
    assert!(counts["refuted"] > count / 5 && counts["model"] > count / 5, "{counts:?}");
    // What neither side decides is of no use to the comparison.
    assert!(counts["none"] < count / 50 && counts["undecided"] < count / 50, "{counts:?}");
}

/// The obligations of the library, which the compiler's tests refute, have no solution by z3 either.
#[test]
fn obligations_of_the_library_hold() {
    let Some(python) = python() else { return };
    let text = include_str!("../../../compiler/tests/all_n/obligations.txt");
    let all: Vec<&str> = text.split("obligation ").filter(|block| !block.is_empty()).collect();
    let text = all.iter().map(|block| format!("obligation {block}outcome refuted\n")).collect();
    let (counts, said) = compare(&python, text);
    assert_eq!((counts["obligations"], counts["wrong"]), (441, 0), "{said}");
    assert_eq!(counts["undecided"], 0, "{said}");
}

/// The comparison finds a refutation of what has a solution, and a model that is none.
#[test]
fn wrong_outcomes_are_found() {
    let Some(python) = python() else { return };
    let head = "variables n q\nassume -q<=0\nassume q-n+1<=0\ngoal (or (not q-n+1=0) n-7<=0)\n";
    let cases = [
        ("outcome refuted", 1),
        ("outcome model 8 7", 0),
        ("outcome model 7 6", 1),
        ("outcome model 9 7", 1),
        ("outcome model 8", 1),
    ];
    for (outcome, wrong) in cases {
        let mut text = String::new();
        writeln!(text, "obligation fixed\n{head}{outcome}").unwrap();
        let (counts, said) = compare(&python, text);
        assert_eq!((counts["obligations"], counts["wrong"]), (1, wrong), "{outcome}: {said}");
    }
}
