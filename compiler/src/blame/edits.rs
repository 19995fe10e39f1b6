//! Small changes of a resolved program, each with the place that it is made at. `list` finds them.

use roundelay_dsl::ast::{BinOp, Op, UnOp};
use roundelay_dsl::span::Span;

use super::places::{ProgramPlace, VariablePick, VisibleNames, inner, visit};
use crate::program::{
    Binder, Buffer, Builtin, Each, Expr, Index, Node, Program, Rank, Region, Rule, Slot, Stmt,
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
    Function(Builtin),
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
    Where(Expr),
    /// `copy` for `reduce` and the other way round.
    Operation,
    /// Source and target change places.
    Turned,
    /// The regions change places.
    TurnedRegions,
    /// Another rank.
    Rank(Box<Rank>),
    /// Other chunks.
    Index(Box<Index>),
    /// Another buffer.
    Buffer(Buffer),
    /// `..` for `..+`, and the other way round.
    Range,
    /// Left out.
    Drop,
    /// Changes places with the next statement.
    Swap,
}

/// Returns true if an expression is a truth value by its form.
pub(super) fn truth(e: &Expr) -> bool {
    match &e.node {
        Node::Unary(op, _) => *op == UnOp::Not,
        Node::Binary(op, ..) => op.compares() || matches!(op, BinOp::Or | BinOp::And),
        Node::Call(f, _) => matches!(f, Builtin::Pow2 | Builtin::Even | Builtin::Odd),
        Node::If(_, a, _) => truth(a),
        Node::Let(_, _, body) => truth(body),
        Node::Int(_) | Node::Var(_) => false,
    }
}

