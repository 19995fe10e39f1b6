//! Powers of two: levels, logarithms, digits and bits.
//!
//! A *level* is a power of two whose exponent is a term: `1 << k` in a loop over k. What is known of a level is linear;
//! a number is taken apart at it into digits.

use crate::all_n::{LinearFormula, LinearTerm};

use super::context::TermContext;
use super::refusal::{FragmentRefusal, FragmentResult};
use super::value::LogRounding;

/// Bounds an exponent: numbers have 62 bits.
const MOST_EXPONENT: u128 = 34;

/// Shifts beyond the exponent of a level, at most.
const MOST_SHIFT: i128 = 8;

impl TermContext {
    /// Adds a level with this exponent, of which nothing else is known.
    pub(in crate::all_n) fn add_level(
        &mut self,
        name: &str,
        exponent: &LinearTerm,
        magnitude: u128,
    ) -> FragmentResult<LinearTerm> {
        let level = self.variable(name, magnitude)?;
        self.assume_positive(&level)?;
        self.push_level(exponent, &level)?;
        Ok(level)
    }

    /// Adds a level of a loop, at which numbers are taken apart into digits.
    pub(in crate::all_n) fn add_digit_level(
        &mut self,
        exponent: &LinearTerm,
        magnitude: u128,
    ) -> FragmentResult<()> {
        let level = self.add_level("d", exponent, magnitude)?;
        self.digit_levels.push(level);
        Ok(())
    }

    /// Returns the bound of a power whose exponent is known to be at most the exponent of each of these levels.
    pub(in crate::all_n) fn levels(&self) -> Vec<(LinearTerm, LinearTerm)> {
        self.levels.clone()
    }

    /// Notes a power and its exponent, which is at least 0, with what relates it to those that are known.
    fn push_level(&mut self, exponent: &LinearTerm, level: &LinearTerm) -> FragmentResult<()> {
        let mut others = self.levels.clone();
        others.push((LinearTerm::from(0), LinearTerm::from(1)));
        let one = LinearTerm::from(1);
        for (other, power) in &others {
            let more = other.sub(exponent)?;
            if more.coefficients().is_empty() && (0..=MOST_SHIFT).contains(&more.constant()) {
                self.assume(LinearFormula::eq(&level.scale(1i128 << more.constant())?, power)?);
                continue;
            }
            self.assume(LinearFormula::Or(vec![
                LinearFormula::And(vec![
                    LinearFormula::eq(exponent, other)?,
                    LinearFormula::eq(level, power)?,
                ]),
                LinearFormula::And(vec![
                    LinearFormula::le(&exponent.add(&one)?, other)?,
                    LinearFormula::le(&level.scale(2)?, power)?,
                ]),
                LinearFormula::And(vec![
                    LinearFormula::le(&other.add(&one)?, exponent)?,
                    LinearFormula::le(&power.scale(2)?, level)?,
                ]),
            ]));
        }
        self.levels.push((exponent.clone(), level.clone()));
        Ok(())
    }

    /// Notes that powers of two are multiples of lesser ones, of a term that is a multiple of `of`.
    pub(super) fn relate_multiple(
        &mut self,
        term: &LinearTerm,
        of: &LinearTerm,
    ) -> FragmentResult<()> {
        let Some(own) = self.exponent_of(of)? else { return Ok(()) };
        for number in self.whole_powers.clone() {
            let Some(exponent) = self.exponent_of(&number)? else { continue };
            self.assume(LinearFormula::Or(vec![
                LinearFormula::lt(&exponent, &own)?,
                LinearFormula::eq(&number, term)?,
                LinearFormula::le(of, &number.sub(term)?)?,
                LinearFormula::le(of, &term.sub(&number)?)?,
            ]));
        }
        Ok(())
    }

    /// Returns the exponent of a level, or of a level times a small power of two.
    fn exponent_of(&self, power: &LinearTerm) -> FragmentResult<Option<LinearTerm>> {
        for (exponent, level) in &self.levels {
            for more in 0..=3u32 {
                if level.scale(1i128 << more)? == *power {
                    return Ok(Some(exponent.add(&LinearTerm::from(i128::from(more)))?));
                }
            }
        }
        Ok(None)
    }

