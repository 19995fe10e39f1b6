//! Finds a statement that moves nothing at any shape.

use std::collections::BTreeSet;
use std::sync::Arc;

use roundelay_dsl::span::Span;

use super::edits::place;
use super::trials::{TrialBudget, TrialShape};
use crate::program::{Each, Program, Stmt};

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
    fn block(&mut self, body: &[Stmt]) -> Option<Span> {
        for s in body {
            if self.moves(s) {
                let inside = match s {
                    Stmt::For { body, .. } => self.block(body),
                    Stmt::If { then, otherwise, .. } => {
                        self.block(then).or_else(|| self.block(otherwise))
                    }
                    Stmt::Split(split) => self.block(&split.body),
                    Stmt::Each(each) => self.rules(each),
                    Stmt::Let(..) | Stmt::Use(_) => None,
                };
                if inside.is_some() {
                    return inside;
                }
                continue;
            }
            let own = place(s)?;
            return match s {
                Stmt::For { body, .. } if self.turns(own) => self.block(body).or(Some(own)),
                Stmt::Split(split) => self.block(&split.body).or(Some(own)),
                _ => Some(own),
            };
        }
        None
    }

    /// Returns the place of a transfer that never happens, of an `each` in which others do.
    fn rules(&self, each: &Each) -> Option<Span> {
        each.rules.iter().map(|rule| rule.span).find(|span| !self.moved.contains(span))
    }

    /// Returns true if anything in a statement moves. Transfers of a `use` are those of another program.
    fn moves(&self, s: &Stmt) -> bool {
        match s {
            Stmt::Let(..) | Stmt::Use(_) => true,
            Stmt::For { body, .. } => body.iter().any(|s| self.moves_below(s)),
            Stmt::If { then, otherwise, .. } => {
                then.iter().chain(otherwise).any(|s| self.moves_below(s))
            }
            Stmt::Split(split) => split.body.iter().any(|s| self.moves_below(s)),
            Stmt::Each(each) => each.rules.iter().any(|rule| self.moved.contains(&rule.span)),
        }
    }

    fn moves_below(&self, s: &Stmt) -> bool {
        !matches!(s, Stmt::Let(..)) && self.moves(s)
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
