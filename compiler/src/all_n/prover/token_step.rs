//! The origin of tokens: of the ranks of the places that contain contributions.

use crate::all_n::LinearTerm;
use crate::program::Slot;

use super::plain::{PlainRound, PlainStatement};

/// The origin of the tokens in a state that a view is proved of.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenStep<'a> {
    /// Each contribution is where it began.
    Begin,
    /// A round has moved them since the head of the loop, whose counters had these values.
    Moved(&'a PlainRound, &'a [(Slot, LinearTerm)]),
}

/// Returns the one round of a loop's body, if it has no more.
pub(super) fn only_round(body: &[PlainStatement]) -> Option<&PlainRound> {
    let mut found = None;
    for statement in body {
        match statement {
            PlainStatement::Check(_) => {}
            PlainStatement::Round(round) if found.is_none() => found = Some(&**round),
            _ => return None,
        }
    }
    found
}