    /// Notes that a positive number is a power of two.
    pub(in crate::all_n) fn note_power(&mut self, number: &LinearTerm) -> FragmentResult<()> {
        if self.levels.iter().any(|(_, level)| level == number) {
            return Ok(());
        }
        let exponent = self.exponent("q")?;
        self.push_level(&exponent, number)?;
        self.whole_powers.push(number.clone());
        self.logarithms.push((LogRounding::Exact, number.clone(), exponent));
        Ok(())
    }

    /// Adds a variable for an exponent.
    pub(in crate::all_n) fn exponent(&mut self, name: &str) -> FragmentResult<LinearTerm> {
        let exponent = self.variable(name, MOST_EXPONENT)?;
        self.assume(LinearFormula::le(&LinearTerm::from(0), &exponent)?);
        self.note_nonnegative(&exponent);
        Ok(exponent)
    }

    /// Notes that a variable is at least 0.
    pub(in crate::all_n) fn note_nonnegative(&mut self, variable: &LinearTerm) {
        if let ([(index, 1)], 0) = (variable.coefficients(), variable.constant()) {
            self.nonnegative.push(*index);
        }
    }

    /// Returns true if the term is known to be at least 0.
    pub(super) fn is_nonnegative(&self, term: &LinearTerm) -> bool {
        term.constant() >= 0
            && term.coefficients().iter().all(|(v, k)| *k >= 0 && self.nonnegative.contains(v))
    }

    /// Returns the logarithm of a number.
    ///
    /// # Errors
    ///
    /// Refuses a number that is not known to be positive.
    pub(super) fn logarithm(
        &mut self,
        number: &LinearTerm,
        rounding: LogRounding,
    ) -> FragmentResult<LinearTerm> {
        if let Some((exponent, _)) = self.levels.iter().find(|(_, level)| level == number) {
            return Ok(exponent.clone());
        }
        if let Some((.., known)) =
            self.logarithms.iter().find(|(r, x, _)| *r == rounding && x == number)
        {
            return Ok(known.clone());
        }
        if !self.is_positive(number) {
            return Err(FragmentRefusal::new(
                "the number of which a logarithm is taken is not known to be positive",
            ));
        }
        let exponent = self.exponent("q")?;
        let magnitude = self.magnitude(&number.scale(2)?)?;
        let power = self.add_level("Q", &exponent, magnitude)?;
        match rounding {
            LogRounding::Up => {
                self.assume(LinearFormula::le(number, &power)?);
                self.assume(LinearFormula::lt(&power, &number.scale(2)?)?);
            }
            LogRounding::Down | LogRounding::Exact => {
                self.assume(LinearFormula::le(&power, number)?);
                self.assume(LinearFormula::lt(number, &power.scale(2)?)?);
                self.whole_powers.push(power);
            }
        }
        self.logarithms.push((rounding, number.clone(), exponent.clone()));
        Ok(exponent)
    }

    /// Returns the power of two with this exponent.
    ///
    /// # Errors
    ///
    /// Refuses an exponent that is no constant and not the exponent of a level or a little more.
    pub(in crate::all_n) fn power(&self, exponent: &LinearTerm) -> FragmentResult<LinearTerm> {
        if exponent.coefficients().is_empty() {
            let shift = exponent.constant();
            return match u32::try_from(shift) {
                Ok(shift) if shift <= 32 => Ok(LinearTerm::from(1i128 << shift)),
                _ => Err(FragmentRefusal::new(format!("2 to the {shift} is out of reach"))),
            };
        }
        for (known, level) in &self.levels {
            let more = exponent.sub(known)?;
            if more.coefficients().is_empty() && (0..=MOST_SHIFT).contains(&more.constant()) {
                return Ok(level.scale(1i128 << more.constant())?);
            }
        }
        Err(FragmentRefusal::new("the exponent is not one that a loop goes through"))
    }

