//! Finds a statement that moves nothing at any shape.

use std::collections::BTreeSet;
use std::sync::Arc;

use roundelay_dsl::span::Span;

use super::edits::place;
use super::trials::{TrialBudget, TrialShape};
use crate::program::{EachRules, Program, ProgramStmt};

/// Returns the place of the first statement that moves nothing at any of the shapes: the header of a loop without
/// turns, an `each` without transfers, a transfer whose conditions never hold. `None` if there is none, or if no
/// shape can be laid out.
pub(super) fn find(
    program: &Arc<Program>,
    trials: &[TrialShape],
    work: &mut TrialBudget<'_>,
) -> Option<Span> {
    let (mut moved, mut rounds) = (BTreeSet::new(), Vec::new());
    for trial in trials.iter().filter(|trial| trial.ranks() > 1) {
        let Some((spans, count)) = work.moved(program, trial) else { continue };
        moved.extend(spans);
        rounds.push((trial, count));
    }
    if rounds.is_empty() {
        return None;
    }
    let mut search = IdleSearch { program, moved, rounds, work };
    search.block(&program.body)
}

struct IdleSearch<'i, 's, 'w> {
    program: &'i Arc<Program>,
    moved: BTreeSet<Span>,
    rounds: Vec<(&'i TrialShape, u32)>,
    work: &'w mut TrialBudget<'s>,
}

impl IdleSearch<'_, '_, '_> {
    fn block(&mut self, body: &[ProgramStmt]) -> Option<Span> {
        for s in body {
            if self.moves(s) {
                let inside = match s {
                    ProgramStmt::For { body, .. } => self.block(body),
                    ProgramStmt::If { then, otherwise, .. } => {
                        self.block(then).or_else(|| self.block(otherwise))
                    }
                    ProgramStmt::Split(split) => self.block(&split.body),
                    ProgramStmt::Each(each) => self.rules(each),
                    ProgramStmt::Let(..) | ProgramStmt::Use(_) => None,
                };
                if inside.is_some() {
                    return inside;
                }
                continue;
            }
            let own = place(s)?;
            return match s {
                ProgramStmt::For { body, .. } if self.turns(own) => self.block(body).or(Some(own)),
                ProgramStmt::Split(split) => self.block(&split.body).or(Some(own)),
                _ => Some(own),
            };
        }
        None
    }

    /// Returns the place of a transfer that never happens, of an `each` in which others do.
    fn rules(&self, each: &EachRules) -> Option<Span> {
        each.rules.iter().map(|rule| rule.span).find(|span| !self.moved.contains(span))
    }

    /// Returns true if anything in a statement moves. Transfers of a `use` are those of another program.
    fn moves(&self, s: &ProgramStmt) -> bool {
        match s {
            ProgramStmt::Let(..) | ProgramStmt::Use(_) => true,
            ProgramStmt::For { body, .. } => body.iter().any(|s| self.moves_below(s)),
            ProgramStmt::If { then, otherwise, .. } => {
                then.iter().chain(otherwise).any(|s| self.moves_below(s))
            }
            ProgramStmt::Split(split) => split.body.iter().any(|s| self.moves_below(s)),
            ProgramStmt::Each(each) => {
                each.rules.iter().any(|rule| self.moved.contains(&rule.span))
            }
        }
    }

    fn moves_below(&self, s: &ProgramStmt) -> bool {
        !matches!(s, ProgramStmt::Let(..)) && self.moves(s)
    }

    /// Returns true if the statement has rounds, though nothing moves in them.
    fn turns(&mut self, span: Span) -> bool {
        let without = Arc::new(super::list::without(span).made(self.program));
        let mut rounds = self.rounds.iter();
        rounds.any(|(trial, count)| {
            let less = self.work.moved(&without, trial);
            less.is_none_or(|(_, less)| less < *count)
        })
    }
}
