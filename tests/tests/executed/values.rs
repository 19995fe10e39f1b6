//! Defines elements as numbers, and the arithmetic of the operators on them: done the plain way, one element
//! after the other, in 128-bit integers or 64-bit floats.

use half::{bf16, f16};
use roundelay::{DType, RedOp};
use roundelay_tests::SeededRandom;

/// Types and operators that go together.
pub(crate) fn pairs() -> Vec<(DType, RedOp)> {
    use RedOp::*;
    let of = |dtype: DType| -> &[RedOp] {
        match dtype {
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => {
                &[Sum, Prod, Min, Max, Avg, PremulSum]
            }
            DType::Bool => &[Min, Max, And, Or, Xor],
            _ => &[Sum, Prod, Min, Max, Avg, PremulSum, And, Or, Xor],
        }
    };
    DType::ALL.iter().flat_map(|&t| of(t).iter().map(move |&op| (t, op))).collect()
}

/// Returns the distance from 1 to the next value, of floats.
pub(crate) fn epsilon(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F16 => Some(f16::EPSILON.to_f64()),
        DType::Bf16 => Some(bf16::EPSILON.to_f64()),
        DType::F32 => Some(f64::from(f32::EPSILON)),
        DType::F64 => Some(f64::EPSILON),
        _ => None,
    }
}

/// An element as a number. Every element of its type is one, exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(i128),
    Float(f64),
}

use Number::{Float, Whole};

/// Evaluates the expression with `$type` as the type of a whole-numbered element.
macro_rules! whole {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            DType::I8 => {
                type $type = i8;
                $body
            }
            DType::I32 => {
                type $type = i32;
                $body
            }
            DType::U32 => {
                type $type = u32;
                $body
            }
            DType::I64 => {
                type $type = i64;
                $body
            }
            DType::U64 => {
                type $type = u64;
                $body
            }
            _ => {
                type $type = u8;
                $body
            }
        }
    };
}

/// Returns the bytes of one element as a number.
pub(crate) fn number(dtype: DType, bytes: &[u8]) -> Number {
    const SIZE: &str = "as many bytes as the type has";
    match dtype {
        DType::F16 => Float(f16::from_ne_bytes(bytes.try_into().expect(SIZE)).to_f64()),
        DType::Bf16 => Float(bf16::from_ne_bytes(bytes.try_into().expect(SIZE)).to_f64()),
        DType::F32 => Float(f32::from_ne_bytes(bytes.try_into().expect(SIZE)).into()),
        DType::F64 => Float(f64::from_ne_bytes(bytes.try_into().expect(SIZE))),
        _ => whole!(dtype, T => Whole(T::from_ne_bytes(bytes.try_into().expect(SIZE)).into())),
    }
}

/// Appends a number as an element: floats rounded, integers wrapped.
fn push(bytes: &mut Vec<u8>, dtype: DType, number: Number) {
    match (dtype, number) {
        (DType::F16, Float(x)) => bytes.extend(f16::from_f64(x).to_ne_bytes()),
        (DType::Bf16, Float(x)) => bytes.extend(bf16::from_f64(x).to_ne_bytes()),
        (DType::F32, Float(x)) => bytes.extend((x as f32).to_ne_bytes()),
        (_, Float(x)) => bytes.extend(x.to_ne_bytes()),
        (_, Whole(x)) => whole!(dtype, T => bytes.extend((x as T).to_ne_bytes())),
    }
}

/// The kind of data that a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Any bits: for collectives that copy.
    Bits,
    /// Any integers; floats so small and whole that no result of up to 8 ranks is rounded, in any type.
    Exact,
    /// Floats between -1 and 1 (near 1 or -1 for products), which are rounded on the way.
    Rough,
}

