//! Tests what diagnostics say where a mistake is common: what is meant, and what to write.

use std::sync::Arc;

use expect_test::{Expect, expect};
use roundelay_compiler::{CompileOptions, Program, Shape, check};
use roundelay_dsl::diag::render;
use roundelay_tests::{ParsedSource, read};

/// Returns the last algorithm of a text.
fn last(text: &str) -> (ParsedSource, Arc<Program>) {
    let source = read("mine.algo", text).unwrap_or_else(|(sources, faults)| {
        panic!("{}", render::human(&sources, &faults[0], false));
    });
    let program = source.programs.last().expect("an algorithm").clone();
    (source, program)
}

/// Checks what is said of the last algorithm of a text at a shape.
fn said(text: &str, shape: &str, expected: Expect) {
    let (source, program) = last(text);
    let shape: Shape = shape.parse().expect("a shape");
    let found = check(&program, &source.sources, &shape, &CompileOptions::default());
    let pictures = found.expect_err("the text is wrong");
    let pictures = pictures.iter().map(|d| render::human(&source.sources, d, false) + "\n");
    expected.assert_eq(&pictures.collect::<String>());
}

/// Checks what is said of a text that is refused at every shape.
fn refused(text: &str, expected: Expect) {
    let Err((sources, faults)) = read("mine.algo", text) else { panic!("the text is sound") };
    let pictures = faults.iter().map(|d| render::human(&sources, d, false) + "\n");
    expected.assert_eq(&pictures.collect::<String>());
}

fn body(of: &str, body: &str) -> String {
    format!("algorithm mine implements {of} ranks {{\n    {body}\n}}\n")
}

