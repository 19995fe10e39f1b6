//! Visits the places of a resolved program that a repair may change, each with the variables that can be seen there.

use roundelay_dsl::span::Span;

use crate::program::{
    AlgorithmUse, ChunkIndex, EachRules, ExprNode, Program, ProgramStmt, RankExpr, RegionExpr,
    RuleBinder, Slot, SlotExpr, TransferRule,
};

/// The most variables of a place that are considered.
const MOST_PICKS: usize = 24;

/// The variables that can be seen at a place.
#[derive(Debug, Clone, Default)]
pub(super) struct VisibleNames {
    /// Names by slot; empty for variables of functions.
    names: Vec<String>,
    /// Variables of the algorithm, outermost first.
    outer: Vec<Slot>,
    /// Variables of the functions around the place; only those of the last can be seen.
    frames: Vec<Vec<Slot>>,
}

/// A variable, or a number in place of one. It means the same wherever a function is expanded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum VariablePick {
    /// The variable of that name.
    Named(String),
    /// The variable of a function, counted from the innermost.
    Local(usize),
    /// A number.
    Number(i64),
}

impl VisibleNames {
    fn new(program: &Program) -> Self {
        let mut names = program.slots.clone();
        for (slot, name) in program.coordinates.iter().zip(&program.axes.names) {
            if let Some(own) = names.get_mut(usize::from(*slot)) {
                own.clone_from(name);
            }
        }
        let mut outer = program.axes.sizes.clone();
        outer.push(program.root);
        outer.extend(program.parameters.iter().map(|p| p.slot));
        VisibleNames { names, outer, frames: Vec::new() }
    }

    pub(super) fn name(&self, slot: Slot) -> &str {
        self.names.get(usize::from(slot)).map_or("", String::as_str)
    }

    /// Returns the variables that can be seen, innermost first, and no more than [`MOST_PICKS`].
    pub(super) fn picks(&self) -> Vec<(VariablePick, Slot)> {
        if let Some(frame) = self.frames.last() {
            let innermost = frame.iter().rev().take(MOST_PICKS).enumerate();
            return innermost.map(|(i, &s)| (VariablePick::Local(i), s)).collect();
        }
        let mut all: Vec<(VariablePick, Slot)> = Vec::new();
        for &slot in self.outer.iter().rev().filter(|&&s| !self.name(s).is_empty()) {
            let pick = VariablePick::Named(self.name(slot).to_string());
            if all.len() == MOST_PICKS {
                break;
            }
            if all.iter().all(|(known, _)| *known != pick) {
                all.push((pick, slot));
            }
        }
        all
    }

    /// Returns the expression that a choice stands for, if it can be seen.
    pub(super) fn node(&self, pick: &VariablePick) -> Option<ExprNode> {
        match pick {
            VariablePick::Number(n) => Some(ExprNode::Int(*n)),
            VariablePick::Local(i) => {
                let frame = self.frames.last()?;
                Some(ExprNode::Var(*frame.iter().rev().nth(*i)?))
            }
            VariablePick::Named(name) => {
                let here = self.frames.is_empty();
                let found = self.outer.iter().rev().find(|&&s| self.name(s) == name);
                Some(ExprNode::Var(*found.filter(|_| here)?))
            }
        }
    }

    /// Has the variables of an expression from elsewhere be those of the same names here; `false` if one of them
    /// cannot be seen.
    pub(super) fn rebind(&self, e: &mut SlotExpr) -> bool {
        self.rebind_in(e, &mut Vec::new())
    }

    fn rebind_in(&self, e: &mut SlotExpr, own: &mut Vec<Slot>) -> bool {
        match &mut e.node {
            ExprNode::Int(_) => true,
            ExprNode::Var(slot) if own.contains(slot) => true,
            ExprNode::Var(slot) => {
                let name = self.name(*slot).to_string();
                match self.node(&VariablePick::Named(name.clone())) {
                    Some(ExprNode::Var(found)) if !name.is_empty() => {
                        *slot = found;
                        true
                    }
                    _ => false,
                }
            }
            ExprNode::Unary(_, a) => self.rebind_in(a, own),
            ExprNode::Binary(_, a, b) => self.rebind_in(a, own) && self.rebind_in(b, own),
            ExprNode::Call(_, args) => args.iter_mut().all(|a| self.rebind_in(a, own)),
            ExprNode::If(c, a, b) => [c, a, b].into_iter().all(|e| self.rebind_in(e, own)),
            ExprNode::Let(slot, value, body) => {
                if !self.rebind_in(value, own) {
                    return false;
                }
                own.push(*slot);
                let done = self.rebind_in(body, own);
                own.pop();
                done
            }
        }
    }
}

