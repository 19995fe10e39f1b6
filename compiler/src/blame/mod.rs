//! Names the cause of a fault: the place of a refuted program that, changed a little, makes it right.
//!
//! A fault shows far from where it was made: a loop that is one turn short is seen in the last place
//! that lacks something. So small changes to the program are tried at a few small shapes: a number one more or less,
//! another variable or operator, a condition turned round, a statement left out or swapped with the next. Of those
//! that are right at all of these shapes the likeliest is named (`ProgramRepair::weight`): one that a person errs
//! by often, that moves no more than the others, and leaves nothing to be left out. If no change helps, two at once
//! are tried, and both places are named; if these do not help either, a statement that moves nothing at any shape
//! is. If a program of the same file is used that is wrong by itself, it is searched in its place.
//! The place becomes the primary one of the finding; what was the primary place becomes the second. A verdict never
//! changes, the work is bounded by counts, and no clock is read.
//!
//! `places` visits a program, `list` lists the changes, `edits` makes them, `trials` judges them, `idle` finds
//! statements that move nothing.

mod edits;
mod idle;
mod list;
mod places;
mod trials;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use roundelay_dsl::diag::{Diagnostic, DiagnosticLabel, Diagnostics};
use roundelay_dsl::span::{SourceId, SourceMap, Span};

use crate::instance::CompileOptions;
use crate::program::{Program, ProgramStmt};
use crate::shape::Shape;
use edits::{EditKind, ProgramEdit};
use trials::{FaultMeasure, ShownFault, TrialBudget, TrialOutcome, TrialShape};

/// The most work of all trials of one change.
const MOST_WORK: u64 = 800_000;

/// The most work of all trials of two changes.
const MOST_OF_TWO: u64 = 500_000;

/// The most changes that are tried together with another.
const MOST_FIRST: usize = 10;

/// The most programs of the file that are looked at, beside the one at hand.
const MOST_USED: usize = 8;

/// The most repairs that are compared.
const MOST_REPAIRS: usize = 24;

/// The weight of a repair with statements that could be left out.
const WASTE: u64 = 30;

/// The weight of twice the moves of the repair that moves least.
const TWICE: u64 = 40;

/// Changes of so much more cost than a repair that moves no more than before are not tried.
const FAR: u32 = 14;

/// Changes below this cost are tried first as the second of two.
const LIKELY: u32 = 29;

/// Returns the finding with the guilty place first, if one is found.
pub fn sharpen(
    program: &Arc<Program>,
    sources: &SourceMap,
    shape: &Shape,
    options: &CompileOptions,
    mut found: Diagnostics,
) -> Diagnostics {
    let Some(first) = found.first_mut() else { return found };
    if !first.code.0.starts_with("RL04") && !first.code.0.starts_with("RL05") {
        return found;
    }
    let labels = used(program, sources, options)
        .unwrap_or_else(|| RepairSearch::new(program, sources, shape, options).labels());
    if !labels.is_empty() {
        put_first(first, labels);
    }
    found
}

/// Returns the labels about the first program of the same file that is used, and is wrong by itself.
fn used(
    program: &Arc<Program>,
    sources: &SourceMap,
    options: &CompileOptions,
) -> Option<Vec<DiagnosticLabel>> {
    let mut own: Vec<&Arc<Program>> = Vec::new();
    collect_used(&program.body, program.header.source, &mut own);
    own.into_iter().find_map(|other| {
        let axes =
            if other.axes.names.len() == 1 { vec![4] } else { vec![2; other.axes.names.len()] };
        let mut search = RepairSearch::new(other, sources, &Shape { axes }, options);
        search.fault?;
        Some(search.labels()).filter(|labels| !labels.is_empty())
    })
}

fn collect_used<'p>(body: &'p [ProgramStmt], home: SourceId, own: &mut Vec<&'p Arc<Program>>) {
    for s in body {
        match s {
            ProgramStmt::Use(u) if u.program.header.source == home && own.len() < MOST_USED => {
                if own.iter().all(|known| !Arc::ptr_eq(known, &u.program)) {
                    own.push(&u.program);
                    collect_used(&u.program.body, home, own);
                }
            }
            ProgramStmt::For { body, .. } => collect_used(body, home, own),
            ProgramStmt::If { then, otherwise, .. } => {
                collect_used(then, home, own);
                collect_used(otherwise, home, own);
            }
            ProgramStmt::Split(split) => collect_used(&split.body, home, own),
            ProgramStmt::Let(..) | ProgramStmt::Each(_) | ProgramStmt::Use(_) => {}
        }
    }
}

