//! What is reported of programs with several faults, and of one fault with many consequences.

use std::sync::Arc;

use expect_test::{Expect, expect};
use roundelay_compiler::graph::{DependenceKind, StepGraph, unroll};
use roundelay_compiler::{
    BufferPlacement, CompileOptions, NoLibrary, Program, ProgramInstance, Shape, compile, resolve,
    verify,
};
use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::diag::render::human;
use roundelay_dsl::span::SourceMap;

/// Returns the program of a text.
fn program(text: &str) -> (SourceMap, Arc<Program>) {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let mut programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
    (sources, programs.remove(0))
}

fn said(sources: &SourceMap, found: &Diagnostics) -> String {
    found.iter().map(|d| human(sources, d, false)).collect::<Vec<_>>().join("\n")
}

/// Compares the findings of a text on three ranks.
fn refused(text: &str, findings: &Expect) {
    let (sources, program) = program(text);
    let shape = Shape::flat(3);
    let compiled =
        compile(&program, &sources, &shape, &CompileOptions::default(), BufferPlacement::InPlace)
            .map(|_| ());
    findings.assert_eq(&said(&sources, &compiled.expect_err("it is wrong")));
}

#[test]
fn a_conflict_and_a_wrong_result_are_told_together() {
    refused(
        "algorithm main implements all_reduce on n ranks {
    chunks 3
    each r { for p in 0..2 { p -> r : copy data[0] } }
    each r where r > 0 { r -> 0 : reduce data[1] }
    each r where r > 0 { r -> 0 : reduce data[2] }
    each r where r > 0 { 0 -> r : copy data[2] }
    each r where r > 0 { 0 -> r : copy data[0] }
}
",
        &expect![[r#"
            error[RL0403]: rank 0's data[0] is written twice in one `each`
             --> here.algo:3:30
              |
            3 |     each r { for p in 0..2 { p -> r : copy data[0] } }
              |                              ^^^^^^^^^^^^^^^^^^^^^ written from rank 0
              |
              = note: on 3 ranks, from ranks 0 and 1
              = note: with n = 3, r = 0, p = 0
              = help: put the writes into two `each`, or send to different chunks
            error[RL0501]: on 3 ranks, rank 1's data[1] ends as chunk 1 of {r1}: r0, r2 are missing
             --> here.algo:7:26
              |
            7 |     each r where r > 0 { 0 -> r : copy data[0] }
              |                          ^^^^^^^^^^^^^^^^^^^^^ nothing is ever stored there; this stores beside it
              |
              = note: all_reduce asks that rank 1 ends with chunk 1 of {r0..r2}
              = note: it is in rank 0's data[1], and is not sent on from there
              = note: with n = 3, r = 1
              = note: how it came: rank 1's data[1] is chunk 1 of {r1} from the start
              = help: should this have sent it there, too?"#]],
    );
}

#[test]
fn wrong_results_of_different_strands_are_told_together() {
    refused(
        "algorithm main implements all_reduce on n ranks {
    chunks 3
    each r where r > 0 { r -> 0 : reduce data[0] }
    each r where r == 1 { r -> 0 : reduce data[0] }
    each r where r > 0 { 0 -> r : copy data[0] }
    each r where r > 0 { r -> 0 : reduce data[1] }
    each r where r > 0 { r -> 0 : reduce data[2] }
    each r where r > 0 { 0 -> r : copy data[2] }
}
",
        &expect![[r#"
            error[RL0502]: rank 1's chunk 0 is counted twice in rank 0's data[0]
             --> here.algo:4:27
              |
            4 |     each r where r == 1 { r -> 0 : reduce data[0] }
              |                           ^^^^^^^^^^^^^^^^^^^^^^^ rank 1 adds it again
              |
              = note: on 3 ranks, in round 1: it holds chunk 0 of {r0..r2}; rank 1 adds chunk 0 of {r1}
              = note: with n = 3, r = 1
              = note: rank 0's data[0] ends with that sum
              = help: reduce each contribution once; use `copy` to spread a finished sum
            error[RL0501]: on 3 ranks, rank 1's data[1] ends as chunk 1 of {r1}: r0, r2 are missing
             --> here.algo:8:26
              |
            8 |     each r where r > 0 { 0 -> r : copy data[2] }
              |                          ^^^^^^^^^^^^^^^^^^^^^ nothing is ever stored there; this stores beside it
              |
              = note: all_reduce asks that rank 1 ends with chunk 1 of {r0..r2}
              = note: it is in rank 0's data[1], and is not sent on from there
              = note: with n = 3, r = 1
              = note: how it came: rank 1's data[1] is chunk 1 of {r1} from the start
              = help: should this have sent it there, too?"#]],
    );
}

/// A place that is read too early, and what comes of it.
#[test]
fn one_fault_is_told_once() {
    refused(
        "algorithm main implements all_gather on n ranks {
    each r { r -> (r + 1) % n : copy data[(r - 1) % n] }
    each r { r -> (r + 1) % n : copy data[(r - 1) % n] }
}
",
        &expect![[r#"
            error[RL0404]: rank 0's data[2] is read before anything was stored there
             --> here.algo:2:14
              |
            2 |     each r { r -> (r + 1) % n : copy data[(r - 1) % n] }
              |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ rank 0 sends it to rank 1
              |
              = note: on 3 ranks, in round 0
              = note: with n = 3, r = 0
              = help: every read of an `each` sees the state before it; move the chunk here in an earlier `each`"#]],
    );
}

/// With one slot each rank waits for the next to take a message.
#[test]
fn a_deadlock_shows_the_ranks_and_lines_of_its_circle() {
    refused(
        "algorithm chatter implements all_gather on n ranks {
    chunks 2 * n
    for s in 0..n-1 {
        each r { for k in 0..2 { r -> (r + 1) % n : copy data[2 * (r - s) % (2 * n) + k] } }
    }
    schedule { slots 1 }
}
",
        &expect![[r#"
            error[RL0301]: with 1 slot the schedule deadlocks; 2 are enough
             --> here.algo:6:5
              |
            6 |     schedule { slots 1 }
              |     ^^^^^^^^^^^^^^^^^^^^ asked for here
              |
              = note: on 3 ranks, each waits for the next in a circle:
              = note: rank 0 waits for a free slot, once rank 1 has taken a message (round 0, line 4: r -> (r + 1) % n : copy data[2 * (r - s) % (2 * n) + k])
              = note: rank 1 waits for its step before (round 0, line 4)
              = note: rank 1 waits for a free slot, once rank 2 has taken a message (round 0, line 4)
              = note: rank 2 waits for its step before (round 0, line 4)
              = note: rank 2 waits for a free slot, once rank 0 has taken a message (round 0, line 4)
              = note: rank 0 waits for its step before (round 0, line 4)
              = help: write `slots 2`, or leave `slots` out"#]],
    );
}

/// No program has a graph with a circle: this one is made.
#[test]
fn a_circle_of_steps_is_told_step_by_step() {
    let (sources, program) = program(
        "algorithm main implements all_reduce on n ranks {
    each r where r > 0 { r -> 0 : reduce data }
    each r where r > 0 { 0 -> r : copy data }
}
",
    );
    let instance = ProgramInstance::new(&program, &Shape::flat(3), &CompileOptions::default());
    let instance = Arc::new(instance.expect("the shape fits"));
    let mut graph: StepGraph = unroll(&instance).expect("it unrolls");
    let ids: Vec<_> = graph.graph.node_indices().collect();
    graph.graph.add_edge(ids[3], ids[0], DependenceKind::Flow);
    let found = verify::verify(graph).expect_err("a circle");
    expect![[r#"
        error[RL0301]: step s0 waits for itself over a chain of others
         --> here.algo:2:26
          |
        2 |     each r where r > 0 { r -> 0 : reduce data }
          |                          ^^^^^^^^^^^^^^^^^^^^ step s0 in round 0, from rank 1 to rank 0
        3 |     each r where r > 0 { 0 -> r : copy data }
          |                          ------------------ step s3 in round 1, from rank 0 to rank 2
          |
          = note: step s0, in round 0, from rank 1 to rank 0, waits for step s3
          = note: step s3, in round 1, from rank 0 to rank 2, waits for step s0"#]]
    .assert_eq(&said(&sources, &found));
}
