//! Arithmetic on ranges of values, as expressions compute them.
//!
//! The range of a result holds every value that the operation *has* on values of its operands' ranges: what does
//! not fit 64 bits has none, and evaluation refuses it. So bounds are computed in 128 bits and cut to what 64 bits
//! hold. There is no other limit: a range means the same to every operator, however wide its values are.

use roundelay_dsl::ast::BinOp;

use crate::program::BuiltinFunction;

/// A closed range of values.
pub(crate) type ValueRange = (i64, i64);

/// The range of a number that may be any.
const ANY: ValueRange = (i64::MIN, i64::MAX);

/// The widest shift that has a value.
pub(super) const MOST_SHIFT: i64 = 62;

/// Returns the numbers of 64 bits between two bounds; `None` if there are none.
pub(super) fn fit(lo: i128, hi: i128) -> Option<ValueRange> {
    let cut = |v: i128| i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX });
    let some = lo <= hi && lo <= i64::MAX.into() && hi >= i64::MIN.into();
    some.then(|| (cut(lo), cut(hi)))
}

/// Returns the numbers of 64 bits between two bounds. Where there are none the operation has no value, and the
/// range says nothing.
fn cut(lo: i128, hi: i128) -> ValueRange {
    fit(lo, hi).unwrap_or(ANY)
}

/// Returns both bounds as numbers that sums and products of two do not overflow.
pub(super) fn wide(r: ValueRange) -> (i128, i128) {
    (r.0.into(), r.1.into())
}

/// Returns the range of `-a`.
pub(super) fn negated(a: ValueRange) -> ValueRange {
    let (lo, hi) = wide(a);
    cut(-hi, -lo)
}

/// Returns the range of an operator.
pub(super) fn binary(op: BinOp, a: ValueRange, b: ValueRange) -> ValueRange {
    let point = b.0 == b.1;
    let (x, y) = (wide(a), wide(b));
    match op {
        BinOp::Add => cut(x.0 + y.0, x.1 + y.1),
        BinOp::Sub => cut(x.0 - y.1, x.1 - y.0),
        BinOp::Mul => product(x, y),
        BinOp::Div if point && b.0 > 0 => (a.0.div_euclid(b.0), a.1.div_euclid(b.0)),
        BinOp::Div if b.0 > 0 && a.0 >= 0 => (a.0 / b.1, a.1 / b.0),
        BinOp::Shr if point && (0..=MOST_SHIFT).contains(&b.0) => (a.0 >> b.0, a.1 >> b.0),
        BinOp::Shl if point && (0..=MOST_SHIFT).contains(&b.0) => {
            let by = 1i128 << b.0;
            cut(x.0 * by, x.1 * by)
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
            cut(a.0.max(b.0).into(), i128::from(mask(a.1 | b.1)).min(x.1 + y.1))
        }
        BinOp::BitXor if a.0 >= 0 && b.0 >= 0 => {
            let free = mask((a.0 ^ a.1) | (b.0 ^ b.1));
            let fixed = (a.0 ^ b.0) & !free;
            (fixed, fixed | free)
        }
        BinOp::And => condition(match (truth(a), truth(b)) {
            (Some(a), Some(b)) => Some(a && b),
            (Some(false), _) | (_, Some(false)) => Some(false),
            _ => None,
        }),
        BinOp::Or => condition(match (truth(a), truth(b)) {
            (Some(a), Some(b)) => Some(a || b),
            (Some(true), _) | (_, Some(true)) => Some(true),
            _ => None,
        }),
        BinOp::Eq => condition(equal(a, b)),
        BinOp::Ne => condition(equal(a, b).map(|same| !same)),
        BinOp::Lt => condition(less(a, b)),
        BinOp::Ge => condition(less(a, b).map(|less| !less)),
        BinOp::Gt => condition(less(b, a)),
        BinOp::Le => condition(less(b, a).map(|less| !less)),
        _ => ANY,
    }
}

/// Returns the range of a product.
fn product(x: (i128, i128), y: (i128, i128)) -> ValueRange {
    let [a, b, c, d] = [x.0 * y.0, x.0 * y.1, x.1 * y.0, x.1 * y.1];
    cut(a.min(b).min(c.min(d)), a.max(b).max(c.max(d)))
}

