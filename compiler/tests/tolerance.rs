//! Tests the proof of algorithms that go on when a rank fails, and its oracle: right ones are proved at every point of
//! failure and survive any order of events; of wrong ones both find a fault.

use std::sync::Arc;

use roundelay_compiler::interpret::failure::interpret_failure;
use roundelay_compiler::tolerance::TolerantPlan;
use roundelay_compiler::{
    CompileOptions, NoLibrary, Program, ProgramInstance, Shape, check, resolve, tolerant,
};
use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceMap;

/// The algorithm of the library.
const RELAYED: &str = include_str!("../../algorithms/all_reduce/tolerant.algo");

/// Every rank sends to every other, and none passes anything on.
const ONE_ROUND: &str = include_str!("../../tests/suite/RL0507_one_round.algo");

/// FloodSet with two rounds: every rank sends to every other what it has, twice.
const FLOODED: &str = "
algorithm flooded implements all_reduce on n ranks {
    tolerates 1
    scratch t[n]
    scratch u[n]
    each r { r -> r : copy data -> t[r] }
    each r { for p in 0..n where p != r { r -> p : copy t[r] } }
    for s in 0..n { each r where r == s { for p in 0..n where p != r { r -> p : copy t -> u } } }
    each r { r -> r : copy u -> t }
    each r { for p in 1..n { r -> r : reduce t[p] -> t[0] } }
    each r { r -> r : copy t[0] -> data }
}";

fn program(text: &str) -> (SourceMap, Arc<Program>) {
    let mut sources = SourceMap::new();
    let id = sources.add("tolerant.algo", text);
    let mut programs = resolve(&mut sources, id, &NoLibrary).unwrap_or_else(|d| panic!("{d:?}"));
    (sources, programs.remove(0))
}

fn proved(text: &str, n: u32) -> Result<TolerantPlan, Diagnostic> {
    let (sources, program) = program(text);
    let proved = tolerant(&program, &sources, &Shape::flat(n), &CompileOptions::default());
    proved.map_err(|mut found| found.remove(0))
}

