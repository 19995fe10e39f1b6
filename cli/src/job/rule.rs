//! The properties that the elements of a call share, by which they are made and judged.

use roundelay::{DType, RedOp};

/// Elements that are made and judged together.
pub(super) const BLOCK: usize = 1024;

/// The factor by which `premul_sum` multiplies.
pub(crate) const FACTOR: f64 = 3.0;

/// The properties that the elements of one call have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ElementRule {
    /// The seed of the data.
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

impl ElementRule {
    /// Returns the largest whole number such that sums over all ranks are exact in the type, if there is one.
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

    /// Returns how elements are spread, by the operator and the type.
    pub(super) fn spread(&self) -> ValueSpread {
        match (self.op, self.most()) {
            (RedOp::Prod, Some(_)) if self.ranks > 8 => ValueSpread::Signs,
            (RedOp::Prod, Some(_)) => ValueSpread::Powers,
            (_, Some(most)) => ValueSpread::Whole(most),
            (RedOp::Prod, None) => ValueSpread::Around(f64::from(self.ranks)),
            (_, None) => ValueSpread::Unit,
        }
    }

    /// Returns true if results are exact, so that only the reference itself is accepted.
    pub(super) fn exact(&self) -> bool {
        let divides = self.op == RedOp::Avg && !self.ranks.is_power_of_two();
        self.wire == 0.0 && !divides && self.most().is_some()
    }
}

/// The distribution of floats. Around 1 and -1, or as powers of two, products stay in range.
#[derive(Debug, Clone, Copy)]
pub(super) enum ValueSpread {
    /// Between -1 and 1.
    Unit,
    /// Whole numbers up to that.
    Whole(f64),
    /// -1 and 1.
    Signs,
    /// Powers of two.
    Powers,
    /// Around 1 and -1, for products of many elements.
    Around(f64),
}

impl ValueSpread {
    /// Returns the float of random bits.
    #[inline]
    pub(super) fn of(&self, random: u64) -> f64 {
        // The conversion of a signed number is one instruction.
        let unit = (random >> 11).cast_signed() as f64 / (1u64 << 52) as f64 - 1.0;
        match *self {
            ValueSpread::Unit => unit,
            ValueSpread::Whole(most) => (unit * most).round(),
            ValueSpread::Signs => unit.signum(),
            ValueSpread::Powers => {
                let power = 2.0f64.powi((unit * 1.5).round() as i32);
                power * if random & 1 == 0 { 1.0 } else { -1.0 }
            }
            ValueSpread::Around(ranks) => (1.0 + unit.abs() / ranks) * unit.signum(),
        }
    }
}
