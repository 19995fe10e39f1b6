//! The proof of a program for every rank count: guesses from small runs, and obligations that they are right.
//!
//! * `plain`, `words`: a program without `let`, and expressions that are written here.
//! * `asked`: what collectives begin with and ask for, of a generic place.
//! * `runs`, `place_sample`: runs at small rank counts, from which is guessed.
//! * `vocabulary`, `guess`, `two_sided`, `witness`: guesses of what holds at the head of a loop, and of who writes
//!   a place.
//! * `state`: what is known of a generic place between two rounds.
//! * `token_step`, `tokens`: invariants in which each contribution is in one known place.
//! * `few_ranks`: rank counts that are unrolled one by one.
//! * `order`: what prefix sums ask for beside that.
//! * `round`, `loops`, `driver`: the obligations.
//! * `certificate_step`, `program_text`, `certificate_text`: the certificate of a program.
//! * `grid_steps`, `grids`: programs on a grid, whose steps are programs that are proved by themselves.
//! * `effort`: the limit of an attempt; `whole_proof`: the way in.
//! * `verdict`: proved, or why not.

mod asked;
mod certificate_step;
mod certificate_text;
mod driver;
mod effort;
mod few_ranks;
mod grid_steps;
mod grids;
mod guess;
mod loops;
mod order;
mod place_sample;
mod plain;
mod program_text;
mod round;
mod runs;
mod state;
mod token_step;
mod tokens;
mod two_sided;
mod verdict;
mod vocabulary;
mod whole_proof;
mod witness;
mod words;

pub use driver::{ProofOptions, canonical_text};
pub use effort::ProofEffort;
pub use verdict::{AllRanksProof, LoopInvariant, NotProved};
pub use whole_proof::{prove, prove_within};
