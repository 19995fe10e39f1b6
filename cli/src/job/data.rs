//! Elements: random ones, and whether a result is what the contributions make.
//!
//! The reference is computed in 64-bit floats with compensation, or in 128-bit integers. Sums of
//! floats may be off by what their roundings can add up to, and no more: about one unit in the last
//! place of the sum of magnitudes for each operand. Everything else is compared exactly.

use half::{bf16, f16};
use roundelay::{DType, RedOp};
use roundelay_compiler::plan::Wire;

use super::places::{Part, Ranks};

/// By what `premul_sum` multiplies.
pub(crate) const FACTOR: f64 = 3.0;

/// The rounding of a wire type, relative to the value.
pub(crate) fn wire_epsilon(wire: Wire) -> f64 {
    match wire {
        Wire::F16 => f16::EPSILON.to_f64(),
        Wire::Bf16 => bf16::EPSILON.to_f64(),
        Wire::F32 => f32::EPSILON.into(),
    }
}

/// What the elements of one call have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// Of the data.
    pub(crate) seed: u64,
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// Type.
    pub(crate) dtype: DType,
    /// Operator.
    pub(crate) op: RedOp,
    /// Rounding on the wire, relative to the value.
    pub(crate) wire: f64,
    /// Floats are whole numbers so small that every sum of them is exact.
    pub(crate) whole: bool,
}

impl Rule {
    /// The largest whole number such that sums over all ranks are exact in the type, if there is one.
    fn most(&self) -> Option<f64> {
        let bits = match self.dtype {
            DType::Bf16 => 8,
            DType::F16 => 11,
            DType::F32 => 24,
            _ => 53,
        };
        let factor = if self.op == RedOp::PremulSum { FACTOR } else { 1.0 };
        let most = ((1u64 << bits) as f64 / f64::from(self.ranks) / factor).floor().min(1000.0);
        (self.whole && most >= 1.0).then_some(most)
    }

    /// Whether results are exact, so that nothing but the reference will do.
    fn exact(&self) -> bool {
        let divides = self.op == RedOp::Avg && !self.ranks.is_power_of_two();
        self.wire == 0.0 && !divides && self.most().is_some()
    }
}

/// Element `index` of the vector of a rank, as random bits.
fn random(seed: u64, rank: u32, index: u64) -> u64 {
    let mut x = seed ^ (u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = x.wrapping_add(index.wrapping_mul(0xd134_2543_de82_ef95));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A type of elements.
trait Value: Copy + PartialEq + std::fmt::Display {
    fn make(random: u64, rule: &Rule) -> Self;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    /// The reference, if the result is not within what is allowed around it.
    fn judge(self, rule: &Rule, from: impl Iterator<Item = Self>) -> Result<(), String>;
    /// Whether a copy is right.
    fn judge_copy(self, rule: &Rule, from: Self) -> bool;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Value for $type {
            fn make(random: u64, _: &Rule) -> Self {
                (random >> 7) as $type
            }

            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, <$type>::from_le_bytes)
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn judge(self, rule: &Rule, from: impl Iterator<Item = Self>) -> Result<(), String> {
                let want = match fold(rule.op, from.map(i128::from)) {
                    Some(sum) if rule.op == RedOp::Avg => (sum as $type as i128 / i128::from(rule.ranks)) as $type,
                    Some(want) => want as $type,
                    None => return Ok(()),
                };
                if self == want { Ok(()) } else { Err(want.to_string()) }
            }

            fn judge_copy(self, _: &Rule, from: Self) -> bool {
                self == from
            }
        }
    )*};
}

integers!(i8 u8 i32 u32 i64 u64);

