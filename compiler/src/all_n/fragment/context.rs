//! The variables and assumptions of one obligation.
//!
//! **Every assumption that is made here for a fresh variable is true of some value of it, whatever the other variables
//! are.** A rest `t % m` whose quotient may be out of reach is left open there, not assumed to be in reach: so no
//! obligation about ranges is needed, and a term may be made in any branch.

use crate::all_n::{FormulaVariable, LinearFormula, LinearTerm, ProofObligation};

use super::refusal::{FragmentRefusal, FragmentResult};
use super::value::{LogRounding, SymbolicValue};

/// Absolute values of terms are below this: so they fit 64 bits in every run of the program.
const MOST_MAGNITUDE: u128 = 1 << 62;

/// Expressions that are evaluated for one obligation, at most.
const MOST_EVALUATIONS: u32 = 20_000;

/// Quotients of rests that are distinguished where nothing is known of the dividend.
const OPEN_QUOTIENTS: i128 = 2;

/// The variables and assumptions of one obligation, and the values of a program's variables in it.
#[derive(Debug, Clone)]
pub(in crate::all_n) struct TermContext {
    pub(super) obligation: ProofObligation,
    /// Bounds of the absolute values, by variable.
    magnitudes: Vec<u128>,
    /// Variables that are at least 0 and below a term.
    below: Vec<(FormulaVariable, LinearTerm)>,
    /// Terms that are at least 1.
    positive: Vec<LinearTerm>,
    rests: Vec<(LinearTerm, LinearTerm, LinearTerm)>,
    quotients: Vec<(LinearTerm, i128, LinearTerm)>,
    digits: Vec<(LinearTerm, LinearTerm, TermDigits)>,
    multiples: Vec<(LinearTerm, LinearTerm)>,
    /// True if multiples that are neighbours are kept apart from those at a greater distance.
    has_exact_multiples: bool,
    /// Powers of two: exponent, which is at least 0, and power.
    pub(super) levels: Vec<(LinearTerm, LinearTerm)>,
    /// The levels at which numbers are taken apart into digits.
    pub(super) digit_levels: Vec<LinearTerm>,
    /// Powers of two that bound ranks: multiples of lesser ones.
    pub(super) whole_powers: Vec<LinearTerm>,
    /// Expressions that may still be evaluated.
    pub(super) evaluations: u32,
    choices: Vec<(LinearFormula, LinearTerm, LinearTerm, LinearTerm)>,
    /// Logarithms: how they are rounded, the number, the logarithm.
    pub(super) logarithms: Vec<(LogRounding, LinearTerm, LinearTerm)>,
    /// Variables that are at least 0.
    pub(super) nonnegative: Vec<FormulaVariable>,
    /// Exponent, dividend, and the dividend over that power of two, rounded up.
    pub(super) ceilings: Vec<(LinearTerm, LinearTerm, LinearTerm)>,
    /// Numbers, and the lowest bits that are set in them.
    pub(super) lowest_bits: Vec<(LinearTerm, LinearTerm)>,
    /// The ranks of the places that contain contributions, by what they depend on.
    tokens: Vec<(u32, Vec<LinearTerm>, LinearTerm)>,
    /// Values of the program's variables, by slot.
    pub(super) env: Vec<Option<SymbolicValue>>,
}

/// A number as `high + bit + rest`: `high` a multiple of `2d`, `bit` 0 or d, `rest` at least 0 and below d.
#[derive(Debug, Clone)]
pub(in crate::all_n) struct TermDigits {
    pub(super) high: LinearTerm,
    pub(super) bit: LinearTerm,
    pub(super) rest: LinearTerm,
}

impl TermContext {
    /// Creates a context without variables.
    pub(in crate::all_n) fn new(slots: usize) -> Self {
        TermContext {
            obligation: ProofObligation::new(""),
            magnitudes: Vec::new(),
            below: Vec::new(),
            positive: Vec::new(),
            rests: Vec::new(),
            quotients: Vec::new(),
            digits: Vec::new(),
            multiples: Vec::new(),
            has_exact_multiples: false,
            levels: Vec::new(),
            digit_levels: Vec::new(),
            whole_powers: Vec::new(),
            evaluations: MOST_EVALUATIONS,
            choices: Vec::new(),
            logarithms: Vec::new(),
            nonnegative: Vec::new(),
            ceilings: Vec::new(),
            lowest_bits: Vec::new(),
            tokens: Vec::new(),
            env: vec![None; slots],
        }
    }

    /// Sets the detail of what is assumed of two multiples of a power: that unequal ones are neighbours or farther
    /// apart, or that they are apart by the power at least. The first takes more steps.
    pub(in crate::all_n) fn set_exact_multiples(&mut self, exact: bool) {
        self.has_exact_multiples = exact;
    }