/// The part that an expression has in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ExprRole {
    /// A number of chunks, or of parts.
    Size,
    /// A bound of a loop.
    Bound,
    /// A condition.
    Condition,
    /// The value of a variable.
    Value,
    /// A rank, or a coordinate of one.
    Rank,
    /// A chunk, or a number of chunks, of a region.
    Index,
}

/// A place of a program.
pub(super) enum ProgramPlace<'p> {
    Block(&'p mut Vec<ProgramStmt>),
    /// The transfers of an `each`.
    Rules(&'p mut Vec<TransferRule>),
    Rule(&'p mut TransferRule, Span),
    Rank(&'p mut RankExpr),
    Region(&'p mut RegionExpr),
    /// A whole expression as it was written. Coordinates of a tuple come one by one, and then once more in their
    /// linear number.
    Expr(&'p mut SlotExpr, ExprRole),
}

type PlaceVisitor<'v> = &'v mut dyn FnMut(ProgramPlace<'_>, &mut VisibleNames);

/// Calls `f` for every place, in the order of the text.
pub(super) fn visit(program: &mut Program, f: PlaceVisitor<'_>) {
    let mut seen = VisibleNames::new(program);
    let clauses = program.chunks.iter_mut().chain(program.scratch.iter_mut().map(|(_, e)| e));
    clauses.for_each(|e| f(ProgramPlace::Expr(e, ExprRole::Size), &mut seen));
    let coordinates = program.coordinates.clone();
    block(&mut program.body, &coordinates, &mut seen, f);
}

fn block(
    body: &mut Vec<ProgramStmt>,
    coordinates: &[Slot],
    seen: &mut VisibleNames,
    f: PlaceVisitor<'_>,
) {
    f(ProgramPlace::Block(body), seen);
    let depth = seen.outer.len();
    for s in body {
        match s {
            ProgramStmt::Let(slot, e) => {
                f(ProgramPlace::Expr(e, ExprRole::Value), seen);
                seen.outer.push(*slot);
            }
            ProgramStmt::For { slot, from, to, body } => {
                f(ProgramPlace::Expr(from, ExprRole::Bound), seen);
                f(ProgramPlace::Expr(to, ExprRole::Bound), seen);
                seen.outer.push(*slot);
                block(body, coordinates, seen, f);
                seen.outer.pop();
            }
            ProgramStmt::If { cond, then, otherwise } => {
                f(ProgramPlace::Expr(cond, ExprRole::Condition), seen);
                block(then, coordinates, seen, f);
                block(otherwise, coordinates, seen, f);
            }
            ProgramStmt::Each(e) => each(e, seen, f),
            ProgramStmt::Use(u) => used(u, coordinates, seen, f),
            ProgramStmt::Split(s) => {
                if let Some((a, b)) = &mut s.range {
                    f(ProgramPlace::Expr(a, ExprRole::Size), seen);
                    f(ProgramPlace::Expr(b, ExprRole::Size), seen);
                }
                seen.outer.push(s.slot);
                block(&mut s.body, coordinates, seen, f);
                seen.outer.pop();
            }
        }
    }
    seen.outer.truncate(depth);
}

fn used(u: &mut AlgorithmUse, coordinates: &[Slot], seen: &mut VisibleNames, f: PlaceVisitor<'_>) {
    u.root.iter_mut().for_each(|e| f(ProgramPlace::Expr(e, ExprRole::Rank), seen));
    let depth = seen.outer.len();
    if let Some(over) = u.over {
        let fixed = coordinates.iter().enumerate().filter(|(i, _)| *i != over);
        seen.outer.extend(fixed.map(|(_, slot)| slot));
    }
    u.on.iter_mut().chain(&mut u.to).for_each(|r| region(r, seen, f));
    seen.outer.truncate(depth);
}

fn each(each: &mut EachRules, seen: &mut VisibleNames, f: PlaceVisitor<'_>) {
    f(ProgramPlace::Rules(&mut each.rules), seen);
    let depth = seen.outer.len();
    for rule in &mut each.rules {
        seen.outer.push(each.var);
        for binder in &mut rule.binders {
            match binder {
                // Coordinates bear the span of the `each`: no text defines them.
                RuleBinder::Let(slot, e) => {
                    if e.span != each.span {
                        f(ProgramPlace::Expr(e, ExprRole::Value), seen);
                    }
                    seen.outer.push(*slot);
                }
                RuleBinder::Where(e) => f(ProgramPlace::Expr(e, ExprRole::Condition), seen),
                RuleBinder::For(slot, from, to) => {
                    f(ProgramPlace::Expr(from, ExprRole::Bound), seen);
                    f(ProgramPlace::Expr(to, ExprRole::Bound), seen);
                    seen.outer.push(*slot);
                }
            }
        }
        f(ProgramPlace::Rule(rule, each.span), seen);
        for rank in [&mut rule.src, &mut rule.dst] {
            f(ProgramPlace::Rank(rank), seen);
            let coordinates = rank.coordinates.iter_mut().map(|(e, _)| e);
            coordinates.for_each(|e| f(ProgramPlace::Expr(e, ExprRole::Rank), seen));
            f(ProgramPlace::Expr(&mut rank.linear, ExprRole::Rank), seen);
        }
        for r in [&mut rule.from, &mut rule.to] {
            region(r, seen, f);
        }
        seen.outer.truncate(depth);
    }
}

fn region(region: &mut RegionExpr, seen: &mut VisibleNames, f: PlaceVisitor<'_>) {
    f(ProgramPlace::Region(region), seen);
    match &mut region.index {
        ChunkIndex::All => {}
        ChunkIndex::At(e) => f(ProgramPlace::Expr(e, ExprRole::Index), seen),
        ChunkIndex::Range { from, to: end, by, take }
        | ChunkIndex::Cyclic { from, count: end, by, take } => {
            let all = [from, end].into_iter().chain(by).chain(take);
            all.for_each(|e| f(ProgramPlace::Expr(e, ExprRole::Index), seen));
        }
    }
}

/// Calls `f` for an expression and, as long as it returns true, for those inside it.
pub(super) fn inner(
    e: &mut SlotExpr,
    seen: &mut VisibleNames,
    f: &mut dyn FnMut(&mut SlotExpr, &mut VisibleNames) -> bool,
) {
    descend(e, None, seen, f);
}

/// Visits an expression; `call` is the span of the call whose function it is the rest of, if it is that.
fn descend(
    e: &mut SlotExpr,
    call: Option<Span>,
    seen: &mut VisibleNames,
    f: &mut dyn FnMut(&mut SlotExpr, &mut VisibleNames) -> bool,
) {
    if !f(e, seen) {
        return;
    }
    match &mut e.node {
        ExprNode::Int(_) | ExprNode::Var(_) => {}
        ExprNode::Unary(_, a) => descend(a, None, seen, f),
        ExprNode::Binary(_, a, b) => {
            descend(a, None, seen, f);
            descend(b, None, seen, f);
        }
        ExprNode::Call(_, args) => args.iter_mut().for_each(|a| descend(a, None, seen, f)),
        ExprNode::If(c, a, b) => [c, a, b].into_iter().for_each(|e| descend(e, None, seen, f)),
        ExprNode::Let(slot, value, body) => {
            let whole = call.unwrap_or(e.span);
            if call.is_none() {
                seen.frames.push(Vec::new());
            }
            // Arguments stand in the call, and see what it sees; values of `let` stand in the function.
            let argument = within(value.span, whole);
            let frame = if argument { seen.frames.pop() } else { None };
            descend(value, None, seen, f);
            seen.frames.extend(frame);
            if let Some(frame) = seen.frames.last_mut() {
                frame.push(*slot);
            }
            descend(body, Some(whole), seen, f);
            if call.is_none() {
                seen.frames.pop();
            }
        }
    }
}

fn within(inner: Span, outer: Span) -> bool {
    inner.source == outer.source && outer.start <= inner.start && inner.end <= outer.end
}
