//! What can be said of a round without listing its transfers.

use roundelay_dsl::ast::{BinOp, UnOp};

use super::Fail;
use super::round::Round;
use crate::eval::{Bounds, eval};
use crate::plan::Buf;
use crate::program::{Binder, Expr, Index, Node, Rank, Region, Rule};

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
                    let (lo, hi) = (bounds.range(from).0, bounds.range(to).1.saturating_sub(1));
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
    /// n, and the chunks of the buffers that `moves` names become those one n-th of the vector on.
    pub(crate) fn shifts(&self, moves: &dyn Fn(Buf) -> bool) -> bool {
        let form = Form { round: self, n: self.frame.size as i64 };
        let whole = self.frame.size == self.frame.ranks && !self.each.once;
        whole && self.each.rules.iter().all(|rule| form.shifts(rule, moves))
    }
}

/// What becomes of a region when every rank r becomes r + 1, the order of its chunks included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    /// It stays, and so do the chunks of its buffer.
    Still,
    /// It moves as the chunks of its buffer do: its k-th chunk becomes the k-th of the image.
    Along,
    /// It is the whole of a buffer whose chunks move: its k-th chunk becomes another one of it.
    Within,
}

/// A bound of `to - from`: exact where both are the same but for constants.
fn span_bound(bounds: &Bounds<'_>, from: &Expr, to: &Expr) -> i64 {
    let widest = || bounds.range(to).1.saturating_sub(bounds.range(from).0);
    if !bounds.varies(from) && !bounds.varies(to) {
        return widest();
    }
    bounds.slope(to, from).unwrap_or_else(widest)
}

/// Expressions as `k * r + c` modulo n, for the rank r of an `each`.
struct Form<'a> {
    round: &'a Round<'a>,
    n: i64,
}

impl Form<'_> {
    /// Whether a rule's transfers map onto themselves.
    fn shifts(&self, rule: &Rule, moves: &dyn Fn(Buf) -> bool) -> bool {
        let binder = |b: &Binder| match b {
            Binder::Let(..) => true,
            Binder::Where(e) => self.still(e),
            Binder::For(_, a, b) => self.still(a) && self.still(b),
        };
        let rank =
            |r: &Rank| matches!(self.of(&r.linear), Some((k, true)) if k.rem_euclid(self.n) == 1);
        let (from, to) = (self.motion(&rule.from, moves), self.motion(&rule.to, moves));
        // Chunks that move within their region must meet chunks that do so too.
        let paired = |a, b| (a == Motion::Within) == (b == Motion::Within);
        from.zip(to).is_some_and(|(a, b)| paired(a, b))
            && rank(&rule.src)
            && rank(&rule.dst)
            && rule.binders.iter().all(binder)
    }

    /// What becomes of a region; `None` if its form does not tell, or it is not its own image.
    fn motion(&self, region: &Region, moves: &dyn Fn(Buf) -> bool) -> Option<Motion> {
        let view = self.round.frame.view(region.buf, 0).ok()?;
        let moving = view.pieces.iter().any(|p| moves(p.buf));
        if let (true, Index::All) = (moving, &region.index) {
            return view.is_buffer().then_some(Motion::Within);
        }
        let (start, rest) = match &region.index {
            Index::All => return Some(Motion::Still),
            Index::At(e) => (e, [None; 3]),
            Index::Cyclic { from, count, by, take } => {
                (from, [Some(count), by.as_ref(), take.as_ref()])
            }
            Index::Range { .. } if moving => return None,
            Index::Range { from, to, by, take } => (from, [Some(to), by.as_ref(), take.as_ref()]),
        };
        if !rest.into_iter().flatten().all(|e| self.still(e)) {
            return None;
        }
        let turns = matches!(self.of(start), Some((k, true)) if k.rem_euclid(self.n) == 1);
        match moving {
            false => self.still(start).then_some(Motion::Still),
            // One chunk of the view must be one n-th of the vector.
            true => {
                (turns && view.is_buffer() && view.units as i64 == self.n).then_some(Motion::Along)
            }
        }
    }

    /// Whether the value is the same for all ranks.
    fn still(&self, e: &Expr) -> bool {
        matches!(self.of(e), Some((0, _)))
    }

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