    /// Ends the context with a goal.
    pub(in crate::all_n) fn prove(mut self, name: String, goal: LinearFormula) -> ProofObligation {
        self.obligation.name = name;
        self.obligation.goal = goal;
        self.obligation
    }

    /// Adds an assumption.
    pub(in crate::all_n) fn assume(&mut self, formula: LinearFormula) {
        match formula {
            LinearFormula::True => {}
            LinearFormula::And(parts) => parts.into_iter().for_each(|part| self.assume(part)),
            other => self.obligation.assumptions.push(other),
        }
    }

    /// Adds a variable whose absolute value is at most `magnitude`.
    pub(in crate::all_n) fn variable(
        &mut self,
        name: &str,
        magnitude: u128,
    ) -> FragmentResult<LinearTerm> {
        if magnitude >= MOST_MAGNITUDE {
            return Err(FragmentRefusal::new("a number may exceed 62 bits"));
        }
        self.magnitudes.push(magnitude);
        Ok(self.obligation.add_variable(name).into())
    }

    /// Adds a variable that is at least 0 and below a term.
    pub(in crate::all_n) fn variable_below(
        &mut self,
        name: &str,
        end: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        let magnitude = self.magnitude(end)?;
        let variable = self.variable(name, magnitude)?;
        self.assume(LinearFormula::le(&LinearTerm::from(0), &variable)?);
        self.assume(LinearFormula::lt(&variable, end)?);
        if let Some(&(index, _)) = variable.coefficients().first() {
            self.below.push((index, end.clone()));
        }
        Ok(variable)
    }

    /// Returns the rank of the one place that contains a contribution, by the number of the guess which says that there
    /// is one and by what the place depends on; and whether it is new, so that nothing is assumed of it yet.
    pub(in crate::all_n) fn token(
        &mut self,
        guess: u32,
        of: Vec<LinearTerm>,
        ranks: &LinearTerm,
    ) -> FragmentResult<(LinearTerm, bool)> {
        if let Some((.., known)) = self.tokens.iter().find(|(g, o, _)| *g == guess && *o == of) {
            return Ok((known.clone(), false));
        }
        let fresh = self.variable_below("t", ranks)?;
        self.tokens.push((guess, of, fresh.clone()));
        Ok((fresh, true))
    }

    /// Notes that a variable was assumed to be at least 0 and below a term.
    pub(in crate::all_n) fn note_below(&mut self, variable: &LinearTerm, end: &LinearTerm) {
        if let ([(index, 1)], 0) = (variable.coefficients(), variable.constant()) {
            self.below.push((*index, end.clone()));
        }
    }

    /// Assumes that a term is at least 1.
    pub(in crate::all_n) fn assume_positive(&mut self, term: &LinearTerm) -> FragmentResult<()> {
        self.assume(LinearFormula::le(&LinearTerm::from(1), term)?);
        self.positive.push(term.clone());
        Ok(())
    }

    /// Returns true if the term is known to be at least 1.
    pub(super) fn is_positive(&self, term: &LinearTerm) -> bool {
        let scaled = |known: &LinearTerm| {
            let factor = known.coefficients().first().and_then(|&(v, k)| {
                let own = term.coefficient(v);
                (k != 0 && own % k == 0).then_some(own / k)
            });
            factor.is_some_and(|f| f >= 1 && known.scale(f).is_ok_and(|s| s == *term))
        };
        self.least_sum(term).is_some_and(|least| least >= 1) || self.positive.iter().any(scaled)
    }

    /// Returns a number that a sum of variables which are at least 0 is not below.
    fn least_sum(&self, term: &LinearTerm) -> Option<i128> {
        let mut least = term.constant();
        for &(variable, coefficient) in term.coefficients() {
            let own = LinearTerm::variable(variable);
            let is_below = self.below.iter().any(|(v, _)| *v == variable);
            match coefficient > 0 {
                true if self.positive.contains(&own) => least = least.checked_add(coefficient)?,
                true if is_below || self.nonnegative.contains(&variable) => {}
                _ => return None,
            }
        }
        Some(least)
    }

    /// Returns a bound of the absolute value of a term.
    ///
    /// # Errors
    ///
    /// Refuses a term that may exceed 62 bits.
    pub(in crate::all_n) fn magnitude(&self, term: &LinearTerm) -> FragmentResult<u128> {
        let large = || FragmentRefusal::new("a number may exceed 62 bits");
        let mut sum = term.constant().unsigned_abs();
        for &(variable, coefficient) in term.coefficients() {
            let own = usize::try_from(variable.0).ok().and_then(|at| self.magnitudes.get(at));
            let part = own.and_then(|own| coefficient.unsigned_abs().checked_mul(*own));
            sum = part.and_then(|part| sum.checked_add(part)).ok_or_else(large)?;
        }
        if sum < MOST_MAGNITUDE { Ok(sum) } else { Err(large()) }
    }

