//! The expressions that guesses are made of.

use roundelay_dsl::ast::BinOp;

use crate::program::{BuiltinFunction, ExprNode, RegionExpr, Slot, SlotExpr};

use super::plain::{PlainLoop, PlainProgram, PlainRule, PlainStatement};
use super::words::{ExpressionWriter, collect_slots, each_of_index, parts};

/// Terms of a loop that bounds are made of, at most.
const MOST_TERMS: usize = 16;

/// Candidates for one loop.
#[derive(Debug, Default)]
pub(super) struct GuessVocabulary {
    /// Conditions on a place.
    pub(super) conditions: Vec<SlotExpr>,
    /// Conditions on the rank of a contribution.
    pub(super) contributors: Vec<SlotExpr>,
    /// The same, with the bounds of conditions.
    pub(super) bounded_contributors: Vec<SlotExpr>,
    /// Numbers of ranks that contribute from one side.
    pub(super) amounts: Vec<SlotExpr>,
    /// Conditions on the places of even ranks, or of odd ones.
    pub(super) by_parity: Vec<SlotExpr>,
    /// Chunks as which contributions in a place began.
    pub(super) chunks: Vec<SlotExpr>,
}

/// Returns the vocabulary of a loop inside of others, whose counters are given.
pub(super) fn make_vocabulary(
    program: &PlainProgram,
    of: &PlainLoop,
    counters: &[Slot],
    tree_places: &[SlotExpr],
) -> GuessVocabulary {
    let (w, place) = (program.writer, program.place);
    let (rank, chunk, from) = (w.var(place.rank), w.var(place.chunk), w.var(place.of));
    let (n, root) = (w.var(0), w.var(program.root));
    let terms = loop_terms(program, of, counters);
    let mut bounds = Vec::new();
    for term in &terms {
        for more in [0, 1, -1, 2, -2] {
            for factor in [1, -1, 2, -2] {
                for whole in [0, 1] {
                    let sum = w.add(&w.times(factor, term), &w.times(whole, &n));
                    bounds.push(w.add(&sum, &w.int(more)));
                }
            }
        }
    }
    for more in [1, 2, -1, -2] {
        bounds.push(w.int(more.max(0)));
        bounds.push(w.add(&n, &w.int(more)));
    }
    // What is left of a number of turns.
    let counter = w.var(of.slot);
    let halves = |e: &&SlotExpr| matches!(e.node, ExprNode::Binary(BinOp::Div, ..));
    for whole in terms.iter().filter(halves).filter(|e| !e.depends_on(&[of.slot])) {
        let left = w.sub(whole, &counter);
        bounds.extend([-1, 0, 1].map(|more| w.add(&left, &w.int(more))));
    }
    let difference =
        |a: &SlotExpr, b: &SlotExpr, more: i64| w.wrap(&w.add(&w.sub(a, b), &w.int(more)));
    let mut offsets = Vec::new();
    for more in [0, 1, -1] {
        offsets.push(difference(&rank, &chunk, more));
        offsets.push(difference(&chunk, &rank, more));
        if program.kind.rooted() {
            offsets.push(difference(&rank, &root, more));
            offsets.push(difference(&root, &rank, more));
        }
    }
    offsets.extend([rank.clone(), chunk.clone()]);
    offsets.extend(tree_places.iter().cloned());
    let mut found = GuessVocabulary::default();
    for bound in &bounds {
        for offset in &offsets {
            found.conditions.push(w.lt(offset, bound));
            found.conditions.push(w.lt(bound, offset));
        }
    }
    for offset in &offsets {
        for bound in &bounds {
            found.conditions.push(w.eq(offset, bound));
        }
    }
    for bound in &bounds {
        found.amounts.push(bound.clone());
        found.amounts.extend(offsets.iter().map(|offset| w.sub(bound, offset)));
    }
    if distinguishes_parity(of) {
        found.by_parity = parity_conditions(program, of, &terms);
    }
    let powers: Vec<&SlotExpr> = terms.iter().filter(|e| is_power(e)).collect();
    let rest = |e: &SlotExpr, level: &SlotExpr| w.op(BinOp::Mod, e, level);
    let block = |e: &SlotExpr, level: &SlotExpr| w.sub(e, &rest(e, level));
    for level in &powers {
        found.conditions.push(w.eq(&block(&rank, level), &block(&chunk, level)));
        found.conditions.push(w.eq(&rest(&rank, level), &rest(&chunk, level)));
        for offset in &offsets {
            let is_first = w.eq(&rest(offset, level), &w.int(0));
            found.conditions.push(is_first.clone());
            for other in &offsets {
                let left = w.sub(&n, offset);
                let least =
                    w.of(ExprNode::Call(BuiltinFunction::Min, vec![(*level).clone(), left]));
                found.conditions.push(w.and(&is_first, &w.lt(other, &least)));
            }
        }
    }
    let mut singles = vec![rank.clone(), chunk.clone()];
    if program.kind.rooted() {
        singles.push(root.clone());
    }
    let mut sums = Vec::new();
    for a in &singles {
        for b in &singles {
            if a != b {
                sums.push(difference(a, b, 0));
            }
        }
    }
    sums.push(w.wrap(&w.add(&rank, &chunk)));
    found.chunks.push(chunk.clone());
    found.chunks.push(w.int(0));
    found.chunks.extend(singles.iter().chain(&sums).cloned());
    for level in &powers {
        found.chunks.push(w.wrap(&w.add(&rank, &block(&chunk, level))));
        found.chunks.push(w.wrap(&w.sub(&rank, &block(&chunk, level))));
    }
    found.contributors.push(w.truth(true));
    found.contributors.extend(singles.iter().chain(&sums).map(|e| w.eq(&from, e)));
    if program.kind.is_ordered() {
        for more in [0, 1] {
            let last = w.sub(&rank, &w.int(more));
            let up_to = w.op(BinOp::Le, &from, &last);
            found.contributors.push(up_to.clone());
            let distance = w.sub(&last, &from);
            let near = bounds.iter().map(|bound| w.and(&up_to, &w.lt(&distance, bound)));
            found.contributors.extend(near);
            // Groups of 2, 4, 8, ... ranks, each of which ends where the lowest bit of the next rank says.
            let next = w.add(&last, &w.int(1));
            let bit = w.call(BuiltinFunction::Max, &[&next, &w.int(1)]);
            let bit = w.call(BuiltinFunction::Lowbit, &[&bit]);
            for level in &powers {
                let least = w.call(BuiltinFunction::Min, &[level, &bit]);
                found.contributors.push(w.and(&up_to, &w.lt(&distance, &least)));
                let is_whole = w.eq(&rest(&next, level), &w.int(0));
                let known = w.op(BinOp::Or, &is_whole, &w.lt(&distance, &bit));
                found.contributors.push(w.and(&up_to, &known));
            }
        }
    }
    let wholes = whole_powers(program, of);
    for whole in &wholes {
        found.conditions.push(w.lt(&rank, whole));
        let folded = rest(&from, whole);
        for level in &powers {
            found.contributors.push(w.eq(&block(&rank, level), &block(&folded, level)));
            found.contributors.push(w.eq(&rest(&rank, level), &rest(&folded, level)));
            let both = w.eq(&block(&rank, level), &block(&chunk, level));
            found.conditions.push(w.and(&w.lt(&rank, whole), &both));
        }
    }
    for level in &powers {
        found.contributors.push(w.eq(&from, &w.wrap(&w.sub(&rank, &rest(&chunk, level)))));
        found.contributors.push(w.eq(&from, &w.wrap(&w.add(&rank, &rest(&chunk, level)))));
        found.contributors.push(w.eq(&block(&rank, level), &block(&from, level)));
        found.contributors.push(w.eq(&rest(&rank, level), &rest(&from, level)));
    }
    if let (Some(part), false) = (program.part(), tree_places.is_empty()) {
        let moved = |e: &SlotExpr| w.wrap(&w.sub(e, &w.var(part)));
        let (own, other) = (moved(&rank), moved(&from));
        found.contributors.extend(powers.iter().map(|level| subtree(w, (&own, &other), level, &n)));
    }
    let mut distances = Vec::new();
    for single in &singles {
        distances.push(difference(single, &from, 0));
        distances.push(difference(&from, single, 0));
    }
    for distance in &distances {
        for offset in &offsets {
            found.contributors.push(w.op(BinOp::Le, distance, offset));
            found.contributors.push(w.op(BinOp::Lt, distance, offset));
        }
    }
    for level in &powers {
        for distance in &distances {
            for offset in &offsets {
                let left = w.sub(&n, offset);
                let least =
                    w.of(ExprNode::Call(BuiltinFunction::Min, vec![(*level).clone(), left]));
                found.contributors.push(w.lt(distance, &least));
            }
        }
    }
    for distance in &distances {
        for bound in &bounds {
            found.bounded_contributors.push(w.lt(distance, bound));
        }
    }
    found
}