/// Puts labels before those of a finding.
fn put_first(finding: &mut Diagnostic, labels: Vec<DiagnosticLabel>) {
    finding.labels.retain(|l| labels.iter().all(|new| new.span != l.span));
    if let Some(seen) = finding.labels.first_mut()
        && seen.text.is_empty()
    {
        seen.text = "seen here".into();
    }
    finding.labels.splice(0..0, labels);
}

/// Changes that make the program right at all trials.
#[derive(Debug, Clone)]
struct ProgramRepair {
    edits: Vec<ProgramEdit>,
    moves: u64,
    wasted: bool,
}

impl ProgramRepair {
    fn cost(&self) -> u32 {
        self.edits.iter().map(|edit| edit.cost).sum()
    }

    /// Returns the weight beside others, one of which moves this number of chunks: the least is named.
    fn weight(&self, least: u64) -> u64 {
        // Thousandths of what it moves beyond the least.
        let beyond = (self.moves - least.min(self.moves)).saturating_mul(1000) / least.max(1);
        let waste = if self.wasted { WASTE } else { 0 };
        u64::from(self.cost()) + waste + beyond.saturating_mul(TWICE) / 1000
    }

    fn labels(&self) -> Vec<DiagnosticLabel> {
        let label = |span: Span, text: String| DiagnosticLabel { span, text };
        match self.edits.as_slice() {
            [edit] => {
                let comma = if edit.text.ends_with("here") { ", and" } else { "" };
                let text = format!("{}{comma} it would be right", edit.text);
                let other = edit.other.map(|span| label(span, "the next statement".into()));
                [label(edit.at(), text)].into_iter().chain(other).collect()
            }
            [first, second] => vec![
                label(
                    first.at(),
                    format!("{}, and with a second change, it would be right", first.text),
                ),
                label(second.at(), format!("the second change: {}", second.text)),
            ],
            _ => Vec::new(),
        }
    }
}

/// The search for a repair of one program.
struct RepairSearch<'s> {
    program: &'s Arc<Program>,
    trials: Vec<TrialShape>,
    /// The trial that shows the fault, and what it shows.
    fault: Option<(usize, ShownFault)>,
    work: TrialBudget<'s>,
}

impl<'s> RepairSearch<'s> {
    fn new(
        program: &'s Arc<Program>,
        sources: &'s SourceMap,
        shape: &Shape,
        options: &CompileOptions,
    ) -> Self {
        let trials = trials::trials(program, shape, options);
        let mut work = TrialBudget { left: MOST_WORK, text: 0, sources };
        let fault =
            trials.iter().enumerate().find_map(|(i, trial)| match work.outcome(program, trial) {
                TrialOutcome::Wrong(shown) => Some((i, shown)),
                _ => None,
            });
        RepairSearch { program, trials, fault, work }
    }

    /// Returns the places of a repair, or else of a statement that moves nothing.
    fn labels(&mut self) -> Vec<DiagnosticLabel> {
        match self.repair() {
            Some(repair) => repair.labels(),
            None => self.idle().into_iter().collect(),
        }
    }

    /// Returns the repair to be named, if there is one.
    fn repair(&mut self) -> Option<ProgramRepair> {
        let (at, shown) = self.fault?;
        let edits = list::all(self.program);
        self.work.text = 32 + list::size(self.program, &edits);
        let mut nearer: Vec<(FaultMeasure, ProgramEdit)> = Vec::new();
        let mut repairs: Vec<ProgramRepair> = Vec::new();
        // The least cost of a repair that wastes nothing and does not move more than before.
        let mut plain: Option<u32> = None;
        let program = self.program.clone();
        for edit in edits {
            let far = plain.is_some_and(|cost| edit.cost > cost + FAR);
            if self.work.left == 0 || far || repairs.len() >= MOST_REPAIRS {
                break;
            }
            match self.try_edits(&program, at, &[&edit]) {
                Ok((repair, moves)) => {
                    let multiplies = shown.moves.is_some_and(|before| 4 * moves > 5 * before);
                    if !repair.wasted && !multiplies {
                        plain = plain.or(Some(edit.cost));
                    }
                    repairs.push(repair);
                }
                Err(Some(left)) if left.nearer(&shown) => nearer.push((left.wrong, edit)),
                Err(_) => {}
            }
        }
        if let Some(best) = self.least(repairs) {
            return Some(best);
        }
        // What cannot be evaluated is at fault where it stands.
        if shown.wrong == FaultMeasure::Steps {
            return None;
        }
        self.work.left = MOST_OF_TWO;
        self.repair_two(at, nearer)
    }

