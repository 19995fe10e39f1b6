//! Limits the cost of a compilation, in counts: no clock is read, so that every machine refuses the same
//! programs.
//!
//! Whatever a text can repeat draws on one of these: turns of loops outside rounds with what they enter, turns and
//! ranks inside rounds that lead to no transfer, transfers, and chunks. Few ranks can be repeated only so often
//! with sense, so the first two grow with the ranks. `cli/tests/budget.rs` holds texts of every construct against
//! seconds of processor time and a limit of addresses.

use std::cell::Cell;

use roundelay_dsl::diag::{Diagnostic, codes};
use roundelay_dsl::span::Span;

use crate::num::wide;

/// A finding that ends what was being done.
pub(crate) type BoxedDiagnostic = Box<Diagnostic>;

/// Steps that are kept at most: some 300 bytes each with their dependences.
pub(crate) const STEPS: usize = 3_000_000;

/// Chunk moves that are unrolled at most where the options set no other limit: up to 600 bytes each.
pub(crate) const MOVES: u64 = 6_000_000;

/// Steps and moves from which on all are counted first: below them a program is unrolled in a moment.
pub(crate) const COUNTED: u64 = 250_000;

/// Turns of a loop that cost as much as to enter a part or an algorithm.
pub(crate) const ENTERED: u64 = 64;

/// The remaining budget of one walk through a program.
#[derive(Debug)]
pub(crate) struct WalkBudget {
    ranks: u32,
    turns: Cell<u64>,
    idle: Cell<u64>,
    most_idle: u64,
}

impl WalkBudget {
    /// Creates the budget of a program on `ranks` ranks that may move `moves` chunks.
    pub(crate) fn new(ranks: u32, moves: u64) -> Self {
        let n = u64::from(ranks);
        let turns = (1 << 19) + 80 * n;
        let idle = (1 << 20) + n.saturating_mul(n).min(1 << 25);
        let most_idle = idle.min(moves.saturating_mul(16));
        let (turns, idle) = (Cell::new(turns.min(moves)), Cell::new(most_idle));
        WalkBudget { ranks, turns, idle, most_idle }
    }

    /// Draws `turns` turns of a loop outside rounds, or one for a part or an algorithm that is entered.
    pub(crate) fn turns(&self, turns: u64, span: Span) -> Result<(), BoxedDiagnostic> {
        draw(&self.turns, turns)
            .map_err(|()| self.refusal("turns of loops and uses of algorithms", span))
    }

    /// Draws turns of loops in a round, or ranks, before it is known whether they lead to a transfer.
    pub(crate) fn idle(&self, turns: u64, span: Span) -> Result<(), BoxedDiagnostic> {
        draw(&self.idle, turns).map_err(|()| self.endless(span))
    }

    /// Returns the refusal of a loop in a round that no budget allows.
    pub(crate) fn endless(&self, span: Span) -> BoxedDiagnostic {
        self.refusal("turns of loops in rounds that move nothing", span)
    }

    /// Gives back what led to a transfer: no more than was there at first, for turns that lead to several
    /// transfers were drawn once.
    pub(crate) fn useful(&self, turns: usize) {
        self.idle.set(self.idle.get().saturating_add(wide(turns)).min(self.most_idle));
    }

    /// Refuses to list more transfers of one round than may be kept of all.
    pub(crate) fn list(&self, transfers: usize, span: Span) -> Result<(), BoxedDiagnostic> {
        if transfers < STEPS { Ok(()) } else { Err(self.refusal("transfers in one round", span)) }
    }

    fn refusal(&self, what: &str, span: Span) -> BoxedDiagnostic {
        let d = Diagnostic::error(codes::TOO_BIG, format!("too many {what}, on {} ranks", self.ranks))
            .label(span, "here")
            .help("check the bounds of the loops around it, and how often the algorithms that it uses use others; or use fewer ranks");
        Box::new(d)
    }
}

fn draw(from: &Cell<u64>, turns: u64) -> Result<(), ()> {
    match from.get().checked_sub(turns) {
        Some(left) => {
            from.set(left);
            Ok(())
        }
        None => {
            from.set(0);
            Err(())
        }
    }
}
