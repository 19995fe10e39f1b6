//! Evaluates numbers and truth values, as docs/language.md defines them.

use roundelay_dsl::ast::{BinOp, Expr, ExprKind, FnDef, SourceFile, UnOp};

use super::{EarlyStop, RunFrame, wrong};

/// The value of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OracleValue {
    Int(i64),
    Truth(bool),
}

/// Names and their values; later ones shadow earlier ones.
pub(super) struct NameScope<'a> {
    /// The file in which functions are looked up.
    pub(super) file: &'a SourceFile,
    names: Vec<(String, OracleValue)>,
    /// The axes of a grid, as coordinates of the rank at hand; other names come first.
    pub(super) coordinates: Vec<(String, i64)>,
}

impl<'a> NameScope<'a> {
    pub(super) fn new(file: &'a SourceFile) -> NameScope<'a> {
        NameScope { file, names: Vec::new(), coordinates: Vec::new() }
    }

    pub(super) fn push(&mut self, name: &str, value: OracleValue) {
        self.names.push((name.to_string(), value));
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn truncate(&mut self, len: usize) {
        self.names.truncate(len);
    }

    fn get(&self, name: &str) -> Option<OracleValue> {
        let axis = || self.coordinates.iter().find(|(n, _)| n == name);
        let known = self.names.iter().rev().find(|(n, _)| n == name).map(|found| found.1);
        known.or_else(|| axis().map(|found| OracleValue::Int(found.1)))
    }
}

fn some(value: Option<i64>) -> Result<OracleValue, EarlyStop> {
    value.map(OracleValue::Int).ok_or_else(|| wrong("RL0409 arithmetic without a result"))
}

/// Rounds down, whatever the signs.
fn floor(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

/// Has the sign of the right side.
fn modulus(a: i64, b: i64) -> Option<i64> {
    if b == 0 {
        return None;
    }
    let (a, b) = (i128::from(a), i128::from(b));
    i64::try_from(((a % b) + b) % b).ok()
}

fn shift(a: i64, by: i64, left: bool) -> Option<i64> {
    let two = 2i64.checked_pow(u32::try_from(by).ok().filter(|b| *b <= 62)?)?;
    if left { a.checked_mul(two) } else { floor(a, two) }
}

fn gcd(a: i64, b: i64) -> Option<i64> {
    let (mut a, mut b) = (a.checked_abs()?, b.checked_abs()?);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Some(a)
}

fn log2(x: i64) -> Option<i64> {
    (x > 0).then(|| (0..63).take_while(|k| x >> k > 1).count()).and_then(|k| i64::try_from(k).ok())
}

/// Returns how often `base` is multiplied before `x` would be passed, and whether it is met.
fn logarithm(base: i64, x: i64) -> Option<(i64, bool)> {
    if base < 2 || x < 1 {
        return None;
    }
    let (mut power, mut k) = (1_i128, 0);
    while power * i128::from(base) <= i128::from(x) {
        power *= i128::from(base);
        k += 1;
    }
    Some((k, power == i128::from(x)))
}

impl<'a> RunFrame<'a> {
    /// Evaluates a number.
    pub(super) fn int(&self, e: &Expr) -> Result<i64, EarlyStop> {
        match self.value(&self.env, e, 0)? {
            OracleValue::Int(v) => Ok(v),
            OracleValue::Truth(_) => Err(wrong("a truth value where a number is needed")),
        }
    }

    /// Evaluates a truth value.
    pub(super) fn truth(&self, e: &Expr) -> Result<bool, EarlyStop> {
        self.truth_in(&self.env, e, 0)
    }

    fn truth_in(&self, env: &NameScope<'a>, e: &Expr, depth: u32) -> Result<bool, EarlyStop> {
        match self.value(env, e, depth)? {
            OracleValue::Truth(v) => Ok(v),
            OracleValue::Int(_) => Err(wrong("a number where a truth value is needed")),
        }
    }

    /// Evaluates a number or a truth value.
    pub(super) fn value(
        &self,
        env: &NameScope<'a>,
        e: &Expr,
        depth: u32,
    ) -> Result<OracleValue, EarlyStop> {
        if depth > 200 {
            return Err(EarlyStop::Unsupported("deep expressions"));
        }
        let depth = depth + 1;
        let number = |e: &Expr| match self.value(env, e, depth)? {
            OracleValue::Int(v) => Ok(v),
            OracleValue::Truth(_) => Err(wrong("a truth value where a number is needed")),
        };
        match &e.kind {
            ExprKind::Int(v) => Ok(OracleValue::Int(*v)),
            ExprKind::Truth(v) => Ok(OracleValue::Truth(*v)),
            ExprKind::Name(name) => match env.get(name) {
                Some(value) => Ok(value),
                None => match self.world.constant(env.file, name)? {
                    Some((file, c)) => self.value(&NameScope::new(file), &c.value, depth),
                    None => Err(EarlyStop::Unsupported("names that it does not know")),
                },
            },
            ExprKind::Field(axis, _) => {
                let found = self.axes.iter().find(|(n, _)| *n == axis.text);
                found.map(|f| OracleValue::Int(f.1)).ok_or(EarlyStop::Unsupported("fields"))
            }
            ExprKind::Unary(UnOp::Neg, a) => some(number(a)?.checked_neg()),
            ExprKind::Unary(UnOp::Not, a) => Ok(OracleValue::Truth(!self.truth_in(env, a, depth)?)),
            ExprKind::If(c, a, b) => {
                self.value(env, if self.truth_in(env, c, depth)? { a } else { b }, depth)
            }
            ExprKind::Binary(op @ (BinOp::Or | BinOp::And), a, b) => {
                let left = self.truth_in(env, a, depth)?;
                let known = left == (*op == BinOp::Or);
                Ok(OracleValue::Truth(if known { left } else { self.truth_in(env, b, depth)? }))
            }
            ExprKind::Binary(op, a, b) => binary(*op, number(a)?, number(b)?),
            ExprKind::Call(name, args) => {
                if name.text == "commutative" {
                    return Ok(OracleValue::Truth(true));
                }
                let args: Vec<OracleValue> =
                    args.iter().map(|a| self.value(env, a, depth)).collect::<Result<_, _>>()?;
                match self.world.function(env.file, &name.text)? {
                    Some((file, f)) => self.called(file, f, &args, depth),
                    None => builtin(&name.text, &args),
                }
            }
        }
    }

    fn called(
        &self,
        file: &'a SourceFile,
        f: &'a FnDef,
        args: &[OracleValue],
        depth: u32,
    ) -> Result<OracleValue, EarlyStop> {
        let mut env = NameScope::new(file);
        for (param, value) in f.params.iter().zip(args) {
            env.push(&param.text, *value);
        }
        for (name, e) in &f.lets {
            let value = self.value(&env, e, depth)?;
            env.push(&name.text, value);
        }
        self.value(&env, &f.value, depth)
    }
}

fn binary(op: BinOp, a: i64, b: i64) -> Result<OracleValue, EarlyStop> {
    let truth = |t| Ok(OracleValue::Truth(t));
    match op {
        BinOp::Eq => truth(a == b),
        BinOp::Ne => truth(a != b),
        BinOp::Lt => truth(a < b),
        BinOp::Le => truth(a <= b),
        BinOp::Gt => truth(a > b),
        BinOp::Ge => truth(a >= b),
        BinOp::BitOr => some(Some(a | b)),
        BinOp::BitXor => some(Some(a ^ b)),
        BinOp::BitAnd => some(Some(a & b)),
        BinOp::Shl => some(shift(a, b, true)),
        BinOp::Shr => some(shift(a, b, false)),
        BinOp::Add => some(a.checked_add(b)),
        BinOp::Sub => some(a.checked_sub(b)),
        BinOp::Mul => some(a.checked_mul(b)),
        BinOp::Div => some(floor(a, b)),
        BinOp::Mod => some(modulus(a, b)),
        BinOp::Or | BinOp::And => Err(wrong("numbers are joined by a logical operator")),
    }
}

fn builtin(name: &str, args: &[OracleValue]) -> Result<OracleValue, EarlyStop> {
    let numbers: Option<Vec<i64>> = args
        .iter()
        .map(|a| match a {
            OracleValue::Int(v) => Some(*v),
            OracleValue::Truth(_) => None,
        })
        .collect();
    let numbers = numbers.ok_or_else(|| wrong("a truth value where a number is needed"))?;
    match (name, numbers.as_slice()) {
        ("log2", [x]) => some(log2(*x)),
        ("ceil_log2", [x]) => some(log2(*x).map(|k| if x & (x - 1) == 0 { k } else { k + 1 })),
        ("pow2", [x]) => Ok(OracleValue::Truth(*x > 0 && x & (x - 1) == 0)),
        ("log", [b, x]) => some(logarithm(*b, *x).map(|(k, _)| k)),
        ("ceil_log", [b, x]) => some(logarithm(*b, *x).map(|(k, exact)| k + i64::from(!exact))),
        ("is_power", [b, x]) => match (*b > 1, logarithm(*b, *x)) {
            (true, found) => Ok(OracleValue::Truth(found.is_some_and(|(_, exact)| exact))),
            (false, _) => some(None),
        },
        ("pow", [b, e]) => some(u32::try_from(*e).ok().and_then(|e| b.checked_pow(e))),
        ("min", all) => some(all.iter().min().copied()),
        ("max", all) => some(all.iter().max().copied()),
        ("abs", [x]) => some(x.checked_abs()),
        ("ceil_div", [a, b]) => {
            some(floor(*a, *b).and_then(|q| if a % b == 0 { Some(q) } else { q.checked_add(1) }))
        }
        ("gcd", [a, b]) => some(gcd(*a, *b)),
        ("even", [x]) => Ok(OracleValue::Truth(x % 2 == 0)),
        ("odd", [x]) => Ok(OracleValue::Truth(x % 2 != 0)),
        ("lowbit", [x]) => some(Some(x & x.wrapping_neg())),
        ("trailing_zeros", [x]) => some((*x > 0).then(|| i64::from(x.trailing_zeros()))),
        ("popcount", [x]) => some(Some(i64::from(x.count_ones()))),
        ("bit_reverse", [x, b]) => {
            let fits = (0..=62).contains(b) && (0..1 << b).contains(x);
            some(fits.then(|| (0..*b).map(|k| (x >> k & 1) << (b - 1 - k)).sum()))
        }
        _ => Err(EarlyStop::Unsupported("functions that it does not know")),
    }
}