/// Returns the place of a statement, for those that have one.
pub(super) fn place(s: &Stmt) -> Option<Span> {
    match s {
        Stmt::Let(..) => None,
        Stmt::For { from, .. } => Some(from.span),
        Stmt::If { cond, .. } => Some(cond.span),
        Stmt::Each(e) => Some(e.span),
        Stmt::Use(u) => Some(u.span),
        Stmt::Split(s) => Some(s.span),
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

    fn block(&self, block: &mut Vec<Stmt>) {
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

    fn rule(&self, rule: &mut Rule, seen: &VisibleNames) {
        if rule.span != self.span {
            return;
        }
        match &self.change {
            EditKind::Operation => {
                rule.op = if rule.op == Op::Copy { Op::Reduce } else { Op::Copy };
            }
            EditKind::Turned => std::mem::swap(&mut rule.src, &mut rule.dst),
            EditKind::TurnedRegions => std::mem::swap(&mut rule.from, &mut rule.to),
            EditKind::Where(e) => {
                let mut e = e.clone();
                if seen.rebind(&mut e) {
                    rule.binders.push(Binder::Where(e));
                }
            }
            _ => {}
        }
    }

    fn rank(&self, rank: &mut Rank, seen: &VisibleNames) {
        let EditKind::Rank(other) = &self.change else { return };
        let mut other = Rank { span: rank.span, ..(**other).clone() };
        if rank.span == self.span && rebound(&mut other, seen) {
            *rank = other;
        }
    }

    fn region(&self, region: &mut Region, seen: &VisibleNames) {
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
                region.index = match std::mem::replace(&mut region.index, Index::All) {
                    Index::Range { from, to, by, take } => {
                        Index::Cyclic { from, count: to, by, take }
                    }
                    Index::Cyclic { from, count, by, take } => {
                        Index::Range { from, to: count, by, take }
                    }
                    other => other,
                };
            }
            _ => {}
        }
    }

    /// Changes an expression; returns true if it is the place of the change.
    fn expr(&self, e: &mut Expr, seen: &VisibleNames) -> bool {
        if e.span != self.span {
            return false;
        }
        let span = e.span;
        let whole = |node: &Node| Box::new(Expr { node: node.clone(), span });
        let new = match (&self.change, &e.node) {
            (EditKind::Not, Node::Unary(UnOp::Not, inner)) if inner.span == span => None,
            (EditKind::Not, node) => Some(Node::Unary(UnOp::Not, whole(node))),
            (EditKind::Always, _) => Some(Node::Int(1)),
            (EditKind::Add(by), node) => {
                let by = Expr { node: Node::Int(*by), span };
                Some(Node::Binary(BinOp::Add, whole(node), Box::new(by)))
            }
            (EditKind::Operator(to), Node::Binary(op, a, b)) if confused(*op).contains(to) => {
                Some(Node::Binary(*to, a.clone(), b.clone()))
            }
            (EditKind::Function(to), Node::Call(f, args)) if mistaken(*f) == Some(*to) => {
                Some(Node::Call(*to, args.clone()))
            }
            (EditKind::Variable(pick), Node::Var(_) | Node::Int(_)) => seen.node(pick),
            (EditKind::Term(op, pick), node) => {
                let term = seen.node(pick).map(|node| Box::new(Expr { node, span }));
                term.map(|term| Node::Binary(*op, whole(node), term))
            }
            (EditKind::Side(right), Node::Binary(_, a, b)) => {
                Some(if *right { a.node.clone() } else { b.node.clone() })
            }
            (EditKind::Exchange, Node::Binary(op, a, b)) => {
                Some(Node::Binary(*op, b.clone(), a.clone()))
            }
            (EditKind::Exchange, Node::Call(f, args)) if args.len() == 2 => {
                let mut args = args.clone();
                args.swap(0, 1);
                Some(Node::Call(*f, args))
            }
            (EditKind::Group, Node::Binary(op, a, b)) => grouped(*op, a, b),
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
pub(super) fn grouped(op: BinOp, a: &Expr, b: &Expr) -> Option<Node> {
    let of = |op, a: &Expr, b: &Expr, span| {
        let (a, b) = (Box::new(a.clone()), Box::new(b.clone()));
        Box::new(Expr { node: Node::Binary(op, a, b), span })
    };
    match (&a.node, &b.node) {
        (Node::Binary(inner, x, y), _) if inner.tightness() < op.tightness() => {
            let right = of(op, y, b, y.span.to(b.span));
            Some(Node::Binary(*inner, x.clone(), right))
        }
        (_, Node::Binary(inner, x, y)) if inner.tightness() > op.tightness() => {
            let left = of(op, a, x, a.span.to(x.span));
            Some(Node::Binary(*inner, left, y.clone()))
        }
        _ => None,
    }
}

/// Has a rank from elsewhere name the variables of this place; `false` if they cannot be seen.
pub(super) fn rebound(rank: &mut Rank, seen: &VisibleNames) -> bool {
    let span = rank.span;
    let mut coordinates = rank.coordinates.iter_mut().map(|(e, _)| e);
    coordinates.all(|e| seen.rebind(e)) && {
        rank.linear.span = span;
        seen.rebind(&mut rank.linear)
    }
}

/// Has chunks from elsewhere name the variables of this place; `false` if they cannot be seen.
pub(super) fn rebound_index(index: &mut Index, seen: &VisibleNames) -> bool {
    match index {
        Index::All => true,
        Index::At(e) => seen.rebind(e),
        Index::Range { from, to: end, by, take } | Index::Cyclic { from, count: end, by, take } => {
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
pub(super) fn mistaken(f: Builtin) -> Option<Builtin> {
    match f {
        Builtin::Min => Some(Builtin::Max),
        Builtin::Max => Some(Builtin::Min),
        Builtin::Log2 => Some(Builtin::CeilLog2),
        Builtin::CeilLog2 => Some(Builtin::Log2),
        Builtin::Even => Some(Builtin::Odd),
        Builtin::Odd => Some(Builtin::Even),
        _ => None,
    }
}

/// Derives anew what an `each` says of its variables: those that depend on the rank, and loops that are the same for
/// all ranks.
fn renew(body: &mut [Stmt]) {
    for s in body {
        match s {
            Stmt::For { body, .. } => renew(body),
            Stmt::If { then, otherwise, .. } => {
                renew(then);
                renew(otherwise);
            }
            Stmt::Split(s) => renew(&mut s.body),
            Stmt::Each(each) => renew_each(each),
            Stmt::Let(..) | Stmt::Use(_) => {}
        }
    }
}

fn renew_each(each: &mut Each) {
    let mut dependent: Vec<Slot> = vec![each.var];
    each.defs.clear();
    for rule in &mut each.rules {
        for binder in &rule.binders {
            if let Binder::Let(slot, e) = binder
                && !dependent.contains(slot)
                && e.depends_on(&dependent)
            {
                dependent.push(*slot);
                each.defs.push((*slot, e.clone()));
            }
        }
        rule.uniform = rule.binders.iter().all(|b| match b {
            Binder::For(_, from, to) => !from.depends_on(&dependent) && !to.depends_on(&dependent),
            _ => true,
        });
    }
}