/// Returns the faults that the oracle finds in `runs` runs.
fn faults_found(text: &str, n: u32, runs: u64) -> Vec<String> {
    let (_, program) = program(text);
    let instance =
        ProgramInstance::new(&program, &Shape::flat(n), &CompileOptions::default()).expect("ranks");
    let run = |seed: u64| {
        let outcome = interpret_failure(&instance, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        outcome.map(|outcome| (!outcome.right).then_some(outcome.why)).expect("a run")
    };
    (0..runs).filter_map(run).collect()
}

#[test]
fn the_algorithm_of_the_library_goes_on_at_every_point_of_failure() {
    let points: Vec<u64> = (1..=8).map(|n| proved(RELAYED, n).expect("proved").points()).collect();
    // Alone a rank sends nothing; with more there are more points.
    assert_eq!(points[0], 1);
    assert!(points.is_sorted() && points[7] > 5000, "{points:?}");
    for n in 2..=8 {
        let (sources, program) = program(RELAYED);
        let found = check(&program, &sources, &Shape::flat(n), &CompileOptions::default());
        let checked = found.unwrap_or_else(|d| panic!("{d:?}"));
        assert_eq!(checked.points, Some(points[n as usize - 1]));
        assert_eq!(
            (checked.facts.bitwise, checked.facts.order.map(|o| o.ascending_sums)),
            (Some(true), Some(true))
        );
        assert!(checked.warnings.is_empty(), "{:?}", checked.warnings);
        assert_eq!(faults_found(RELAYED, n, 1000), Vec::<String>::new());
    }
}

#[test]
fn what_one_rank_received_alone_is_a_fault_with_its_point() {
    let found = proved(ONE_ROUND, 3).expect_err("no rank passes anything on");
    assert_eq!(found.code, codes::DISAGREE);
    assert_eq!(
        found.message,
        "on 3 ranks, if rank 0 fails, rank 1 ends with the sum of {r0, r1, r2}, rank 2 with that of {r1, r2}"
    );
    assert_eq!(found.labels[0].text, "its message to rank 2 in step 1 is lost");
    assert_eq!(found.notes[0], "of rank 0's messages arrive: to rank 1 up to that of step 1");
    assert!(!faults_found(ONE_ROUND, 3, 400).is_empty());
    let (sources, program) = program(ONE_ROUND);
    let found = check(&program, &sources, &Shape::flat(3), &CompileOptions::default());
    assert_eq!(found.expect_err("refuted")[0].code, codes::DISAGREE);
}

#[test]
fn a_flood_of_two_rounds_goes_on() {
    for n in 2..=5 {
        assert!(proved(FLOODED, n).unwrap_or_else(|d| panic!("{d:?}")).points() > 1);
        assert_eq!(faults_found(FLOODED, n, 500), Vec::<String>::new());
    }
}

/// The failed rank itself may have ended with another result, where no other rank is left that could disagree.
#[test]
fn a_rank_must_not_end_before_others_can_count_it() {
    let found = proved(ONE_ROUND, 2).expect_err("it has no answer that its message arrived");
    assert_eq!(found.code, codes::DISAGREE, "{found:?}");
    assert_eq!(
        found.message,
        "on 2 ranks, if rank 0 fails, rank 0 may have ended before with the sum of {r0, r1}, and rank 1 ends with \
         that of {r1}"
    );
    assert!(!faults_found(ONE_ROUND, 2, 1000).is_empty());
}

/// The owner must not send to the others before its neighbour has answered that it can.
#[test]
fn every_step_of_the_relay_is_needed() {
    let lines: Vec<&str> = RELAYED.lines().collect();
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect("a line");
    let (first, answer, others) =
        (at("r -> (r + 1) % n"), at("copy t[(r - 1) % n]"), at("p != (r + 1) % n"));
    let with = |lines: Vec<&str>| lines.join("\n");
    let mut together = lines.clone();
    let (a, b) = (together[answer], together[others]);
    together[answer] = b;
    together[others] = a;
    let mut silent = lines.clone();
    silent[answer] = "each r { for p in 0..n where p != r && p != (r - 1) % n { r -> p : copy t[(r - 1) % n] } }";
    for text in [with(together), with(silent)] {
        let found = proved(&text, 4).expect_err("a step is missing");
        assert_eq!(found.code, codes::DISAGREE, "{found:?}");
        assert!(!faults_found(&text, 4, 3000).is_empty(), "{text}");
    }
    // Without its first message there is nothing that could be passed on.
    let mut without = lines.clone();
    without.remove(first);
    assert_eq!(proved(&with(without), 4).expect_err("nothing is there").code, codes::UNINITIALISED);
}

#[test]
fn what_cannot_be_proved_is_refused() {
    let code = |text: &str, n| proved(text, n).expect_err(text).code;
    let other = |from: &str, to: &str| ONE_ROUND.replace(from, to);
    assert_eq!(code(&other("tolerates 1", "tolerates 2"), 3), codes::FAILURES);
    assert_eq!(code(&other("tolerates 1", "tolerates n - 3"), 3), codes::FAILURES);
    assert_eq!(code(&other("tolerates 1", ""), 3), codes::FAILURES);
    assert_eq!(code(&other("copy t[r] }", "copy t[r] as bf16 }"), 3), codes::FAILURES);
    assert_eq!(code(ONE_ROUND, 40), codes::FAILURES);
    assert_eq!(code(ONE_ROUND, 70), codes::FAILURES);
    assert_eq!(code(RELAYED, 9), codes::REQUIRES);
    let mut sources = SourceMap::new();
    let text = "algorithm a implements broadcast on n ranks { tolerates 1 }";
    let id = sources.add("a.algo", text);
    let found = resolve(&mut sources, id, &NoLibrary).expect_err("no all_reduce");
    assert_eq!(found[0].code, codes::MISPLACED);
}

/// The results of ranks must be the same bits without a failure, too.
#[test]
fn sums_in_different_orders_are_refused() {
    let text = ONE_ROUND
        .replace(
            "{ for p in 1..n { r -> r : reduce t[p] -> t[0] } }",
            "{ for p in 0..n where p != r { r -> r : reduce t[p] -> t[r] } }",
        )
        .replace("copy t[0] -> data", "copy t[r] -> data");
    let found = proved(&text, 3).expect_err("each begins with its own");
    assert_eq!(found.code, codes::DISAGREE);
    assert!(found.message.contains("added in different orders"), "{}", found.message);
}
