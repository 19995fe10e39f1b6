//! Programs that are wrong at one rank count only: the refuter returns that rank count, and the rank and the round.

use roundelay_compiler::all_n::{LinearFormula, ProofObligation, RefuteOutcome, UnprovedReason};

use super::refutations::{OBLIGATIONS, run};
use super::text::{read_formula, read_obligations};

fn find(name: &str) -> ProofObligation {
    let mut all = read_obligations(OBLIGATIONS).into_iter();
    all.find(|obligation| obligation.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Puts a formula in place of another, wherever it stands.
fn replace(formula: &mut LinearFormula, old: &LinearFormula, new: &LinearFormula) {
    if formula == old {
        *formula = new.clone();
        return;
    }
    match formula {
        LinearFormula::Not(inner) => replace(inner, old, new),
        LinearFormula::And(parts) | LinearFormula::Or(parts) => {
            parts.iter_mut().for_each(|part| replace(part, old, new));
        }
        LinearFormula::Iff(a, b) => {
            replace(a, old, new);
            replace(b, old, new);
        }
        _ => {}
    }
}

/// Returns the values that violate an obligation whose condition for sending is made false in one case.
fn silence(name: &str, sends: &str, silent: &str) -> Vec<(String, i128)> {
    let mut obligation = find(name);
    let read = |text: &str| read_formula(text, &obligation.variables);
    let (sends, silent) = (read(sends), read(silent));
    let both = LinearFormula::And(vec![sends.clone(), LinearFormula::negate(silent)]);
    let before = obligation.goal.clone();
    replace(&mut obligation.goal, &sends, &both);
    assert_ne!(obligation.goal, before);
    let outcome = run(&obligation);
    let RefuteOutcome::Unproved { model: Some(model), reason } = outcome else {
        panic!("{name}: {outcome:?}");
    };
    assert_eq!(reason, UnprovedReason::Violated);
    assert!(obligation.is_violated(&model));
    obligation.variables.into_iter().zip(model).collect()
}

#[track_caller]
fn assert_values(found: &[(String, i128)], expected: &[(&str, i128)]) {
    for &(name, value) in expected {
        assert!(found.contains(&(name.to_owned(), value)), "{name} is not {value}: {found:?}");
    }
}

#[test]
fn a_rank_that_keeps_silent_once_is_found() {
    let name = "ring all_reduce, reduce step: value";
    // The sender is m1 = (q - 1) % n, and the chunk m2 = (m1 - s) % n.
    let model = silence(name, "c-m2=0", "(and n-777=0 s-3=0 m1-5=0)");
    assert_values(&model, &[("n", 777), ("s", 3), ("q", 6), ("c", 2)]);
    let model = silence(name, "c-m2=0", "(and n-1000003=0 m1-999999=0)");
    assert_values(&model, &[("n", 1_000_003), ("m1", 999_999), ("q", 1_000_000)]);
    let model = silence(name, "c-m2=0", "(and n-4294967295=0 s-4294967293=0 m1=0)");
    assert_values(&model, &[("n", 4_294_967_295), ("s", 4_294_967_293), ("q", 1), ("c", 2)]);
}

#[test]
fn silence_that_never_comes_is_proved() {
    let name = "ring all_reduce, reduce step: value";
    let mut obligation = find(name);
    let read = |text: &str| read_formula(text, &obligation.variables);
    // The loop ends before s = n - 1.
    let (sends, silent) = (read("c-m2=0"), read("(and n-777=0 s-776=0)"));
    let both = LinearFormula::And(vec![sends.clone(), LinearFormula::negate(silent)]);
    replace(&mut obligation.goal, &sends, &both);
    assert!(matches!(run(&obligation), RefuteOutcome::Proved(_)));
}
