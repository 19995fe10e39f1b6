//! Proofs of programs for every rank count: obligations in linear integer arithmetic, and their refutation.
//!
//! # What is proved
//!
//! A program is checked at one rank count by unrolling it. For all rank counts at once its loops are proved by
//! invariants, and each step of such a proof is a [`ProofObligation`]: assumptions and a goal without quantifiers over
//! integer variables (the rank count `n`, a rank `q`, a chunk `c`, a counter `s`). Sets of ranks and chunks do not
//! occur: a formula says of one arbitrary element whether it is in the set. What is not linear becomes linear with fresh
//! variables, before an obligation is made:
//!
//! | term | variable | assumptions |
//! |---|---|---|
//! | `t % n` | `m` | `0 <= m < n`, and `t - m` is one of the multiples of `n` that are in reach, such as `-n, 0, n`; if that is not known, it is one of `-2n, -n, 0, n, 2n` or `t` is out of their reach |
//! | `t / 8` and `t % 8`, by a constant | `h`, `e` | `t = 8h + e` and `0 <= e < 8` |
//! | `if a { t } else { u }` | `v` | `a` and `v = t`, or not `a` and `v = u` |
//! | digits of `x` at the level `d`, a power of two | `a`, `e`, `r` | `e = 0` and `x = a + r`, or `e = 1` and `x = a + d + r`; `0 <= r < d` |
//!
//! [`prove`] makes these obligations of a program by itself. `fragment` has the expressions that can be written so, and
//! refuses others; `prover` has the rounds and loops. What cannot be read off a program is guessed from runs with few
//! ranks: what holds at the head of a loop, and the sender of a message as an expression of its receiver. A guess needs
//! no trust, since obligations say that it is right.
//!
//! # Refutation
//!
//! [`refute`] brings the assumptions and the negated goal into a normal form, a list of rows `term <= 0` and of
//! disjunctions, and shows that they have no common solution, or finds one. It distinguishes the cases of disjunctions.
//! In each case a simplex decides over exact fractions whether the rows have a rational solution. If they do and it is
//! not integral, equations are solved and what is left is rounded (without that, no case distinction ever ends on
//! `2h = 2g + 1`); at last a variable is bounded from both sides of its fraction. A solution that is found is evaluated
//! in the formulas themselves: it is a counter-example, and the rank count in it is worth a check of the program there.
//!
//! Linear integer arithmetic is decidable, but not by this search in all cases, and never quickly in all cases. The
//! search counts steps ([`StepBudget`]) and reads no clock. An obligation that takes more steps, or numbers of more than
//! 128 bits, is not proved ([`UnprovedReason`]). Nothing else follows from that.
//!
//! # Certificates
//!
//! A refutation is a [`RefutationTree`]: case distinctions, and at each leaf multiples of rows that add up to `0 < 0`.
//! Nothing of the search needs to be trusted. `algorithms/proofs/check.py` is a checker that shares no code with this
//! module: it reads obligations and trees as text, makes the normal form again, and adds up rows. It has no simplex,
//! and searches nothing. `certificate.rs` defines the text of trees and the normal form whose numbers they use.
//!
//! # Files, in reading order
//!
//! | file | holds |
//! |---|---|
//! | `linear_term` | a sum of integer multiples of variables, checked against overflow |
//! | `formula` | formulas over terms, and an obligation: assumptions and a goal |
//! | `step_budget` | the limit of a refutation, in counted steps, and why an obligation stays unproved |
//! | `normal_form` | rows and disjunctions of an obligation, as a refutation numbers them |
//! | `certificate` | the tree of a refutation, and its text |
//! | `exact_fraction` | fractions that refuse to overflow |
//! | `bound_simplex` | decides whether rows have a rational solution |
//! | `found_refutation` | refutations while they are found: which facts each uses |
//! | `equation_cuts` | the cut rule: solves equations, rounds what is left |
//! | `refute` | the search |
//! | `fragment` | expressions and regions of programs as terms and formulas |
//! | `prover` | the obligations of a program, and the guesses that they need |

mod bound_simplex;
mod certificate;
mod equation_cuts;
mod exact_fraction;
mod formula;
mod found_refutation;
mod fragment;
mod linear_term;
mod normal_form;
mod prover;
mod refute;
mod step_budget;

pub use certificate::{RefutationParseError, RefutationTree};
pub use formula::{LinearFormula, ProofObligation};
pub use linear_term::{FormulaVariable, LinearTerm, TermOverflow};
pub use prover::{
    AllRanksProof, LoopInvariant, NotProved, ProofEffort, ProofOptions, canonical_text, prove,
    prove_within,
};
pub use refute::{RefuteOutcome, refute};
pub use step_budget::{StepBudget, UnprovedReason};
