//! Bounds of expressions over ranges of ranks, and the ranks for which an expression has a value.

use std::collections::{BTreeMap, BTreeSet};

use roundelay_dsl::ast::{BinOp, UnOp};

use crate::num::{index, signed, wide};
use crate::program::{Builtin, Expr, Node, Slot};

/// A closed range of values.
pub(crate) type Range = (i64, i64);

/// The known values of slots for range analysis; the slots of an `each` vary.
pub(crate) struct Bounds<'a> {
    /// The values of the other slots.
    pub env: &'a [i64],
    /// The slots that vary, with their ranges.
    pub vary: &'a [(Slot, Range)],
    /// Definitions of slots that depend on varying ones.
    pub defs: &'a [(Slot, Expr)],
}

/// Ranges of definitions, found once.
type Known = BTreeMap<Slot, Range>;

/// An inversion that takes more steps and targets than this is given up: halving the range is cheaper.
const MOST_STEPS: usize = 1 << 14;

/// Wide enough to mean "anything" and narrow enough to add without overflow.
const WIDE: i64 = 1 << 60;

impl Bounds<'_> {
    fn def(&self, slot: Slot) -> Option<&Expr> {
        self.defs.iter().rev().find(|(s, _)| *s == slot).map(|(_, e)| e)
    }

    /// Returns true if `e` depends on a varying slot.
    pub(crate) fn varies(&self, e: &Expr) -> bool {
        self.depends(e, &mut BTreeSet::new())
    }

    /// Implements [`Bounds::varies`]; `still` holds the definitions already visited, which are not visited
    /// again.
    fn depends(&self, e: &Expr, still: &mut BTreeSet<Slot>) -> bool {
        match &e.node {
            Node::Int(_) => false,
            Node::Var(s) => {
                self.vary.iter().any(|(v, _)| v == s)
                    || still.insert(*s) && self.def(*s).is_some_and(|d| self.depends(d, still))
            }
            Node::Unary(_, a) => self.depends(a, still),
            Node::Binary(_, a, b) => self.depends(a, still) || self.depends(b, still),
            Node::Call(_, args) => args.iter().any(|a| self.depends(a, still)),
            Node::If(c, a, b) => {
                self.depends(c, still) || self.depends(a, still) || self.depends(b, still)
            }
            Node::Let(_, value, body) => self.depends(value, still) || self.depends(body, still),
        }
    }

    /// Returns a range that holds every value of `e`.
    pub(crate) fn range(&self, e: &Expr) -> Range {
        self.within(e, &mut Known::new())
    }

    /// Implements [`Bounds::range`]; `known` caches the ranges of definitions, so that each is computed once.
    fn within(&self, e: &Expr, known: &mut Known) -> Range {
        let (lo, hi) = self.raw(e, known);
        (lo.max(-WIDE), hi.min(WIDE))
    }

    fn raw(&self, e: &Expr, known: &mut Known) -> Range {
        match &e.node {
            Node::Int(v) => (*v, *v),
            Node::Var(s) => match self.vary.iter().find(|(v, _)| v == s) {
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
            Node::Unary(UnOp::Neg, a) => {
                let (lo, hi) = self.within(a, known);
                (hi.saturating_neg(), lo.saturating_neg())
            }
            Node::Unary(UnOp::Not, a) => told(truth(self.within(a, known)).map(|holds| !holds)),
            Node::Binary(op, a, b) => {
                let (a, b) = (self.within(a, known), self.within(b, known));
                self.binary(*op, a, b)
            }
            Node::Call(f, args) => {
                let args: Vec<Range> = args.iter().map(|a| self.within(a, known)).collect();
                self.call(*f, &args)
            }
            Node::If(c, a, b) => match truth(self.within(c, known)) {
                Some(true) => self.within(a, known),
                Some(false) => self.within(b, known),
                None => {
                    let (a, b) = (self.within(a, known), self.within(b, known));
                    (a.0.min(b.0), a.1.max(b.1))
                }
            },
            Node::Let(slot, value, body) => {
                let mut vary = self.vary.to_vec();
                vary.push((*slot, self.within(value, known)));
                Bounds { env: self.env, vary: &vary, defs: self.defs }.within(body, known)
            }
        }
    }

    fn binary(&self, op: BinOp, a: Range, b: Range) -> Range {
        let point = b.0 == b.1;
        match op {
            BinOp::Add => (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
            BinOp::Sub => (a.0.saturating_sub(b.1), a.1.saturating_sub(b.0)),
            BinOp::Mul => {
                let all = [a.0, a.1].map(|x| [b.0, b.1].map(|y| x.saturating_mul(y)));
                let all = all.concat();
                (
                    all.iter().copied().min().unwrap_or(-WIDE),
                    all.iter().copied().max().unwrap_or(WIDE),
                )
            }
            BinOp::Div if point && b.0 > 0 => (a.0.div_euclid(b.0), a.1.div_euclid(b.0)),
            BinOp::Div if b.0 > 0 && a.0 >= 0 => (a.0 / b.1, a.1 / b.0),
            BinOp::Shr if point && (0..63).contains(&b.0) => (a.0 >> b.0, a.1 >> b.0),
            BinOp::Shl if point && (0..60).contains(&b.0) => {
                (a.0.saturating_mul(1 << b.0), a.1.saturating_mul(1 << b.0))
            }
            BinOp::Mod if b.0 > 0 => {
                let m = b.0;
                if point && a.0.div_euclid(m) == a.1.div_euclid(m) {
                    (a.0.rem_euclid(m), a.1.rem_euclid(m))
                } else if a.0 >= 0 && a.1 < b.0 {
                    a
                } else {
                    (0, b.1 - 1)
                }
            }
            BinOp::BitAnd if a.0 >= 0 && b.0 >= 0 => (0, a.1.min(b.1)),
            BinOp::BitOr if a.0 >= 0 && b.0 >= 0 => {
                (a.0.max(b.0), mask(a.1 | b.1).min(a.1.saturating_add(b.1)))
            }
            BinOp::BitXor if a.0 >= 0 && b.0 >= 0 => {
                let free = mask((a.0 ^ a.1) | (b.0 ^ b.1));
                let fixed = (a.0 ^ b.0) & !free;
                (fixed, fixed | free)
            }
            BinOp::And => told(match (truth(a), truth(b)) {
                (Some(a), Some(b)) => Some(a && b),
                (Some(false), _) | (_, Some(false)) => Some(false),
                _ => None,
            }),
            BinOp::Or => told(match (truth(a), truth(b)) {
                (Some(a), Some(b)) => Some(a || b),
                (Some(true), _) | (_, Some(true)) => Some(true),
                _ => None,
            }),
            BinOp::Eq => told(equal(a, b)),
            BinOp::Ne => told(equal(a, b).map(|same| !same)),
            BinOp::Lt => told(less(a, b)),
            BinOp::Ge => told(less(a, b).map(|less| !less)),
            BinOp::Gt => told(less(b, a)),
            BinOp::Le => told(less(b, a).map(|less| !less)),
            _ => (-WIDE, WIDE),
        }
    }

    fn call(&self, f: Builtin, r: &[Range]) -> Range {
        // Plans hold bounds of the lengths of messages, and so that of `ceil_div` as it is.
        if f != Builtin::CeilDiv && r.iter().all(|r| r.0 == r.1) {
            let values: Vec<i64> = r.iter().map(|r| r.0).collect();
            return f.value(&values).map_or((-WIDE, WIDE), |v| (v, v));
        }
        let bits = |x: i64| if x > 0 { i64::from(x.ilog2()) } else { 0 };
        match f {
            Builtin::Min => {
                (r.iter().map(|r| r.0).min().unwrap_or(0), r.iter().map(|r| r.1).min().unwrap_or(0))
            }
            Builtin::Max => {
                (r.iter().map(|r| r.0).max().unwrap_or(0), r.iter().map(|r| r.1).max().unwrap_or(0))
            }
            Builtin::Log2 => (bits(r[0].0), bits(r[0].1)),
            Builtin::TrailingZeros => (0, bits(r[0].1)),
            Builtin::CeilLog2 => (bits(r[0].0), bits(r[0].1) + 1),
            Builtin::Pow2 | Builtin::Even | Builtin::Odd => (0, 1),
            Builtin::Popcount => (0, 64),
            // The highest bit in which the number before them all differs from the last is the lowest of one.
            Builtin::Lowbit if r[0].0 > 0 => (1, 1 << bits((r[0].0 - 1) ^ r[0].1)),
            Builtin::Lowbit if r[0].0 == 0 => (0, 1 << bits(r[0].1)),
            Builtin::CeilDiv if r[1].0 > 0 && r[0].0 >= 0 => {
                (0, (r[0].1 / r[1].0).saturating_add(1))
            }
            Builtin::BitReverse if (0..60).contains(&r[1].1) => (0, (1 << r[1].1) - 1),
            Builtin::Abs => (0, r[0].0.saturating_abs().max(r[0].1.saturating_abs())),
            _ => (-WIDE, WIDE),
        }
    }

    /// Returns ranges that hold every value of `slot` (one that varies) for which `e` lies in `target`;
    /// `None` where the form of `e` does not tell.
    pub(crate) fn invert(&self, e: &Expr, slot: Slot, target: &[Range]) -> Option<Vec<Range>> {
        self.solve(e, slot, target, &mut 0)
    }

    /// Implements [`Bounds::invert`] in at most [`MOST_STEPS`] steps: both arms of a choice are solved, and a
    /// remainder has many targets.
    fn solve(
        &self,
        e: &Expr,
        slot: Slot,
        target: &[Range],
        steps: &mut usize,
    ) -> Option<Vec<Range>> {
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
        let shifted = |f: &dyn Fn(Range) -> Range| target.iter().map(|t| f(*t)).collect::<Vec<_>>();
        match &e.node {
            Node::Var(s) if *s == slot => Some(
                target
                    .iter()
                    .map(|t| (t.0.max(whole.0), t.1.min(whole.1)))
                    .filter(|t| t.0 <= t.1)
                    .collect(),
            ),
            Node::Var(s) => self.solve(self.def(*s)?, slot, target, steps),
            Node::Unary(UnOp::Neg, a) => {
                let target = shifted(&|t| (t.1.saturating_neg(), t.0.saturating_neg()));
                self.solve(a, slot, &target, steps)
            }
            Node::Binary(op, a, b) => {
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
            Node::If(_, a, b) => {
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
        e: &Expr,
        slot: Slot,
        target: i64,
        conditions: impl Iterator<Item = &'e Expr> + Clone,
        out: &mut Vec<i64>,
    ) {
        let whole = self.vary.iter().find(|(v, _)| *v == slot).map(|(_, range)| *range);
        let mut stack: Vec<Range> = whole.into_iter().collect();
        while let Some((lo, hi)) = stack.pop() {
            if lo > hi {
                continue;
            }
            searched();
            let vary = [(slot, (lo, hi))];
            let bounds = Bounds { env: self.env, vary: &vary, defs: self.defs };
            let range = bounds.range(e);
            let never = |e: &Expr| bounds.range(e) == (0, 0);
            if target < range.0 || target > range.1 || conditions.clone().any(never) {
                continue;
            }
            if hi - lo < 4 {
                out.extend(lo..=hi);
            } else {
                let step = signed(wide(hi - lo + 1).next_power_of_two() / 2);
                stack.push((lo, lo + step - 1));
                stack.push((lo + step, hi));
            }
        }
    }

    /// Returns the range in which `e` must be for `e op c` (`left`) or `c op e` to lie in the target.
    fn invert_binary(
        &self,
        op: BinOp,
        e: &Expr,
        c: i64,
        left: bool,
        target: &[Range],
    ) -> Option<Vec<Range>> {
        let map = |f: &dyn Fn(Range) -> Range| target.iter().map(|t| f(*t)).collect::<Vec<_>>();
        let next =
            match (op, left) {
                (BinOp::Add, _) => map(&|t| (t.0.saturating_sub(c), t.1.saturating_sub(c))),
                (BinOp::Sub, true) => map(&|t| (t.0.saturating_add(c), t.1.saturating_add(c))),
                (BinOp::Sub, false) => map(&|t| (c.saturating_sub(t.1), c.saturating_sub(t.0))),
                (BinOp::Mul, _) if c > 0 => {
                    map(&|t| (-t.0.saturating_neg().div_euclid(c), t.1.div_euclid(c)))
                }
                (BinOp::Div, true) if c > 0 => map(&|t| multiples(t, c)),
                (BinOp::Shr, true) if (0..32).contains(&c) => map(&|t| multiples(t, 1 << c)),
                (BinOp::BitXor, _) => {
                    let mut out = Vec::new();
                    for t in target {
                        if t.1.saturating_sub(t.0) > 64 {
                            return None;
                        }
                        out.extend((t.0..=t.1).map(|v| (v ^ c, v ^ c)));
                    }
                    out
                }
                (BinOp::Mod, true) if c > 0 => {
                    let r = self.range(e);
                    let (first, last) = (r.0.div_euclid(c), r.1.div_euclid(c));
                    if last.saturating_sub(first) > 64 {
                        return None;
                    }
                    let mut out = Vec::new();
                    for t in target {
                        let t = (t.0.max(0), t.1.min(c - 1));
                        if t.0 <= t.1 {
                            let block = |k: i64| k.saturating_mul(c);
                            out.extend((first..=last).map(|k| {
                                (t.0.saturating_add(block(k)), t.1.saturating_add(block(k)))
                            }));
                        }
                    }
                    out
                }
                _ => return None,
            };
        Some(next)
    }
}

/// Returns the truth of the numbers in a range; `None` if some are true and some are not.
fn truth(r: Range) -> Option<bool> {
    match r {
        (0, 0) => Some(false),
        (lo, hi) if lo > 0 || hi < 0 => Some(true),
        _ => None,
    }
}

/// Returns the range of a condition.
fn told(holds: Option<bool>) -> Range {
    holds.map_or((0, 1), |holds| (holds.into(), holds.into()))
}

/// Returns the truth of `a < b`, if it is the same for all numbers of the ranges. A range that reaches as far
/// as bounds do says nothing.
fn less(a: Range, b: Range) -> Option<bool> {
    let known = |(lo, hi): Range| lo > -WIDE && hi < WIDE;
    match () {
        () if !known(a) || !known(b) => None,
        () if a.1 < b.0 => Some(true),
        () if a.0 >= b.1 => Some(false),
        () => None,
    }
}

/// Returns the truth of `a == b`, if it is the same for all numbers of the ranges.
fn equal(a: Range, b: Range) -> Option<bool> {
    match (less(a, b), less(b, a)) {
        (Some(true), _) | (_, Some(true)) => Some(false),
        (Some(false), Some(false)) => Some(true),
        _ => None,
    }
}

/// Returns the numbers that divided by `c`, rounded down, lie in a range.
fn multiples(t: Range, c: i64) -> Range {
    (t.0.saturating_mul(c), t.1.saturating_mul(c).saturating_add(c - 1))
}

/// Returns all bits up to the highest one of `x`.
fn mask(x: i64) -> i64 {
    if x <= 0 { 0 } else { (((1u64 << x.ilog2()) << 1) - 1).cast_signed() }
}

impl Bounds<'_> {
    /// Returns the greatest value of `a - b`, where both have the same form and differ in constants only: `(x
    /// / d + 1) * d - x / d * d` is `d`, whatever `x` is.
    pub(crate) fn slope(&self, a: &Expr, b: &Expr) -> Option<i64> {
        if same(a, b) {
            return Some(0);
        }
        let constant = |e: &Expr| {
            let r = self.range(e);
            (!self.varies(e) && r.0 == r.1).then_some(r.0)
        };
        if let (Some(x), Some(y)) = (constant(a), constant(b)) {
            return x.checked_sub(y);
        }
        match (&a.node, &b.node) {
            (Node::Binary(BinOp::Mul, x, d), Node::Binary(BinOp::Mul, y, e)) if same(d, e) => {
                constant(d).filter(|d| *d >= 0)?.checked_mul(self.slope(x, y)?)
            }
            (Node::Binary(BinOp::Add, x, d), _) if constant(d).is_some() => {
                constant(d)?.checked_add(self.slope(x, b)?)
            }
            (Node::Binary(BinOp::Sub, x, d), _) if constant(d).is_some() => {
                self.slope(x, b)?.checked_sub(constant(d)?)
            }
            (_, Node::Binary(BinOp::Add, y, d)) if constant(d).is_some() => {
                self.slope(a, y)?.checked_sub(constant(d)?)
            }
            (_, Node::Binary(BinOp::Sub, y, d)) if constant(d).is_some() => {
                constant(d)?.checked_add(self.slope(a, y)?)
            }
            _ => None,
        }
    }
}

/// Returns true if two expressions are equal, ignoring their spans.
pub(crate) fn same(a: &Expr, b: &Expr) -> bool {
    match (&a.node, &b.node) {
        (Node::Int(x), Node::Int(y)) => x == y,
        (Node::Var(x), Node::Var(y)) => x == y,
        (Node::Unary(o, x), Node::Unary(p, y)) => o == p && same(x, y),
        (Node::Binary(o, x, y), Node::Binary(p, u, v)) => o == p && same(x, u) && same(y, v),
        (Node::Call(f, x), Node::Call(g, y)) => {
            f == g && x.len() == y.len() && x.iter().zip(y).all(|(a, b)| same(a, b))
        }
        _ => false,
    }
}

#[cfg(test)]
thread_local! {
    /// Ranges that were searched, counted by tests.
    static SEARCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a range that is searched, in tests.
fn searched() {
    #[cfg(test)]
    SEARCHED.with(|n| n.set(n.get() + 1));
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use roundelay_dsl::span::SourceMap;

    use super::*;
    use crate::eval::eval;
    use crate::program::Stmt;
    use crate::{Instance, NoLibrary, Options, Program, Shape, resolve};

    fn program(text: &str) -> std::sync::Arc<Program> {
        let mut sources = SourceMap::new();
        let id = sources.add("here.algo", text);
        resolve(&mut sources, id, &NoLibrary).expect("the text resolves").remove(0)
    }

    /// Whatever is said of an expression on a range of ranks holds of all its values there.
    #[test]
    fn bounds_hold() {
        let mut exact = 0;
        for text in [
            "lowbit(v)",
            "lowbit(v + 5)",
            "(v - lowbit(v)) | (2 * lowbit(v))",
            "log2(v + 1) + ceil_log2(v + 3)",
            "if v < 9 { v } else { 40 - v }",
            "if lowbit(v) == 8 || !(v > 3) { 1 } else { v | 16 }",
            "if v >= 7 && v != 12 { 3 } else { pow(2, log2(9)) }",
            "if v == 6 { 1 } else { 0 }",
            "if v <= 20 && 30 > v { 1 } else { 0 }",
        ] {
            let text = format!(
                "algorithm a implements all_reduce on n ranks {{
                    each v {{ let x = {text} x % n -> v : copy data }} }}"
            );
            let program = program(&text);
            let Some(Stmt::Each(each)) = program.body.first() else { panic!("an `each`") };
            let e = &each.defs.first().expect("a definition").1;
            let mut env = vec![0; program.slots.len()];
            for (lo, hi) in (0..40).flat_map(|lo| (lo..40).map(move |hi| (lo, hi))) {
                let vary = [(each.var, (lo, hi))];
                let range = Bounds { env: &env, vary: &vary, defs: &[] }.range(e);
                for v in lo..=hi {
                    env[index(each.var)] = v;
                    let value = eval(e, &mut env).expect("it has a value");
                    assert!(range.0 <= value && value <= range.1, "{value} in {range:?}: {text}");
                }
                exact += u32::from(range.0 == range.1);
            }
        }
        assert!(exact > 9 * 40, "{exact}");
    }

    /// The search for the ranks that send to a rank takes a small part of looking at all ranks, where no form
    /// can be inverted.
    #[test]
    fn a_parent_finds_its_children() {
        let program = program(
            "fn parent(v, n) { let up = (v - lowbit(v)) | (2 * lowbit(v)) if up < n { up } else { v - lowbit(v) } }
            algorithm a implements reduce on n ranks {
                for k in 0..ceil_log2(n) { each v where lowbit(v) == 1 << k { v -> parent(v, n) : reduce data } }
            }",
        );
        for n in [1u32 << 10, 1 << 16] {
            let instance = Instance::new(&program, &Shape::flat(n), &Options::default());
            let (mut found, rank) = (Vec::new(), n / 2 + 8);
            SEARCHED.set(0);
            let done = crate::walk::walk(&instance.expect("an instance"), &mut |round| {
                round.of(rank, &mut found)?;
                Ok(ControlFlow::Continue(()))
            });
            assert!(done.is_ok());
            let senders: Vec<u32> = found.iter().map(|t| t.src).collect();
            assert_eq!(
                senders,
                [rank - 4, rank + 4, rank],
                "two children, and what it sends itself"
            );
            let rounds = u64::from(n.ilog2());
            let looks = SEARCHED.get() / rounds;
            assert!(looks < 8 * rounds * rounds, "{looks} looks a round on {n} ranks");
        }
    }
}
