//! Expressions that are written here and not read from a program: invariants, witnesses, what collectives ask for.

use std::collections::BTreeMap;

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::span::Span;

use crate::all_n::fragment::refusal::FragmentResult;
use crate::program::{BuiltinFunction, ChunkIndex, ExprNode, RegionExpr, Slot, SlotExpr};

/// Expressions without a place in a text: those of this span.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpressionWriter {
    pub(super) span: Span,
}

impl ExpressionWriter {
    pub(super) fn of(self, node: ExprNode) -> SlotExpr {
        SlotExpr { node, span: self.span }
    }

    pub(super) fn var(self, slot: Slot) -> SlotExpr {
        self.of(ExprNode::Var(slot))
    }

    pub(super) fn int(self, value: i64) -> SlotExpr {
        self.of(ExprNode::Int(value))
    }

    pub(super) fn op(self, op: BinOp, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        self.of(ExprNode::Binary(op, Box::new(a.clone()), Box::new(b.clone())))
    }

    pub(super) fn add(self, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        match (&a.node, &b.node) {
            (ExprNode::Int(0), _) => b.clone(),
            (_, ExprNode::Int(0)) => a.clone(),
            (ExprNode::Int(x), ExprNode::Int(y)) => self.int(x.saturating_add(*y)),
            (_, ExprNode::Int(y)) if *y < 0 => self.op(BinOp::Sub, a, &self.int(-y)),
            _ => self.op(BinOp::Add, a, b),
        }
    }

    pub(super) fn sub(self, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        match &b.node {
            ExprNode::Int(0) => a.clone(),
            _ => self.op(BinOp::Sub, a, b),
        }
    }

    pub(super) fn times(self, factor: i64, a: &SlotExpr) -> SlotExpr {
        match factor {
            0 => self.int(0),
            1 => a.clone(),
            _ => self.op(BinOp::Mul, &self.int(factor), a),
        }
    }

    /// Creates `a % n`.
    pub(super) fn wrap(self, a: &SlotExpr) -> SlotExpr {
        self.op(BinOp::Mod, a, &self.var(0))
    }

    pub(super) fn call(self, function: BuiltinFunction, args: &[&SlotExpr]) -> SlotExpr {
        self.of(ExprNode::Call(function, args.iter().map(|e| (*e).clone()).collect()))
    }

    pub(super) fn eq(self, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        self.op(BinOp::Eq, a, b)
    }

    pub(super) fn lt(self, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        self.op(BinOp::Lt, a, b)
    }

    pub(super) fn truth(self, holds: bool) -> SlotExpr {
        self.eq(&self.int(0), &self.int(i64::from(!holds)))
    }

    pub(super) fn and(self, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        self.op(BinOp::And, a, b)
    }

    pub(super) fn choose(self, c: &SlotExpr, a: &SlotExpr, b: &SlotExpr) -> SlotExpr {
        self.of(ExprNode::If(Box::new(c.clone()), Box::new(a.clone()), Box::new(b.clone())))
    }
}

/// Values of variables that are put in their places.
pub(super) type Substitution = BTreeMap<Slot, SlotExpr>;

/// Returns the expression with values in place of variables, and without `let`; none if it has more than `budget`
/// nodes, which are taken from it.
pub(super) fn substitute(
    e: &SlotExpr,
    values: &Substitution,
    budget: &mut u32,
) -> Option<SlotExpr> {
    *budget = budget.checked_sub(1)?;
    let mut part = |e: &SlotExpr| substitute(e, values, budget).map(Box::new);
    let node = match &e.node {
        ExprNode::Int(v) => ExprNode::Int(*v),
        ExprNode::Var(slot) => match values.get(slot) {
            Some(value) => {
                *budget = budget.checked_sub(count_nodes(value, *budget)?)?;
                return Some(value.clone());
            }
            None => ExprNode::Var(*slot),
        },
        ExprNode::Unary(op, a) => ExprNode::Unary(*op, part(a)?),
        ExprNode::Binary(op, a, b) => ExprNode::Binary(*op, part(a)?, part(b)?),
        ExprNode::If(a, b, c) => ExprNode::If(part(a)?, part(b)?, part(c)?),
        ExprNode::Call(f, args) => {
            let args = args.iter().map(|a| substitute(a, values, budget));
            ExprNode::Call(*f, args.collect::<Option<Vec<_>>>()?)
        }
        ExprNode::Let(slot, value, body) => {
            let value = substitute(value, values, budget)?;
            let mut inner = values.clone();
            inner.insert(*slot, value);
            return substitute(body, &inner, budget);
        }
    };
    Some(SlotExpr { node, span: e.span })
}

