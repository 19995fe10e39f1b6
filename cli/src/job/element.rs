//! Defines types of elements: how they are made of random bits, what a reduction of them must be, one by one
//! and by blocks.
//!
//! One by one the reference is computed in 64-bit floats with compensation, or in 128-bit integers; that decides. A
//! block is only looked at for whether it is right beyond doubt, by loops that the compiler turns into vectors:
//! floats are summed in 64 bits, and what that may round off is taken from what is allowed.

use half::{bf16, f16};
use roundelay::RedOp;

use super::rule::{BLOCK, ElementRule, FACTOR, ValueSpread};

/// The reference's value, where a result is not: as text, with what a result may be off.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ReferenceValue(pub(super) String);

/// A type of elements.
pub(super) trait ElementValue: Copy + PartialEq + std::fmt::Display {
    /// The value that fills blocks before their elements are made.
    const ZERO: Self;
    fn make(random: u64, spread: &ValueSpread) -> Self;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    /// Fails with the reference if the result is not within what is allowed around it.
    fn judge(
        self,
        rule: &ElementRule,
        from: impl Iterator<Item = Self>,
    ) -> Result<(), ReferenceValue>;
    /// Returns true if a copy is right.
    fn judge_copy(self, rule: &ElementRule, from: Self) -> bool;
    /// Returns true if a block of at most [`BLOCK`] results is right beyond doubt. `next` gives the
    /// contributions of one rank after the other, until there is none.
    fn sure(_: &ElementRule, _: &[Self], _: &mut dyn FnMut(&mut [Self]) -> bool) -> bool {
        false
    }
}

/// Combines the contributions of all ranks, element by element.
fn combined<T: ElementValue, A: Copy>(
    into: &mut [A],
    next: &mut dyn FnMut(&mut [T]) -> bool,
    first: impl Fn(T) -> A,
    add: impl Fn(A, T) -> A,
) -> u32 {
    let mut block = [T::ZERO; BLOCK];
    let mut ranks = 0;
    while next(&mut block[..into.len()]) {
        let pairs = into.iter_mut().zip(&block);
        match ranks {
            0 => pairs.for_each(|(into, x)| *into = first(*x)),
            _ => pairs.for_each(|(into, x)| *into = add(*into, *x)),
        }
        ranks += 1;
    }
    ranks
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl ElementValue for $type {
            const ZERO: Self = 0;

            fn make(random: u64, _: &ValueSpread) -> Self {
                // The bits of small types are in the upper half.
                let shift = if size_of::<Self>() == 8 { 7 } else { 33 };
                (random >> shift) as $type
            }

            fn sure(rule: &ElementRule, got: &[Self], next: &mut dyn FnMut(&mut [Self]) -> bool) -> bool {
                let mut all = [0; BLOCK];
                let want = &mut all[..got.len()];
                let same = |x| x;
                let ranks = match rule.op {
                    RedOp::Sum => combined(want, next, same, <$type>::wrapping_add),
                    RedOp::PremulSum => {
                        let times = |x: $type| x.wrapping_mul(FACTOR as $type);
                        combined(want, next, times, |a, x| a.wrapping_add(times(x)))
                    }
                    RedOp::Prod => combined(want, next, same, <$type>::wrapping_mul),
                    RedOp::Min => combined(want, next, same, <$type>::min),
                    RedOp::Max => combined(want, next, same, <$type>::max),
                    RedOp::And => combined(want, next, same, |a, x| a & x),
                    RedOp::Or => combined(want, next, same, |a, x| a | x),
                    RedOp::Xor => combined(want, next, same, |a, x| a ^ x),
                    RedOp::Avg => 0,
                };
                ranks > 0 && want.iter().zip(got).fold(true, |all, (want, got)| all & (want == got))
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, <$type>::from_le_bytes)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn judge(self, rule: &ElementRule, from: impl Iterator<Item = Self>) -> Result<(), ReferenceValue> {
                let want = match fold(rule.op, from.map(i128::from)) {
                    Some(sum) if rule.op == RedOp::Avg => (sum as $type as i128 / i128::from(rule.ranks)) as $type,
                    Some(want) => want as $type,
                    None => return Ok(()),
                };
                if self == want { Ok(()) } else { Err(ReferenceValue(want.to_string())) }
            }

            fn judge_copy(self, _: &ElementRule, from: Self) -> bool {
                self == from
            }
        }
    )*};
}

