//! The values of a varying slot for which an expression lies in a range: by inverting its form, or by halving.

use roundelay_dsl::ast::{BinOp, UnOp};

use super::SlotBounds;
use super::interval::{MOST_SHIFT, ValueRange, fit, wide};
use crate::num::{signed, wide as unsigned};
use crate::program::{ExprNode, Slot, SlotExpr};

/// An inversion that takes more steps and targets than this is given up: halving the range is cheaper.
const MOST_STEPS: usize = 1 << 14;

/// More values than this are not inverted one by one.
const MOST_VALUES: i128 = 64;

impl SlotBounds<'_> {
    /// Returns ranges that hold every value of `slot` (one that varies) for which `e` lies in `target`;
    /// `None` where the form of `e` does not tell.
    pub(crate) fn invert(
        &self,
        e: &SlotExpr,
        slot: Slot,
        target: &[ValueRange],
    ) -> Option<Vec<ValueRange>> {
        self.solve(e, slot, target, &mut 0)
    }

    /// Implements [`SlotBounds::invert`] in at most [`MOST_STEPS`] steps: both arms of a choice are solved, and a
    /// remainder has many targets.
    fn solve(
        &self,
        e: &SlotExpr,
        slot: Slot,
        target: &[ValueRange],
        steps: &mut usize,
    ) -> Option<Vec<ValueRange>> {
        *steps += 1 + target.len();
        if *steps > MOST_STEPS {
            return None;
        }
        let whole = self.vary.iter().find(|(v, _)| *v == slot)?.1;
        if !self.varies(e) {
            let v = self.range(e);
            if v.0 != v.1 {
                return None;
            }
            let hit = target.iter().any(|t| t.0 <= v.0 && v.0 <= t.1);
            return Some(if hit { vec![whole] } else { Vec::new() });
        }
        match &e.node {
            ExprNode::Var(s) if *s == slot => Some(
                target
                    .iter()
                    .map(|t| (t.0.max(whole.0), t.1.min(whole.1)))
                    .filter(|t| t.0 <= t.1)
                    .collect(),
            ),
            ExprNode::Var(s) => self.solve(self.def(*s)?, slot, target, steps),
            ExprNode::Unary(UnOp::Neg, a) => {
                let negated = target.iter().map(|t| wide(*t)).filter_map(|t| fit(-t.1, -t.0));
                let target: Vec<ValueRange> = negated.collect();
                self.solve(a, slot, &target, steps)
            }
            ExprNode::Binary(op, a, b) => {
                let (va, vb) = (self.varies(a), self.varies(b));
                if va && vb {
                    return None;
                }
                let c = self.range(if va { b } else { a });
                if c.0 != c.1 {
                    return None;
                }
                let e = if va { a } else { b };
                let next = self.invert_binary(*op, e, c.0, va, target)?;
                self.solve(e, slot, &next, steps)
            }
            ExprNode::If(_, a, b) => {
                let mut both = self.solve(a, slot, target, steps)?;
                both.extend(self.solve(b, slot, target, steps)?);
                Some(both)
            }
            _ => None,
        }
    }

    /// Returns the values of `slot` (one that varies) for which `e` may be `target` and all conditions may
    /// hold, by halving: ranges whose bounds exclude it are cut.
    pub(crate) fn search<'e>(
        &self,
        e: &SlotExpr,
        slot: Slot,
        target: i64,
        conditions: impl Iterator<Item = &'e SlotExpr> + Clone,
        out: &mut Vec<i64>,
    ) {
        let whole = self.vary.iter().find(|(v, _)| *v == slot).map(|(_, range)| *range);
        let mut stack: Vec<ValueRange> = whole.into_iter().collect();
        while let Some((lo, hi)) = stack.pop() {
            if lo > hi {
                continue;
            }
            searched();
            let vary = [(slot, (lo, hi))];
            let bounds = SlotBounds { env: self.env, vary: &vary, defs: self.defs };
            let range = bounds.range(e);
            let never = |e: &SlotExpr| bounds.range(e) == (0, 0);
            if target < range.0 || target > range.1 || conditions.clone().any(never) {
                continue;
            }
            if hi - lo < 4 {
                out.extend(lo..=hi);
            } else {
                let step = signed(unsigned(hi - lo + 1).next_power_of_two() / 2);
                stack.push((lo, lo + step - 1));
                stack.push((lo + step, hi));
            }
        }
    }

    /// Returns the range in which `e` must be for `e op c` (`left`) or `c op e` to lie in the target.
    fn invert_binary(
        &self,
        op: BinOp,
        e: &SlotExpr,
        c: i64,
        left: bool,
        target: &[ValueRange],
    ) -> Option<Vec<ValueRange>> {
        let (targets, of) = (target.iter().map(|t| wide(*t)), i128::from(c));
        let next: Vec<ValueRange> = match (op, left) {
            (BinOp::Add, _) => targets.filter_map(|t| fit(t.0 - of, t.1 - of)).collect(),
            (BinOp::Sub, true) => targets.filter_map(|t| fit(t.0 + of, t.1 + of)).collect(),
            (BinOp::Sub, false) => targets.filter_map(|t| fit(of - t.1, of - t.0)).collect(),
            (BinOp::Mul, _) if c > 0 => {
                let least = |v: i128| -(-v).div_euclid(of);
                targets.filter_map(|t| fit(least(t.0), t.1.div_euclid(of))).collect()
            }
            (BinOp::Div, true) if c > 0 => targets.filter_map(|t| multiples(t, of)).collect(),
            (BinOp::Shr, true) if (0..=MOST_SHIFT).contains(&c) => {
                targets.filter_map(|t| multiples(t, 1 << c)).collect()
            }
            (BinOp::BitXor, _) => {
                if targets.clone().any(|t| t.1 - t.0 > MOST_VALUES) {
                    return None;
                }
                let values = target.iter().flat_map(|t| t.0..=t.1);
                values.map(|v| (v ^ c, v ^ c)).collect()
            }
            (BinOp::Mod, true) if c > 0 => {
                let (lo, hi) = wide(self.range(e));
                let (first, last) = (lo.div_euclid(of), hi.div_euclid(of));
                if last - first > MOST_VALUES {
                    return None;
                }
                let inside = targets.map(|t| (t.0.max(0), t.1.min(of - 1)));
                let turns = |t: (i128, i128)| {
                    (first..=last).filter_map(move |k| fit(t.0 + k * of, t.1 + k * of))
                };
                inside.filter(|t| t.0 <= t.1).flat_map(turns).collect()
            }
            _ => return None,
        };
        Some(next)
    }
}

/// Returns the numbers that divided by `c`, rounded down, lie in a range.
fn multiples(t: (i128, i128), c: i128) -> Option<ValueRange> {
    fit(t.0 * c, t.1 * c + c - 1)
}

#[cfg(test)]
thread_local! {
    /// Ranges that were searched, counted by tests.
    pub(super) static SEARCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a range that is searched, in tests.
fn searched() {
    #[cfg(test)]
    SEARCHED.with(|n| n.set(n.get() + 1));
}
