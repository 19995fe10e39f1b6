//! Expressions with numbers in them: exact values, and bounds over a range of ranks.

use std::collections::{BTreeMap, BTreeSet};

use roundelay_dsl::ast::{BinOp, UnOp};
use roundelay_dsl::diag::codes;
use roundelay_dsl::span::Span;

use crate::num::index;
use crate::program::{Builtin, Expr, Node, Slot};

/// Arithmetic without a result, at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvalError {
    /// The expression at fault.
    pub span: Span,
    /// What happened, with the operands.
    pub message: String,
}

impl EvalError {
    /// As a diagnostic.
    pub(crate) fn diagnostic(self) -> roundelay_dsl::diag::Diagnostic {
        roundelay_dsl::diag::Diagnostic::error(codes::ARITHMETIC, self.message)
            .label(self.span, "here")
    }
}

/// The value of `e`.
pub(crate) fn eval(e: &Expr, env: &mut [i64]) -> Result<i64, EvalError> {
    Ok(match &e.node {
        Node::Int(v) => *v,
        Node::Var(s) => env[index(*s)],
        Node::Unary(UnOp::Neg, a) => {
            let a = eval(a, env)?;
            a.checked_neg().ok_or_else(|| overflow(e.span, format!("-({a})")))?
        }
        Node::Unary(UnOp::Not, a) => i64::from(eval(a, env)? == 0),
        Node::Binary(BinOp::And, a, b) => i64::from(eval(a, env)? != 0 && eval(b, env)? != 0),
        Node::Binary(BinOp::Or, a, b) => i64::from(eval(a, env)? != 0 || eval(b, env)? != 0),
        Node::Binary(op, a, b) => {
            let (a, b) = (eval(a, env)?, eval(b, env)?);
            operate(*op, a, b).map_err(|m| EvalError { span: e.span, message: m })?
        }
        Node::Call(f, args) => {
            let first = eval(&args[0], env)?;
            let mut acc = first;
            if args.len() == 1 {
                acc =
                    unary_builtin(*f, first).map_err(|m| EvalError { span: e.span, message: m })?;
            }
            for arg in &args[1..] {
                let b = eval(arg, env)?;
                acc = binary_builtin(*f, acc, b)
                    .map_err(|m| EvalError { span: e.span, message: m })?;
            }
            acc
        }
        Node::If(c, a, b) => {
            if eval(c, env)? != 0 {
                eval(a, env)?
            } else {
                eval(b, env)?
            }
        }
        Node::Let(slot, value, body) => {
            let value = eval(value, env)?;
            env[index(*slot)] = value;
            eval(body, env)?
        }
    })
}

fn overflow(span: Span, what: String) -> EvalError {
    EvalError { span, message: format!("{what} overflows 64 bits") }
}

impl Builtin {
    /// The value, as programs compute it; of more than two arguments, pair by pair.
    ///
    /// # Errors
    ///
    /// In words, where it has none.
    pub fn value(self, args: &[i64]) -> Result<i64, String> {
        match args {
            [] => Err("a function has arguments".into()),
            [a] => unary_builtin(self, *a),
            [a, rest @ ..] => rest.iter().try_fold(*a, |a, &b| binary_builtin(self, a, b)),
        }
    }
}

