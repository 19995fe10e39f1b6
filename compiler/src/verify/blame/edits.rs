//! Small changes of a resolved program, each with the place that it is made at.

use std::collections::BTreeSet;

use roundelay_dsl::ast::{BinOp, Op, UnOp};
use roundelay_dsl::span::Span;

use crate::program::{Binder, Builtin, Expr, Index, Node, Program, Region, Rule, Stmt};

/// One change.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    /// Span of the expression or statement at fault if the change helps.
    pub(super) span: Span,
    /// The message about it.
    pub(super) text: String,
    change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// Adds to the number at the span.
    Add(i64),
    /// Replaces the operator at the span.
    Operator(BinOp),
    /// Turns the condition at the span round.
    Not,
    /// `copy` for `reduce` and the other way round.
    Operation,
    /// Source and target change places.
    Turned,
    /// All chunks instead of some.
    Whole,
    /// Left out.
    Drop,
    /// Changes places with the next statement.
    Swap,
}

/// Returns all changes, in the order of the text within each kind.
pub(super) fn all(program: &Program) -> Vec<Edit> {
    let mut found = Found { edits: Vec::new(), seen: BTreeSet::new() };
    // Statements that are too many come first: the change is the simplest.
    let mut copy = program.clone();
    blocks(&mut copy.body, &mut |block| {
        for (i, s) in block.iter().enumerate() {
            let Some(span) = place(s) else { continue };
            found.push(span, Change::Drop, "without this");
            if block.get(i + 1).is_some() {
                found.push(span, Change::Swap, "if this came after the next statement");
            }
        }
    });
    rules(&mut copy.body, &mut |list| {
        for rule in list.iter() {
            found.push(rule.span, Change::Drop, "without this");
            let other = if rule.op == Op::Copy { "reduce" } else { "copy" };
            found.push(rule.span, Change::Operation, &format!("with `{other}`"));
            found.push(rule.span, Change::Turned, "with source and target exchanged");
        }
    });
    regions(&mut copy, &mut |region| {
        if region.index != Index::All {
            found.push(region.span, Change::Whole, "with the whole buffer");
        }
    });
    exprs(&mut copy, &mut |e| found.expr(e));
    found.edits
}

struct Found {
    edits: Vec<Edit>,
    seen: BTreeSet<(Span, String)>,
}

impl Found {
    fn push(&mut self, span: Span, change: Change, text: &str) {
        if self.seen.insert((span, text.to_string())) {
            let text = format!("{text} it would be right");
            self.edits.push(Edit { span, text, change });
        }
    }

    fn expr(&mut self, e: &Expr) {
        if truth(e) {
            self.push(e.span, Change::Not, "turned round");
        } else {
            self.push(e.span, Change::Add(-1), "one less here, and");
            self.push(e.span, Change::Add(1), "one more here, and");
        }
        match &e.node {
            Node::Int(_) | Node::Var(_) => {}
            Node::Unary(_, a) => self.expr(a),
            Node::Binary(op, a, b) => {
                for other in others(*op) {
                    let text = format!("with `{}` instead of `{}`", other.symbol(), op.symbol());
                    self.push(e.span, Change::Operator(*other), &text);
                }
                self.expr(a);
                self.expr(b);
            }
            Node::Call(_, args) => args.iter().for_each(|a| self.expr(a)),
            Node::If(c, a, b) => [c, a, b].into_iter().for_each(|e| self.expr(e)),
            Node::Let(_, a, b) => [a, b].into_iter().for_each(|e| self.expr(e)),
        }
    }
}

/// Returns the operators that are mistaken for each other.
fn others(op: BinOp) -> &'static [BinOp] {
    match op {
        BinOp::Add => &[BinOp::Sub, BinOp::BitXor],
        BinOp::Sub => &[BinOp::Add],
        BinOp::Shl => &[BinOp::Shr],
        BinOp::Shr => &[BinOp::Shl],
        BinOp::BitXor => &[BinOp::Add],
        BinOp::Lt => &[BinOp::Le],
        BinOp::Le => &[BinOp::Lt],
        BinOp::Gt => &[BinOp::Ge],
        BinOp::Ge => &[BinOp::Gt],
        _ => &[],
    }
}

