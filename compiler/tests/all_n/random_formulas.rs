//! Random obligations: the outcome is that of trying all values. Parity, which no case distinction decides.

use std::fmt::Write as _;

use roundelay_compiler::all_n::{
    FormulaVariable, LinearFormula, LinearTerm, ProofObligation, RefuteOutcome,
};

use super::refutations::{FixedNumbers, check, run};
use super::text::read_obligations;

/// Variables of random obligations are in -2..=2.
const REACH: i128 = 2;

fn term(numbers: &mut FixedNumbers, variables: u32) -> LinearTerm {
    let mut small = |limit: usize| {
        i128::try_from(numbers.below(2 * limit + 1)).unwrap() - i128::try_from(limit).unwrap()
    };
    let coefficients: Vec<_> = (0..variables).map(|v| (FormulaVariable(v), small(3))).collect();
    LinearTerm::new(coefficients, small(4)).unwrap()
}

fn formula(numbers: &mut FixedNumbers, variables: u32, depth: usize) -> LinearFormula {
    let inner = |numbers: &mut FixedNumbers| formula(numbers, variables, depth.saturating_sub(1));
    match if depth == 0 { numbers.below(2) } else { numbers.below(7) } {
        0 => LinearFormula::AtMost(term(numbers, variables)),
        1 => LinearFormula::Equal(term(numbers, variables)),
        2 => LinearFormula::Not(Box::new(inner(numbers))),
        3 => LinearFormula::And((0..numbers.below(4)).map(|_| inner(numbers)).collect()),
        4 => LinearFormula::Or((0..numbers.below(4)).map(|_| inner(numbers)).collect()),
        5 => LinearFormula::iff(inner(numbers), inner(numbers)),
        _ => LinearFormula::ite(inner(numbers), inner(numbers), inner(numbers)),
    }
}

fn obligation(numbers: &mut FixedNumbers, at: usize) -> ProofObligation {
    let mut obligation = ProofObligation::new(format!("random {at}"));
    let variables = 1 + u32::try_from(numbers.below(3)).unwrap();
    for index in 0..variables {
        let variable = LinearTerm::from(obligation.add_variable(&format!("x{index}")));
        let reach = LinearTerm::from(REACH);
        obligation.assumptions.push(LinearFormula::le(&variable, &reach).unwrap());
        obligation
            .assumptions
            .push(LinearFormula::AtMost(LinearTerm::from(-REACH).sub(&variable).unwrap()));
    }
    for _ in 0..numbers.below(4) {
        obligation.assumptions.push(formula(numbers, variables, 2));
    }
    obligation.goal = formula(numbers, variables, 2);
    obligation
}

fn has_counter_example(obligation: &ProofObligation, values: &mut Vec<i128>) -> bool {
    if values.len() == obligation.variables.len() {
        return obligation.is_violated(values);
    }
    (-REACH..=REACH).any(|value| {
        values.push(value);
        let found = has_counter_example(obligation, values);
        values.pop();
        found
    })
}

#[test]
fn outcomes_are_those_of_all_values() {
    let count = 5_000;
    let mut numbers = FixedNumbers::new(3);
    let (mut text, mut proved) = (String::new(), 0);
    for at in 0..count {
        let obligation = obligation(&mut numbers, at);
        let expected = has_counter_example(&obligation, &mut Vec::new());
        match run(&obligation) {
            RefuteOutcome::Proved(tree) => {
                assert!(!expected, "{obligation}");
                proved += 1;
                writeln!(text, "{obligation}refutation {tree}").unwrap();
            }
            RefuteOutcome::Unproved { model, reason } => {
                let model = model.unwrap_or_else(|| panic!("{reason}: {obligation}"));
                assert!(expected && obligation.is_violated(&model), "{obligation}");
            }
        }
    }
    assert!(proved > count / 10 && proved < count, "{proved} of {count}");
    let (accepted, refused, output) = check(&text);
    assert_eq!((accepted, refused), (proved, 0), "{output}");
}

#[test]
fn parity_needs_no_bounds() {
    let mut text = String::new();
    let cases = [
        (
            "variables h e g f",
            "(or (not 2*h+e-2*g-f=0) (not (and -e<=0 e-1<=0 -f<=0 f-1<=0)) e-f=0)",
        ),
        ("variables x y", "(not 2*x-2*y-1=0)"),
        ("variables m n q", "(or (not n-2*m=0) (not 2*q-n+1=0))"),
        ("variables x y z", "(not (and 3*x+6*y-9*z-4<=0 -3*x-6*y+9*z+4<=0))"),
        ("variables a b c", "(not (and a-2*b=0 a-2*c-1=0))"),
    ];
    for (at, (variables, goal)) in cases.into_iter().enumerate() {
        let case =
            &read_obligations(&format!("obligation parity {at}\n{variables}\ngoal {goal}\n"))[0];
        let RefuteOutcome::Proved(tree) = run(case) else { panic!("{case}") };
        writeln!(text, "{case}refutation {tree}").unwrap();
    }
    assert_eq!(check(&text).0, cases.len());
}
