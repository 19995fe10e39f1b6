//! Tests of the order in which schedules combine contributions: what is alike for all elements, and what is refused.

use std::sync::Arc;

use roundelay_compiler::verify::fold_text::explain_order;
use roundelay_compiler::verify::{FoldOrder, ProofFacts, ReductionOrder, verify};
use roundelay_compiler::{
    BufferPlacement, CompileOptions, NoLibrary, ProgramInstance, Shape, compile, graph, resolve,
};
use roundelay_dsl::diag::Diagnostic;
use roundelay_dsl::diag::render::human;
use roundelay_dsl::span::SourceMap;

/// Returns the facts of a text on `ranks` ranks, and the reason for which its order varies, rendered.
fn proved(text: &str, ranks: u32, root: u32) -> (ProofFacts, Option<String>) {
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", text);
    let program = resolve(&mut sources, id, &NoLibrary).expect("the text resolves").remove(0);
    let options = CompileOptions { root, ..CompileOptions::default() };
    let shape = Shape::flat(ranks);
    let instance = Arc::new(ProgramInstance::new(&program, &shape, &options).expect("an instance"));
    let graph = graph::unroll(&instance).and_then(verify).expect("a proof");
    // The plans compute the very expressions, in both placements.
    for &placement in program.style.placements() {
        compile(&program, &sources, &shape, &options, placement).expect("plans");
    }
    let why = explain_order(&graph).map(|d: Diagnostic| human(&sources, &d, false));
    (graph.facts().clone(), why)
}

fn order(text: &str, ranks: u32, root: u32) -> ReductionOrder {
    proved(text, ranks, root).0.order.expect("sums")
}

fn library(path: &str) -> &'static str {
    let entry = |known: &'static [(&str, &'static str)]| {
        known.iter().find(|(name, _)| *name == path).map(|(_, text)| *text)
    };
    macro_rules! texts {
        ($($path:literal)*) => {
            &[$(($path, include_str!(concat!("../../algorithms/", $path, ".algo")))),*]
        };
    }
    entry(texts![
        "all_reduce/one_shot" "all_reduce/two_shot" "all_reduce/ring" "all_reduce/halving_doubling"
        "all_reduce/recursive_doubling" "reduce_scatter/direct" "reduce_scatter/ring"
        "reduce/linear" "reduce/chain" "reduce/binomial" "all_gather/direct"
    ])
    .expect(path)
}

#[test]
fn schedules_that_fold_all_ranks_at_once_are_ascending() {
    for path in
        ["all_reduce/one_shot", "all_reduce/two_shot", "reduce_scatter/direct", "reduce/linear"]
    {
        for ranks in 1..=6 {
            let root = if path.starts_with("reduce/") { ranks - 1 } else { 0 };
            let order = order(library(path), ranks, root);
            assert_eq!(order.folds, FoldOrder::Ascending, "{path} on {ranks}");
            assert!(order.ascending_sums && order.is_ascending(true), "{path} on {ranks}");
        }
    }
}

#[test]
fn partial_sums_that_are_stored_count_for_narrow_types_only() {
    // 0 -> 1 -> 2 -> 3: in ascending order, and stored at every stop.
    let chain = order(library("reduce/chain"), 4, 3);
    assert_eq!((chain.folds, chain.ascending_sums), (FoldOrder::Uniform, true));
    assert!(chain.is_ascending(false) && !chain.is_ascending(true) && chain.is_invariant(true));
    // 1 -> 2 -> 3 -> 0.
    let chain = order(library("reduce/chain"), 4, 0);
    assert_eq!((chain.folds, chain.ascending_sums), (FoldOrder::Uniform, false));
    assert!(!chain.is_ascending(false) && chain.is_invariant(false));
    // On two ranks there is one way.
    assert_eq!(order(library("reduce/chain"), 2, 0).folds, FoldOrder::Ascending);
}

#[test]
fn one_tree_for_all_elements_is_uniform() {
    for path in ["all_reduce/halving_doubling", "all_reduce/recursive_doubling", "reduce/binomial"]
    {
        let order = order(library(path), 4, 0);
        assert_eq!(order.folds, FoldOrder::Uniform, "{path}");
        assert!(order.is_invariant(true), "{path}");
    }
    assert_eq!(proved(library("all_gather/direct"), 4, 0).0.order, None);
}

#[test]
fn a_ring_is_refused_at_its_line() {
    for path in ["all_reduce/ring", "reduce_scatter/ring"] {
        let (facts, why) = proved(library(path), 3, 0);
        assert_eq!(facts.is_invariant(false), Some(false), "{path}");
        let why = why.expect("a reason");
        assert!(why.contains("depends on the place of an element"), "{why}");
        assert!(why.contains("reduce data") && why.contains("here.algo"), "{why}");
        assert!(
            why.contains("r1 + r2") || why.contains("r2 + r0") || why.contains("r0 + r2"),
            "{why}"
        );
    }
    // On two ranks every order is the ascending one.
    assert_eq!(order(library("all_reduce/ring"), 2, 0).folds, FoldOrder::Ascending);
}

