//! Small changes of a resolved program, each with the place that it is made at. `list` finds them.

use roundelay_dsl::ast::{BinOp, TransferOp, UnOp};
use roundelay_dsl::span::Span;

use super::places::{ProgramPlace, VariablePick, VisibleNames, inner, visit};
use crate::program::{
    BUILTINS, BuiltinFunction, ChunkIndex, EachRules, ExprNode, Program, ProgramBuffer,
    ProgramStmt, RankExpr, RegionExpr, RuleBinder, Slot, SlotExpr, TransferRule,
};

/// One change.
#[derive(Debug, Clone)]
pub(super) struct ProgramEdit {
    /// Span of the expression or statement at fault if the change helps.
    pub(super) span: Span,
    /// The place that is named, if it is not that span.
    pub(super) named: Option<Span>,
    /// The place of the other statement, if two change places.
    pub(super) other: Option<Span>,
    /// The change in words, to be followed by `it would be right`.
    pub(super) text: String,
    /// A measure of how seldom a person errs so: the change of the least measure is named.
    pub(super) cost: u32,
    pub(super) change: EditKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum EditKind {
    /// Adds to the number at the span.
    Add(i64),
    /// Replaces the operator at the span by one of those that are confused with it.
    Operator(BinOp),
    /// Replaces the function at the span.
    Function(BuiltinFunction),
    /// Replaces the variable or the number at the span.
    Variable(VariablePick),
    /// Adds or takes away a variable (`+ v`, `- v`, `% v`).
    Term(BinOp, VariablePick),
    /// Leaves one side of the operator at the span out: true leaves the right one out.
    Side(bool),
    /// Exchanges the sides of the operator at the span.
    Exchange,
    /// `a + b % c` for `(a + b) % c`, and the other way round.
    Group,
    /// Turns the condition at the span round.
    Not,
    /// Leaves the condition at the span out.
    Always,
    /// Adds a condition to the transfer at the span.
    Where(SlotExpr),
    /// `copy` for `reduce` and the other way round.
    Operation,
    /// Source and target change places.
    Turned,
    /// The regions change places.
    TurnedRegions,
    /// Another rank.
    Rank(Box<RankExpr>),
    /// Other chunks.
    Index(Box<ChunkIndex>),
    /// Another buffer.
    Buffer(ProgramBuffer),
    /// `..` for `..+`, and the other way round.
    Range,
    /// Left out.
    Drop,
    /// Changes places with the next statement.
    Swap,
}

/// Returns true if an expression is a truth value by its form.
pub(super) fn truth(e: &SlotExpr) -> bool {
    match &e.node {
        ExprNode::Unary(op, _) => *op == UnOp::Not,
        ExprNode::Binary(op, ..) => op.compares() || matches!(op, BinOp::Or | BinOp::And),
        ExprNode::Call(f, _) => BUILTINS.iter().any(|(_, known, _, truth)| known == f && *truth),
        ExprNode::If(_, a, _) => truth(a),
        ExprNode::Let(_, _, body) => truth(body),
        ExprNode::Int(_) | ExprNode::Var(_) => false,
    }
}

/// Returns the place of a statement, for those that have one.
pub(super) fn place(s: &ProgramStmt) -> Option<Span> {
    match s {
        ProgramStmt::Let(..) => None,
        ProgramStmt::For { from, .. } => Some(from.span),
        ProgramStmt::If { cond, .. } => Some(cond.span),
        ProgramStmt::Each(e) => Some(e.span),
        ProgramStmt::Use(u) => Some(u.span),
        ProgramStmt::Split(s) => Some(s.span),
    }
}

impl ProgramEdit {
    /// Returns the place that is named.
    pub(super) fn at(&self) -> Span {
        self.named.unwrap_or(self.span)
    }

    /// Returns the program with the change. What stands in several places of the program because it was
    /// expanded there (functions, `let` of an `each`) is changed in all of them.
    pub(super) fn made(&self, program: &Program) -> Program {
        let mut p = program.clone();
        let here = self.span;
        visit(&mut p, &mut |place, seen| match place {
            ProgramPlace::Block(block) => self.block(block),
            ProgramPlace::Rules(rules) => {
                if self.change == EditKind::Drop {
                    rules.retain(|r| r.span != here);
                }
            }
            ProgramPlace::Rule(rule, _) => self.rule(rule, seen),
            ProgramPlace::Rank(rank) => self.rank(rank, seen),
            ProgramPlace::Region(region) => self.region(region, seen),
            ProgramPlace::Expr(e, _) => inner(e, seen, &mut |e, seen| !self.expr(e, seen)),
        });
        renew(&mut p.body);
        p
    }

    fn block(&self, block: &mut Vec<ProgramStmt>) {
        if !matches!(self.change, EditKind::Drop | EditKind::Swap) {
            return;
        }
        let Some(at) = block.iter().position(|s| place(s) == Some(self.span)) else { return };
        if self.change == EditKind::Drop {
            block.remove(at);
        } else if let Some(next) = (at + 1..block.len()).find(|&i| place(&block[i]).is_some()) {
            // Variables between the two stay before both.
            let moved = block.remove(at);
            block.insert(next, moved);
        }
    }