    /// Returns a repair of two changes, of which the first leaves less wrong than there was.
    fn repair_two(
        &mut self,
        at: usize,
        mut nearer: Vec<(FaultMeasure, ProgramEdit)>,
    ) -> Option<ProgramRepair> {
        // A fault is gone, too, with the statement that shows it: such changes come last.
        let whole = |edit: &ProgramEdit| matches!(edit.change, EditKind::Drop | EditKind::Swap);
        nearer.sort_by_key(|(wrong, edit)| (*wrong, whole(edit), edit.cost));
        // Changes of one place are alike.
        let mut firsts: Vec<ProgramEdit> = Vec::new();
        for (_, edit) in nearer {
            let same = firsts.iter().filter(|first| first.at() == edit.at()).count();
            if same < 2 && firsts.len() < MOST_FIRST {
                firsts.push(edit);
            }
        }
        let made = firsts.into_iter().map(|first| {
            let program = Arc::new(first.made(self.program));
            let seconds = list::all(&program);
            (first, program, seconds)
        });
        let made: Vec<(ProgramEdit, Arc<Program>, Vec<ProgramEdit>)> = made.collect();
        let mut repairs: Vec<ProgramRepair> = Vec::new();
        // The likely changes are tried with each of the first ones before the others are.
        for costs in [0..LIKELY, LIKELY..u32::MAX] {
            for (first, program, seconds) in &made {
                let apart = |second: &&ProgramEdit| {
                    costs.contains(&second.cost) && second.at() != first.at()
                };
                for second in seconds.iter().filter(apart) {
                    if self.work.left == 0 || repairs.len() >= MOST_REPAIRS {
                        break;
                    }
                    if let Ok((repair, _)) = self.try_edits(program, at, &[first, second]) {
                        repairs.push(repair);
                    }
                }
            }
            if !repairs.is_empty() {
                break;
            }
        }
        self.least(repairs)
    }

    /// Tries a program with the last of the changes: returns the repair and the chunks that it moves at the trial that
    /// shows the fault, or what this trial shows then.
    fn try_edits(
        &mut self,
        program: &Arc<Program>,
        at: usize,
        edits: &[&ProgramEdit],
    ) -> Result<(ProgramRepair, u64), Option<ShownFault>> {
        let Some(last) = edits.last() else { return Err(None) };
        let changed = Arc::new(last.made(program));
        let here = match self.work.outcome(&changed, &self.trials[at]) {
            TrialOutcome::Right(moves) => moves,
            TrialOutcome::Wrong(shown) => return Err(Some(shown)),
            TrialOutcome::Excluded => return Err(None),
        };
        let mut moves = here;
        for (_, trial) in self.trials.iter().enumerate().filter(|(i, _)| *i != at) {
            match self.work.outcome(&changed, trial) {
                TrialOutcome::Right(more) => moves += more,
                TrialOutcome::Wrong(_) => return Err(None),
                TrialOutcome::Excluded => {}
            }
        }
        let wasted = self.work.wasted(&changed, &self.trials[at]).ok_or(None)? > 0;
        let edits = edits.iter().map(|edit| (*edit).clone()).collect();
        Ok((ProgramRepair { edits, moves, wasted }, here))
    }

    /// Returns the repair of the least weight, the first of equal ones, of those that leave no statement which moves
    /// nothing: that would be wrong, too.
    fn least(&mut self, mut repairs: Vec<ProgramRepair>) -> Option<ProgramRepair> {
        let moves = repairs.iter().map(|repair| repair.moves).min()?;
        repairs.sort_by_key(|repair| repair.weight(moves));
        repairs.into_iter().find(|repair| {
            let all = |program: Program, edit: &ProgramEdit| edit.made(&program);
            let program = repair.edits.iter().fold((**self.program).clone(), all);
            idle::find(&Arc::new(program), &self.trials, &mut self.work).is_none()
        })
    }

    /// Returns a label for a statement that moves nothing at any shape.
    fn idle(&mut self) -> Option<DiagnosticLabel> {
        let span = idle::find(self.program, &self.trials, &mut self.work)?;
        let text = "this moves nothing, at any of the shapes that were tried".into();
        Some(DiagnosticLabel { span, text })
    }
}