/// Returns the range of a function.
pub(super) fn call(f: BuiltinFunction, r: &[ValueRange]) -> ValueRange {
    // Plans hold bounds of the lengths of messages, and so that of `ceil_div` as it is.
    if f != BuiltinFunction::CeilDiv && r.iter().all(|r| r.0 == r.1) {
        let values: Vec<i64> = r.iter().map(|r| r.0).collect();
        return f.value(&values).map_or(ANY, |v| (v, v));
    }
    let bits = |x: i64| if x > 0 { i64::from(x.ilog2()) } else { 0 };
    match (f, r) {
        (BuiltinFunction::Min, _) => {
            (r.iter().map(|r| r.0).min().unwrap_or(0), r.iter().map(|r| r.1).min().unwrap_or(0))
        }
        (BuiltinFunction::Max, _) => {
            (r.iter().map(|r| r.0).max().unwrap_or(0), r.iter().map(|r| r.1).max().unwrap_or(0))
        }
        (BuiltinFunction::Log2, [a]) => (bits(a.0), bits(a.1)),
        (BuiltinFunction::TrailingZeros, [a]) => (0, bits(a.1)),
        (BuiltinFunction::CeilLog2, [a]) => (bits(a.0), bits(a.1) + 1),
        (BuiltinFunction::Pow2 | BuiltinFunction::Even | BuiltinFunction::Odd, _) => (0, 1),
        (BuiltinFunction::IsPower, _) => (0, 1),
        (BuiltinFunction::Log | BuiltinFunction::CeilLog, [base, x]) if base.0 > 1 && x.0 > 0 => {
            let up = i64::from(f == BuiltinFunction::CeilLog);
            (x.0.ilog(base.1).into(), i64::from(x.1.ilog(base.0)) + up)
        }
        (BuiltinFunction::Popcount, _) => (0, 64),
        // The highest bit in which the number before them all differs from the last is the lowest of one.
        (BuiltinFunction::Lowbit, [a]) if a.0 > 0 => (1, 1 << bits((a.0 - 1) ^ a.1)),
        (BuiltinFunction::Lowbit, [a]) if a.0 == 0 => (0, 1 << bits(a.1)),
        (BuiltinFunction::CeilDiv, [a, b]) if b.0 > 0 && a.0 >= 0 => {
            cut(0, i128::from(a.1 / b.0) + 1)
        }
        (BuiltinFunction::BitReverse, [_, b]) if b.1 >= 0 => (0, (1 << b.1.min(MOST_SHIFT)) - 1),
        (BuiltinFunction::Abs, [a]) => cut(0, i128::from(a.0).abs().max(i128::from(a.1).abs())),
        _ => ANY,
    }
}

/// Returns the truth of the numbers in a range; `None` if some are true and some are not.
pub(super) fn truth(r: ValueRange) -> Option<bool> {
    match r {
        (0, 0) => Some(false),
        (lo, hi) if lo > 0 || hi < 0 => Some(true),
        _ => None,
    }
}

/// Returns the range of a condition.
pub(super) fn condition(holds: Option<bool>) -> ValueRange {
    holds.map_or((0, 1), |holds| (holds.into(), holds.into()))
}

/// Returns the truth of `a < b`, if it is the same for all numbers of the ranges.
fn less(a: ValueRange, b: ValueRange) -> Option<bool> {
    match () {
        () if a.1 < b.0 => Some(true),
        () if a.0 >= b.1 => Some(false),
        () => None,
    }
}

/// Returns the truth of `a == b`, if it is the same for all numbers of the ranges.
fn equal(a: ValueRange, b: ValueRange) -> Option<bool> {
    match (less(a, b), less(b, a)) {
        (Some(true), _) | (_, Some(true)) => Some(false),
        (Some(false), Some(false)) => Some(true),
        _ => None,
    }
}

/// Returns all bits up to the highest one of `x`.
fn mask(x: i64) -> i64 {
    if x <= 0 { 0 } else { i64::MAX >> (x.leading_zeros() - 1) }
}