    /// Returns the term that is `a` where the condition holds, and else `b`.
    pub(in crate::all_n) fn choose(
        &mut self,
        condition: LinearFormula,
        a: &LinearTerm,
        b: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        match condition {
            LinearFormula::True => return Ok(a.clone()),
            LinearFormula::False => return Ok(b.clone()),
            _ if a == b => return Ok(a.clone()),
            _ => {}
        }
        let known = self.choices.iter().find(|(c, x, y, _)| *c == condition && x == a && y == b);
        if let Some((.., known)) = known {
            return Ok(known.clone());
        }
        let magnitude = self.magnitude(a)?.max(self.magnitude(b)?);
        let fresh = self.variable("x", magnitude)?;
        let (then, otherwise) = (LinearFormula::eq(&fresh, a)?, LinearFormula::eq(&fresh, b)?);
        self.assume(LinearFormula::ite(condition.clone(), then, otherwise));
        self.choices.push((condition, a.clone(), b.clone(), fresh.clone()));
        Ok(fresh)
    }

    /// Returns a term over a positive constant, rounded down.
    pub(in crate::all_n) fn quotient(
        &mut self,
        term: &LinearTerm,
        by: i128,
    ) -> FragmentResult<LinearTerm> {
        if term.coefficients().is_empty() {
            return Ok(LinearTerm::from(term.constant().div_euclid(by)));
        }
        if by == 1 {
            return Ok(term.clone());
        }
        if let Some((_, _, known)) = self.quotients.iter().find(|(t, k, _)| t == term && *k == by) {
            return Ok(known.clone());
        }
        let magnitude = self.magnitude(term)?;
        let fresh = self.variable("h", magnitude)?;
        let times = fresh.scale(by)?;
        self.assume(LinearFormula::le(&times, term)?);
        self.assume(LinearFormula::lt(term, &times.add(&LinearTerm::from(by))?)?);
        self.quotients.push((term.clone(), by, fresh.clone()));
        Ok(fresh)
    }

    /// Returns the rest of a term by a positive term.
    ///
    /// # Errors
    ///
    /// Refuses a modulus that is not known to be positive.
    pub(in crate::all_n) fn rest(
        &mut self,
        term: &LinearTerm,
        modulus: &LinearTerm,
    ) -> FragmentResult<LinearTerm> {
        if !self.is_positive(modulus) {
            return Err(FragmentRefusal::new("the modulus of `%` is not known to be positive"));
        }
        if modulus.coefficients().is_empty() {
            let by = modulus.constant();
            let quotient = self.quotient(term, by)?;
            return Ok(term.add_scaled(&quotient, -by)?);
        }
        if let [(variable, 1)] = term.coefficients()
            && term.constant() == 0
            && self.below.iter().any(|(v, end)| v == variable && end == modulus)
        {
            return Ok(term.clone());
        }
        if let Some(digits) = self.level_rest(term, modulus)? {
            return Ok(digits);
        }
        if let Some((_, _, known)) = self.rests.iter().find(|(t, m, _)| t == term && m == modulus) {
            return Ok(known.clone());
        }
        let (reach, closed) = match self.quotient_reach(term, modulus) {
            Some((from, to)) if to.saturating_sub(from) <= 8 => ((from, to), true),
            _ => ((-OPEN_QUOTIENTS, OPEN_QUOTIENTS), false),
        };
        if closed && reach == (0, 0) {
            return Ok(term.clone());
        }
        let fresh = self.variable_below("m", modulus)?;
        let mut cases = Vec::new();
        for quotient in reach.0..=reach.1 {
            cases.push(LinearFormula::eq(&fresh, &term.add_scaled(modulus, -quotient)?)?);
        }
        if !closed {
            cases.push(LinearFormula::lt(term, &modulus.scale(reach.0)?)?);
            cases.push(LinearFormula::le(&modulus.scale(reach.1 + 1)?, term)?);
        }
        self.assume(LinearFormula::Or(cases));
        self.rests.push((term.clone(), modulus.clone(), fresh.clone()));
        Ok(fresh)
    }