    fn rule(&self, rule: &mut TransferRule, seen: &VisibleNames) {
        if rule.span != self.span {
            return;
        }
        match &self.change {
            EditKind::Operation => {
                rule.op =
                    if rule.op == TransferOp::Copy { TransferOp::Reduce } else { TransferOp::Copy };
            }
            EditKind::Turned => std::mem::swap(&mut rule.src, &mut rule.dst),
            EditKind::TurnedRegions => std::mem::swap(&mut rule.from, &mut rule.to),
            EditKind::Where(e) => {
                let mut e = e.clone();
                if seen.rebind(&mut e) {
                    rule.binders.push(RuleBinder::Where(e));
                }
            }
            _ => {}
        }
    }

    fn rank(&self, rank: &mut RankExpr, seen: &VisibleNames) {
        let EditKind::Rank(other) = &self.change else { return };
        let mut other = RankExpr { span: rank.span, ..(**other).clone() };
        if rank.span == self.span && rebound(&mut other, seen) {
            *rank = other;
        }
    }

    fn region(&self, region: &mut RegionExpr, seen: &VisibleNames) {
        if region.span != self.span {
            return;
        }
        match &self.change {
            EditKind::Index(other) => {
                let mut other = (**other).clone();
                if rebound_index(&mut other, seen) {
                    region.index = other;
                }
            }
            EditKind::Buffer(other) => region.buf = *other,
            EditKind::Range => {
                region.index = match std::mem::replace(&mut region.index, ChunkIndex::All) {
                    ChunkIndex::Range { from, to, by, take } => {
                        ChunkIndex::Cyclic { from, count: to, by, take }
                    }
                    ChunkIndex::Cyclic { from, count, by, take } => {
                        ChunkIndex::Range { from, to: count, by, take }
                    }
                    other => other,
                };
            }
            _ => {}
        }
    }

