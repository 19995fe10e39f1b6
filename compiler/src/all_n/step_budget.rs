//! The limit of a refutation, in counted steps, and the reasons why an obligation stays unproved.

use std::fmt;

use super::linear_term::TermOverflow;

/// Why an obligation is not proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnprovedReason {
    /// Some values satisfy the assumptions and violate the goal.
    Violated,
    /// The budget of steps is used up.
    Steps,
    /// A number exceeds 128 bits.
    Overflow,
    /// Formulas or case distinctions nest too deep.
    Depth,
}

impl fmt::Display for UnprovedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnprovedReason::Violated => "it does not hold",
            UnprovedReason::Steps => "its proof takes more steps than the budget allows",
            UnprovedReason::Overflow => "its proof needs numbers of more than 128 bits",
            UnprovedReason::Depth => "its proof needs too many nested case distinctions",
        })
    }
}

impl From<TermOverflow> for UnprovedReason {
    fn from(_: TermOverflow) -> Self {
        UnprovedReason::Overflow
    }
}

/// The steps that proofs may take: one for a pivot, a case or a formula that is normalized. No clock is read, so that
/// every machine proves the same obligations.
#[derive(Debug, Clone)]
pub struct StepBudget {
    left: u64,
}

impl StepBudget {
    /// Creates a budget. An obligation of the library's algorithms takes 150,000 steps at most.
    pub fn new(steps: u64) -> Self {
        StepBudget { left: steps }
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes steps from the budget, or all that is left and an error.
    pub(super) fn draw(&mut self, steps: u64) -> Result<(), UnprovedReason> {
        let left = self.left.checked_sub(steps);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(UnprovedReason::Steps)
    }
}