    /// Returns `a >> b`.
    pub(super) fn shift_right(
        &mut self,
        a: &LinearTerm,
        b: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        if b.coefficients().is_empty() && (0..=32).contains(&b.constant()) {
            return self.quotient(a, 1i128 << b.constant());
        }
        let found = self.levels.iter().find(|(_, level)| level == a).cloned();
        match found {
            Some((exponent, _)) if self.is_nonnegative(b) => self.power(&exponent.sub(b)?),
            _ => Err(FragmentRefusal::new("`>>` of a number that is no power of two")),
        }
    }

    /// Returns a number over the power of two with an exponent, rounded up.
    pub(super) fn ceiling(
        &mut self,
        number: &LinearTerm,
        exponent: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        if exponent.coefficients().is_empty() {
            let by = self.power(exponent)?.constant();
            return self.quotient(&number.add(&LinearTerm::from(by - 1))?, by);
        }
        self.add_ceiling(number, exponent)?;
        for (known, of, value) in self.ceilings.clone() {
            let more = exponent.sub(&known)?;
            if of == *number && more.coefficients().is_empty() && (0..=2).contains(&more.constant())
            {
                let mut value = value;
                for _ in 0..more.constant() {
                    value = self.quotient(&value.add(&LinearTerm::from(1))?, 2)?;
                }
                return Ok(value);
            }
        }
        Err(FragmentRefusal::new("`ceil_div` by a power that no loop goes through"))
    }

    /// Adds the ceiling of a number at the level of an exponent, if there is one that is new.
    fn add_ceiling(&mut self, number: &LinearTerm, exponent: &LinearTerm) -> FragmentResult<()> {
        let level = self.levels.iter().find(|(known, _)| {
            let more = exponent.sub(known);
            more.is_ok_and(|m| m.coefficients().is_empty() && (0..=2).contains(&m.constant()))
        });
        let Some((known, _)) = level.cloned() else { return Ok(()) };
        if !self.is_positive(number)
            || self.ceilings.iter().any(|(e, x, _)| *e == known && x == number)
        {
            return Ok(());
        }
        let magnitude = self.magnitude(number)?;
        let value = self.variable("g", magnitude)?;
        let (zero, one) = (LinearTerm::from(0), LinearTerm::from(1));
        self.assume_positive(&value)?;
        self.assume(LinearFormula::le(&value, number)?);
        let is_whole = LinearFormula::eq(&known, &zero)?;
        self.assume(LinearFormula::implies(is_whole, LinearFormula::eq(&value, number)?));
        for (rounding, of, logarithm) in self.logarithms.clone() {
            if rounding == LogRounding::Up && of == *number {
                // 2^(q - 1) < number <= 2^q
                self.assume(LinearFormula::Or(vec![
                    LinearFormula::And(vec![
                        LinearFormula::le(&logarithm, &known)?,
                        LinearFormula::eq(&value, &one)?,
                    ]),
                    LinearFormula::And(vec![
                        LinearFormula::lt(&known, &logarithm)?,
                        LinearFormula::le(&LinearTerm::from(2), &value)?,
                    ]),
                ]));
            }
        }
        self.ceilings.push((known, number.clone(), value));
        Ok(())
    }

    /// Returns the rest by a level at which digits are known, if the modulus is one.
    pub(super) fn level_rest(
        &mut self,
        term: &LinearTerm,
        modulus: &LinearTerm,
    ) -> FragmentResult<Option<LinearTerm>> {
        for level in self.digit_levels.clone() {
            if *modulus == level {
                return Ok(Some(self.digits(term, &level)?.rest));
            }
            for shift in 1..=2u32 {
                if *modulus == level.scale(1i128 << shift)? {
                    let digits = self.digits(term, &level.scale(1i128 << (shift - 1))?)?;
                    return Ok(Some(digits.bit.add(&digits.rest)?));
                }
            }
        }
        Ok(None)
    }