/// Returns a vector of random elements.
pub(crate) fn random(
    data: Data,
    dtype: DType,
    op: RedOp,
    ranks: u32,
    len: usize,
    dice: &mut SeededRandom,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len * dtype.size());
    for _ in 0..len {
        let bits = (dice.below(1 << 32) as u64) << 32 | dice.below(1 << 32) as u64;
        let float = || match (data, op) {
            (Data::Exact, RedOp::Prod) => [1.0, -1.0, 2.0, -2.0][bits as usize % 4],
            (Data::Exact, RedOp::Avg) => (f64::from(bits as u32 % 5) - 2.0) * f64::from(ranks),
            (Data::Exact, _) => f64::from(bits as u32 % 17) - 8.0,
            (_, RedOp::Prod) => {
                let unit = bits as f64 / 2f64.powi(64) - 0.5;
                unit.signum() + unit / f64::from(ranks)
            }
            _ => bits as f64 / 2f64.powi(63) - 1.0,
        };
        match (dtype, data) {
            (DType::Bool, _) => bytes.push(bits as u8 & 1),
            (_, Data::Bits) => bytes.extend(&bits.to_ne_bytes()[..dtype.size()]),
            _ if epsilon(dtype).is_some() => push(&mut bytes, dtype, Float(float())),
            _ => push(&mut bytes, dtype, Whole(bits.into())),
        }
    }
    bytes
}

/// Returns the factor by which a rank multiplies for `premul_sum`.
pub(crate) fn factor(data: Data, dtype: DType, rank: u32) -> f64 {
    let whole = [1.0, 3.0, -2.0, 2.0][rank as usize % 4];
    // Integers have whole factors only.
    if data == Data::Rough && epsilon(dtype).is_some() { whole / 3.0 } else { whole }
}

/// The value that a result must have, and the largest allowed difference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) value: Number,
    pub(crate) allowed: f64,
}

impl Wanted {
    pub(crate) fn accepts(&self, got: Number) -> bool {
        match (self.value, got) {
            (Float(want), Float(got)) => (got - want).abs() <= self.allowed,
            (want, got) => want == got,
        }
    }
}

/// Returns the reduction of one element of each rank, in rank order. `precision` is the least epsilon of the
/// types that the values go through.
pub(crate) fn reduce(
    dtype: DType,
    op: RedOp,
    data: Data,
    precision: f64,
    from: &[Number],
) -> Wanted {
    let whole: Vec<i128> =
        from.iter().filter_map(|x| if let Whole(x) = x { Some(*x) } else { None }).collect();
    if whole.len() == from.len() {
        return Wanted { value: Whole(reduce_whole(dtype, op, data, &whole)), allowed: 0.0 };
    }
    let floats: Vec<f64> =
        from.iter().filter_map(|x| if let Float(x) = x { Some(*x) } else { None }).collect();
    let n = floats.len() as f64;
    let scaled = |(r, x): (usize, &f64)| {
        if op == RedOp::PremulSum { x * factor(data, dtype, r as u32) } else { *x }
    };
    let terms: Vec<f64> = floats.iter().enumerate().map(scaled).collect();
    let (sum, magnitude) = terms.iter().fold((0.0, 0.0), |(s, m), x| (s + x, m + x.abs()));
    let product: f64 = floats.iter().product();
    let least = floats.iter().copied().fold(f64::INFINITY, f64::min);
    let most = floats.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (value, scale) = match op {
        RedOp::Prod => (product, product.abs()),
        RedOp::Min => (least, 1.0),
        RedOp::Max => (most, 1.0),
        RedOp::Avg => (sum / n, magnitude / n),
        _ => (sum, magnitude),
    };
    // At most 2n roundings of half an epsilon each, or of the least f16.
    let tiny = if dtype == DType::F16 { 6e-8 } else { 0.0 };
    let rounded = data == Data::Rough && !matches!(op, RedOp::Min | RedOp::Max);
    let allowed = if rounded { (n + 2.0) * (precision * scale + tiny) } else { 0.0 };
    Wanted { value: Float(value), allowed }
}

fn reduce_whole(dtype: DType, op: RedOp, data: Data, from: &[i128]) -> i128 {
    let wrap = |x: i128| whole!(dtype, T => i128::from(x as T));
    let scaled = from.iter().enumerate().map(|(r, &x)| match op {
        RedOp::PremulSum => x * factor(data, dtype, r as u32) as i128,
        _ => x,
    });
    let total = scaled.reduce(|a, b| match op {
        RedOp::Sum | RedOp::Avg | RedOp::PremulSum => a + b,
        RedOp::Prod => wrap(a.wrapping_mul(b)),
        RedOp::Min => a.min(b),
        RedOp::Max => a.max(b),
        RedOp::And => a & b,
        RedOp::Or => a | b,
        RedOp::Xor => a ^ b,
    });
    let total = wrap(total.unwrap_or_default());
    if op == RedOp::Avg { total / from.len() as i128 } else { total }
}