fn count_nodes(e: &SlotExpr, most: u32) -> Option<u32> {
    let mut sum = 1u32;
    for part in parts(e) {
        sum = sum.checked_add(count_nodes(part, most)?)?;
    }
    (sum <= most).then_some(sum)
}

/// Returns the expression with other nodes in place of those for which a function has one.
pub(super) fn replace_nodes(
    e: &SlotExpr,
    other: &dyn Fn(&SlotExpr) -> Option<ExprNode>,
) -> SlotExpr {
    let of = |e: &SlotExpr| replace_nodes(e, other);
    let boxed = |e: &SlotExpr| Box::new(of(e));
    let node = other(e).unwrap_or_else(|| match &e.node {
        ExprNode::Int(v) => ExprNode::Int(*v),
        ExprNode::Var(slot) => ExprNode::Var(*slot),
        ExprNode::Unary(op, a) => ExprNode::Unary(*op, boxed(a)),
        ExprNode::Binary(op, a, b) => ExprNode::Binary(*op, boxed(a), boxed(b)),
        ExprNode::Call(f, args) => ExprNode::Call(*f, args.iter().map(of).collect()),
        ExprNode::If(a, b, c) => ExprNode::If(boxed(a), boxed(b), boxed(c)),
        ExprNode::Let(slot, a, b) => ExprNode::Let(*slot, boxed(a), boxed(b)),
    });
    SlotExpr { node, span: e.span }
}

/// Returns the region with other expressions.
pub(super) fn map_region(
    region: &RegionExpr,
    of: &mut dyn FnMut(&SlotExpr) -> FragmentResult<SlotExpr>,
) -> FragmentResult<RegionExpr> {
    let some = |e: &Option<SlotExpr>, of: &mut dyn FnMut(&SlotExpr) -> _| match e {
        Some(e) => FragmentResult::Ok(Some(of(e)?)),
        None => Ok(None),
    };
    let index = match &region.index {
        ChunkIndex::All => ChunkIndex::All,
        ChunkIndex::At(e) => ChunkIndex::At(of(e)?),
        ChunkIndex::Range { from, to, by, take } => ChunkIndex::Range {
            from: of(from)?,
            to: of(to)?,
            by: some(by, of)?,
            take: some(take, of)?,
        },
        ChunkIndex::Cyclic { from, count, by, take } => ChunkIndex::Cyclic {
            from: of(from)?,
            count: of(count)?,
            by: some(by, of)?,
            take: some(take, of)?,
        },
    };
    Ok(RegionExpr { buf: region.buf, index, span: region.span })
}

/// Returns true if an expression nests at most so deep.
pub(super) fn is_shallow(e: &SlotExpr, depth: u32) -> bool {
    depth > 0 && parts(e).into_iter().all(|part| is_shallow(part, depth - 1))
}

/// Returns the parts of an expression.
pub(super) fn parts(e: &SlotExpr) -> Vec<&SlotExpr> {
    match &e.node {
        ExprNode::Int(_) | ExprNode::Var(_) => Vec::new(),
        ExprNode::Unary(_, a) => vec![a],
        ExprNode::Binary(_, a, b) | ExprNode::Let(_, a, b) => vec![a, b],
        ExprNode::Call(_, args) => args.iter().collect(),
        ExprNode::If(a, b, c) => vec![a, b, c],
    }
}