    /// Changes an expression; returns true if it is the place of the change.
    fn expr(&self, e: &mut SlotExpr, seen: &VisibleNames) -> bool {
        if e.span != self.span {
            return false;
        }
        let span = e.span;
        let whole = |node: &ExprNode| Box::new(SlotExpr { node: node.clone(), span });
        let new = match (&self.change, &e.node) {
            (EditKind::Not, ExprNode::Unary(UnOp::Not, inner)) if inner.span == span => None,
            (EditKind::Not, node) => Some(ExprNode::Unary(UnOp::Not, whole(node))),
            (EditKind::Always, _) => Some(ExprNode::Int(1)),
            (EditKind::Add(by), node) => {
                let by = SlotExpr { node: ExprNode::Int(*by), span };
                Some(ExprNode::Binary(BinOp::Add, whole(node), Box::new(by)))
            }
            (EditKind::Operator(to), ExprNode::Binary(op, a, b)) if confused(*op).contains(to) => {
                Some(ExprNode::Binary(*to, a.clone(), b.clone()))
            }
            (EditKind::Function(to), ExprNode::Call(f, args)) if mistaken(*f) == Some(*to) => {
                Some(ExprNode::Call(*to, args.clone()))
            }
            (EditKind::Variable(pick), ExprNode::Var(_) | ExprNode::Int(_)) => seen.node(pick),
            (EditKind::Term(op, pick), node) => {
                let term = seen.node(pick).map(|node| Box::new(SlotExpr { node, span }));
                term.map(|term| ExprNode::Binary(*op, whole(node), term))
            }
            (EditKind::Side(right), ExprNode::Binary(_, a, b)) => {
                Some(if *right { a.node.clone() } else { b.node.clone() })
            }
            (EditKind::Exchange, ExprNode::Binary(op, a, b)) => {
                Some(ExprNode::Binary(*op, b.clone(), a.clone()))
            }
            (EditKind::Exchange, ExprNode::Call(f, args)) if args.len() == 2 => {
                let mut args = args.clone();
                args.swap(0, 1);
                Some(ExprNode::Call(*f, args))
            }
            (EditKind::Group, ExprNode::Binary(op, a, b)) => grouped(*op, a, b),
            _ => None,
        };
        match new {
            Some(node) => {
                e.node = node;
                true
            }
            None => false,
        }
    }
}

/// Returns the expression with its operators the other way round: the inner one takes the sides of the outer.
pub(super) fn grouped(op: BinOp, a: &SlotExpr, b: &SlotExpr) -> Option<ExprNode> {
    let of = |op, a: &SlotExpr, b: &SlotExpr, span| {
        let (a, b) = (Box::new(a.clone()), Box::new(b.clone()));
        Box::new(SlotExpr { node: ExprNode::Binary(op, a, b), span })
    };
    match (&a.node, &b.node) {
        (ExprNode::Binary(inner, x, y), _) if inner.tightness() < op.tightness() => {
            let right = of(op, y, b, y.span.to(b.span));
            Some(ExprNode::Binary(*inner, x.clone(), right))
        }
        (_, ExprNode::Binary(inner, x, y)) if inner.tightness() > op.tightness() => {
            let left = of(op, a, x, a.span.to(x.span));
            Some(ExprNode::Binary(*inner, left, y.clone()))
        }
        _ => None,
    }
}

/// Has a rank from elsewhere name the variables of this place; `false` if they cannot be seen.
pub(super) fn rebound(rank: &mut RankExpr, seen: &VisibleNames) -> bool {
    let span = rank.span;
    let mut coordinates = rank.coordinates.iter_mut().map(|(e, _)| e);
    coordinates.all(|e| seen.rebind(e)) && {
        rank.linear.span = span;
        seen.rebind(&mut rank.linear)
    }
}

/// Has chunks from elsewhere name the variables of this place; `false` if they cannot be seen.
pub(super) fn rebound_index(index: &mut ChunkIndex, seen: &VisibleNames) -> bool {
    match index {
        ChunkIndex::All => true,
        ChunkIndex::At(e) => seen.rebind(e),
        ChunkIndex::Range { from, to: end, by, take }
        | ChunkIndex::Cyclic { from, count: end, by, take } => {
            [from, end].into_iter().chain(by).chain(take).all(|e| seen.rebind(e))
        }
    }
}

/// Returns the operators that are confused with one.
pub(super) fn confused(op: BinOp) -> &'static [BinOp] {
    match op {
        BinOp::Add => &[BinOp::Sub, BinOp::BitXor, BinOp::Mul, BinOp::BitOr],
        BinOp::Sub => &[BinOp::Add],
        BinOp::Mul => &[BinOp::Div, BinOp::Add, BinOp::Shl],
        BinOp::Div => &[BinOp::Mod, BinOp::Mul, BinOp::Shr],
        BinOp::Mod => &[BinOp::Div],
        BinOp::Shl => &[BinOp::Shr],
        BinOp::Shr => &[BinOp::Shl],
        BinOp::BitXor => &[BinOp::Add, BinOp::BitOr],
        BinOp::BitAnd => &[BinOp::BitOr],
        BinOp::BitOr => &[BinOp::BitAnd, BinOp::BitXor],
        BinOp::Eq => &[BinOp::Ne],
        BinOp::Ne => &[BinOp::Eq],
        BinOp::Lt => &[BinOp::Le, BinOp::Gt],
        BinOp::Le => &[BinOp::Lt, BinOp::Ge],
        BinOp::Gt => &[BinOp::Ge, BinOp::Lt],
        BinOp::Ge => &[BinOp::Gt, BinOp::Le],
        BinOp::And => &[BinOp::Or],
        BinOp::Or => &[BinOp::And],
    }
}

/// Returns the function that is confused with one.
pub(super) fn mistaken(f: BuiltinFunction) -> Option<BuiltinFunction> {
    match f {
        BuiltinFunction::Min => Some(BuiltinFunction::Max),
        BuiltinFunction::Max => Some(BuiltinFunction::Min),
        BuiltinFunction::Log2 => Some(BuiltinFunction::CeilLog2),
        BuiltinFunction::CeilLog2 => Some(BuiltinFunction::Log2),
        BuiltinFunction::Log => Some(BuiltinFunction::CeilLog),
        BuiltinFunction::CeilLog => Some(BuiltinFunction::Log),
        BuiltinFunction::Even => Some(BuiltinFunction::Odd),
        BuiltinFunction::Odd => Some(BuiltinFunction::Even),
        _ => None,
    }
}

/// Derives anew what an `each` says of its variables: those that depend on the rank, and loops that are the same for
/// all ranks.
fn renew(body: &mut [ProgramStmt]) {
    for s in body {
        match s {
            ProgramStmt::For { body, .. } => renew(body),
            ProgramStmt::If { then, otherwise, .. } => {
                renew(then);
                renew(otherwise);
            }
            ProgramStmt::Split(s) => renew(&mut s.body),
            ProgramStmt::Each(each) => renew_each(each),
            ProgramStmt::Let(..) | ProgramStmt::Use(_) => {}
        }
    }
}

fn renew_each(each: &mut EachRules) {
    let mut dependent: Vec<Slot> = vec![each.var];
    each.defs.clear();
    for rule in &mut each.rules {
        for binder in &rule.binders {
            if let RuleBinder::Let(slot, e) = binder
                && !dependent.contains(slot)
                && e.depends_on(&dependent)
            {
                dependent.push(*slot);
                each.defs.push((*slot, e.clone()));
            }
        }
        rule.uniform = rule.binders.iter().all(|b| match b {
            RuleBinder::For(_, from, to) => {
                !from.depends_on(&dependent) && !to.depends_on(&dependent)
            }
            _ => true,
        });
    }
}