integers!(i8 u8 i32 u32 i64 u64);

/// Applies the operator to integers; what is beyond 128 bits does not count in any type.
fn fold(op: RedOp, from: impl Iterator<Item = i128>) -> Option<i128> {
    from.reduce(|a, b| match op {
        RedOp::Sum | RedOp::Avg | RedOp::PremulSum => a.wrapping_add(b),
        RedOp::Prod => a.wrapping_mul(b),
        RedOp::Min => a.min(b),
        RedOp::Max => a.max(b),
        RedOp::And => a & b,
        RedOp::Or => a | b,
        RedOp::Xor => a ^ b,
    })
    .map(|x| if op == RedOp::PremulSum { x.wrapping_mul(FACTOR as i128) } else { x })
}

macro_rules! floats {
    ($($type:ty, $tiny:expr, |$x:ident| $to:expr, |$y:ident| $from:expr;)*) => {$(
        impl ElementValue for $type {
            const ZERO: Self = <$type>::from_bits(0);

            fn make(random: u64, spread: &ValueSpread) -> Self {
                let $y = spread.of(random);
                $from
            }

            fn sure(rule: &ElementRule, got: &[Self], next: &mut dyn FnMut(&mut [Self]) -> bool) -> bool {
                let float = |$x: Self| $to;
                let mut all = [(0.0f64, 0.0f64); BLOCK];
                let sums = &mut all[..got.len()];
                let once = |x: Self| (float(x), float(x).abs());
                let ranks = match rule.op {
                    RedOp::Sum | RedOp::Avg | RedOp::PremulSum => {
                        combined(sums, next, once, |(sum, most), x: Self| {
                            (sum + float(x), most + float(x).abs())
                        })
                    }
                    RedOp::Min => combined(sums, next, once, |(a, _), x| (a.min(float(x)), 0.0)),
                    RedOp::Max => combined(sums, next, once, |(a, _), x| (a.max(float(x)), 0.0)),
                    _ => 0,
                };
                let bounds = ErrorBounds::new(rule, float(<$type>::EPSILON), $tiny, ranks);
                let right = |(sum, got): (&(f64, f64), &Self)| bounds.hold(*sum, float(*got));
                ranks > 0 && sums.iter().zip(got).fold(true, |all, pair| all & right(pair))
            }

            fn read(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().unwrap_or_default())
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn judge(self, rule: &ElementRule, from: impl Iterator<Item = Self>) -> Result<(), ReferenceValue> {
                let epsilon = { let $x = <$type>::EPSILON; $to };
                let got = { let $x = self; $to };
                judge_float(got, rule, epsilon, $tiny, from.map(|$x| $to))
            }

            fn judge_copy(self, rule: &ElementRule, from: Self) -> bool {
                let (got, want) = ({ let $x = self; $to }, { let $x = from; $to });
                self.to_bits() == from.to_bits()
                    || (got - want).abs() <= rule.wire * want.abs() + least_on(rule)
            }
        }
    )*};
}

floats! {
    f16, 6e-8, |x| x.to_f64(), |y| f16::from_f64(y);
    bf16, 1e-40, |x| x.to_f64(), |y| bf16::from_f64(y);
    f32, 1.5e-45, |x| f64::from(x), |y| y as f32;
    f64, 5e-324, |x| x, |y| y;
}

/// Returns the least value that the wire can carry: what is below it may be lost.
fn least_on(rule: &ElementRule) -> f64 {
    if rule.wire == f16::EPSILON.to_f64() { 6e-8 } else { 0.0 }
}

/// The distance from the reference within which a sum of floats is right beyond doubt.
struct ErrorBounds {
    /// The factor from a sum of contributions to the result.
    scale: f64,
    /// Relative to the sum of magnitudes.
    relative: f64,
    tiny: f64,
}