/// Two shots with the sums of one chunk in two steps: an element's bits depend on whether the length of the vector
/// puts it into that chunk.
const ALTERED: &str = "algorithm altered implements all_reduce on n ranks {
    chunks n
    each r { for p in 1..n where p != r { r -> p : reduce data[p] } }
    each r where r > 1 { r -> 0 : reduce data[0] }
    each r where r == 1 { r -> 0 : reduce data[0] }
    each r { for p in 0..n where p != r { r -> p : copy data[r] } }
}";

#[test]
fn a_chunk_that_is_summed_otherwise_is_refused() {
    let (facts, why) = proved(ALTERED, 4, 0);
    assert_eq!(facts.bitwise, Some(true), "the ranks agree with each other");
    assert_eq!(facts.is_invariant(false), Some(false));
    let why = why.expect("a reason");
    assert!(why.contains("(r0 + r2 + r3) + r1") && why.contains("r0 + r1 + r2 + r3"), "{why}");
}

/// As `altered`, in ascending order: only where partial sums are stored, and so rounded to 16 bits, depends on the chunk.
#[test]
fn a_chunk_that_is_stored_between_is_refused_for_narrow_types() {
    let text = ALTERED.replace("r > 1", "r < 3").replace("r == 1", "r == 3");
    let text = text.replace("each r where r < 3 {", "each r where r > 0 && r < 3 {");
    let (facts, why) = proved(&text, 4, 0);
    let order = facts.order.expect("sums");
    assert!(order.ascending_sums && matches!(order.folds, FoldOrder::Varying(_)), "{order:?}");
    assert_eq!([false, true].map(|exact| facts.is_invariant(exact)), [Some(true), Some(false)]);
    assert!(why.expect("a reason").contains("(r0 + r1 + r2) + r3"));
}

#[test]
fn ranks_that_add_in_orders_of_their_own_are_refused() {
    let text = "algorithm own implements all_reduce on n ranks {
        scratch t[n]
        each r { for p in 0..n { r -> p : copy data -> t[r] } }
        for s in 1..n { each r { r -> r : reduce t[(r + s) % n] -> data } }
    }";
    let (facts, why) = proved(text, 3, 0);
    assert_eq!((facts.bitwise, facts.is_invariant(false)), (Some(false), Some(false)));
    assert!(why.expect("a reason").contains("the rank that holds it"));
}

#[test]
fn plans_of_wire_types_are_not_invariant() {
    let text = library("all_reduce/two_shot").replace("copy data[r]", "copy data[r] as bf16");
    assert_eq!(proved(&text, 3, 0).0.is_invariant(false), Some(false));
}

/// A place that is copied onto itself was sent through a connection of the rank to itself, and rounded once more there.
#[test]
fn nothing_is_rounded_within_a_rank() {
    for itself in ["copy data as bf16", "copy data"] {
        let text = format!(
            "algorithm own implements broadcast on n ranks {{
            each r where r != root {{ root -> r : copy data as f16 }}
            each r where r != root {{ r -> r : {itself} }} }}"
        );
        proved(&text, 3, 0);
    }
}

#[test]
fn a_plan_that_folds_in_another_order_is_no_plan_of_the_schedule() {
    // The placements were compiled above; here the operands of a plan's fold are swapped.
    let mut sources = SourceMap::new();
    let id = sources.add("here.algo", library("all_reduce/one_shot"));
    let program = resolve(&mut sources, id, &NoLibrary).expect("the text resolves").remove(0);
    let (shape, options) = (Shape::flat(2), CompileOptions::default());
    let proved = compile(&program, &sources, &shape, &options, BufferPlacement::InPlace);
    let proved = proved.expect("plans");
    let graph = proved.graph();
    let instance = Arc::new(ProgramInstance::new(&program, &shape, &options).expect("an instance"));
    let checked = graph::unroll(&instance).and_then(verify).expect("a proof");
    assert_eq!(graph.instance.ranks(), 2);
    let mut plans: Vec<_> = proved.into_plans().into_iter().map(|p| p.into_unproved()).collect();
    let verified = |plans: Vec<_>| {
        roundelay_compiler::verify::plan::verify(&checked, &instance, &sources, plans)
    };
    verified(plans.clone()).expect("as they were compiled");
    let ops = plans[0].part.lanes.iter_mut().flat_map(|lane| &mut lane.ops);
    for op in ops.filter(|op| op.inputs.len() == 2) {
        op.inputs.swap(0, 1);
    }
    let found = verified(plans).expect_err("operands that were swapped");
    assert!(found[0].message.contains("summed in another order"), "{found:?}");
}