/// Returns true if an expression is a truth value by its form.
fn truth(e: &Expr) -> bool {
    match &e.node {
        Node::Unary(op, _) => *op == UnOp::Not,
        Node::Binary(op, ..) => matches!(
            op,
            BinOp::Or
                | BinOp::And
                | BinOp::Eq
                | BinOp::Ne
                | BinOp::Lt
                | BinOp::Le
                | BinOp::Gt
                | BinOp::Ge
        ),
        Node::Call(f, _) => matches!(f, Builtin::Pow2 | Builtin::Even | Builtin::Odd),
        Node::If(_, a, _) => truth(a),
        Node::Let(_, _, body) => truth(body),
        Node::Int(_) | Node::Var(_) => false,
    }
}

/// Returns the place of a statement, for those that have one.
fn place(s: &Stmt) -> Option<Span> {
    match s {
        Stmt::Let(..) => None,
        Stmt::For { from, .. } => Some(from.span),
        Stmt::If { cond, .. } => Some(cond.span),
        Stmt::Each(e) => Some(e.span),
        Stmt::Use(u) => Some(u.span),
        Stmt::Split(s) => Some(s.span),
    }
}

impl Edit {
    /// Returns the program with the change. What stands in several places of the program because it was
    /// expanded there (functions, `let` of an `each`) is changed in all of them.
    pub(super) fn made(&self, program: &Program) -> Program {
        let mut p = program.clone();
        let here = self.span;
        match self.change {
            Change::Drop | Change::Swap => {
                let swap = self.change == Change::Swap;
                blocks(&mut p.body, &mut |block| {
                    let Some(at) = block.iter().position(|s| place(s) == Some(here)) else {
                        return;
                    };
                    if !swap {
                        block.remove(at);
                    } else if at + 1 < block.len() {
                        block.swap(at, at + 1);
                    }
                });
                if !swap {
                    rules(&mut p.body, &mut |list| list.retain(|r| r.span != here));
                }
            }
            Change::Operation | Change::Turned => rules(&mut p.body, &mut |list| {
                for rule in list.iter_mut().filter(|r| r.span == here) {
                    if self.change == Change::Turned {
                        std::mem::swap(&mut rule.src, &mut rule.dst);
                    } else {
                        rule.op = if rule.op == Op::Copy { Op::Reduce } else { Op::Copy };
                    }
                }
            }),
            Change::Whole => regions(&mut p, &mut |r| {
                if r.span == here {
                    r.index = Index::All;
                }
            }),
            Change::Add(_) | Change::Operator(_) | Change::Not => {
                exprs(&mut p, &mut |e| self.rewrite(e));
            }
        }
        p
    }

    fn rewrite(&self, e: &mut Expr) {
        let fits = match (self.change, &e.node) {
            (Change::Not, Node::Unary(UnOp::Not, inner)) => inner.span != e.span,
            (Change::Operator(to), Node::Binary(op, ..)) => others(*op).contains(&to),
            (Change::Operator(_), _) => false,
            _ => true,
        };
        if e.span == self.span && fits {
            let (span, old) = (e.span, e.node.clone());
            let inner = || Box::new(Expr { node: old.clone(), span });
            e.node = match (self.change, &old) {
                (Change::Add(by), _) => {
                    let by = Expr { node: Node::Int(by), span };
                    Node::Binary(BinOp::Add, inner(), Box::new(by))
                }
                (Change::Operator(op), Node::Binary(_, a, b)) => {
                    Node::Binary(op, a.clone(), b.clone())
                }
                _ => Node::Unary(UnOp::Not, inner()),
            };
            return;
        }
        match &mut e.node {
            Node::Int(_) | Node::Var(_) => {}
            Node::Unary(_, a) => self.rewrite(a),
            Node::Binary(_, a, b) | Node::Let(_, a, b) => {
                self.rewrite(a);
                self.rewrite(b);
            }
            Node::Call(_, args) => args.iter_mut().for_each(|a| self.rewrite(a)),
            Node::If(c, a, b) => [c, a, b].into_iter().for_each(|e| self.rewrite(e)),
        }
    }
}

