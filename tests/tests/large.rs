//! Tests the library at 4,096 ranks: every algorithm is proved, and by symmetry wherever there is one.
//!
//! `RANKS=131072` tries as many (minutes without optimisation). Wrong programs are tried on that number by
//! `ROUNDELAY_CI=full`, and on a quarter of them always.

use std::sync::Arc;

use roundelay_algorithms::CATALOGUE;
use roundelay_compiler::{CompileOptions, Program, ProofMethod, Shape, check};
use roundelay_dsl::diag::codes;
use roundelay_tests::{instance, is_full, is_grid, of_library, read, say};

fn ranks() -> u32 {
    std::env::var("RANKS").ok().and_then(|v| v.parse().ok()).unwrap_or(4096)
}

/// The algorithms that no symmetry maps onto themselves: trees and chains.
const UNROLLED: &[&str] = &[
    "all_reduce.double_binary_tree",
    "broadcast.bine",
    "broadcast.binomial",
    "broadcast.chain",
    "broadcast.double_binary_tree",
    "broadcast.han",
    "broadcast.k_ary",
    "broadcast.k_nomial",
    "broadcast.multipath",
    "exscan.binomial",
    "exscan.linear",
    "exscan.recursive_doubling",
    "gather.binomial",
    "gather.linear",
    "reduce.binomial",
    "reduce.chain",
    "reduce.k_ary",
    "reduce.linear",
    "scan.binomial",
    "scan.linear",
    "scan.recursive_doubling",
    "scatter.binomial",
    "scatter.linear",
];

/// The algorithms of which no symmetry is found yet, and which are too large to unroll.
const UNDECIDED: &[&str] = &["reduce.two_shot", "reduce_scatter.pairwise"];

/// Returns the largest shape that an algorithm allows: a power of three or a square grid where another is none.
fn shape(program: &Arc<Program>) -> Shape {
    let side = 1 << (ranks().ilog2() / 2);
    let shapes = match is_grid(program) {
        true => [vec![ranks() / 8, 8], vec![side, side]],
        false => [vec![ranks()], vec![3u32.pow(ranks().ilog(3))]],
    };
    let mut shapes = shapes.map(|axes| Shape { axes }).into_iter();
    let allowed = |shape: &Shape| instance(program, shape, 0).is_ok_and(|i| i.is_some());
    shapes.find(allowed).expect("one is allowed")
}

#[test]
fn the_library_is_proved_on_many_ranks() {
    let mut faults = Vec::new();
    for entry in CATALOGUE.iter().filter(|e| e.collective != "sendrecv") {
        let name = format!("{}.{}", entry.collective, entry.name);
        let (sources, program) = of_library(entry).expect("the library resolves");
        // What goes on when a rank fails is for few ranks.
        if program.tolerates.is_some() {
            continue;
        }
        match check(&program, &sources, &shape(&program), &CompileOptions::default()) {
            Err(d) if UNDECIDED.contains(&name.as_str()) && d[0].code == codes::TOO_BIG => {}
            Err(d) => faults.push(format!("{name}: {}", say(&sources, &d))),
            Ok(_) if UNDECIDED.contains(&name.as_str()) => faults.push(format!("{name}: proved")),
            Ok(checked) => {
                let unrolled = checked.method == ProofMethod::Unrolled;
                if unrolled != UNROLLED.contains(&name.as_str()) {
                    faults.push(format!("{name}: {}", checked.method));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns a ring that is right, and then rounds.
fn behind_a_ring(rounds: &str) -> String {
    format!(
        "algorithm main implements all_reduce on n ranks {{ chunks n scratch t[1]
        for s in 0..n-1 {{ each r {{ r -> (r + 1) % n : reduce data[(r - s) % n] }} }}
        for s in 0..n-1 {{ each r {{ r -> (r + 1) % n : copy data[(r + 1 - s) % n] }} }}
        {rounds} }}"
    )
}

/// Returns true if a text is proved on a number of ranks.
fn proved(text: &str, n: u32) -> bool {
    let source = read("large.algo", text).unwrap_or_else(|(s, d)| panic!("{}", say(&s, &d)));
    check(&source.programs[0], &source.sources, &Shape::flat(n), &CompileOptions::default()).is_ok()
}

#[test]
fn what_one_rank_of_many_does_wrong_is_not_proved() {
    let kept = "each r { r -> r : copy data[r] -> t[0] }";
    let right = "each r { r -> r : reduce data[r] -> t[0]  r -> r : reduce data[r] -> t[0] }";
    let other = "each r { r -> r : reduce data[r] -> t[0]
        if r == 777 { r -> r : reduce data[r] -> data[r] } else { r -> r : reduce data[r] -> t[0] } }";
    let modulus = |m: &str| {
        format!("each r {{ let m = {m} r -> r : copy data[r % (n - m)] -> data[r % n] }}")
    };
    let turns = "each r { for a in 0..2 { for b in 0..(3 - 2 * a) {
        r -> r : copy data[(r + b + 7 * a) % n] -> data[(r + b + 3 * a) % n] } } }";
    let all = [1000, 1024, ranks()];
    for &n in if is_full() { &all[..] } else { &all[..1] } {
        assert!(proved(&behind_a_ring(&format!("{kept} {right}")), n), "{n}: nothing is wrong");
        assert!(!proved(&behind_a_ring(&format!("{kept} {other}")), n), "{n}: another transfer");
        assert!(proved(&behind_a_ring(&modulus("0")), n), "{n}: every rank copies its own");
        assert!(!proved(&behind_a_ring(&modulus("1")), n), "{n}: the last rank copies another's");
        assert!(!proved(&behind_a_ring(turns), n), "{n}: other chunks");
    }
}

/// A rank of a torus that leaves out one message of Swing's breaks the symmetry of both axes.
#[test]
fn a_torus_on_which_one_rank_differs_is_not_proved() {
    let entry = roundelay_algorithms::find("all_reduce", "torus_swing").expect("it is there");
    let copy = "(i, j) -> (a, b) : copy data[first - first % d ..+ d]";
    let broken = entry.text.replace(copy, &format!("if i != 3 || j != 5 || s != 2 {{ {copy} }}"));
    assert_ne!(entry.text, broken);
    let shape = Shape { axes: vec![32, 32] };
    let method = |text: &str| {
        let source = read("large.algo", text).unwrap_or_else(|(s, d)| panic!("{}", say(&s, &d)));
        let options = CompileOptions::default();
        check(&source.programs[0], &source.sources, &shape, &options).map(|found| found.method)
    };
    assert_eq!(method(entry.text), Ok(ProofMethod::Symmetry { group: "shifts", orbits: 4 }));
    assert!(method(&broken).is_err(), "one message is missing");
}
