//! Guesses who writes a place: the variables of a rule as expressions of the place, and of a contribution where many
//! ranks add to one place. A wrong guess proves nothing: an obligation says that the guess is right.

use roundelay_dsl::ast::{BinOp, TransferOp, UnOp};

use crate::eval::eval;
use crate::num::{index, signed};
use crate::program::{ChunkIndex, ExprNode, Slot, SlotExpr};

use super::plain::{PlainProgram, PlainRule};
use super::runs::RuleSample;
use super::state::WitnessedRule;
use super::words::{
    ExpressionWriter, Substitution, collect_slots, parts, replace_nodes, substitute,
};

/// Returns the rule with a witness that fits all samples, if there is one.
pub(super) fn find_witness(
    program: &PlainProgram,
    rule: &PlainRule,
    samples: &[RuleSample],
) -> Option<WitnessedRule> {
    let (mut known, mut by_content) = (Substitution::new(), false);
    // A variable may follow from another that comes behind it.
    while known.len() < rule.variables.len() {
        let mut next = None;
        for only_content in [false, true] {
            if only_content && rule.op != TransferOp::Reduce {
                break;
            }
            next = rule.variables.iter().map(|(slot, ..)| *slot).find_map(|slot| {
                let fits =
                    |e: &SlotExpr| samples.iter().all(|s| fits(program, e, slot, s, only_content));
                let unknown = !known.contains_key(&slot);
                let mut all = unknown
                    .then(|| candidates(program, rule, slot, &known, only_content))?
                    .into_iter();
                all.find(fits).map(|e| (slot, e))
            });
            if next.is_some() {
                by_content |= only_content;
                break;
            }
        }
        let (slot, witness) = next?;
        known.insert(slot, witness);
    }
    let witness = rule.variables.iter().filter_map(|(slot, ..)| known.get(slot).cloned()).collect();
    Some(WitnessedRule { rule: rule.clone(), witness, by_content })
}

fn fits(
    program: &PlainProgram,
    e: &SlotExpr,
    slot: Slot,
    sample: &RuleSample,
    by_content: bool,
) -> bool {
    let mut env = sample.env.clone();
    let wanted = env[index(slot)];
    // The variable itself must not be used to find it.
    env[index(slot)] = -7;
    if !by_content {
        return eval(e, &mut env).is_ok_and(|value| value == wanted);
    }
    let ranks = index(env[0]);
    (0..ranks * sample.began).filter(|&at| sample.moved.contains(at)).all(|at| {
        env[index(program.place.of)] = signed(at / sample.began);
        env[index(program.place.began)] = signed(at % sample.began);
        eval(e, &mut env).is_ok_and(|value| value == wanted)
    })
}

fn candidates(
    program: &PlainProgram,
    rule: &PlainRule,
    slot: Slot,
    known: &Substitution,
    by_content: bool,
) -> Vec<SlotExpr> {
    let (w, place) = (program.writer, program.place);
    let (rank, chunk, of, began) =
        (w.var(place.rank), w.var(place.chunk), w.var(place.of), w.var(place.began));
    let root = w.var(program.root);
    let mut equations = vec![(&rule.dst, &rank)];
    match &rule.to.index {
        ChunkIndex::At(e) => equations.push((e, &chunk)),
        ChunkIndex::Cyclic { from, .. } | ChunkIndex::Range { from, .. } => {
            equations.push((from, &chunk));
        }
        ChunkIndex::All => {}
    }
    let first = rule.variables.iter().find(|(v, ..)| *v == slot);
    let mut list: Vec<SlotExpr> = first.map(|(_, from, _)| from.clone()).into_iter().collect();
    if by_content {
        equations.push((&rule.src, &of));
        list.extend([of.clone(), began.clone()]);
    }
    let mut budget = 4000;
    for (e, value) in equations {
        if let Some(e) = substitute(e, known, &mut budget) {
            invert(w, &e, slot, value, &mut list);
        }
    }
    list.extend([rank.clone(), chunk.clone(), root.clone()]);
    if program.kind.rooted() {
        // The parent in a tree whose places are numbered level by level, from the root on.
        for &(_, arity) in program.constants.iter().filter(|(_, value)| (2..=8).contains(value)) {
            let below = w.sub(&w.wrap(&w.sub(&rank, &root)), &w.int(1));
            let parent = w.op(BinOp::Div, &below, &w.int(arity));
            list.push(w.wrap(&w.add(&root, &parent)));
        }
    }
    if let (Some(part), Some((_, bit))) = (program.part(), rule.known_bit()) {
        list.extend(tree_places(program, part, bit, by_content));
    }
    let mut terms = vec![&rank, &chunk, &root];
    if by_content {
        terms.extend([&of, &began]);
    }
    for a in &terms {
        for b in &terms {
            if a != b {
                list.push(w.wrap(&w.sub(a, b)));
                list.push(w.wrap(&w.add(a, b)));
            }
        }
    }
    let later = |e: &SlotExpr| {
        let mut slots = Vec::new();
        collect_slots(e, &mut slots);
        slots.iter().any(|s| rule.variables.iter().any(|(v, ..)| v == s))
    };
    list.retain(|e| !later(e));
    list
}