/// Calls `f` for every list of statements.
fn blocks(body: &mut Vec<Stmt>, f: &mut dyn FnMut(&mut Vec<Stmt>)) {
    f(body);
    for s in body {
        match s {
            Stmt::For { body, .. } => blocks(body, f),
            Stmt::If { then, otherwise, .. } => {
                blocks(then, f);
                blocks(otherwise, f);
            }
            Stmt::Split(s) => blocks(&mut s.body, f),
            Stmt::Let(..) | Stmt::Each(_) | Stmt::Use(_) => {}
        }
    }
}

/// Calls `f` for the transfers of every `each`.
fn rules(body: &mut Vec<Stmt>, f: &mut dyn FnMut(&mut Vec<Rule>)) {
    blocks(body, &mut |block| {
        for s in block {
            if let Stmt::Each(each) = s {
                f(&mut each.rules);
            }
        }
    });
}

/// Calls `f` for every region of the program's own statements.
fn regions(p: &mut Program, f: &mut dyn FnMut(&mut Region)) {
    blocks(&mut p.body, &mut |block| {
        for s in block {
            match s {
                Stmt::Each(each) => {
                    each.rules.iter_mut().flat_map(|r| [&mut r.from, &mut r.to]).for_each(&mut *f);
                }
                Stmt::Use(u) => u.on.iter_mut().chain(&mut u.to).for_each(&mut *f),
                _ => {}
            }
        }
    });
}

/// Calls `f` for every whole expression that a user wrote in the clauses and statements.
fn exprs(p: &mut Program, f: &mut dyn FnMut(&mut Expr)) {
    p.chunks.iter_mut().chain(p.scratch.iter_mut().map(|(_, e)| e)).for_each(&mut *f);
    blocks(&mut p.body, &mut |block| {
        for s in block {
            match s {
                Stmt::Let(_, e) => f(e),
                Stmt::For { from, to, .. } => {
                    f(from);
                    f(to);
                }
                Stmt::If { cond, .. } => f(cond),
                Stmt::Each(each) => {
                    // Coordinates bear the span of the `each`: nobody wrote them.
                    let own = each.span;
                    let defs = each.defs.iter_mut().map(|(_, e)| e);
                    defs.filter(|e| e.span != own).for_each(&mut *f);
                    for rule in &mut each.rules {
                        for binder in &mut rule.binders {
                            match binder {
                                Binder::Let(_, e) if e.span == own => {}
                                Binder::Let(_, e) | Binder::Where(e) => f(e),
                                Binder::For(_, from, to) => {
                                    f(from);
                                    f(to);
                                }
                            }
                        }
                        for rank in [&mut rule.src, &mut rule.dst] {
                            // The linear number holds the coordinates once more.
                            rank.coordinates.iter_mut().for_each(|(e, _)| f(e));
                            f(&mut rank.linear);
                        }
                    }
                }
                Stmt::Use(u) => u.root.iter_mut().for_each(&mut *f),
                Stmt::Split(s) => {
                    if let Some((a, b)) = &mut s.range {
                        f(a);
                        f(b);
                    }
                }
            }
        }
    });
    regions(p, &mut |r| match &mut r.index {
        Index::All => {}
        Index::At(e) => f(e),
        Index::Range { from, to: end, by, take } | Index::Cyclic { from, count: end, by, take } => {
            [from, end].into_iter().chain(by).chain(take).for_each(&mut *f);
        }
    });
}
