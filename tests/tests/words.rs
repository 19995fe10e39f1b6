//! What diagnostics say where a mistake is common: what is meant, and what to write.

use std::sync::Arc;

use expect_test::{Expect, expect};
use roundelay_compiler::{Options, Program, Shape, check};
use roundelay_dsl::diag::render;
use roundelay_tests::{Source, read};

/// The last algorithm of a text.
fn last(text: &str) -> (Source, Arc<Program>) {
    let source = read("mine.algo", text).unwrap_or_else(|(sources, faults)| {
        panic!("{}", render::human(&sources, &faults[0], false));
    });
    let program = source.programs.last().expect("an algorithm").clone();
    (source, program)
}

/// What is said of the last algorithm of a text at a shape.
fn said(text: &str, shape: &str, expected: Expect) {
    let (source, program) = last(text);
    let shape: Shape = shape.parse().expect("a shape");
    let found = check(&program, &source.sources, &shape, &Options::default());
    let pictures = found.expect_err("the text is wrong");
    let pictures = pictures.iter().map(|d| render::human(&source.sources, d, false) + "\n");
    expected.assert_eq(&pictures.collect::<String>());
}

/// What is said of a text that is refused at every shape.
fn body(of: &str, body: &str) -> String {
    format!("algorithm mine implements {of} ranks {{\n    {body}\n}}\n")
}

/// Of two `use` of one algorithm the one that fails is named, and every line on the way to it.
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
          ::: book:all_reduce/two_level.algo:13:5
           |
        13 |     use reduce_scatter.ring over gpu
           |     -------------------------------- in `reduce_scatter.ring`, used here
           |
          ::: book:reduce_scatter/ring.algo:9:32
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
          ::: book:all_reduce/halving_doubling.algo:10:14
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
         --> mine.algo:4:43
          |
        4 |     use all_reduce.circulant over node on data[gpu + 1]
          |                                           ^^^^^-------^
          |                                           |    |
          |                                           |    out of bounds
          |                                           with the whole buffer it would be right
          |
          = note: with node.size = 2, gpu.size = 2
          = help: the buffer has 2 chunks; write `%` to wrap around
    "#]],
    );
}

#[test]
#[test]
#[test]
#[test]
