//! The limit of an attempt.

/// The counted work of an attempt, at most. No clock is read, so that all ranks and machines find the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofEffort {
    /// Evaluations that the guesses of a program take; programs that are used on a grid have as many each.
    pub evaluations: u64,
    /// Steps of the refutations of a program.
    pub steps: u64,
}

impl ProofEffort {
    /// The work of an attempt that is asked for.
    pub const FULL: Self = ProofEffort { evaluations: 15_000_000, steps: 6_000_000 };
}
