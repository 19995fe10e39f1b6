//! An input beyond a limit is not proved: numbers of more than 128 bits, steps, nested formulas and cases.

use std::thread;

use roundelay_compiler::all_n::{
    LinearFormula, LinearTerm, ProofObligation, RefuteOutcome, StepBudget, UnprovedReason, refute,
};

use super::refutations::{OBLIGATIONS, check, prove, run};
use super::text::read_obligations;

fn unproved(reason: UnprovedReason) -> RefuteOutcome {
    RefuteOutcome::Unproved { model: None, reason }
}

/// Returns the obligation that `x0 >= 1`, where each of `links` variables is `factor` times the one before, bounds the
/// last from below.
fn chain(links: u32, factor: i128) -> ProofObligation {
    let mut obligation = ProofObligation::new("chain");
    let variables: Vec<LinearTerm> =
        (0..=links).map(|i| obligation.add_variable(&format!("x{i}")).into()).collect();
    obligation.assumptions.push(LinearFormula::le(&1.into(), &variables[0]).unwrap());
    for pair in variables.windows(2) {
        let least = pair[0].scale(factor).unwrap();
        obligation.assumptions.push(LinearFormula::le(&least, &pair[1]).unwrap());
    }
    obligation.goal = LinearFormula::le(&5.into(), variables.last().unwrap()).unwrap();
    obligation
}

#[test]
fn numbers_of_more_than_128_bits_prove_nothing() {
    // The multiples in the only refutation are powers of the factor, up to the last one.
    let text = [chain(3, 1 << 40), chain(1, i128::MAX)]
        .map(|chain| format!("{chain}refutation {}\n", prove(&chain)));
    assert_eq!(check(&text.concat()).0, 2);
    assert_eq!(run(&chain(4, 1 << 32)), unproved(UnprovedReason::Overflow));
    assert_eq!(run(&chain(2, i128::MAX)), unproved(UnprovedReason::Overflow));

    let mut obligation = ProofObligation::new("bounds");
    let x = LinearTerm::from(obligation.add_variable("x"));
    let least = x.add(&i128::MIN.into()).unwrap();
    obligation.assumptions =
        vec![LinearFormula::AtMost(least.clone()), LinearFormula::Equal(least)];
    assert_eq!(run(&obligation), unproved(UnprovedReason::Overflow));
}

#[test]
fn budgets_count_the_same_steps_each_time() {
    for obligation in read_obligations(OBLIGATIONS).iter().step_by(20) {
        let mut budget = StepBudget::new(100_000);
        let first = refute(obligation, &mut budget);
        let steps = 100_000 - budget.left();
        let mut exact = StepBudget::new(steps);
        assert_eq!(refute(obligation, &mut exact), first);
        assert_eq!(exact.left(), 0);
        for steps in [0, 1, steps / 2, steps - 1] {
            let mut less = StepBudget::new(steps);
            assert_eq!(refute(obligation, &mut less), unproved(UnprovedReason::Steps));
            assert_eq!(less.left(), 0);
        }
    }
}

#[test]
fn deep_formulas_prove_nothing() {
    let mut deep = ProofObligation::new("deep");
    deep.goal = (0..1_000).fold(LinearFormula::True, |inner, _| LinearFormula::And(vec![inner]));
    assert_eq!(run(&deep), unproved(UnprovedReason::Depth));
    // Each doubles what it holds.
    deep.goal = (0..60).fold(LinearFormula::True, |inner, _| {
        LinearFormula::iff(inner.clone(), LinearFormula::True)
    });
    assert_eq!(run(&deep), unproved(UnprovedReason::Steps));
}

/// Returns an obligation with a case distinction in each case of the one before, `depth` times.
fn nest(depth: u32) -> ProofObligation {
    let mut obligation = ProofObligation::new("nested");
    let mut sum = LinearTerm::default();
    for i in 0..depth {
        let x = LinearTerm::from(obligation.add_variable(&format!("x{i}")));
        sum = sum.add(&x).unwrap();
        obligation.assumptions.push(LinearFormula::le(&x, &2.into()).unwrap());
        let (low, high) = (LinearFormula::le(&x, &0.into()), LinearFormula::le(&2.into(), &x));
        obligation.assumptions.push(LinearFormula::Or(vec![low.unwrap(), high.unwrap()]));
    }
    // All are 2 but one, which is 1 or more: the values of the simplex violate one disjunction after the other.
    let least = LinearTerm::from(i128::from(2 * depth) - 1);
    obligation.assumptions.push(LinearFormula::le(&least, &sum).unwrap());
    obligation.goal = LinearFormula::le(&least.add(&1.into()).unwrap(), &sum).unwrap();
    obligation
}

/// WebAssembly gives a program 1 MiB of stack.
#[test]
fn cases_nest_within_a_small_stack() {
    let small = thread::Builder::new().stack_size(512 << 10);
    let outcomes = small.spawn(|| [200, 400].map(|depth| run(&nest(depth)))).unwrap();
    let outcomes = outcomes.join().unwrap();
    assert!(matches!(outcomes[0], RefuteOutcome::Proved(_)), "{:?}", outcomes[0]);
    assert_eq!(outcomes[1], unproved(UnprovedReason::Depth));
}
