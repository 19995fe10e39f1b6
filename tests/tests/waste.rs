//! Tests that transfers that no result needs are reported (RL0506), and only those.

use expect_test::{Expect, expect};
use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{CheckReport, CompileOptions, Shape, check};
use roundelay_dsl::diag::{codes, render};
use roundelay_tests::{instance_over, is_grid, of_library, paths, read, roots};

/// Returns all shapes of 2 to 16 ranks.
fn shapes(grid: bool) -> Vec<Shape> {
    if !grid {
        return (2..=16).map(Shape::flat).collect();
    }
    let pairs = (1..=16).flat_map(|a| (1..=16).map(move |b| [a, b]));
    let fits = pairs.filter(|[a, b]| (2..=16).contains(&(a * b)));
    fits.map(|axes| Shape { axes: axes.to_vec() }).collect()
}

#[test]
fn the_library_wastes_nothing() {
    let (mut proved, mut wrong) = (0, String::new());
    for entry in CATALOGUE {
        let (sources, program) = of_library(entry).expect("the library resolves");
        for shape in shapes(is_grid(&program)) {
            let n = u32::try_from(shape.ranks()).expect("few ranks");
            for root in roots(&program, n) {
                let paths = 2.min(*paths(&program).end());
                let allowed = instance_over(&program, &shape, root, paths).expect("it fits");
                if allowed.is_none() {
                    continue;
                }
                let options = CompileOptions { root, paths, ..CompileOptions::default() };
                let checked = check(&program, &sources, &shape, &options).expect("it is proved");
                proved += 1;
                for d in &checked.warnings {
                    let said = render::short(&sources, d);
                    wrong += &format!("{} on {shape}, root {root}: {said}\n", entry.path);
                }
            }
        }
    }
    assert!(proved > 800, "only {proved} were proved");
    assert!(wrong.is_empty(), "{wrong}");
}

fn checked(text: &str, shape: &str) -> (String, CheckReport) {
    let source = read("mine.algo", text).unwrap_or_else(|(sources, faults)| {
        panic!("{}", render::human(&sources, &faults[0], false));
    });
    let (shape, program) = (shape.parse().expect("a shape"), &source.programs[0]);
    let checked = check(program, &source.sources, &shape, &CompileOptions::default());
    let checked = checked.unwrap_or_else(|faults| {
        panic!("{}", render::human(&source.sources, &faults[0], false));
    });
    let pictures = checked.warnings.iter().map(|d| {
        assert_eq!(d.code, codes::WASTED);
        render::human(&source.sources, d, false) + "\n"
    });
    (pictures.collect(), checked)
}

fn warned(text: &str, shape: &str, expected: Expect) {
    expected.assert_eq(&checked(text, shape).0);
}

/// Returns a ring with loops of these lengths.
fn ring(sums: &str, shares: &str) -> String {
    format!(
        "algorithm mine implements all_reduce on n ranks {{
    chunks n
    for s in 0..{sums} {{ each r {{ r -> (r + 1) % n : reduce data[(r - s) % n] }} }}
    for s in 0..{shares} {{ each r {{ r -> (r + 1) % n : copy data[(r + 1 - s) % n] }} }}
}}"
    )
}

#[test]
fn a_turn_too_many_is_reported() {
    warned(
        &ring("n-1", "n"),
        "4",
        expect![[r#"
            warning[RL0506]: on 4 ranks, 4 of 16 transfers of this statement are not needed
             --> mine.algo:4:30
              |
            4 |     for s in 0..n { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
              |                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in round 6, rank 1 holds what it is sent already
              |
              = note: with n = 4, s = 3, r = 0
              = help: leave out what moves too much: a loop may be a turn too long, or a condition missing
        "#]],
    );
    for n in ["2", "3", "9"] {
        assert!(checked(&ring("n-1", "n-1"), n).1.warnings.is_empty());
        assert_eq!(checked(&ring("n-1", "n"), n).1.warnings.len(), 1);
    }
}

/// Values that are stored beside the result, or overwritten before any rank reads them, are reported.
#[test]
fn values_that_flow_nowhere_are_reported() {
    let beside = "algorithm mine implements reduce on n ranks {
    scratch t[1]
    each r where r != root { r -> root : reduce data }
    each r where r != root { r -> (r + 1) % n : copy data -> t }
}";
    warned(
        beside,
        "4",
        expect![[r#"
            warning[RL0506]: on 4 ranks, 3 of 3 transfers of this statement are not needed
             --> mine.algo:4:30
              |
            4 |     each r where r != root { r -> (r + 1) % n : copy data -> t }
              |                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in round 1, rank 2 is sent what no result is made of
              |
              = note: with n = 4, root = 0, r = 1
              = help: leave out what moves too much: a loop may be a turn too long, or a condition missing
        "#]],
    );
    let overwritten = "algorithm mine implements broadcast on n ranks {
    scratch t[2]
    root -> root : copy data -> t[0]
    root -> root : copy t[0] -> t[1]
    root -> root : copy data -> t[1]
    each r where r != root { root -> r : copy t[1] -> data }
}";
    warned(
        overwritten,
        "3",
        expect![[r#"
            warning[RL0506]: on 3 ranks, the transfer of this statement is not needed
             --> mine.algo:5:5
              |
            5 |     root -> root : copy data -> t[1]
              |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in round 2, rank 0 holds what it is sent already
              |
              = note: with n = 3, root = 0
              = help: leave out what moves too much: a loop may be a turn too long, or a condition missing
        "#]],
    );
}

/// A part that does nothing is reported at the line that uses it.
#[test]
fn a_part_that_is_not_needed_is_reported_where_it_is_used() {
    let text = "algorithm mine implements all_reduce on n ranks {
    use all_reduce.ring
    use all_gather.ring
}";
    warned(
        text,
        "3",
        expect![[r#"
            warning[RL0506]: on 3 ranks, 6 of 6 transfers of this statement are not needed
             --> mine.algo:3:5
              |
            3 |     use all_gather.ring
              |     ^^^^^^^^^^^^^^^^^^^ in `all_gather.ring`, used here
              |
             ::: library:all_gather/ring.algo:9:32
              |
            9 |     for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r - s) % n] } }
              |                                ----------------------------------------- in round 4, rank 1 holds what it is sent already
              |
              = note: with n = 3, s = 0, r = 0
              = help: leave out what moves too much: a loop may be a turn too long, or a condition missing
        "#]],
    );
}

/// Messages of a barrier carry nothing, and what a declared collective does not mention may be anything.
#[test]
fn barriers_and_declared_collectives() {
    let barrier = "algorithm mine implements barrier on n ranks {
    for k in 0..n { each r { r -> (r + 1) % n : copy data } }
}";
    assert_eq!(checked(barrier, "4").0, "");
    let text = "algorithm mine implements later on n ranks {
    each r { r -> r : copy input -> output[0] }
}
collective later on n ranks {
    input 1
    output 2
    each r where r > 0 { output[0] = input[0] at r }
}";
    warned(
        text,
        "3",
        expect![[r#"
        warning[RL0506]: on 3 ranks, 1 of 3 transfers of this statement is not needed
         --> mine.algo:2:14
          |
        2 |     each r { r -> r : copy input -> output[0] }
          |              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ in round 0, rank 0 is sent what no result is made of
          |
          = note: with n = 3, r = 0
          = help: leave out what moves too much: a loop may be a turn too long, or a condition missing
    "#]],
    );
    let asked = text.replace("    each r { r -> r", "    each r where r > 0 { r -> r");
    assert_eq!(checked(&asked, "3").0, "");
}
