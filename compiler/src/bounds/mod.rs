//! Bounds of expressions over ranges of ranks, and the ranks for which an expression has a value.
//!
//! * `interval`: ranges of operators and functions.
//! * `inverse`: the ranks for which an expression lies in a range.
//! * `expressions`: random expressions, for tests.

#[cfg(test)]
pub(crate) mod expressions;
mod interval;
mod inverse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use roundelay_dsl::ast::{BinOp, UnOp};

use crate::num::index;
use crate::program::{ExprNode, Slot, SlotExpr};
pub(crate) use interval::ValueRange;
use interval::{binary, call, condition, negated, truth};

/// The known values of slots for range analysis; the slots of an `each` vary.
pub(crate) struct SlotBounds<'a> {
    /// The values of the other slots.
    pub env: &'a [i64],
    /// The slots that vary, with their ranges.
    pub vary: &'a [(Slot, ValueRange)],
    /// Definitions of slots that depend on varying ones.
    pub defs: &'a [(Slot, SlotExpr)],
}

/// Ranges of definitions, found once.
type KnownRanges = BTreeMap<Slot, ValueRange>;

impl SlotBounds<'_> {
    fn def(&self, slot: Slot) -> Option<&SlotExpr> {
        self.defs.iter().rev().find(|(s, _)| *s == slot).map(|(_, e)| e)
    }

    /// Returns true if `e` depends on a varying slot.
    pub(crate) fn varies(&self, e: &SlotExpr) -> bool {
        self.depends(e, &mut BTreeSet::new())
    }

    /// Implements [`SlotBounds::varies`]; `still` holds the definitions already visited, which are not visited
    /// again.
    fn depends(&self, e: &SlotExpr, still: &mut BTreeSet<Slot>) -> bool {
        match &e.node {
            ExprNode::Int(_) => false,
            ExprNode::Var(s) => {
                self.vary.iter().any(|(v, _)| v == s)
                    || still.insert(*s) && self.def(*s).is_some_and(|d| self.depends(d, still))
            }
            ExprNode::Unary(_, a) => self.depends(a, still),
            ExprNode::Binary(_, a, b) => self.depends(a, still) || self.depends(b, still),
            ExprNode::Call(_, args) => args.iter().any(|a| self.depends(a, still)),
            ExprNode::If(c, a, b) => {
                self.depends(c, still) || self.depends(a, still) || self.depends(b, still)
            }
            ExprNode::Let(_, value, body) => {
                self.depends(value, still) || self.depends(body, still)
            }
        }
    }

    /// Returns a range that holds every value of `e`.
    pub(crate) fn range(&self, e: &SlotExpr) -> ValueRange {
        self.within(e, &mut KnownRanges::new())
    }

    /// Implements [`SlotBounds::range`]; `known` caches the ranges of definitions, so that each is computed once.
    fn within(&self, e: &SlotExpr, known: &mut KnownRanges) -> ValueRange {
        match &e.node {
            ExprNode::Int(v) => (*v, *v),
            ExprNode::Var(s) => match self.vary.iter().find(|(v, _)| v == s) {
                Some((_, r)) => *r,
                None => match self.def(*s) {
                    Some(d) => match known.get(s) {
                        Some(range) => *range,
                        None => {
                            let range = self.within(d, known);
                            known.insert(*s, range);
                            range
                        }
                    },
                    None => (self.env[index(*s)], self.env[index(*s)]),
                },
            },
            ExprNode::Unary(UnOp::Neg, a) => negated(self.within(a, known)),
            ExprNode::Unary(UnOp::Not, a) => {
                condition(truth(self.within(a, known)).map(|holds| !holds))
            }
            ExprNode::Binary(op, a, b) => {
                let (a, b) = (self.within(a, known), self.within(b, known));
                binary(*op, a, b)
            }
            ExprNode::Call(f, args) => {
                let args: Vec<ValueRange> = args.iter().map(|a| self.within(a, known)).collect();
                call(*f, &args)
            }
            ExprNode::If(c, a, b) => match truth(self.within(c, known)) {
                Some(true) => self.within(a, known),
                Some(false) => self.within(b, known),
                None => {
                    let (a, b) = (self.within(a, known), self.within(b, known));
                    (a.0.min(b.0), a.1.max(b.1))
                }
            },
            ExprNode::Let(slot, value, body) => {
                let mut vary = self.vary.to_vec();
                vary.push((*slot, self.within(value, known)));
                SlotBounds { env: self.env, vary: &vary, defs: self.defs }.within(body, known)
            }
        }
    }
}

impl SlotBounds<'_> {
    /// Returns the greatest value of `a - b`, where both have the same form and differ in constants only: `(x
    /// / d + 1) * d - x / d * d` is `d`, whatever `x` is.
    pub(crate) fn slope(&self, a: &SlotExpr, b: &SlotExpr) -> Option<i64> {
        if same(a, b) {
            return Some(0);
        }
        let constant = |e: &SlotExpr| {
            let r = self.range(e);
            (!self.varies(e) && r.0 == r.1).then_some(r.0)
        };
        if let (Some(x), Some(y)) = (constant(a), constant(b)) {
            return x.checked_sub(y);
        }
        match (&a.node, &b.node) {
            (ExprNode::Binary(BinOp::Mul, x, d), ExprNode::Binary(BinOp::Mul, y, e))
                if same(d, e) =>
            {
                constant(d).filter(|d| *d >= 0)?.checked_mul(self.slope(x, y)?)
            }
            (ExprNode::Binary(BinOp::Add, x, d), _) if constant(d).is_some() => {
                constant(d)?.checked_add(self.slope(x, b)?)
            }
            (ExprNode::Binary(BinOp::Sub, x, d), _) if constant(d).is_some() => {
                self.slope(x, b)?.checked_sub(constant(d)?)
            }
            (_, ExprNode::Binary(BinOp::Add, y, d)) if constant(d).is_some() => {
                self.slope(a, y)?.checked_sub(constant(d)?)
            }
            (_, ExprNode::Binary(BinOp::Sub, y, d)) if constant(d).is_some() => {
                constant(d)?.checked_add(self.slope(a, y)?)
            }
            _ => None,
        }
    }
}

/// Returns true if two expressions are equal, ignoring their spans.
pub(crate) fn same(a: &SlotExpr, b: &SlotExpr) -> bool {
    match (&a.node, &b.node) {
        (ExprNode::Int(x), ExprNode::Int(y)) => x == y,
        (ExprNode::Var(x), ExprNode::Var(y)) => x == y,
        (ExprNode::Unary(o, x), ExprNode::Unary(p, y)) => o == p && same(x, y),
        (ExprNode::Binary(o, x, y), ExprNode::Binary(p, u, v)) => {
            o == p && same(x, u) && same(y, v)
        }
        (ExprNode::Call(f, x), ExprNode::Call(g, y)) => {
            f == g && x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b))
        }
        _ => false,
    }
}
