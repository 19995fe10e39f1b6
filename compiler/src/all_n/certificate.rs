//! The certificate that an obligation has no counter-example, and its text.
//!
//! # The obligation as text
//!
//! One line each; names of variables are words of letters, digits and `_` that begin with a letter.
//!
//! ```text
//! obligation ring all_reduce, loop 1, step: once
//! variables n s q
//! assume -s<=0
//! assume (or n-q<=0 (not q-2*s+1=0))
//! goal (iff s-q<=0 true)
//! refutation S0/2 F1,2 F0,3*2
//! ```
//!
//! A formula is `true`, `false`, a relation `TERM<=0` or `TERM=0`, or a list `(and …)`, `(or …)` of any length,
//! `(not …)` of one, `(iff … …)` of two formulas. A term is a sum of variables, integer multiples `2*q` of variables,
//! and at most one constant, without spaces.
//!
//! # The normal form
//!
//! Every assumption in order, then the negated goal, becomes rows `term <= 0` and disjunctions. Negations are moved
//! inwards first:
//!
//! | formula | becomes | its negation becomes |
//! |---|---|---|
//! | `t<=0` | the row `t` | the row `1 - t` |
//! | `t=0` | the rows `t` and `-t` | the disjunction of the rows `t + 1` and `1 - t` |
//! | `(and …)`, `(or …)` | conjunction, disjunction | disjunction, conjunction of the negations |
//! | `(iff a b)` | `a` and `b`, or not `a` and not `b` | `a` and not `b`, or not `a` and `b` |
//! | `true`, `false` | the empty conjunction, the empty disjunction | the other |
//!
//! A conjunction directly within a conjunction, and a disjunction directly within a disjunction, is replaced by its
//! parts. A conjunction adds its rows and disjunctions in order, each counted from 0 on its own, repeated ones again. A
//! part of a disjunction is a conjunction, which adds nothing before a tree enters it. Every row is divided by the
//! greatest common divisor of its coefficients, and its constant rounded up: `2x - 2y + 1` is `x - y + 1`.
//!
//! # The tree as text
//!
//! Words with spaces between them, each followed by the trees of its cases. `ROWS` is a list of rows with positive
//! multiples, `0,4*2`: row 0 and twice row 4.
//!
//! | word | what it says | cases that follow |
//! |---|---|---|
//! | `F` ROWS | the sum of the rows has no variable and a positive constant, which is a contradiction | none |
//! | `S` i `/` k | disjunction i has k parts | one a part, which adds the part's rows and disjunctions |
//! | `B` v `:` b | variable v, counted from 0, is at most b, or at least b + 1 | two: one adds the row `v - b`, the other `b + 1 - v` |
//! | `C` ROWS | the sum of the rows, divided and rounded as above, is a row | one, which adds the row |
//!
//! The rows of a case get the next numbers, and is gone outside of the case. A checker needs sums of integers and their
//! divisors, without a limit of size; a tree that names what is not there, or has a word too many, is refused.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::linear_term::FormulaVariable;

/// Trees of a text nest so deep at most.
const DEPTH: u32 = 2_000;

/// A proof that the rows and disjunctions of an obligation's normal form have no common solution.
///
/// Rows and disjunctions are numbered in the order in which a reader meets them on the way from the root: those of
/// the assumptions and of the negated goal, then what each case adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefutationTree {
    /// Positive multiples of rows that add up to a positive constant, which is to be zero at most.
    Sum(Vec<(u32, i128)>),
    /// One refutation for each part of a disjunction, which is a case with the rows and disjunctions of that part.
    Split {
        /// The number of the disjunction.
        disjunction: u32,
        /// A refutation for each part, in order.
        parts: Vec<RefutationTree>,
    },
    /// Two cases: a variable is at most a bound, or above it.
    Branch {
        /// The variable.
        variable: FormulaVariable,
        /// The greatest value of the first case.
        bound: i128,
        /// The refutation of the first case, and of the second.
        cases: Box<[RefutationTree; 2]>,
    },
    /// A row that follows: a sum of multiples of rows, divided by the divisor of its coefficients and rounded.
    Derive {
        /// The rows and their multiples, which are positive.
        sum: Vec<(u32, i128)>,
        /// The refutation that may use the row.
        rest: Box<RefutationTree>,
    },
}

/// A text that is no refutation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a refutation cannot be read at word {at}: `{word}`, expected {expected}")]
pub struct RefutationParseError {
    /// The index of the word.
    pub at: usize,
    /// The word; empty at the end of the text.
    pub word: String,
    /// The expressions that may stand there.
    pub expected: &'static str,
}

