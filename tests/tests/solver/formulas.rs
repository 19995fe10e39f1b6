//! Random obligations as proofs for every rank count make them: ranks and chunks below `n`, rests of sums, quotients by
//! constants, terms that depend on conditions, and digits of powers of two.

use roundelay_compiler::all_n::{LinearFormula, LinearTerm, ProofObligation, TermOverflow};
use roundelay_tests::SeededRandom;

/// The result of a computation with terms, whose numbers are small here.
type Made<T> = Result<T, TermOverflow>;

/// The maker of one obligation.
pub(super) struct FormulaMaker {
    random: SeededRandom,
    obligation: ProofObligation,
    n: LinearTerm,
    /// The terms that formulas are made of.
    terms: Vec<LinearTerm>,
}

impl FormulaMaker {
    /// Makes an obligation.
    pub(super) fn make(random: SeededRandom, name: &str) -> ProofObligation {
        let mut obligation = ProofObligation::new(name);
        let n = LinearTerm::from(obligation.add_variable("n"));
        let mut maker = FormulaMaker { random, obligation, n, terms: Vec::new() };
        maker.fill().expect("small numbers");
        maker.obligation
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit)
    }

    /// Returns a number between `-reach` and `reach`.
    fn around(&mut self, reach: usize) -> i128 {
        self.below(2 * reach + 1) as i128 - reach as i128
    }

    fn variable(&mut self, name: &str) -> LinearTerm {
        self.obligation.add_variable(name).into()
    }

    fn assume(&mut self, formula: LinearFormula) {
        self.obligation.assumptions.push(formula);
    }

    /// Assumes `0 <= term < end`.
    fn assume_below(&mut self, term: &LinearTerm, end: &LinearTerm) -> Made<()> {
        self.assume(LinearFormula::le(&0.into(), term)?);
        self.assume(LinearFormula::lt(term, end)?);
        Ok(())
    }

    fn pick(&mut self) -> LinearTerm {
        let at = self.below(self.terms.len());
        self.terms[at].clone()
    }

    /// Returns a sum of one to three terms and a small constant.
    fn sum(&mut self) -> Made<LinearTerm> {
        let mut sum = self.pick();
        for _ in 0..self.below(3) {
            let factor = [-1, 1, -1, 1, 2, -2, 3][self.below(7)];
            sum = sum.add_scaled(&self.pick(), factor)?;
        }
        let constant = self.around(2);
        sum.add(&constant.into())
    }

    fn fill(&mut self) -> Made<()> {
        let n = self.n.clone();
        self.assume(LinearFormula::le(&1.into(), &n)?);
        self.terms = vec![n.clone(), self.around(3).into()];
        for at in 0..1 + self.below(3) {
            let element = self.variable(&format!("q{at}"));
            // One in eight has no bound.
            if self.below(8) > 0 {
                self.assume_below(&element, &n)?;
            }
            self.terms.push(element);
        }
        for _ in 0..self.below(4) {
            match self.below(5) {
                0 | 1 => self.add_rest()?,
                2 => self.add_quotient()?,
                3 => self.add_choice()?,
                _ => self.add_digits()?,
            }
        }
        for _ in 0..self.below(4) {
            let depth = self.below(3);
            let formula = self.formula(depth)?;
            self.assume(formula);
        }
        self.obligation.goal = self.formula(2)?;
        // What follows from itself in other words is true more often than what is drawn.
        if self.below(6) == 0 {
            let premise = self.obligation.goal.clone();
            let other = self.formula(1)?;
            let weaker =
                LinearFormula::Or(vec![other.clone(), LinearFormula::negate(premise.clone())]);
            let both = LinearFormula::And(vec![premise, LinearFormula::negate(other)]);
            self.obligation.goal = LinearFormula::iff(weaker, LinearFormula::negate(both));
        }
        Ok(())
    }

    /// Adds `t % n`.
    fn add_rest(&mut self) -> Made<()> {
        let (sum, n) = (self.sum()?, self.n.clone());
        let rest = self.variable("m");
        self.assume_below(&rest, &n)?;
        let case = |k: i128| Ok(LinearFormula::Equal(rest.sub(&sum)?.add_scaled(&n, k)?));
        let cases = (-2..=2).map(case).collect::<Made<Vec<LinearFormula>>>()?;
        self.assume(LinearFormula::Or(cases));
        self.terms.push(rest);
        Ok(())
    }

    /// Adds `t / k` and `t % k`.
    fn add_quotient(&mut self) -> Made<()> {
        let (sum, divisor) = (self.sum()?, [2, 2, 3, 4, 8][self.below(5)]);
        let (quotient, rest) = (self.variable("h"), self.variable("e"));
        self.assume_below(&rest, &divisor.into())?;
        self.assume(LinearFormula::eq(&sum, &rest.add_scaled(&quotient, divisor)?)?);
        self.terms.extend([quotient, rest]);
        Ok(())
    }

    /// Adds `if … { t } else { u }`.
    fn add_choice(&mut self) -> Made<()> {
        let (condition, then, otherwise) = (self.formula(1)?, self.sum()?, self.sum()?);
        let value = self.variable("v");
        let (then, otherwise) =
            (LinearFormula::eq(&value, &then)?, LinearFormula::eq(&value, &otherwise)?);
        self.assume(LinearFormula::ite(condition, then, otherwise));
        self.terms.push(value);
        Ok(())
    }

    /// Adds the digits of two terms at a level `d`: `a + e d + r`, where the `a` are multiples of `2 d`.
    fn add_digits(&mut self) -> Made<()> {
        let (level, n) = (self.variable("d"), self.n.clone());
        self.assume(LinearFormula::le(&1.into(), &level)?);
        self.assume(LinearFormula::lt(&level, &n)?);
        let mut multiples = vec![LinearTerm::default()];
        for _ in 0..2 {
            let number = self.pick();
            let (multiple, bit, rest) =
                (self.variable("a"), self.variable("b"), self.variable("r"));
            self.assume_below(&bit, &2.into())?;
            self.assume_below(&rest, &level)?;
            self.assume(LinearFormula::le(&0.into(), &multiple)?);
            let low = multiple.add(&rest)?;
            let high = low.add(&level)?;
            self.assume(LinearFormula::ite(
                LinearFormula::eq(&bit, &0.into())?,
                LinearFormula::eq(&number, &low)?,
                LinearFormula::eq(&number, &high)?,
            ));
            for other in &multiples {
                let apart = |a: &LinearTerm, b: &LinearTerm| {
                    LinearFormula::le(&a.add_scaled(&level, 2)?, b)
                };
                self.obligation.assumptions.push(LinearFormula::Or(vec![
                    LinearFormula::eq(&multiple, other)?,
                    apart(&multiple, other)?,
                    apart(other, &multiple)?,
                ]));
            }
            multiples.push(multiple.clone());
            self.terms.extend([multiple, bit, rest]);
        }
        self.terms.push(level);
        Ok(())
    }

    /// Returns a formula whose connectives nest up to a depth.
    fn formula(&mut self, depth: usize) -> Made<LinearFormula> {
        let kinds = if depth == 0 { 3 } else { 9 };
        let depth = depth.saturating_sub(1);
        Ok(match self.below(kinds) {
            0 => LinearFormula::le(&self.sum()?, &self.sum()?)?,
            1 => LinearFormula::lt(&self.pick(), &self.pick())?,
            2 => LinearFormula::eq(&self.sum()?, &self.pick())?,
            3 => LinearFormula::Not(Box::new(self.formula(depth)?)),
            4 => LinearFormula::And(self.formulas(depth)?),
            5 => LinearFormula::Or(self.formulas(depth)?),
            6 => LinearFormula::iff(self.formula(depth)?, self.formula(depth)?),
            7 => LinearFormula::implies(self.formula(depth)?, self.formula(depth)?),
            _ => {
                LinearFormula::ite(self.formula(depth)?, self.formula(depth)?, self.formula(depth)?)
            }
        })
    }

    fn formulas(&mut self, depth: usize) -> Made<Vec<LinearFormula>> {
        (0..self.below(4)).map(|_| self.formula(depth)).collect()
    }
}
