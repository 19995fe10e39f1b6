//! What can be said of a round without listing its transfers.

use roundelay_dsl::ast::{BinOp, UnOp};

use super::Fail;
use super::round::Round;
use crate::eval::{Bounds, eval};
use crate::program::{Binder, Buffer, Expr, Index, Node};

impl Round<'_> {
    /// The largest number of chunks that a message of the round can have.
    pub fn message_bound(&self) -> Result<u32, Fail> {
        let mut most = 0;
        for rule in &self.each.rules {
            let view = self.frame.view(rule.from.buf, 0)?;
            let w = view.total() / view.units.max(1);
            let mut vary = vec![(self.each.var, (0, self.frame.size as i64 - 1))];
            for b in &rule.binders {
                if let Binder::For(slot, from, to) = b {
                    let bounds =
                        Bounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
                    let (lo, hi) = (bounds.range(from).0, bounds.range(to).1 - 1);
                    vary.push((*slot, (lo, hi.max(lo))));
                }
            }
            let bounds = Bounds { env: &self.frame.env, vary: &vary, defs: &self.each.defs };
            let chunks = match &rule.from.index {
                Index::All => view.units as i64,
                Index::At(_) => 1,
                Index::Cyclic { count, .. } => bounds.range(count).1,
                Index::Range { from, to, .. } => span_bound(&bounds, from, to),
            };
            most = most.max(chunks.clamp(0, view.units as i64) as u32 * w);
        }
        Ok(most)
    }

    /// Whether, by its form alone, the round maps onto itself when every rank r becomes r + 1 modulo
    /// n; with `moves` the chunks of the vector move along, else they stay.
    pub(crate) fn shifts(&self, moves: bool) -> bool {
        let n = self.frame.size as i64;
        let form = Form { round: self, n };
        let whole = self.frame.size == self.frame.ranks && !self.each.once;
        whole
            && self.each.rules.iter().all(|rule| {
                let index = |region: &crate::program::Region| {
                    let unit = match region.buf {
                        Buffer::Scratch(_) => 0,
                        b if moves && self.frame.spec.size(b) as i64 == n => 1,
                        // A rank's own block does not move; other cuts of the vector do, in another way.
                        b if moves && self.frame.spec.size(b) == self.frame.spec.chunks => {
                            return matches!(region.index, Index::All);
                        }
                        _ => 0,
                    };
                    let is = |e: &Expr, unit: i64| match form.of(e) {
                        Some((0, _)) => unit == 0,
                        Some((k, wrapped)) => unit == 1 && k.rem_euclid(n) == 1 && wrapped,
                        None => false,
                    };
                    match &region.index {
                        Index::All => true,
                        Index::At(e) => is(e, unit),
                        Index::Cyclic { from, count, by, take } => {
                            is(from, unit)
                                && [Some(count), by.as_ref(), take.as_ref()].into_iter().flatten().all(|e| is(e, 0))
                        }
                        Index::Range { from, to, by, take } => {
                            unit == 0
                                && [Some(from), Some(to), by.as_ref(), take.as_ref()].into_iter().flatten().all(|e| is(e, 0))
                        }
                    }
                };
                let rank = |r: &crate::program::Rank| {
                    matches!(form.of(&r.linear), Some((k, true)) if k.rem_euclid(n) == 1)
                };
                let binder = |b: &Binder| match b {
                    Binder::Let(..) => true,
                    Binder::Where(e) => matches!(form.of(e), Some((0, _))),
                    Binder::For(_, a, b) => [a, b].into_iter().all(|e| matches!(form.of(e), Some((0, _)))),
                };
                rank(&rule.src)
                    && rank(&rule.dst)
                    && index(&rule.from)
                    && index(&rule.to)
                    && rule.binders.iter().all(binder)
            })
    }
}

/// A bound of `to - from`: exact where both are the same but for constants.
fn span_bound(bounds: &Bounds<'_>, from: &Expr, to: &Expr) -> i64 {
    if !bounds.varies(from) && !bounds.varies(to) {
        return bounds.range(to).1 - bounds.range(from).0;
    }
    bounds.slope(to, from).unwrap_or_else(|| bounds.range(to).1 - bounds.range(from).0)
}

/// Expressions as `k * r + c` modulo n, for the rank r of an `each`.
struct Form<'a> {
    round: &'a Round<'a>,
    n: i64,
}

impl Form<'_> {
    /// The factor k, and whether the value lies in 0..n. `None` if the form is another.
    fn of(&self, e: &Expr) -> Option<(i64, bool)> {
        match &e.node {
            Node::Int(_) => Some((0, false)),
            Node::Var(s) if *s == self.round.each.var => Some((1, true)),
            Node::Var(s) => match self.round.each.defs.iter().find(|(d, _)| d == s) {
                Some((_, def)) => self.of(def),
                None => Some((0, false)),
            },
            Node::Unary(UnOp::Neg, a) => self.of(a).map(|(k, _)| (-k, false)),
            Node::Binary(BinOp::Add, a, b) => {
                Some((self.of(a)?.0.checked_add(self.of(b)?.0)?, false))
            }
            Node::Binary(BinOp::Sub, a, b) => {
                Some((self.of(a)?.0.checked_sub(self.of(b)?.0)?, false))
            }
            Node::Binary(BinOp::Mul, a, b) => {
                let (x, y) = (self.of(a)?.0, self.of(b)?.0);
                match (x, y, &a.node, &b.node) {
                    (0, 0, ..) => Some((0, false)),
                    (0, k, Node::Int(c), _) | (k, 0, _, Node::Int(c)) => {
                        Some((k.checked_mul(*c)?, false))
                    }
                    _ => None,
                }
            }
            Node::Binary(BinOp::Mod, a, b) if self.of(b)?.0 == 0 => {
                let k = self.of(a)?.0;
                let modulus = eval(b, &mut self.round.frame.env.clone()).ok()?;
                if k == 0 { Some((0, false)) } else { (modulus == self.n).then_some((k, true)) }
            }
            Node::Binary(_, a, b) => {
                (self.of(a)?.0 == 0 && self.of(b)?.0 == 0).then_some((0, false))
            }
            Node::Unary(_, a) => (self.of(a)?.0 == 0).then_some((0, false)),
            Node::Call(_, args) => {
                args.iter().all(|a| matches!(self.of(a), Some((0, _)))).then_some((0, false))
            }
            Node::If(a, b, c) => [a, b, c]
                .into_iter()
                .all(|e| matches!(self.of(e), Some((0, _))))
                .then_some((0, false)),
            Node::Let(_, a, b) => (self.of(a)?.0 == 0 && self.of(b)?.0 == 0).then_some((0, false)),
        }
    }
}