/// The operator on integers; what is beyond 128 bits does not count in any type.
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
        impl Value for $type {
            fn make(random: u64, rule: &Rule) -> Self {
                let $y = spread(random, rule);
                $from
            }

            fn read(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().unwrap_or_default())
            }

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn judge(self, rule: &Rule, from: impl Iterator<Item = Self>) -> Result<(), String> {
                let epsilon = { let $x = <$type>::EPSILON; $to };
                let got = { let $x = self; $to };
                judge_float(got, rule, epsilon, $tiny, from.map(|$x| $to))
            }

            fn judge_copy(self, rule: &Rule, from: Self) -> bool {
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

/// Between -1 and 1; around 1 and -1 for products, so that they stay in range. Or whole numbers, and powers
/// of two for products.
fn spread(random: u64, rule: &Rule) -> f64 {
    let unit = (random >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    match (rule.op, rule.most()) {
        (RedOp::Prod, Some(_)) if rule.ranks > 8 => unit.signum(),
        (RedOp::Prod, Some(_)) => {
            2.0f64.powi((unit * 1.5).round() as i32) * if random & 1 == 0 { 1.0 } else { -1.0 }
        }
        (_, Some(most)) => (unit * most).round(),
        (RedOp::Prod, None) => (1.0 + unit.abs() / f64::from(rule.ranks)) * unit.signum(),
        (_, None) => unit,
    }
}

/// The least value that the wire can carry: what is below it may be lost.
fn least_on(rule: &Rule) -> f64 {
    if rule.wire == f16::EPSILON.to_f64() { 6e-8 } else { 0.0 }
}

fn judge_float(
    got: f64,
    rule: &Rule,
    epsilon: f64,
    tiny: f64,
    from: impl Iterator<Item = f64>,
) -> Result<(), String> {
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
        false if allowed == 0.0 => Err(want.to_string()),
        false => Err(format!("{want} within {allowed:.1e}")),
    }
}

/// Evaluates the expression with `$name` as the type of the elements; a `bool` is a byte.
macro_rules! with_type {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            DType::F16 => {
                type $name = f16;
                $body
            }
            DType::Bf16 => {
                type $name = bf16;
                $body
            }
            DType::F32 => {
                type $name = f32;
                $body
            }
            DType::F64 => {
                type $name = f64;
                $body
            }
            DType::I8 => {
                type $name = i8;
                $body
            }
            DType::U8 => {
                type $name = u8;
                $body
            }
            DType::I32 => {
                type $name = i32;
                $body
            }
            DType::U32 => {
                type $name = u32;
                $body
            }
            DType::I64 => {
                type $name = i64;
                $body
            }
            DType::U64 => {
                type $name = u64;
                $body
            }
            DType::Bool => {
                type $name = Truth;
                $body
            }
        }
    };
}

/// A `bool` as it is in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Truth(u8);

impl std::fmt::Display for Truth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Truth {
    fn make(random: u64, _: &Rule) -> Self {
        Truth((random >> 7) as u8 & 1)
    }

    fn read(bytes: &[u8]) -> Self {
        Truth(u8::read(bytes))
    }

    fn write(self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }

    fn judge(self, rule: &Rule, from: impl Iterator<Item = Self>) -> Result<(), String> {
        self.0.judge(rule, from.map(|x| x.0))
    }

    fn judge_copy(self, _: &Rule, from: Self) -> bool {
        self == from
    }
}

/// Writes a rank's contributions.
pub(crate) fn fill(rule: &Rule, rank: u32, parts: &[Part], buffer: &mut [u8]) {
    with_type!(rule.dtype, T => fill_as::<T>(rule, rank, parts, buffer));
}

fn fill_as<T: Value>(rule: &Rule, rank: u32, parts: &[Part], buffer: &mut [u8]) {
    let size = size_of::<T>();
    for part in parts {
        let bytes = &mut buffer[part.at * size..(part.at + part.len) * size];
        for (index, element) in (part.index..).zip(bytes.chunks_exact_mut(size)) {
            T::make(random(rule.seed, rank, index), rule).write(element);
        }
    }
}

/// The number of wrong elements, and the first one in words.
pub(crate) fn judge(rule: &Rule, parts: &[Part], buffer: &[u8]) -> (u64, Option<String>) {
    with_type!(rule.dtype, T => judge_as::<T>(rule, parts, buffer))
}

