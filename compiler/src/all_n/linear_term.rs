//! A sum of integer multiples of variables.

use std::fmt;

use thiserror::Error;

/// An integer variable of an obligation: an index into its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormulaVariable(pub u32);

/// A coefficient or a constant that 128 bits do not hold. What was to be proved is not proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a coefficient of a linear term exceeds 128 bits")]
pub struct TermOverflow;

/// A sum of integer multiples of variables, and a constant.
///
/// Sorted by variable, without zero coefficients: equal terms are equal values.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinearTerm {
    coefficients: Vec<(FormulaVariable, i128)>,
    constant: i128,
}

impl From<i128> for LinearTerm {
    fn from(constant: i128) -> Self {
        LinearTerm { coefficients: Vec::new(), constant }
    }
}

impl From<FormulaVariable> for LinearTerm {
    fn from(variable: FormulaVariable) -> Self {
        LinearTerm { coefficients: vec![(variable, 1)], constant: 0 }
    }
}

impl LinearTerm {
    /// Creates the term that is one variable.
    pub fn variable(variable: FormulaVariable) -> Self {
        variable.into()
    }

    /// Creates a term of coefficients in any order, of which several may be of one variable.
    ///
    /// # Errors
    ///
    /// [`TermOverflow`] if a sum of coefficients exceeds 128 bits.
    pub fn new(
        coefficients: impl IntoIterator<Item = (FormulaVariable, i128)>,
        constant: i128,
    ) -> Result<Self, TermOverflow> {
        let mut sorted: Vec<_> = coefficients.into_iter().collect();
        sorted.sort_by_key(|&(variable, _)| variable);
        let mut merged: Vec<(FormulaVariable, i128)> = Vec::with_capacity(sorted.len());
        for (variable, coefficient) in sorted {
            match merged.last_mut() {
                Some((last, sum)) if *last == variable => {
                    *sum = sum.checked_add(coefficient).ok_or(TermOverflow)?;
                }
                _ => merged.push((variable, coefficient)),
            }
        }
        merged.retain(|&(_, coefficient)| coefficient != 0);
        Ok(LinearTerm { coefficients: merged, constant })
    }

    /// Returns the coefficients that are not zero, by variable.
    pub fn coefficients(&self) -> &[(FormulaVariable, i128)] {
        &self.coefficients
    }

    /// Returns the constant.
    pub fn constant(&self) -> i128 {
        self.constant
    }

    /// Returns the coefficient of a variable: zero if the term does not name it.
    pub fn coefficient(&self, variable: FormulaVariable) -> i128 {
        self.coefficients
            .binary_search_by_key(&variable, |&(v, _)| v)
            .map_or(0, |at| self.coefficients[at].1)
    }

    /// Returns `self + factor * other`.
    ///
    /// # Errors
    ///
    /// [`TermOverflow`] if a coefficient of the result, or the constant, exceeds 128 bits.
    pub fn add_scaled(&self, other: &LinearTerm, factor: i128) -> Result<Self, TermOverflow> {
        let sum = |a: i128, b: i128| {
            b.checked_mul(factor).and_then(|scaled| a.checked_add(scaled)).ok_or(TermOverflow)
        };
        let (left, right) = (&self.coefficients, &other.coefficients);
        let mut coefficients = Vec::with_capacity(left.len() + right.len());
        let (mut i, mut j) = (0, 0);
        loop {
            let (variable, coefficient) = match (left.get(i), right.get(j)) {
                (Some(&(v, a)), Some(&(w, b))) if v == w => {
                    (i, j) = (i + 1, j + 1);
                    (v, sum(a, b)?)
                }
                (Some(&(v, a)), Some(&(w, _))) if v < w => {
                    i += 1;
                    (v, a)
                }
                (Some(&(v, a)), None) => {
                    i += 1;
                    (v, a)
                }
                (_, Some(&(w, b))) => {
                    j += 1;
                    (w, sum(0, b)?)
                }
                (None, None) => break,
            };
            if coefficient != 0 {
                coefficients.push((variable, coefficient));
            }
        }
        Ok(LinearTerm { coefficients, constant: sum(self.constant, other.constant)? })
    }

    /// Returns `self + other`.
    ///
    /// # Errors
    ///
    /// As of [`LinearTerm::add_scaled`].
    pub fn add(&self, other: &LinearTerm) -> Result<Self, TermOverflow> {
        self.add_scaled(other, 1)
    }

    /// Returns `self - other`.
    ///
    /// # Errors
    ///
    /// As of [`LinearTerm::add_scaled`].
    pub fn sub(&self, other: &LinearTerm) -> Result<Self, TermOverflow> {
        self.add_scaled(other, -1)
    }

    /// Returns `factor * self`.
    ///
    /// # Errors
    ///
    /// As of [`LinearTerm::add_scaled`].
    pub fn scale(&self, factor: i128) -> Result<Self, TermOverflow> {
        LinearTerm::default().add_scaled(self, factor)
    }

    /// Returns the term's value where variable `i` is `values[i]`; none if a variable has no value, or the sum exceeds
    /// 128 bits.
    pub fn evaluate(&self, values: &[i128]) -> Option<i128> {
        let mut sum = self.constant;
        for &(variable, coefficient) in &self.coefficients {
            let value = *values.get(usize::try_from(variable.0).ok()?)?;
            sum = sum.checked_add(coefficient.checked_mul(value)?)?;
        }
        Some(sum)
    }

    /// Writes the term as one word: `n-2*q+1`. A variable without a name is written `?3`.
    pub(super) fn write(&self, out: &mut dyn fmt::Write, names: &[String]) -> fmt::Result {
        for (at, &(variable, coefficient)) in self.coefficients.iter().enumerate() {
            let sign = match (coefficient < 0, at == 0) {
                (true, _) => "-",
                (false, true) => "",
                (false, false) => "+",
            };
            out.write_str(sign)?;
            if coefficient.unsigned_abs() != 1 {
                write!(out, "{}*", coefficient.unsigned_abs())?;
            }
            match usize::try_from(variable.0).ok().and_then(|index| names.get(index)) {
                Some(name) => out.write_str(name)?,
                None => write!(out, "?{}", variable.0)?,
            }
        }
        match (self.coefficients.is_empty(), self.constant) {
            (true, constant) => write!(out, "{constant}"),
            (false, 0) => Ok(()),
            (false, constant) => write!(out, "{constant:+}"),
        }
    }
}

impl fmt::Display for LinearTerm {
    /// Writes the term with variables by index: `?0-2*?3+1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}
