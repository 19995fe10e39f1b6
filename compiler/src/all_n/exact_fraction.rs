//! Fractions of 128-bit integers whose operations refuse to overflow.

use std::cmp::Ordering;

use super::linear_term::TermOverflow;

/// A reduced fraction with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExactFraction {
    numerator: i128,
    denominator: i128,
}

impl From<i128> for ExactFraction {
    fn from(value: i128) -> Self {
        ExactFraction { numerator: value, denominator: 1 }
    }
}

impl ExactFraction {
    pub(super) const ZERO: ExactFraction = ExactFraction { numerator: 0, denominator: 1 };

    /// Creates a fraction of a numerator and a denominator that is not zero.
    fn reduce(numerator: i128, denominator: i128) -> Result<Self, TermOverflow> {
        let divisor = divisor(numerator, denominator)?;
        let sign = denominator.signum();
        let part = |value: i128| (value / divisor).checked_mul(sign).ok_or(TermOverflow);
        Ok(ExactFraction { numerator: part(numerator)?, denominator: part(denominator)? })
    }

    pub(super) fn numerator(self) -> i128 {
        self.numerator
    }

    pub(super) fn denominator(self) -> i128 {
        self.denominator
    }

    pub(super) fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub(super) fn is_integer(self) -> bool {
        self.denominator == 1
    }

    pub(super) fn is_positive(self) -> bool {
        self.numerator > 0
    }

    /// Returns the greatest integer that is at most the fraction.
    pub(super) fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Returns `self + a * b`.
    pub(super) fn add_product(self, a: Self, b: Self) -> Result<Self, TermOverflow> {
        let scale = times(a.denominator, b.denominator)?;
        let product = times(a.numerator, b.numerator)?;
        if scale == 1 && self.denominator == 1 {
            let numerator = self.numerator.checked_add(product).ok_or(TermOverflow)?;
            return Ok(ExactFraction { numerator, denominator: 1 });
        }
        let product = ExactFraction::reduce(product, scale)?;
        let left = times(self.numerator, product.denominator)?;
        let right = times(product.numerator, self.denominator)?;
        let sum = left.checked_add(right).ok_or(TermOverflow)?;
        ExactFraction::reduce(sum, times(self.denominator, product.denominator)?)
    }

    pub(super) fn subtract(self, other: Self) -> Result<Self, TermOverflow> {
        self.add_product(other, (-1).into())
    }

    pub(super) fn multiply(self, other: Self) -> Result<Self, TermOverflow> {
        ExactFraction::ZERO.add_product(self, other)
    }

    /// Returns `self / divisor`; the divisor is not zero.
    pub(super) fn divide(self, divisor: Self) -> Result<Self, TermOverflow> {
        let reciprocal = ExactFraction::reduce(divisor.denominator, divisor.numerator)?;
        self.multiply(reciprocal)
    }

    /// Compares the fraction with an integer.
    pub(super) fn compare(self, value: i128) -> Result<Ordering, TermOverflow> {
        Ok(self.numerator.cmp(&times(value, self.denominator)?))
    }
}

/// Multiplies; small factors, the usual ones, need no test of the product.
fn times(a: i128, b: i128) -> Result<i128, TermOverflow> {
    match (i64::try_from(a), i64::try_from(b)) {
        (Ok(a), Ok(b)) => Ok(i128::from(a) * i128::from(b)),
        _ => a.checked_mul(b).ok_or(TermOverflow),
    }
}

/// Returns the greatest common divisor, positive unless both are zero.
pub(super) fn divisor(a: i128, b: i128) -> Result<i128, TermOverflow> {
    let (mut a, mut b) =
        (a.checked_abs().ok_or(TermOverflow)?, b.checked_abs().ok_or(TermOverflow)?);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Ok(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_reduced_and_ordered() {
        let half = ExactFraction::from(1).divide(2.into()).unwrap();
        let third = ExactFraction::from(-1).divide((-3).into()).unwrap();
        let sum = half.add_product(third, 1.into()).unwrap();
        assert_eq!((sum.numerator(), sum.denominator()), (5, 6));
        assert_eq!(half.subtract(half).unwrap(), ExactFraction::ZERO);
        assert_eq!(half.compare(1).unwrap(), Ordering::Less);
        let low = ExactFraction::ZERO.subtract(half).unwrap();
        assert_eq!((low.floor(), half.floor()), (-1, 0));
    }

    #[test]
    fn overflow_is_refused() {
        let big = ExactFraction::from(i128::MAX);
        assert_eq!(big.add_product(big, 1.into()), Err(TermOverflow));
        assert_eq!(big.multiply(2.into()), Err(TermOverflow));
        assert_eq!(ExactFraction::from(i128::MIN).subtract(1.into()), Err(TermOverflow));
        assert_eq!(divisor(i128::MIN, 2), Err(TermOverflow));
    }
}