/// Returns true if two expressions are the same, wherever they stand.
pub(super) fn is_same(a: &SlotExpr, b: &SlotExpr) -> bool {
    let alike = match (&a.node, &b.node) {
        (ExprNode::Int(x), ExprNode::Int(y)) => x == y,
        (ExprNode::Var(x), ExprNode::Var(y)) => x == y,
        (ExprNode::Unary(x, _), ExprNode::Unary(y, _)) => x == y,
        (ExprNode::Binary(x, ..), ExprNode::Binary(y, ..)) => x == y,
        (ExprNode::Call(x, _), ExprNode::Call(y, _)) => x == y,
        (ExprNode::Let(x, ..), ExprNode::Let(y, ..)) => x == y,
        (ExprNode::If(..), ExprNode::If(..)) => true,
        _ => false,
    };
    let (x, y) = (parts(a), parts(b));
    alike && x.len() == y.len() && x.into_iter().zip(y).all(|(x, y)| is_same(x, y))
}

/// Returns true if two regions of one buffer are written the same, wherever they stand.
pub(super) fn is_same_index(a: &ChunkIndex, b: &ChunkIndex) -> bool {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    each_of_index(a, &mut |e| x.push(e.clone()));
    each_of_index(b, &mut |e| y.push(e.clone()));
    let takes = |index: &ChunkIndex| match index {
        ChunkIndex::Range { by, take, .. } | ChunkIndex::Cyclic { by, take, .. } => {
            (by.is_some(), take.is_some())
        }
        _ => (false, false),
    };
    std::mem::discriminant(a) == std::mem::discriminant(b)
        && takes(a) == takes(b)
        && x.len() == y.len()
        && x.iter().zip(&y).all(|(x, y)| is_same(x, y))
}

/// Calls a function with each expression of a region.
pub(super) fn each_of_index(index: &ChunkIndex, f: &mut dyn FnMut(&SlotExpr)) {
    match index {
        ChunkIndex::All => {}
        ChunkIndex::At(e) => f(e),
        ChunkIndex::Range { from: first, to: second, by, take }
        | ChunkIndex::Cyclic { from: first, count: second, by, take } => {
            [first, second].into_iter().chain(by).chain(take).for_each(f);
        }
    }
}

/// Adds the variables of an expression to a list.
pub(super) fn collect_slots(e: &SlotExpr, out: &mut Vec<Slot>) {
    if let ExprNode::Var(slot) = e.node {
        out.push(slot);
    }
    parts(e).into_iter().for_each(|part| collect_slots(part, out));
}

/// Writes an expression, with all parentheses.
pub(super) fn show(e: &SlotExpr, names: &dyn Fn(Slot) -> String) -> String {
    let part = |e: &SlotExpr| show(e, names);
    match &e.node {
        ExprNode::Int(v) => v.to_string(),
        ExprNode::Var(slot) => names(*slot),
        ExprNode::Unary(UnOp::Neg, a) => format!("-{}", part(a)),
        ExprNode::Unary(UnOp::Not, a) => format!("!{}", part(a)),
        ExprNode::Binary(op, a, b) => format!("({} {} {})", part(a), op.symbol(), part(b)),
        ExprNode::Call(f, args) => {
            let name = crate::program::BUILTINS.iter().find(|b| b.1 == *f).map_or("", |b| b.0);
            let args: Vec<String> = args.iter().map(part).collect();
            format!("{name}({})", args.join(", "))
        }
        ExprNode::If(a, b, c) => format!("if {} {{ {} }} else {{ {} }}", part(a), part(b), part(c)),
        ExprNode::Let(slot, a, b) => format!("let {} = {}; {}", names(*slot), part(a), part(b)),
    }
}