/// Returns the condition that the sum at a place of an in-order tree has a contribution, when the levels below one are
/// done: that of the places between its neighbours on this level, or, of a place that is higher, what no place within
/// the tree has as its parent otherwise.
fn subtree(
    w: ExpressionWriter,
    (own, other): (&SlotExpr, &SlotExpr),
    level: &SlotExpr,
    n: &SlotExpr,
) -> SlotExpr {
    let rest = w.op(BinOp::Mod, own, &w.add(level, level));
    let (above, below) = (w.add(own, level), w.sub(own, level));
    let near = w.and(&w.lt(&below, other), &w.lt(other, &above));
    let up_to_end = w.op(BinOp::Le, own, other);
    let alone = w.eq(other, own);
    let higher = w.choose(&w.op(BinOp::Le, n, &above), &up_to_end, &alone);
    w.choose(&w.eq(&rest, level), &near, &higher)
}

/// Returns true if a loop distinguishes even ranks from odd ones.
fn distinguishes_parity(of: &PlainLoop) -> bool {
    let mut found = false;
    each_expression(&of.body, &mut |e| found |= has_parity(e));
    found
}

fn has_parity(e: &SlotExpr) -> bool {
    let is_parity =
        matches!(e.node, ExprNode::Call(BuiltinFunction::Even | BuiltinFunction::Odd, _));
    is_parity || parts(e).into_iter().any(has_parity)
}