impl ErrorBounds {
    fn new(rule: &ElementRule, epsilon: f64, tiny: f64, ranks: u32) -> Self {
        let ranks = f64::from(ranks);
        let roundings = if rule.exact() { 0.0 } else { 2.0 * ranks + 2.0 };
        let epsilon = epsilon.max(rule.wire);
        // The rounding of 64 bits in as many additions, and in the comparison.
        let own = if rule.exact() { 0.0 } else { (ranks + 4.0) * f64::EPSILON / 2.0 };
        match rule.op {
            RedOp::Min | RedOp::Max => ErrorBounds { scale: 1.0, relative: 0.0, tiny: 0.0 },
            RedOp::Avg => ErrorBounds {
                scale: 1.0 / f64::from(rule.ranks),
                relative: (roundings / 2.0 * epsilon - own).max(0.0),
                tiny: roundings * tiny.max(least_on(rule)),
            },
            op => ErrorBounds {
                scale: if op == RedOp::PremulSum { FACTOR } else { 1.0 },
                relative: (roundings / 2.0 * epsilon - own).max(0.0),
                tiny: roundings * tiny.max(least_on(rule)),
            },
        }
    }

    fn hold(&self, (sum, magnitude): (f64, f64), got: f64) -> bool {
        (got - sum * self.scale).abs() <= self.relative * magnitude * self.scale + self.tiny
    }
}

fn judge_float(
    got: f64,
    rule: &ElementRule,
    epsilon: f64,
    tiny: f64,
    from: impl Iterator<Item = f64>,
) -> Result<(), ReferenceValue> {
    let factor = if rule.op == RedOp::PremulSum { FACTOR } else { 1.0 };
    let (mut sum, mut lost, mut magnitude, mut operands) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
    let (mut product, mut least, mut most) = (1.0f64, f64::INFINITY, f64::NEG_INFINITY);
    for x in from {
        let y = x * factor;
        // Neumaier's compensation.
        let next = sum + y;
        lost += if sum.abs() >= y.abs() { (sum - next) + y } else { (y - next) + sum };
        sum = next;
        magnitude += y.abs();
        operands += 1.0;
        product *= x;
        (least, most) = (least.min(x), most.max(x));
    }
    sum += lost;
    let roundings = if rule.exact() { 0.0 } else { 2.0 * operands + 2.0 };
    let epsilon = epsilon.max(rule.wire);
    let tiny = roundings * tiny.max(least_on(rule));
    let (want, allowed) = match rule.op {
        RedOp::Avg => {
            let n = f64::from(rule.ranks);
            (sum / n, roundings / 2.0 * epsilon * magnitude / n + tiny)
        }
        RedOp::PremulSum => (sum, roundings * epsilon * magnitude + tiny),
        RedOp::Prod => (product, roundings / 2.0 * epsilon * product.abs() + tiny),
        RedOp::Min => (least, 0.0),
        RedOp::Max => (most, 0.0),
        _ => (sum, roundings / 2.0 * epsilon * magnitude + tiny),
    };
    match (got - want).abs() <= allowed {
        true => Ok(()),
        false if allowed == 0.0 => Err(ReferenceValue(want.to_string())),
        false => Err(ReferenceValue(format!("{want} within {allowed:.1e}"))),
    }
}

/// A `bool` as it is in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BoolByte(u8);

impl std::fmt::Display for BoolByte {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl ElementValue for BoolByte {
    const ZERO: Self = BoolByte(0);

    fn make(random: u64, _: &ValueSpread) -> Self {
        BoolByte((random >> 40) as u8 & 1)
    }

    fn read(bytes: &[u8]) -> Self {
        BoolByte(u8::read(bytes))
    }

    fn write(self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }

    fn judge(
        self,
        rule: &ElementRule,
        from: impl Iterator<Item = Self>,
    ) -> Result<(), ReferenceValue> {
        self.0.judge(rule, from.map(|x| x.0))
    }

    fn judge_copy(self, _: &ElementRule, from: Self) -> bool {
        self == from
    }
}

/// Evaluates the expression with `$name` as the type of the elements; a `bool` is a byte.
macro_rules! with_type {
    ($dtype:expr, $name:ident => $body:expr) => {
        with_type! {
            $dtype, $name => $body;
            F16 half::f16, Bf16 half::bf16, F32 f32, F64 f64, I8 i8, U8 u8, I32 i32, U32 u32, I64 i64, U64 u64,
            Bool $crate::job::element::BoolByte
        }
    };
    ($dtype:expr, $name:ident => $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {
            $(roundelay::DType::$variant => {
                type $name = $type;
                $body
            })*
        }
    };
}
pub(super) use with_type;