/// The value of an operator, as programs compute it.
///
/// # Errors
///
/// In words, where it has none.
pub fn operate(op: BinOp, a: i64, b: i64) -> Result<i64, String> {
    let checked =
        |v: Option<i64>| v.ok_or_else(|| format!("{a} {} {b} overflows 64 bits", op.symbol()));
    let shift = || {
        u32::try_from(b)
            .ok()
            .filter(|&b| b < 63)
            .ok_or_else(|| format!("{a} {} {b}: shifts go from 0 to 62", op.symbol()))
    };
    Ok(match op {
        BinOp::Or => i64::from(a != 0 || b != 0),
        BinOp::And => i64::from(a != 0 && b != 0),
        BinOp::Eq => i64::from(a == b),
        BinOp::Ne => i64::from(a != b),
        BinOp::Lt => i64::from(a < b),
        BinOp::Le => i64::from(a <= b),
        BinOp::Gt => i64::from(a > b),
        BinOp::Ge => i64::from(a >= b),
        BinOp::BitOr => a | b,
        BinOp::BitXor => a ^ b,
        BinOp::BitAnd => a & b,
        BinOp::Shl => {
            let s = shift()?;
            checked(a.checked_mul(1i64 << s))?
        }
        BinOp::Shr => a >> shift()?,
        BinOp::Add => checked(a.checked_add(b))?,
        BinOp::Sub => checked(a.checked_sub(b))?,
        BinOp::Mul => checked(a.checked_mul(b))?,
        BinOp::Div | BinOp::Mod if b == 0 => {
            return Err(format!("{a} {} 0 has no value", op.symbol()));
        }
        BinOp::Div => floor_div(a, b).ok_or_else(|| format!("{a} / {b} overflows 64 bits"))?,
        BinOp::Mod => match a.checked_rem(b).unwrap_or(0) {
            r if r != 0 && (r < 0) != (b < 0) => r + b,
            r => r,
        },
    })
}

/// Division that rounds down.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

fn unary_builtin(f: Builtin, a: i64) -> Result<i64, String> {
    let positive = |name: &str| {
        if a > 0 {
            Ok(a.unsigned_abs())
        } else {
            Err(format!("{name}({a}) has no value: it needs a positive number"))
        }
    };
    Ok(match f {
        Builtin::Log2 => i64::from(positive("log2")?.ilog2()),
        Builtin::CeilLog2 => {
            let a = positive("ceil_log2")?;
            i64::from(u64::BITS - (a - 1).leading_zeros())
        }
        Builtin::Pow2 => i64::from(a > 0 && a.count_ones() == 1),
        Builtin::Abs => a.checked_abs().ok_or_else(|| format!("abs({a}) overflows 64 bits"))?,
        Builtin::Popcount => i64::from(a.count_ones()),
        Builtin::TrailingZeros => i64::from(positive("trailing_zeros")?.trailing_zeros()),
        Builtin::Lowbit => a & a.wrapping_neg(),
        Builtin::Even => i64::from(a & 1 == 0),
        Builtin::Odd => i64::from(a & 1 == 1),
        Builtin::Min | Builtin::Max => a,
        Builtin::Pow | Builtin::CeilDiv | Builtin::BitReverse | Builtin::Gcd => a,
    })
}

fn binary_builtin(f: Builtin, a: i64, b: i64) -> Result<i64, String> {
    Ok(match f {
        Builtin::Min => a.min(b),
        Builtin::Max => a.max(b),
        Builtin::Pow => u32::try_from(b)
            .ok()
            .and_then(|e| a.checked_pow(e))
            .ok_or_else(|| format!("pow({a}, {b}) has no value in 64 bits"))?,
        Builtin::CeilDiv => {
            if b == 0 {
                return Err(format!("ceil_div({a}, 0) has no value"));
            }
            let q =
                floor_div(a, b).ok_or_else(|| format!("ceil_div({a}, {b}) overflows 64 bits"))?;
            q + i64::from(a % b != 0)
        }
        Builtin::BitReverse => {
            if !(0..=62).contains(&b) || a < 0 || (a >> b) != 0 {
                return Err(format!(
                    "bit_reverse({a}, {b}): the number must have at most {b} bits"
                ));
            }
            if b == 0 { 0 } else { (a.cast_unsigned().reverse_bits() >> (64 - b)).cast_signed() }
        }
        Builtin::Gcd => {
            let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            i64::try_from(a).map_err(|_| "gcd overflows 64 bits".to_string())?
        }
        _ => a,
    })
}

/// A closed range of values.
pub(crate) type Range = (i64, i64);