/// Returns conditions on the distance of a place's chunk from its rank, which halves of terms move.
fn parity_conditions(program: &PlainProgram, of: &PlainLoop, terms: &[SlotExpr]) -> Vec<SlotExpr> {
    let (w, counter) = (program.writer, program.writer.var(of.slot));
    let (rank, chunk) = (w.var(program.place.rank), w.var(program.place.chunk));
    let mut found = Vec::new();
    for half in terms.iter().filter(|e| matches!(e.node, ExprNode::Binary(BinOp::Div, ..))) {
        for (a, b) in [(&rank, &chunk), (&chunk, &rank)] {
            for (factor, more) in
                [2, -2, 1, -1].into_iter().flat_map(|f| [0, 1, -1].map(|m| (f, m)))
            {
                let moved = w.add(&w.add(&w.sub(a, b), &w.times(factor, half)), &w.int(more));
                for (twice, more) in [2, 1].into_iter().flat_map(|f| [0, 1, -1].map(|m| (f, m))) {
                    let bound = w.add(&w.times(twice, &counter), &w.int(more));
                    found.push(w.lt(&w.wrap(&moved), &bound));
                }
            }
        }
    }
    found
}

/// Returns the powers in a loop that do not depend on its counters.
fn whole_powers(program: &PlainProgram, of: &PlainLoop) -> Vec<SlotExpr> {
    let mut all = Vec::new();
    let mut uniform: Vec<Slot> = vec![0];
    uniform.extend(program.constants.iter().map(|(slot, _)| *slot));
    each_expression(&of.body, &mut |e| uniform_terms(e, &uniform, &mut all));
    all.retain(is_power);
    all.truncate(2);
    all
}