/// Returns the places that a rank can have in one of two trees that are moved on against each other: the number of
/// ranks behind it, or behind the root, where the root itself stays. By contents, the place below it on the side of the
/// contribution.
fn tree_places(
    program: &PlainProgram,
    part: Slot,
    bit: &SlotExpr,
    by_content: bool,
) -> Vec<SlotExpr> {
    let w = program.writer;
    let (rank, of, part) = (w.var(program.place.rank), w.var(program.place.of), w.var(part));
    let moved = w.wrap(&w.sub(&rank, &part));
    if by_content {
        let is_below = w.lt(&w.wrap(&w.sub(&of, &part)), &moved);
        return vec![w.choose(&is_below, &w.sub(&moved, bit), &w.add(&moved, bit))];
    }
    let behind = w.wrap(&w.sub(&rank, &w.var(program.root)));
    let others = w.sub(&w.var(0), &w.int(1));
    let seat = w.op(BinOp::Mod, &w.sub(&w.sub(&behind, &w.int(1)), &part), &others);
    let is_root = w.eq(&behind, &w.int(0));
    vec![moved, w.choose(&is_root, &w.int(0), &w.add(&seat, &w.int(1)))]
}

/// Adds the solutions of `e == value` for a variable.
fn invert(
    w: ExpressionWriter,
    e: &SlotExpr,
    slot: Slot,
    value: &SlotExpr,
    out: &mut Vec<SlotExpr>,
) {
    if !e.depends_on(&[slot]) {
        return;
    }
    if let Some(choice) = find_choice(e, slot) {
        invert_choice(w, e, &choice, slot, value, out);
        return;
    }
    let (inner, wraps) = match &e.node {
        ExprNode::Binary(BinOp::Mod, inner, n) if n.node == ExprNode::Var(0) => (&**inner, true),
        _ => (e, false),
    };
    if let ExprNode::Binary(BinOp::BitXor, a, b) = &inner.node {
        match (a.depends_on(&[slot]), b.depends_on(&[slot])) {
            (true, false) => invert(w, a, slot, &w.op(BinOp::BitXor, value, b), out),
            (false, true) => invert(w, b, slot, &w.op(BinOp::BitXor, value, a), out),
            _ => {}
        }
        return;
    }
    let zero = Substitution::from([(slot, w.int(0))]);
    let Some(rest) = substitute(inner, &zero, &mut 4000) else { return };
    let solved = match coefficient(inner, slot) {
        Some(1) => w.sub(value, &rest),
        Some(-1) => w.sub(&rest, value),
        _ => return,
    };
    let rest_is_zero = matches!(rest.node, ExprNode::Int(0));
    out.push(if wraps && !rest_is_zero { w.wrap(&solved) } else { solved.clone() });
    out.push(solved);
}

/// Adds the solutions where a part of the expression is a choice that depends on the variable.
fn invert_choice(
    w: ExpressionWriter,
    e: &SlotExpr,
    choice: &SlotExpr,
    slot: Slot,
    value: &SlotExpr,
    out: &mut Vec<SlotExpr>,
) {
    let ExprNode::If(condition, a, b) = &choice.node else { return };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    invert(w, &replace(e, choice, a), slot, value, &mut first);
    invert(w, &replace(e, choice, b), slot, value, &mut second);
    let at_value = Substitution::from([(slot, value.clone())]);
    let Some(condition) = substitute(condition, &at_value, &mut 4000) else { return };
    for x in first.iter().take(2) {
        for y in second.iter().take(2) {
            out.push(w.choose(&condition, x, y));
            out.push(w.choose(&condition, y, x));
        }
    }
}

fn find_choice(e: &SlotExpr, slot: Slot) -> Option<SlotExpr> {
    match &e.node {
        ExprNode::If(condition, ..) if condition.depends_on(&[slot]) => Some(e.clone()),
        _ => parts(e).into_iter().find_map(|part| find_choice(part, slot)),
    }
}

fn replace(e: &SlotExpr, part: &SlotExpr, by: &SlotExpr) -> SlotExpr {
    replace_nodes(e, &|own| (own == part).then(|| by.node.clone()))
}

/// Returns the coefficient of a variable in a sum.
fn coefficient(e: &SlotExpr, slot: Slot) -> Option<i64> {
    if !e.depends_on(&[slot]) {
        return Some(0);
    }
    match &e.node {
        ExprNode::Var(_) => Some(1),
        ExprNode::Unary(UnOp::Neg, a) => Some(-coefficient(a, slot)?),
        ExprNode::Binary(BinOp::Add, a, b) => Some(coefficient(a, slot)? + coefficient(b, slot)?),
        ExprNode::Binary(BinOp::Sub, a, b) => Some(coefficient(a, slot)? - coefficient(b, slot)?),
        // Within a sum that wraps around, an inner one does not change the rest.
        ExprNode::Binary(BinOp::Mod, a, n) if n.node == ExprNode::Var(0) => coefficient(a, slot),
        _ => None,
    }
}