/// If an algorithm has two `use` of one algorithm, the one that fails is named, and every line on the way to it.
#[test]
fn a_fault_in_what_is_used_names_the_lines_that_use_it() {
    let twice = body(
        "all_reduce on (node, gpu)",
        "chunks gpu.size
    use all_reduce.two_level
    use all_reduce.two_level",
    );
    said(
        &twice,
        "2x2",
        expect![[r#"
        error[RL0502]: rank 0's chunk 0 is counted twice in rank 0's data[0]
          --> mine.algo:3:5
           |
         3 |     use all_reduce.two_level
           |     ^^^^^^^^^^^^^^^^^^^^^^^^ without this it would be right
         4 |     use all_reduce.two_level
           |     ------------------------ in `all_reduce.two_level`, used here
           |
          ::: library:all_reduce/two_level.algo:13:5
           |
        13 |     use reduce_scatter.ring over gpu
           |     -------------------------------- in `reduce_scatter.ring`, used here
           |
          ::: library:reduce_scatter/ring.algo:9:32
           |
         9 |     for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - 1 - s) % n] } }
           |                                ----------------------------------------------- rank 1 adds it again
           |
           = note: on 2x2 ranks, in round 4: it holds chunk 0 of {r0..r3}; rank 1 adds chunk 0 of {r0..r3}
           = note: with n = 2, s = 0, r = 1
           = note: rank 0's data[0] ends with that sum
           = help: reduce each contribution once; use `copy` to spread a finished sum
    "#]],
    );
    let forbidden = body("all_reduce on n", "use all_reduce.halving_doubling");
    said(
        &forbidden,
        "3",
        expect![[r#"
        error[RL0601]: `all_reduce.halving_doubling` does not allow this rank count
          --> mine.algo:2:5
           |
         2 |     use all_reduce.halving_doubling
           |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in `all_reduce.halving_doubling`, used here
           |
          ::: library:all_reduce/halving_doubling.algo:10:14
           |
        10 |     requires pow2(n)
           |              ------- this does not hold
           |
           = note: with n = 3
           = help: choose a rank count for which it holds, or another algorithm
    "#]],
    );
    let region = body(
        "all_reduce on (node, gpu)",
        "chunks gpu.size
    use reduce_scatter.ring over gpu
    use all_reduce.circulant over node on data[gpu + 1]
    use all_gather.ring over gpu",
    );
    said(
        &region,
        "2x2",
        expect![[r#"
        error[RL0401]: chunk 2 of 2
         --> mine.algo:4:48
          |
        4 |     use all_reduce.circulant over node on data[gpu + 1]
          |                                                ^^^^^^^ one less here, and it would be right
          |
          = note: with node.size = 2, gpu.size = 2
          = help: the buffer has 2 chunks; write `%` to wrap around
    "#]],
    );
}

#[test]
fn a_missing_clause_is_asked_for() {
    let help = |text: &str, shape: &str| {
        let (source, program) = last(text);
        let shape = shape.parse().expect("a shape");
        let found = check(&program, &source.sources, &shape, &CompileOptions::default());
        found.expect_err("the text is wrong")[0].helps.join("; ")
    };
    let ring = body("all_reduce on n", "each r { r -> (r + 1) % n : reduce data[(r - 1) % n] }");
    let grid = "each (i, g) { (i, g) -> (i, g) : copy data[(g + 1) % gpu.size] }";
    let grid = body("all_reduce on (node, gpu)", grid);
    let plain = body("broadcast on k", "each r { r -> r : copy data[r] }");
    for (text, shape, clause) in [(ring, "3", "n"), (grid, "2x3", "gpu.size"), (plain, "3", "k")] {
        let asked = format!("so the vector is one chunk: write `chunks {clause}` before");
        assert!(help(&text, shape).contains(&asked), "{}", help(&text, shape));
    }
    // Scratch has a size of its own, and a vector of blocks is cut already.
    let scratch = body(
        "all_reduce on n",
        "scratch t[1]
    each r { r -> r : copy data -> t[r] }",
    );
    assert_eq!(help(&scratch, "3"), "the buffer has 1 chunk; write `%` to wrap around");
    let blocks = body("all_gather on n", "each r { r -> r : copy data[r + 1] }");
    assert_eq!(help(&blocks, "3"), "the buffer has 3 chunks; write `%` to wrap around");
}

#[test]
fn a_remainder_that_binds_too_tightly_is_reported() {
    let grid = "each (i, g) { (i, g) -> (i, g + 1 % gpu.size) : copy data[g] }";
    said(
        &body("all_gather on (node, gpu)", grid),
        "2x2",
        expect![[r#"
        error[RL0402]: coordinate 2 is not one of the 2 along `gpu`
         --> mine.algo:2:33
          |
        2 |     each (i, g) { (i, g) -> (i, g + 1 % gpu.size) : copy data[g] }
          |                                 ^^^^^^^^^^^^^^^^ out of bounds
          |
          = note: with node.size = 2, gpu.size = 2, i = 0, g = 1
          = help: `%` binds tighter than `+`: write `(g + 1) % gpu.size`
    "#]],
    );
    let help = |text: &str| {
        let (source, program) = last(&body("all_gather on n", text));
        let found = check(&program, &source.sources, &Shape::flat(4), &CompileOptions::default());
        found.expect_err("the text is wrong")[0].helps.join("; ")
    };
    for (text, meant) in [
        ("each r { r -> r + 1 % n : copy data[r] }", "`(r + 1) % n`"),
        ("each r { r -> 2 * r + 1 % n : copy data[r] }", "`(2 * r + 1) % n`"),
        ("each r { r -> (r + 1) % n : copy data[r - 1 % n] }", "`(r - 1) % n`"),
        ("each r { let p = r + (1 << 1) % n r -> p : copy data[r] }", "`(r + (1 << 1)) % n`"),
    ] {
        assert!(help(text).contains("`%` binds tighter than"), "{text}: {}", help(text));
        assert!(help(text).ends_with(&format!("write {meant}")), "{text}: {}", help(text));
    }
    // Here `%` wraps around something else.
    let other = help("each r { r -> r + 3 % 2 : copy data[r] }");
    let meant = "write `(r + 3 % 2) % n` to wrap around, or exclude it with `where`";
    assert_eq!(other, meant);
    let number = help("each r { 0 -> 7 : copy data[0] }");
    assert_eq!(number, "write `%` to wrap around, or exclude it with `where`");
}

#[test]
fn a_deadlock_is_reported_wait_by_wait() {
    let pieces = body(
        "all_gather on n",
        "chunks 4 * n
    each r { for p in 0..n where p != r { for j in 0..4 { r -> p : copy data[4 * r + j] } } }
    schedule { slots 1 }",
    );
    said(
        &pieces,
        "3",
        expect![[r#"
            error[RL0301]: with 1 slot the schedule deadlocks; 4 are enough
             --> mine.algo:4:5
              |
            4 |     schedule { slots 1 }
              |     ^^^^^^^^^^^^^^^^^^^^ asked for here
              |
              = note: on 3 ranks, each waits for the next in a circle:
              = note: rank 0 waits for a free slot, once rank 2 has taken a message (round 0, line 3: r -> p : copy data[4 * r + j])
              = note: rank 2 waits for its step before (round 0, line 3)
              = note: rank 2 waits for a free slot, once rank 1 has taken a message (round 0, line 3)
              = note: rank 1 waits for its step before (round 0, line 3)
              = note: rank 1 waits for a message from rank 0 (round 0, line 3)
              = note: rank 0 waits for its step before (round 0, line 3)
              = help: write `slots 4`, or leave `slots` out
        "#]],
    );
}

#[test]
fn what_commutes_is_the_operator_of_the_call() {
    let of = |clause: &str| body("all_reduce on n", &format!("{clause}\n    each r {{ }}"));
    refused(
        &of("requires commutative(sum)"),
        expect![[r#"
        error[RL0201]: `commutative` asks for the operator of the call, which is named `op`
         --> mine.algo:2:26
          |
        2 |     requires commutative(sum)
          |                          ^^^ not `op`
          |
          = note: an algorithm names no operator: `sum`, `max` and the others belong to the call
          = help: write `requires commutative(op)`; any other `requires` is a condition on the ranks, such as `pow2(n)`
    "#]],
    );
    refused(
        &of("requires pow2(n) && commutative(op)"),
        expect![[r#"
        error[RL0208]: `commutative(op)` is a clause of its own, and no value
         --> mine.algo:2:25
          |
        2 |     requires pow2(n) && commutative(op)
          |                         ^^^^^^^^^^^^^^^ misplaced
          |
          = note: an algorithm names no operator: `sum`, `max` and the others belong to the call
          = help: write `requires commutative(op)`; any other `requires` is a condition on the ranks, such as `pow2(n)`
    "#]],
    );
}