fn is_power(e: &SlotExpr) -> bool {
    matches!(
        e.node,
        ExprNode::Binary(BinOp::Shl | BinOp::Shr, ..) | ExprNode::Call(BuiltinFunction::Pow, _)
    )
}

/// Returns the terms of a loop that are the same for all ranks: counters, and what its rules make of them.
fn loop_terms(program: &PlainProgram, of: &PlainLoop, counters: &[Slot]) -> Vec<SlotExpr> {
    let w = program.writer;
    let mut uniform: Vec<Slot> = counters.to_vec();
    uniform.extend([of.slot, 0]);
    uniform.extend(program.constants.iter().map(|(slot, _)| *slot));
    let mut terms = vec![w.var(of.slot)];
    let mut add = |e: SlotExpr| {
        if terms.len() < MOST_TERMS && !terms.contains(&e) {
            terms.push(e);
        }
    };
    let mut all = Vec::new();
    each_expression(&of.body, &mut |e| uniform_terms(e, &uniform, &mut all));
    for e in &all {
        match &e.node {
            ExprNode::Binary(BinOp::Shl, one, exponent) => {
                add(e.clone());
                add(w.op(BinOp::Shl, one, &w.add(exponent, &w.int(1))));
            }
            ExprNode::Binary(BinOp::Shr, one, exponent) => {
                add(e.clone());
                add(w.op(BinOp::Shr, one, &w.add(exponent, &w.int(-1))));
            }
            ExprNode::Call(BuiltinFunction::Pow, args) => {
                add(e.clone());
                let args = vec![args[0].clone(), w.add(&args[1], &w.int(1))];
                add(w.of(ExprNode::Call(BuiltinFunction::Pow, args)));
            }
            _ => {}
        }
    }
    let atoms = |e: &SlotExpr| {
        !matches!(e.node, ExprNode::Int(_) | ExprNode::Var(0))
            && !matches!(
                e.node,
                ExprNode::Binary(BinOp::Add | BinOp::Sub | BinOp::Shl | BinOp::Shr, ..)
            )
            && !matches!(e.node, ExprNode::Binary(op, ..) if op.symbol().len() == 2)
    };
    all.iter().filter(|e| atoms(e)).for_each(|e| add(e.clone()));
    terms
}

/// Adds the parts of an expression that depend on some variables only.
fn uniform_terms(e: &SlotExpr, uniform: &[Slot], out: &mut Vec<SlotExpr>) {
    let mut slots = Vec::new();
    collect_slots(e, &mut slots);
    if !slots.is_empty() && slots.iter().all(|s| uniform.contains(s)) && !out.contains(e) {
        out.push(e.clone());
    }
    parts(e).into_iter().for_each(|part| uniform_terms(part, uniform, out));
}

/// Calls a function with every expression of some statements.
pub(super) fn each_expression(statements: &[PlainStatement], f: &mut dyn FnMut(&SlotExpr)) {
    for statement in statements {
        match statement {
            PlainStatement::Check(e) | PlainStatement::Require(e) => f(e),
            PlainStatement::Part(_, range, _) => {
                range.iter().for_each(|(a, b)| {
                    f(a);
                    f(b);
                });
            }
            PlainStatement::Loop(l) => {
                f(&l.from);
                f(&l.to);
                each_expression(&l.body, f);
            }
            PlainStatement::Choice(cond, yes, no) => {
                f(cond);
                each_expression(yes, f);
                each_expression(no, f);
            }
            PlainStatement::Round(round) => {
                round.rules.iter().for_each(|rule| each_of_rule(rule, f));
            }
        }
    }
}

fn each_of_rule(rule: &PlainRule, f: &mut dyn FnMut(&SlotExpr)) {
    for (_, from, to) in &rule.variables {
        f(from);
        f(to);
    }
    rule.conditions.iter().chain(&rule.checks).for_each(&mut *f);
    f(&rule.src);
    f(&rule.dst);
    each_of_region(&rule.from, f);
    each_of_region(&rule.to, f);
}

fn each_of_region(region: &RegionExpr, f: &mut dyn FnMut(&SlotExpr)) {
    each_of_index(&region.index, f);
}
