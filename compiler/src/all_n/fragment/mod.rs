//! The fragment of the language that proofs for every rank count cover: expressions as linear terms.
//!
//! * `refusal`: what is outside of the fragment, and why.
//! * `value`: what an expression is in an obligation.
//! * `context`: variables and assumptions of one obligation; rests, quotients, choices and digits.
//! * `evaluate`: expressions of a program to terms and formulas.
//! * `powers`: powers of two, logarithms, bits.
//! * `flatten`: a program with the programs that it uses in place, as one list of statements.
//! * `region`: the chunks of a region, as conditions on one chunk.

pub(super) mod context;
mod evaluate;
pub(super) mod flatten;
mod powers;
pub(super) mod refusal;
pub(super) mod region;
#[cfg(test)]
mod tests;
pub(super) mod value;