fn judge_as<T: Value>(rule: &Rule, parts: &[Part], buffer: &[u8]) -> (u64, Option<String>) {
    let size = size_of::<T>();
    let (mut wrong, mut first) = (0, None);
    for part in parts {
        let bytes = &buffer[part.at * size..(part.at + part.len) * size];
        for (i, element) in bytes.chunks_exact(size).enumerate() {
            let (got, index) = (T::read(element), part.index + i as u64);
            let of = |rank: u32| T::make(random(rule.seed, rank, index), rule);
            let verdict = match &part.from {
                Ranks::One(rank) => {
                    let want = of(*rank);
                    if got.judge_copy(rule, want) { Ok(()) } else { Err(want.to_string()) }
                }
                Ranks::All => got.judge(rule, (0..rule.ranks).map(of)),
                Ranks::Each(ranks) => {
                    // The part's own index counts from its first element: see `clip` of GPUs.
                    let at = |&(rank, first): &(u32, u64)| {
                        T::make(random(rule.seed, rank, first + index), rule)
                    };
                    got.judge(rule, ranks.iter().map(at))
                }
            };
            if let Err(want) = verdict {
                wrong += 1;
                first.get_or_insert_with(|| {
                    format!("element {}: {got}, the reference has {want}", part.at + i)
                });
            }
        }
    }
    (wrong, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(dtype: DType, op: RedOp) -> Rule {
        Rule { seed: 7, ranks: 3, dtype, op, wire: 0.0, whole: false }
    }

    #[test]
    fn what_was_filled_in_is_right_and_nothing_else() {
        for &dtype in DType::ALL {
            let rule = rule(dtype, RedOp::Sum);
            let part = Part { at: 2, len: 5, index: 9, from: Ranks::One(1) };
            let mut buffer = vec![0xff; 8 * dtype.size()];
            fill(&rule, 1, std::slice::from_ref(&part), &mut buffer);
            assert_eq!(judge(&rule, std::slice::from_ref(&part), &buffer), (0, None), "{dtype}");
            buffer[3 * dtype.size()] ^= 1;
            assert_eq!(judge(&rule, &[part], &buffer).0, 1, "{dtype}");
        }
    }

    #[test]
    fn sums_of_floats_are_allowed_their_roundings_only() {
        let rule = rule(DType::F32, RedOp::Sum);
        let from = [0.1f32, 0.2, 0.3];
        assert!((0.1f32 + 0.2 + 0.3).judge(&rule, from.into_iter()).is_ok());
        assert!(0.6001f32.judge(&rule, from.into_iter()).is_err());
        assert!(f32::NAN.judge(&rule, from.into_iter()).is_err());
        let max = Rule { op: RedOp::Max, ..rule };
        assert!(0.3f32.judge(&max, from.into_iter()).is_ok());
        assert!(0.300_000_03f32.judge(&max, from.into_iter()).is_err());
    }

    #[test]
    fn sums_of_whole_numbers_are_exact_in_every_type() {
        for &dtype in DType::ALL {
            for op in [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::PremulSum] {
                let rule = Rule { ranks: 4, whole: true, ..rule(dtype, op) };
                let is_float = matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64);
                assert!(!is_float || rule.exact(), "{dtype} {op}");
            }
        }
        let rule = Rule { ranks: 2, whole: true, ..rule(DType::F32, RedOp::Sum) };
        assert!(3.0f32.judge(&rule, [1.0f32, 2.0].into_iter()).is_ok());
        assert!(3.000_000_2f32.judge(&rule, [1.0f32, 2.0].into_iter()).is_err());
        let random = (0..1000u64).map(|i| spread(random(3, 0, i), &rule));
        assert!(random.into_iter().all(|x| x.fract() == 0.0 && x.abs() <= 1000.0));
    }

    #[test]
    fn integers_wrap() {
        let from = || [100i8, 100, -3].into_iter();
        assert!((100i8.wrapping_add(100) - 3).judge(&rule(DType::I8, RedOp::Sum), from()).is_ok());
        let average = 100i8.wrapping_add(100).wrapping_add(-3) / 3;
        assert!(average.judge(&rule(DType::I8, RedOp::Avg), from()).is_ok());
        let product = 100i8.wrapping_mul(100).wrapping_mul(-3);
        assert!(product.judge(&rule(DType::I8, RedOp::Prod), from()).is_ok());
        assert!(100i8.judge(&rule(DType::I8, RedOp::Max), from()).is_ok());
    }
}
