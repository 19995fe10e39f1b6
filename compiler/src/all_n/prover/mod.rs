//! The proof of a program for every rank count: guesses from small runs, and obligations that they are right.
//!
//! * `plain`, `words`: a program without `let`, and expressions that are written here.
//! * `asked`: what collectives begin with and ask for, of a generic place.
//! * `runs`: runs at small rank counts, from which is guessed.
//! * `vocabulary`, `guess`, `witness`: guesses of what holds at the head of a loop, and of who writes a place.
//! * `state`: what is known of a generic place between two rounds.
//! * `round`, `loops`, `driver`: the obligations.
//! * `verdict`: proved, or why not.

mod asked;
mod driver;
mod guess;
mod loops;
mod plain;
mod round;
mod runs;
mod state;
mod verdict;
mod vocabulary;
mod witness;
mod words;

pub use driver::{ProofEffort, ProofOptions, prove, prove_within};
pub use verdict::{AllRanksProof, LoopInvariant, NotProved};