/// What is known of the slots when bounds are taken: those of an `each` vary.
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

    /// Whether `e` depends on a varying slot.
    pub(crate) fn varies(&self, e: &Expr) -> bool {
        self.depends(e, &mut BTreeSet::new())
    }

    /// The same; definitions that were found not to vary are not looked at again.
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

    /// A range that holds every value of `e`.
    pub(crate) fn range(&self, e: &Expr) -> Range {
        self.within(e, &mut Known::new())
    }

    /// The same; the range of a definition is found once, however often it is used.
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
            Node::Unary(UnOp::Not, _) => (0, 1),
            Node::Binary(op, a, b) => {
                let (a, b) = (self.within(a, known), self.within(b, known));
                self.binary(*op, a, b)
            }
            Node::Call(f, args) => {
                let args: Vec<Range> = args.iter().map(|a| self.within(a, known)).collect();
                self.call(*f, &args)
            }
            Node::If(_, a, b) => {
                let (a, b) = (self.within(a, known), self.within(b, known));
                (a.0.min(b.0), a.1.max(b.1))
            }
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
            BinOp::BitOr if a.0 >= 0 && b.0 >= 0 => (a.0.max(b.0), mask(a.1 | b.1)),
            BinOp::BitXor if a.0 >= 0 && b.0 >= 0 => {
                let free = mask((a.0 ^ a.1) | (b.0 ^ b.1));
                let fixed = (a.0 ^ b.0) & !free;
                (fixed, fixed | free)
            }
            BinOp::Or
            | BinOp::And
            | BinOp::Eq
            | BinOp::Ne
            | BinOp::Lt
            | BinOp::Le
            | BinOp::Gt
            | BinOp::Ge => (0, 1),
            _ => (-WIDE, WIDE),
        }
    }

    fn call(&self, f: Builtin, r: &[Range]) -> Range {
        let bits = |x: i64| if x > 0 { i64::from(x.ilog2()) } else { 0 };
        match f {
            Builtin::Min => {
                (r.iter().map(|r| r.0).min().unwrap_or(0), r.iter().map(|r| r.1).min().unwrap_or(0))
            }
            Builtin::Max => {
                (r.iter().map(|r| r.0).max().unwrap_or(0), r.iter().map(|r| r.1).max().unwrap_or(0))
            }
            Builtin::Log2 | Builtin::TrailingZeros => (0, bits(r[0].1)),
            Builtin::CeilLog2 => (0, bits(r[0].1) + 1),
            Builtin::Pow2 | Builtin::Even | Builtin::Odd => (0, 1),
            Builtin::Popcount => (0, 64),
            Builtin::Lowbit if r[0].0 >= 0 => (0, r[0].1),
            Builtin::CeilDiv if r[1].0 > 0 && r[0].0 >= 0 => {
                (0, (r[0].1 / r[1].0).saturating_add(1))
            }
            Builtin::Pow if r[0].0 == r[0].1 && r[1].0 == r[1].1 => {
                let v = u32::try_from(r[1].0).ok().and_then(|e| r[0].0.checked_pow(e));
                v.map_or((-WIDE, WIDE), |v| (v, v))
            }
            Builtin::BitReverse if (0..60).contains(&r[1].1) => (0, (1 << r[1].1) - 1),
            Builtin::Abs => (0, r[0].0.saturating_abs().max(r[0].1.saturating_abs())),
            _ => (-WIDE, WIDE),
        }
    }

    /// Ranges that hold every value of `slot` (one that varies) for which `e` lies in `target`; `None`
    /// where the form of `e` does not tell.
    pub(crate) fn invert(&self, e: &Expr, slot: Slot, target: &[Range]) -> Option<Vec<Range>> {
        self.solve(e, slot, target, &mut 0)
    }

    /// The same, in so many steps at most: both arms of a choice are solved, and a remainder has many targets.
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

    /// The range in which `e` must be for `e op c` (`left`) or `c op e` to lie in the target.
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

/// The numbers that divided by `c`, rounded down, lie in a range.
fn multiples(t: Range, c: i64) -> Range {
    (t.0.saturating_mul(c), t.1.saturating_mul(c).saturating_add(c - 1))
}

/// All bits up to the highest one of `x`.
fn mask(x: i64) -> i64 {
    if x <= 0 { 0 } else { (((1u64 << x.ilog2()) << 1) - 1).cast_signed() }
}

impl Bounds<'_> {
    /// The greatest value of `a - b`, where both have the same form and differ in constants only:
    /// `(x / d + 1) * d - x / d * d` is `d`, whatever `x` is.
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

/// Whether two expressions are the same but for their places.
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