    /// Returns `a ^ b` for a power of two b.
    pub(super) fn flip(&mut self, a: &LinearTerm, b: &LinearTerm) -> FragmentResult<LinearTerm> {
        if b.coefficients().is_empty() && b.constant() >= 1 && b.constant().count_ones() == 1 {
            let half = self.quotient(a, b.constant())?;
            let pair = self.quotient(&half, 2)?;
            let is_even = LinearFormula::Equal(half.add_scaled(&pair, -2)?);
            return self.choose(is_even, &a.add(b)?, &a.sub(b)?);
        }
        if !self.is_digit_level(b)? {
            return Err(FragmentRefusal::new("`^` with a number that is no power of two"));
        }
        let digits = self.digits(a, b)?;
        let set = LinearFormula::eq(&digits.bit, b)?;
        let flipped = self.choose(set.clone(), &a.sub(b)?, &a.add(b)?)?;
        if !self.has_digits(&flipped, b) {
            let bit = b.sub(&digits.bit)?;
            self.set_digits(&flipped, b, digits.high, bit, digits.rest);
        }
        Ok(flipped)
    }

    /// Returns `a | b` for a power of two b.
    pub(super) fn set_bit(&mut self, a: &LinearTerm, b: &LinearTerm) -> FragmentResult<LinearTerm> {
        if !self.is_digit_level(b)? {
            return Err(FragmentRefusal::new("`|` with a number that is no power of two"));
        }
        let digits = self.digits(a, b)?;
        let is_set = LinearFormula::eq(&digits.bit, b)?;
        self.choose(is_set, a, &a.add(b)?)
    }

    /// Returns the formula that the lowest bit that is set in a term is a level.
    pub(super) fn is_lowest_bit(
        &mut self,
        term: &LinearTerm,
        level: &LinearTerm,
    ) -> FragmentResult<LinearFormula> {
        if !self.is_digit_level(level)? {
            return Err(FragmentRefusal::new("`lowbit` is compared with no power of two"));
        }
        let digits = self.digits(term, level)?;
        Ok(LinearFormula::And(vec![
            LinearFormula::eq(&digits.bit, level)?,
            LinearFormula::Equal(digits.rest),
        ]))
    }

    /// Returns the lowest bit that is set in a positive term.
    pub(super) fn lowest_bit(&mut self, term: &LinearTerm) -> FragmentResult<LinearTerm> {
        if let Some((_, known)) = self.lowest_bits.iter().find(|(t, _)| t == term) {
            return Ok(known.clone());
        }
        if !self.is_positive(term) {
            return Err(FragmentRefusal::new("the lowest bit of a number that may be 0"));
        }
        let magnitude = self.magnitude(term)?;
        let bit = self.variable("l", magnitude)?;
        self.assume_positive(&bit)?;
        self.assume(LinearFormula::le(&bit, term)?);
        let zero = LinearTerm::from(0);
        for level in self.digit_levels.clone() {
            let digits = self.digits(term, &level)?;
            let ends_there = LinearFormula::eq(&digits.rest, &zero)?;
            self.assume(LinearFormula::Or(vec![
                LinearFormula::And(vec![
                    LinearFormula::lt(&zero, &digits.rest)?,
                    LinearFormula::lt(&bit, &level)?,
                ]),
                LinearFormula::And(vec![
                    ends_there.clone(),
                    LinearFormula::eq(&digits.bit, &level)?,
                    LinearFormula::eq(&bit, &level)?,
                ]),
                LinearFormula::And(vec![
                    ends_there,
                    LinearFormula::eq(&digits.bit, &zero)?,
                    LinearFormula::le(&level.scale(2)?, &bit)?,
                ]),
            ]));
        }
        self.lowest_bits.push((term.clone(), bit.clone()));
        Ok(bit)
    }

    /// Returns true if the term is a level at which digits are known, or twice or four times one.
    fn is_digit_level(&self, term: &LinearTerm) -> FragmentResult<bool> {
        for level in &self.digit_levels {
            for factor in [1, 2, 4] {
                if level.scale(factor)? == *term {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
