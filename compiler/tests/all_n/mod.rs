//! Proofs for every rank count: obligations, their refutations, and the checker of these.

mod counter_examples;
mod limits;
mod random_formulas;
mod refutations;
mod text;
