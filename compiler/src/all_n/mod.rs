//! Proofs of programs for every rank count: obligations in linear integer arithmetic, and their refutation.
//!
//! | file | holds |
//! |---|---|
//! | `linear_term` | a sum of integer multiples of variables, checked against overflow |
//! | `formula` | formulas over terms, and an obligation: assumptions and a goal |

mod formula;
mod linear_term;

pub use formula::{LinearFormula, ProofObligation};
pub use linear_term::{FormulaVariable, LinearTerm, TermOverflow};
