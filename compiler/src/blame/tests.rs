use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::SourceMap;

use crate::{CompileOptions, NoLibrary, Program, Shape, check, resolve};

/// Returns the first finding of a program on `n` ranks, and its labels as line, text at the place, and remark.
fn found(text: &str, n: u32) -> (Diagnostic, Vec<(u32, String, String)>) {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let programs = resolve(&mut sources, id, &NoLibrary).expect("the text resolves");
    let program: &Arc<Program> = programs.last().expect("there is an algorithm");
    let options = CompileOptions::default();
    let mut faults = check(program, &sources, &Shape::flat(n), &options).expect_err("it is wrong");
    let first = faults.remove(0);
    let label = |l: &roundelay_dsl::diag::DiagnosticLabel| {
        let (line, _) = sources.line_column(l.span);
        (line, sources.snippet(l.span).to_string(), l.text.clone())
    };
    let labels = first.labels.iter().map(label).collect();
    (first, labels)
}

/// Asserts that the first label stands on a line, at a text, with a remark.
fn first(text: &str, n: u32, line: u32, at: &str, remark: &str) {
    let (_, labels) = found(text, n);
    let (l, a, r) = labels.first().expect("there is a label");
    assert_eq!((*l, a.as_str(), r.as_str()), (line, at, remark), "{labels:?}");
}

#[test]
fn another_variable_is_proposed() {
    let text = "algorithm ring implements all_gather on n ranks {
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(s - s) % n] } }
}";
    first(text, 3, 2, "s", "with `r` instead of `s` it would be right");
}

#[test]
fn a_variable_of_a_function_is_proposed() {
    let text = "fn next(r, n) = (n + 1) % n
algorithm ring implements all_gather on n ranks {
    for s in 0..n-1 { each r { r -> next(r, n) : copy data[(r - s) % n] } }
}";
    let remark = "with another variable of the function (number 1) it would be right";
    first(text, 3, 1, "n", remark);
}

#[test]
fn division_and_remainder_are_exchanged() {
    let text = "algorithm ring implements all_gather on n ranks {
    for s in 0..n-1 { each r { r -> (r + 1) / n : copy data[(r - s) % n] } }
}";
    first(text, 3, 2, "(r + 1) / n", "with `%` instead of `/` it would be right");
}

const HALVES: &str = "algorithm halves implements all_reduce on n ranks {
    requires pow2(n)
    chunks n
    for k in 0..log2(n) {
        let d = n >> (k + 1)
        each r { let p = r ^ d
                 r -> p : reduce data[p - p % d ..+ d] }
    }
    for k in 0..log2(n) {
        let d = 1 << k
        each r { r -> r ^ d : copy data[r - r % d ..+ d] }
    }
}";

#[test]
fn kinds_of_ranges_are_exchanged() {
    let text = HALVES.replace("r - r % d ..+ d", "r - r % d .. d");
    first(&text, 4, 11, "data[r - r % d .. d]", "with `..+` instead of `..` it would be right");
}

/// All of the first half would be summed by all: that moves more, and is no error that a person makes.
#[test]
fn what_multiplies_traffic_comes_last() {
    let text = HALVES.replace("r - r % d ..+ d", "r - r / d ..+ d");
    first(&text, 4, 11, "r / d", "with `%` instead of `/` it would be right");
}

const RING: &str = "algorithm ring implements all_reduce on n ranks {
    chunks n
    for s in 0..n-1 { each r { r -> (r + 1) % n : reduce data[(r - s) % n] } }
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(r + 1 - s) % n] } }
}";

#[test]
fn two_lines_are_named() {
    let text = RING
        .replace("each r { r -> (r + 1) % n : copy", "each r { (r + 1) % n -> r : copy")
        .replace("reduce data[(r - s) % n]", "copy data[(r - s) % n]");
    let (_, labels) = found(&text, 4);
    assert!(labels[0].2.ends_with("and with a second change, it would be right"), "{labels:?}");
    assert!(labels[1].2.starts_with("the second change: "), "{labels:?}");
    let mut lines = [labels[0].0, labels[1].0];
    lines.sort_unstable();
    assert_eq!(lines, [3, 4], "{labels:?}");
}

/// A swap names both statements.
#[test]
fn both_statements_of_a_swap_are_named() {
    let lines: Vec<&str> = RING.lines().collect();
    let text = [lines[0], lines[1], lines[3], lines[2], lines[4]].join("\n");
    let (_, labels) = found(&text, 4);
    assert_eq!((labels[0].0, labels[1].0), (3, 4), "{labels:?}");
    assert_eq!(labels[1].2, "the next statement");
}

#[test]
fn what_moves_nothing_is_named() {
    let remark = "this moves nothing, at any of the shapes that were tried";
    let text = "algorithm ring implements all_gather on n ranks {
    each r where r > n { r -> (r * r + 3) % n : copy data[(r * r - n) / 3] }
}";
    first(text, 3, 2, "each r where r > n", remark);
    let text = "algorithm ring implements all_gather on n ranks {
    for s in n..n/2 { each r { r -> (r * r + 3) % n : copy data[(r * r - n) / 3] } }
}";
    first(text, 3, 2, "n", remark);
}

const TOLERANT: &str = "algorithm tolerant implements all_reduce on n ranks {
    requires n <= 8
    tolerates 1
    scratch t[n]
    each r { r -> r : copy data -> t[r] }
    each r where n > 1 { r -> (r + 1) % n : copy t[r] }
    each r { for p in 0..n where p != r && p != (r + 1) % n { r -> p : copy t[r] } }
    each r { for p in 0..n where p != r { r -> p : copy t[(r - 1) % n] } }
    each r { for p in 1..n { r -> r : reduce t[p] -> t[0] } }
    each r { r -> r : copy t[0] -> data }
}";

/// An owner sends to all before its neighbour has confirmed the contribution.
#[test]
fn survivors_that_disagree_have_a_repair() {
    let (finding, labels) = found(TOLERANT, 3);
    assert_eq!(finding.code, codes::DISAGREE);
    assert_eq!((labels[0].0, labels[1].0), (7, 8), "{labels:?}");
    assert_eq!(labels[0].2, "if this came after the next statement it would be right");
}

/// A fault of a program of the same file is named there, not where the program is used.
#[test]
fn a_wrong_program_that_is_used_is_named() {
    let text = "algorithm ring implements all_gather on n ranks {
    for s in 0..n-1 { each r { r -> (r + 1) % n : copy data[(s - s) % n] } }
}
algorithm outer implements all_gather on n ranks {
    use all_gather.ring
}";
    first(text, 4, 2, "s", "with `r` instead of `s` it would be right");
}