impl RefutationTree {
    /// Returns how many nodes the tree has.
    pub fn nodes(&self) -> usize {
        1 + match self {
            RefutationTree::Sum(_) => 0,
            RefutationTree::Split { parts, .. } => parts.iter().map(RefutationTree::nodes).sum(),
            RefutationTree::Branch { cases, .. } => cases.iter().map(RefutationTree::nodes).sum(),
            RefutationTree::Derive { rest, .. } => rest.nodes(),
        }
    }
}

impl fmt::Display for RefutationTree {
    /// Writes the tree as words, a node before its children: `S3/2 F0,4*2 C1,5 F6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |f: &mut fmt::Formatter<'_>, rows: &[(u32, i128)]| {
            for (at, (row, multiple)) in rows.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { "," })?;
                write!(f, "{row}")?;
                if *multiple != 1 {
                    write!(f, "*{multiple}")?;
                }
            }
            Ok(())
        };
        match self {
            RefutationTree::Sum(rows) => {
                f.write_str("F")?;
                sum(f, rows)
            }
            RefutationTree::Split { disjunction, parts } => {
                write!(f, "S{disjunction}/{}", parts.len())?;
                parts.iter().try_for_each(|part| write!(f, " {part}"))
            }
            RefutationTree::Branch { variable, bound, cases } => {
                let [below, above] = cases.as_ref();
                write!(f, "B{}:{bound} {below} {above}", variable.0)
            }
            RefutationTree::Derive { sum: rows, rest } => {
                f.write_str("C")?;
                sum(f, rows)?;
                write!(f, " {rest}")
            }
        }
    }
}

impl FromStr for RefutationTree {
    type Err = RefutationParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut words = RefutationWords { words: text.split_whitespace().collect(), at: 0 };
        let tree = words.read_tree(DEPTH)?;
        if words.at == words.words.len() { Ok(tree) } else { Err(words.refuse("the end")) }
    }
}

/// The words of a text, of which those before `at` are read.
struct RefutationWords<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl RefutationWords<'_> {
    fn refuse(&self, expected: &'static str) -> RefutationParseError {
        let word = self.words.get(self.at).copied().unwrap_or_default().to_owned();
        RefutationParseError { at: self.at, word, expected }
    }

    fn read_tree(&mut self, depth: u32) -> Result<RefutationTree, RefutationParseError> {
        let expected = "F, S, B or C with its numbers";
        let depth = depth.checked_sub(1).ok_or_else(|| self.refuse("fewer nested cases"))?;
        let word = self.words.get(self.at).copied().unwrap_or_default();
        let (kind, rest) = word.split_at_checked(1).ok_or_else(|| self.refuse(expected))?;
        let refusal = self.refuse(expected);
        self.at += 1;
        Ok(match kind {
            "F" => RefutationTree::Sum(read_sum(rest).ok_or(refusal)?),
            "C" => RefutationTree::Derive {
                sum: read_sum(rest).ok_or(refusal)?,
                rest: Box::new(self.read_tree(depth)?),
            },
            "S" => {
                let (disjunction, parts) = read_pair(rest, '/').ok_or(refusal)?;
                let parts: u32 = parts;
                let parts = (0..parts).map(|_| self.read_tree(depth));
                RefutationTree::Split { disjunction, parts: parts.collect::<Result<_, _>>()? }
            }
            "B" => {
                let (variable, bound) = read_pair(rest, ':').ok_or(refusal)?;
                let cases = Box::new([self.read_tree(depth)?, self.read_tree(depth)?]);
                RefutationTree::Branch { variable: FormulaVariable(variable), bound, cases }
            }
            _ => return Err(refusal),
        })
    }
}

fn read_pair<T: FromStr>(text: &str, between: char) -> Option<(u32, T)> {
    let (a, b) = text.split_once(between)?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

fn read_sum(text: &str) -> Option<Vec<(u32, i128)>> {
    let read = |entry: &str| match entry.split_once('*') {
        Some(_) => read_pair(entry, '*'),
        None => Some((entry.parse().ok()?, 1)),
    };
    text.split(',').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_back() {
        for text in ["F0", "F0,3*2", "S3/2 F0 F1,2*17", "S0/0", "B1:-3 F0 C0,1*2 F7", "C1 S2/1 F9"]
        {
            let tree: RefutationTree = text.parse().unwrap();
            assert_eq!(tree.to_string(), text);
        }
        let tree: RefutationTree = "S3/2 F0 B0:4 F1 F2".parse().unwrap();
        assert_eq!(tree.nodes(), 5);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "F", "F0,", "F0 F1", "S3 F0", "S3/2 F0", "Sx/1 F0", "B1 F0 F0", "C0", "X1", "é",
            "F0*",
        ] {
            assert!(text.parse::<RefutationTree>().is_err(), "{text}");
        }
        let deep = "C0 ".repeat(3_000) + "F0";
        let error = deep.parse::<RefutationTree>().unwrap_err();
        assert_eq!(error.expected, "fewer nested cases");
    }
}
