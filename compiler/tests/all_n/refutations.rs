//! The obligations of the library's algorithms are proved, and the checker accepts the proofs and no damaged ones.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use roundelay_compiler::all_n::{
    LinearFormula, LinearTerm, ProofObligation, RefutationTree, RefuteOutcome, StepBudget,
    UnprovedReason, refute,
};

use super::text::read_obligations;

pub(super) const OBLIGATIONS: &str = include_str!("obligations.txt");

/// Steps that every obligation of the library is proved in: twice what the longest takes.
const STEPS: u64 = 30_000;

/// A sequence of numbers that is the same in every run (SplitMix64).
pub(super) struct FixedNumbers(u64);

impl FixedNumbers {
    pub(super) fn new(seed: u64) -> Self {
        FixedNumbers(seed)
    }

    /// Returns a number below a limit.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

pub(super) fn run(obligation: &ProofObligation) -> RefuteOutcome {
    refute(obligation, &mut StepBudget::new(STEPS))
}

pub(super) fn prove(obligation: &ProofObligation) -> RefutationTree {
    match run(obligation) {
        RefuteOutcome::Proved(tree) => tree,
        outcome => panic!("{}: {outcome:?}", obligation.name),
    }
}

/// Runs the checker on refutations; returns the counts of accepted and refused ones, and its output.
pub(super) fn check(text: &str) -> (usize, usize, String) {
    let checker = concat!(env!("CARGO_MANIFEST_DIR"), "/../algorithms/proofs/check.py");
    let mut command = Command::new("python3");
    command.args([checker, "/dev/stdin"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut checker = command.spawn().expect("python3 runs");
    let mut input = checker.stdin.take().unwrap();
    // The checker reads all before it writes.
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = checker.wait_with_output().unwrap();
    let (out, err) = (output.stdout, output.stderr);
    let out = String::from_utf8(out).unwrap();
    let last = out.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&err)));
    let counts = last.strip_prefix("accepted ").and_then(|rest| rest.split_once(", refused "));
    let (accepted, refused) =
        counts.unwrap_or_else(|| panic!("{out}\n{}", String::from_utf8_lossy(&err)));
    assert_eq!(output.status.success(), refused == "0", "{out}");
    (accepted.parse().unwrap(), refused.parse().unwrap(), out)
}

#[test]
fn all_obligations_are_proved_and_checked() {
    let obligations = read_obligations(OBLIGATIONS);
    assert_eq!(obligations.len(), 441);
    let mut text = String::new();
    for obligation in &obligations {
        let tree = prove(obligation);
        let words = tree.to_string();
        assert_eq!(words.parse::<RefutationTree>().unwrap(), tree);
        writeln!(text, "{obligation}refutation {words}").unwrap();
    }
    // The writer of obligations agrees with the text that was read.
    let written: String = obligations.iter().map(ToString::to_string).collect();
    assert_eq!(read_obligations(&written), obligations);
    let (accepted, refused, output) = check(&text);
    assert_eq!((accepted, refused), (441, 0), "{output}");
}

/// Changes one number of a refutation, or leaves out, doubles or exchanges words.
fn damage(words: &str, numbers: &mut FixedNumbers) -> String {
    let mut words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let at = numbers.below(words.len());
    match numbers.below(6) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, words[at].clone()),
        2 => {
            let other = numbers.below(words.len());
            words.swap(at, other);
        }
        3 => words[at].push_str("*2"),
        _ => {
            let digits: Vec<usize> =
                words[at].match_indices(|c: char| c.is_ascii_digit()).map(|(i, _)| i).collect();
            let place = digits[numbers.below(digits.len())];
            let digit = numbers.below(10).to_string();
            words[at].replace_range(place..=place, &digit);
        }
    }
    words.join(" ")
}

/// A damaged refutation is refused, or is a refutation all the same: each obligation here holds. What the checker must
/// never accept is a refutation of something that does not hold, which the second half tries: the damaged tree of an
/// obligation beside a goal that is violated.
#[test]
fn damaged_refutations_are_refused() {
    let mut numbers = FixedNumbers::new(1);
    let obligations = read_obligations(OBLIGATIONS);
    let (mut text, mut false_text) = (String::new(), String::new());
    for at in 0..2_000 {
        let obligation = &obligations[numbers.below(obligations.len())];
        let words = prove(obligation).to_string();
        let mut damaged = damage(&words, &mut numbers);
        while damaged == words {
            damaged = damage(&words, &mut numbers);
        }
        writeln!(text, "{obligation}refutation {damaged}").unwrap();
        if at % 10 == 0 {
            let mut wrong = obligation.clone();
            wrong.goal = LinearFormula::False;
            writeln!(false_text, "{wrong}refutation {damaged}").unwrap();
        }
    }
    let (accepted, refused, output) = check(&text);
    assert_eq!(accepted + refused, 2_000);
    assert!(accepted <= 20, "{accepted} damaged refutations are accepted\n{output}");
    // Assumptions of the library have solutions, so that `false` does not follow from them.
    let (accepted, refused, output) = check(&false_text);
    assert_eq!((accepted, refused), (0, 200), "{output}");
}

/// An assumption left out, or a constant changed: what has a counter-example is never proved, and what is proved has a
/// refutation that the checker accepts.
#[test]
fn changed_obligations_are_proved_only_if_they_hold() {
    let mut numbers = FixedNumbers::new(2);
    let obligations = read_obligations(OBLIGATIONS);
    let (mut text, mut foreign) = (String::new(), String::new());
    let (mut proved, mut violated) = (0, 0);
    for obligation in &obligations {
        let mut changed = obligation.clone();
        let at = numbers.below(changed.assumptions.len());
        match (numbers.below(3), &mut changed.assumptions[at], &mut changed.goal) {
            (0, LinearFormula::AtMost(term), _) | (1 | 2, _, LinearFormula::AtMost(term)) => {
                *term = term.sub(&LinearTerm::from(1)).unwrap();
            }
            _ => drop(changed.assumptions.remove(at)),
        }
        match run(&changed) {
            RefuteOutcome::Proved(tree) => {
                proved += 1;
                writeln!(text, "{changed}refutation {tree}").unwrap();
            }
            RefuteOutcome::Unproved { model: Some(model), reason } => {
                assert!(changed.is_violated(&model), "{changed}");
                assert_eq!(reason, UnprovedReason::Violated);
                violated += 1;
                writeln!(foreign, "{changed}refutation {}", prove(obligation)).unwrap();
            }
            RefuteOutcome::Unproved { model: None, .. } => {}
        }
    }
    assert!(proved > 50 && violated > 50, "proved {proved}, violated {violated}");
    let (accepted, refused, output) = check(&text);
    assert_eq!((accepted, refused), (proved, 0), "{output}");
    // The refutation of what was true before the change says nothing of what is false.
    let (accepted, refused, output) = check(&foreign);
    assert_eq!((accepted, refused), (0, violated), "{output}");
}

/// Nothing is proved from a contradiction: the assumptions alone have a solution, which is found.
#[test]
fn assumptions_have_solutions() {
    for mut obligation in read_obligations(OBLIGATIONS) {
        obligation.goal = LinearFormula::False;
        let outcome = run(&obligation);
        let RefuteOutcome::Unproved { model: Some(model), .. } = outcome else {
            panic!("{}: {outcome:?}", obligation.name);
        };
        assert!(obligation.is_violated(&model), "{}", obligation.name);
    }
}