    /// Returns the least and the greatest quotient that a term can have, from the bounds of its variables.
    fn quotient_reach(&self, term: &LinearTerm, modulus: &LinearTerm) -> Option<(i128, i128)> {
        let [(unit, 1)] = modulus.coefficients() else { return None };
        if modulus.constant() != 0 {
            return None;
        }
        // Of a variable v, 0 <= v <= m - 1; of m itself, m = (m - 1) + 1.
        let (mut up, mut down, mut constant) = (0i128, 0i128, term.constant());
        for &(variable, coefficient) in term.coefficients() {
            let is_unit = variable == *unit;
            if !is_unit && !self.below.iter().any(|(v, end)| *v == variable && end == modulus) {
                return None;
            }
            if is_unit {
                constant = constant.checked_add(coefficient)?;
                // (m - 1) has the same sign at both ends.
                up = up.checked_add(coefficient)?;
                down = down.checked_sub(coefficient)?;
            } else if coefficient > 0 {
                up = up.checked_add(coefficient)?;
            } else {
                down = down.checked_sub(coefficient)?;
            }
        }
        // up * (m - 1) + constant = up * m + (constant - up), and m >= 1.
        let most = if constant < up { up - 1 } else { constant };
        let least = if down + constant >= 0 { -down } else { constant };
        Some((least, most))
    }

    /// Returns the digits of a term at a level.
    pub(super) fn digits(
        &mut self,
        term: &LinearTerm,
        level: &LinearTerm,
    ) -> FragmentResult<TermDigits> {
        if let Some((_, _, known)) = self.digits.iter().find(|(t, d, _)| t == term && d == level) {
            return Ok(known.clone());
        }
        let two = level.scale(2)?;
        let half = half(level);
        let magnitude = self.magnitude(term)?.saturating_add(self.magnitude(&two)?);
        let (high, bit) = (self.variable("A", magnitude)?, self.variable("E", magnitude)?);
        self.assume(LinearFormula::Or(vec![
            LinearFormula::eq(&bit, &LinearTerm::from(0))?,
            LinearFormula::eq(&bit, level)?,
        ]));
        let rest = match half {
            // At a multiple of the level, digits follow from those of half of it.
            Some(half) => {
                let lower = self.digits(term, &half)?;
                self.assume(LinearFormula::eq(&lower.high, &high.add(&bit)?)?);
                lower.bit.add(&lower.rest)?
            }
            None => {
                let rest = self.variable_below("c", level)?;
                self.assume(LinearFormula::eq(term, &high.add(&bit)?.add(&rest)?)?);
                rest
            }
        };
        self.add_multiple(&high, &two)?;
        let digits = TermDigits { high, bit, rest };
        self.digits.push((term.clone(), level.clone(), digits.clone()));
        Ok(digits)
    }

    /// Returns true if the digits of a term at a level are known.
    pub(super) fn has_digits(&self, term: &LinearTerm, level: &LinearTerm) -> bool {
        self.digits.iter().any(|(t, d, _)| t == term && d == level)
    }

    /// Notes the digits of a term at a level.
    pub(super) fn set_digits(
        &mut self,
        term: &LinearTerm,
        level: &LinearTerm,
        high: LinearTerm,
        bit: LinearTerm,
        rest: LinearTerm,
    ) {
        self.digits.push((term.clone(), level.clone(), TermDigits { high, bit, rest }));
    }

    /// Notes that a term is a multiple of a positive one: two of them are equal or that far apart.
    pub(super) fn add_multiple(
        &mut self,
        term: &LinearTerm,
        of: &LinearTerm,
    ) -> FragmentResult<()> {
        let zero = LinearTerm::from(0);
        let mut others = vec![zero];
        for (other, unit) in &self.multiples {
            if unit == of {
                others.push(other.clone());
            }
        }
        if others.contains(term) {
            return Ok(());
        }
        for other in &others {
            let mut cases = vec![LinearFormula::eq(term, other)?];
            for distance in [term.sub(other)?, other.sub(term)?] {
                if self.has_exact_multiples {
                    cases.push(LinearFormula::eq(of, &distance)?);
                    cases.push(LinearFormula::le(&of.scale(2)?, &distance)?);
                } else {
                    cases.push(LinearFormula::le(of, &distance)?);
                }
            }
            self.assume(LinearFormula::Or(cases));
        }
        if !self.multiples.iter().any(|(_, unit)| unit == of) {
            self.relate_multiple(&LinearTerm::from(0), of)?;
        }
        self.relate_multiple(term, of)?;
        self.multiples.push((term.clone(), of.clone()));
        Ok(())
    }
}

/// Returns half of a level that is 2 or more times a variable.
fn half(level: &LinearTerm) -> Option<LinearTerm> {
    match level.coefficients() {
        [(v, k)] if level.constant() == 0 && k % 2 == 0 => LinearTerm::new([(*v, k / 2)], 0).ok(),
        _ => None,
    }
}

/// Decides a formula without variables.
pub(in crate::all_n) fn literal(formula: LinearFormula) -> LinearFormula {
    let truth = |holds: bool| if holds { LinearFormula::True } else { LinearFormula::False };
    match &formula {
        LinearFormula::AtMost(t) if t.coefficients().is_empty() => truth(t.constant() <= 0),
        LinearFormula::Equal(t) if t.coefficients().is_empty() => truth(t.constant() == 0),
        _ => formula,
    }
}
