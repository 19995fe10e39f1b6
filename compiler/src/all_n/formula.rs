//! Formulas of linear integer arithmetic without quantifiers, and what is to be proved of them.

use std::fmt;

use super::linear_term::{FormulaVariable, LinearTerm, TermOverflow};

/// A formula of linear integer arithmetic without quantifiers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinearFormula {
    /// Holds always.
    True,
    /// Never holds.
    False,
    /// `term <= 0`.
    AtMost(LinearTerm),
    /// `term == 0`.
    Equal(LinearTerm),
    /// The formula does not hold.
    Not(Box<LinearFormula>),
    /// All hold.
    And(Vec<LinearFormula>),
    /// One holds at least.
    Or(Vec<LinearFormula>),
    /// Both hold, or neither.
    Iff(Box<LinearFormula>, Box<LinearFormula>),
}

impl LinearFormula {
    /// Creates `a <= b`.
    ///
    /// # Errors
    ///
    /// [`TermOverflow`] if the difference exceeds 128 bits, here and below.
    pub fn le(a: &LinearTerm, b: &LinearTerm) -> Result<Self, TermOverflow> {
        Ok(LinearFormula::AtMost(a.sub(b)?))
    }

    /// Creates `a < b`.
    ///
    /// # Errors
    ///
    /// As of [`LinearFormula::le`].
    pub fn lt(a: &LinearTerm, b: &LinearTerm) -> Result<Self, TermOverflow> {
        Ok(LinearFormula::AtMost(a.sub(b)?.add(&LinearTerm::from(1))?))
    }

    /// Creates `a == b`.
    ///
    /// # Errors
    ///
    /// As of [`LinearFormula::le`].
    pub fn eq(a: &LinearTerm, b: &LinearTerm) -> Result<Self, TermOverflow> {
        Ok(LinearFormula::Equal(a.sub(b)?))
    }

    /// Creates the negation of a formula.
    pub fn negate(formula: LinearFormula) -> Self {
        match formula {
            LinearFormula::True => LinearFormula::False,
            LinearFormula::False => LinearFormula::True,
            LinearFormula::Not(inner) => *inner,
            other => LinearFormula::Not(Box::new(other)),
        }
    }

    /// Creates `premise => conclusion`.
    pub fn implies(premise: LinearFormula, conclusion: LinearFormula) -> Self {
        LinearFormula::Or(vec![LinearFormula::negate(premise), conclusion])
    }

    /// Creates `a <=> b`.
    pub fn iff(a: LinearFormula, b: LinearFormula) -> Self {
        LinearFormula::Iff(Box::new(a), Box::new(b))
    }

    /// Creates `condition ? then : otherwise`.
    ///
    /// A term that depends on a condition is a fresh variable `t` with the assumption `ite(condition, t == a, t == b)`.
    pub fn ite(condition: LinearFormula, then: LinearFormula, otherwise: LinearFormula) -> Self {
        LinearFormula::Or(vec![
            LinearFormula::And(vec![condition.clone(), then]),
            LinearFormula::And(vec![LinearFormula::negate(condition), otherwise]),
        ])
    }

    /// Returns whether the formula holds where variable `i` is `values[i]`; none if a term of it has no value.
    pub fn evaluate(&self, values: &[i128]) -> Option<bool> {
        // Every part is evaluated: a term without a value makes the whole unknown, wherever it stands.
        let all = |parts: &[LinearFormula]| {
            parts.iter().map(|part| part.evaluate(values)).collect::<Option<Vec<bool>>>()
        };
        Some(match self {
            LinearFormula::True => true,
            LinearFormula::False => false,
            LinearFormula::AtMost(term) => term.evaluate(values)? <= 0,
            LinearFormula::Equal(term) => term.evaluate(values)? == 0,
            LinearFormula::Not(inner) => !inner.evaluate(values)?,
            LinearFormula::And(parts) => all(parts)?.into_iter().all(|holds| holds),
            LinearFormula::Or(parts) => all(parts)?.into_iter().any(|holds| holds),
            LinearFormula::Iff(a, b) => a.evaluate(values)? == b.evaluate(values)?,
        })
    }

    /// Returns true if the formula holds where variable `i` is `values[i]`, and false too where a term has no value.
    pub fn holds(&self, values: &[i128]) -> bool {
        self.evaluate(values) == Some(true)
    }

    /// Writes the formula: `(or n-q<=0 (not m-s=0))`.
    pub(super) fn write(&self, out: &mut dyn fmt::Write, names: &[String]) -> fmt::Result {
        let list = |out: &mut dyn fmt::Write, word: &str, parts: &[&LinearFormula]| {
            write!(out, "({word}")?;
            for part in parts {
                out.write_str(" ")?;
                part.write(out, names)?;
            }
            out.write_str(")")
        };
        match self {
            LinearFormula::True => out.write_str("true"),
            LinearFormula::False => out.write_str("false"),
            LinearFormula::AtMost(term) => {
                term.write(out, names)?;
                out.write_str("<=0")
            }
            LinearFormula::Equal(term) => {
                term.write(out, names)?;
                out.write_str("=0")
            }
            LinearFormula::Not(inner) => list(out, "not", &[inner.as_ref()]),
            LinearFormula::And(parts) => list(out, "and", &parts.iter().collect::<Vec<_>>()),
            LinearFormula::Or(parts) => list(out, "or", &parts.iter().collect::<Vec<_>>()),
            LinearFormula::Iff(a, b) => list(out, "iff", &[a.as_ref(), b.as_ref()]),
        }
    }
}

impl fmt::Display for LinearFormula {
    /// Writes the formula with variables by index.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}

/// A goal that is to follow from assumptions, for all integer values of the variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofObligation {
    /// The name of the statement, one line: `ring all_reduce, loop 1, step: once`.
    pub name: String,
    /// The names of the variables, by index.
    pub variables: Vec<String>,
    /// The assumptions.
    pub assumptions: Vec<LinearFormula>,
    /// The goal, which is to follow.
    pub goal: LinearFormula,
}

impl ProofObligation {
    /// Creates an obligation without variables or assumptions, whose goal is false.
    pub fn new(name: impl Into<String>) -> Self {
        ProofObligation {
            name: name.into(),
            variables: Vec::new(),
            assumptions: Vec::new(),
            goal: LinearFormula::False,
        }
    }

    /// Adds a variable.
    ///
    /// A name that is taken or no word of letters, digits and `_` gets the variable's index at its end.
    ///
    /// # Panics
    ///
    /// With 2^32 variables.
    pub fn add_variable(&mut self, name: &str) -> FormulaVariable {
        let index = u32::try_from(self.variables.len()).expect("fewer than 2^32 variables");
        let mut word: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
            word.insert(0, 'v');
        }
        while self.variables.contains(&word) {
            word = format!("{word}_{index}");
        }
        self.variables.push(word);
        FormulaVariable(index)
    }

    /// Returns true if the values satisfy the assumptions and violate the goal.
    pub fn is_violated(&self, values: &[i128]) -> bool {
        self.assumptions.iter().all(|assumption| assumption.holds(values))
            && self.goal.evaluate(values) == Some(false)
    }
}

impl fmt::Display for ProofObligation {
    /// Writes the obligation as the text that the independent checker reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "obligation {}", self.name)?;
        writeln!(f, "variables {}", self.variables.join(" "))?;
        for assumption in &self.assumptions {
            f.write_str("assume ")?;
            assumption.write(f, &self.variables)?;
            f.write_str("\n")?;
        }
        f.write_str("goal ")?;
        self.goal.write(f, &self.variables)?;
        f.write_str("\n")
    }
}
