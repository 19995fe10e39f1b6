//! The search for a refutation of an obligation: case distinctions, simplex, branches and cuts.
//!
//! The state is a stack: a case adds rows and disjunctions, and takes them back when it is refuted. A disjunction that
//! the current values satisfy waits. Of the others, the one with the fewest parts that the simplex does not refute at
//! once is split first; a case whose refutation does not use what the case added refutes all cases of the split.

use super::bound_simplex::BoundSimplex;
use super::certificate::RefutationTree;
use super::equation_cuts::refute_by_cuts;
use super::exact_fraction::ExactFraction;
use super::formula::ProofObligation;
use super::found_refutation::{FoundRefutation, UsedFact};
use super::linear_term::{FormulaVariable, LinearTerm, TermOverflow};
use super::normal_form::{NormalForm, NormalPart, RowIndex, SplitIndex};
use super::step_budget::{StepBudget, UnprovedReason};

/// Cases nest so deep at most.
const DEPTH: u32 = 300;

/// The outcome of an obligation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefuteOutcome {
    /// The goal follows from the assumptions: the tree refutes the assumptions and the negated goal.
    Proved(RefutationTree),
    /// Not proved.
    Unproved {
        /// Values of the variables, by index, that satisfy the assumptions and violate the goal; evaluation has shown
        /// so. None where the search ended without them.
        model: Option<Vec<i128>>,
        /// Why the obligation is not proved.
        reason: UnprovedReason,
    },
}

/// Proves an obligation by a refutation of its assumptions and its negated goal, or finds values that violate it.
///
/// Takes its steps from the budget; the same obligation and budget have the same outcome on every machine.
pub fn refute(obligation: &ProofObligation, budget: &mut StepBudget) -> RefuteOutcome {
    let unproved = |reason| RefuteOutcome::Unproved { model: None, reason };
    let (form, root) = match NormalForm::of_obligation(obligation, budget) {
        Ok(normal) => normal,
        Err(reason) => return unproved(reason),
    };
    let mut search = RefuteSearch::new(obligation, form, budget);
    match search.explore(&root, DEPTH) {
        Ok(found) => RefuteOutcome::Proved(found.to_tree(&search.form, &root)),
        Err(SearchStop::Unproved(reason)) => unproved(reason),
        Err(SearchStop::Violated(model)) => {
            RefuteOutcome::Unproved { model: Some(model), reason: UnprovedReason::Violated }
        }
    }
}

/// The reasons that end a search without a refutation.
enum SearchStop {
    Violated(Vec<i128>),
    Unproved(UnprovedReason),
}

impl From<UnprovedReason> for SearchStop {
    fn from(reason: UnprovedReason) -> Self {
        SearchStop::Unproved(reason)
    }
}

impl From<TermOverflow> for SearchStop {
    fn from(overflow: TermOverflow) -> Self {
        SearchStop::Unproved(overflow.into())
    }
}

/// The state of a disjunction on the current path.
#[derive(Debug, Clone, Default)]
struct SplitState {
    is_open: bool,
    is_split: bool,
    refuted: Vec<Option<FoundRefutation>>,
}

/// The depths of the stacks at the begin of a case.
struct CaseMark {
    bounds: usize,
    rows: usize,
    open: usize,
    refuted: usize,
}

struct RefuteSearch<'a> {
    obligation: &'a ProofObligation,
    budget: &'a mut StepBudget,
    form: NormalForm,
    simplex: BoundSimplex,
    states: Vec<SplitState>,
    /// A flag for each row, true if it holds on the current path; and those rows, in the order in which they were added.
    holds: Vec<bool>,
    rows: Vec<RowIndex>,
    /// The disjunctions of the current path, in the order in which they were added.
    open: Vec<SplitIndex>,
    /// The parts of disjunctions that are refuted by rows of the current path.
    refuted: Vec<(SplitIndex, usize)>,
}

impl<'a> RefuteSearch<'a> {
    fn new(obligation: &'a ProofObligation, form: NormalForm, budget: &'a mut StepBudget) -> Self {
        let state = |split| {
            let refuted = vec![None; form.parts(SplitIndex(split)).len()];
            SplitState { refuted, ..SplitState::default() }
        };
        RefuteSearch {
            obligation,
            budget,
            states: (0..form.splits()).map(state).collect(),
            simplex: BoundSimplex::new(obligation.variables.len()),
            form,
            holds: Vec::new(),
            rows: Vec::new(),
            open: Vec::new(),
            refuted: Vec::new(),
        }
    }

    /// Refutes the current path with the facts of one more case.
    fn explore(&mut self, case: &NormalPart, depth: u32) -> Result<FoundRefutation, SearchStop> {
        let depth = depth.checked_sub(1).ok_or(UnprovedReason::Depth)?;
        self.budget.draw(1)?;
        let mark = self.mark();
        let found = match self.assert_rows(&case.rows)? {
            Some(found) => found,
            None => {
                for &split in &case.splits {
                    if !std::mem::replace(&mut self.states[split.0].is_open, true) {
                        self.open.push(split);
                    }
                }
                self.explore_open(depth)?
            }
        };
        self.take_back(&mark);
        Ok(found)
    }

    fn mark(&self) -> CaseMark {
        CaseMark {
            bounds: self.simplex.mark(),
            rows: self.rows.len(),
            open: self.open.len(),
            refuted: self.refuted.len(),
        }
    }

    /// Removes what was added since a mark; parts that what is left refutes stay refuted.
    fn take_back(&mut self, mark: &CaseMark) {
        self.simplex.undo(mark.bounds);
        for row in self.rows.drain(mark.rows..) {
            self.holds[row.0] = false;
        }
        for split in self.open.drain(mark.open..) {
            self.states[split.0].is_open = false;
        }
        for (split, part) in self.refuted.split_off(mark.refuted) {
            let found = self.states[split.0].refuted[part].take();
            let own = &self.form.parts(split)[part];
            let stays = |fact| match fact {
                UsedFact::Row(row) => self.holds[row.0],
                UsedFact::Split(other) => self.states[other.0].is_open,
            };
            if let Some(found) = found.filter(|found| found.used_beside(own).all(stays)) {
                self.keep_refuted(split, part, found);
            }
        }
    }

    fn keep_refuted(&mut self, split: SplitIndex, part: usize, found: FoundRefutation) {
        self.states[split.0].refuted[part] = Some(found);
        self.refuted.push((split, part));
    }

    /// Adds rows to the path; returns the refutation if they have no rational solution.
    fn assert_rows(&mut self, rows: &[RowIndex]) -> Result<Option<FoundRefutation>, SearchStop> {
        self.simplex.learn_rows(self.form.rows())?;
        self.holds.resize(self.form.rows().len(), false);
        for &row in rows {
            if std::mem::replace(&mut self.holds[row.0], true) {
                continue;
            }
            self.rows.push(row);
            if let Some(sum) = self.simplex.assert_row(row)? {
                return Ok(Some(FoundRefutation::of_sum(sum)));
            }
        }
        Ok(self.simplex.solve(self.budget)?.map(FoundRefutation::of_sum))
    }

    /// Refutes the current path, which has a rational solution.
    fn explore_open(&mut self, depth: u32) -> Result<FoundRefutation, SearchStop> {
        let values = self.simplex.values();
        if let Some(split) = self.choose_split(&values, false)? {
            return self.explore_split(split, &values, depth);
        }
        let Some(integers) = to_integers(&values) else {
            return self.explore_fractional(&values, depth);
        };
        // Bounds, disjunctions and integrality hold: evaluation of the formulas themselves must agree.
        if self.obligation.is_violated(&integers) {
            return Err(SearchStop::Violated(integers));
        }
        Err(UnprovedReason::Overflow.into())
    }

    fn explore_fractional(
        &mut self,
        values: &[ExactFraction],
        depth: u32,
    ) -> Result<FoundRefutation, SearchStop> {
        let rows = self.simplex.bounding_rows();
        if let Some(found) = refute_by_cuts(&mut self.form, rows, values.len(), self.budget)? {
            return Ok(found);
        }
        match self.choose_split(values, true)? {
            Some(split) => self.explore_split(split, values, depth),
            None => self.explore_branch(values, depth),
        }
    }

    /// Chooses the disjunction with the fewest parts that rows do not refute: of those that the values violate, or of
    /// all that are not split.
    fn choose_split(
        &mut self,
        values: &[ExactFraction],
        of_all: bool,
    ) -> Result<Option<SplitIndex>, SearchStop> {
        let mut best = None;
        for at in 0..self.open.len() {
            let split = self.open[at];
            if self.states[split.0].is_split || !of_all && self.is_satisfied(split)? {
                continue;
            }
            let fewest = best.map_or(usize::MAX, |(fewest, _)| fewest);
            let left = self.count_parts(split, fewest, values)?;
            if left < fewest {
                best = Some((left, split));
                if left <= 1 {
                    break;
                }
            }
        }
        Ok(best.map(|(_, split)| split))
    }

    fn is_satisfied(&self, split: SplitIndex) -> Result<bool, TermOverflow> {
        for part in self.form.parts(split) {
            if self.is_part_satisfied(part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_part_satisfied(&self, part: &NormalPart) -> Result<bool, TermOverflow> {
        for &row in &part.rows {
            if !self.simplex.is_satisfied(row)? {
                return Ok(false);
            }
        }
        for &split in &part.splits {
            if !self.is_satisfied(split)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Counts the parts of a disjunction that rows do not refute, up to a limit.
    fn count_parts(
        &mut self,
        split: SplitIndex,
        limit: usize,
        values: &[ExactFraction],
    ) -> Result<usize, SearchStop> {
        let mut left = 0;
        for part in 0..self.form.parts(split).len() {
            if self.states[split.0].refuted[part].is_some() {
                continue;
            }
            if left == limit {
                break;
            }
            self.budget.draw(1)?;
            let mark = self.mark();
            let rows = self.form.parts(split)[part].rows.clone();
            let found = self.assert_rows(&rows)?;
            self.take_back(&mark);
            self.simplex.restore(values)?;
            match found {
                Some(found) => self.keep_refuted(split, part, found),
                None => left += 1,
            }
        }
        Ok(left)
    }

    fn explore_split(
        &mut self,
        split: SplitIndex,
        values: &[ExactFraction],
        depth: u32,
    ) -> Result<FoundRefutation, SearchStop> {
        self.states[split.0].is_split = true;
        let parts = self.form.parts(split).to_vec();
        let mut refutations = Vec::with_capacity(parts.len());
        for (at, part) in parts.iter().enumerate() {
            let found = match self.states[split.0].refuted[at].clone() {
                Some(found) => found,
                None => {
                    let found = self.explore(part, depth)?;
                    self.simplex.restore(values)?;
                    found
                }
            };
            if !self.uses_part(&found, part) {
                self.states[split.0].is_split = false;
                return Ok(found);
            }
            refutations.push(found);
        }
        self.states[split.0].is_split = false;
        Ok(FoundRefutation::of_split(split, &parts, refutations))
    }

    /// Returns true if a refutation uses a fact of a part that the path does not hold by itself.
    fn uses_part(&self, found: &FoundRefutation, part: &NormalPart) -> bool {
        let new_row = |&row: &RowIndex| !self.holds[row.0] && found.uses(UsedFact::Row(row));
        let new_split = |&split: &SplitIndex| {
            !self.states[split.0].is_open && found.uses(UsedFact::Split(split))
        };
        part.rows.iter().any(new_row) || part.splits.iter().any(new_split)
    }

    fn explore_branch(
        &mut self,
        values: &[ExactFraction],
        depth: u32,
    ) -> Result<FoundRefutation, SearchStop> {
        let (at, bound) = self.choose_branch(values);
        let variable = FormulaVariable(u32::try_from(at).map_err(|_| TermOverflow)?);
        let term = LinearTerm::from(variable);
        let below = self.form.add_row(term.sub(&bound.into())?);
        let next = bound.checked_add(1).ok_or(TermOverflow)?;
        let above = self.form.add_row(LinearTerm::from(next).sub(&term)?);
        let mut cases = Vec::with_capacity(2);
        for row in [below, above] {
            let part = NormalPart { rows: vec![row], splits: Vec::new() };
            let found = self.explore(&part, depth)?;
            self.simplex.restore(values)?;
            if !self.uses_part(&found, &part) {
                return Ok(found);
            }
            cases.push(found);
        }
        let Ok(cases) = <[FoundRefutation; 2]>::try_from(cases) else {
            return Err(UnprovedReason::Overflow.into());
        };
        Ok(FoundRefutation::of_branch(variable, bound, [below, above], cases))
    }

    /// Chooses a variable and the greatest value of its first case: a variable of two values before one that has a
    /// fraction, which are chosen by the distance of their bounds.
    fn choose_branch(&self, values: &[ExactFraction]) -> (usize, i128) {
        let width = |at: usize| match self.simplex.bounds(at) {
            (Some(low), Some(high)) => high.saturating_sub(low),
            _ => i128::MAX,
        };
        let fractional = (0..values.len()).filter(|&at| !values[at].is_integer());
        let narrowest = fractional.min_by_key(|&at| width(at)).unwrap_or(0);
        if width(narrowest) > 1
            && let Some(at) = (0..values.len()).find(|&at| width(at) == 1)
            && let (Some(low), _) = self.simplex.bounds(at)
        {
            return (at, low);
        }
        (narrowest, values[narrowest].floor())
    }
}

fn to_integers(values: &[ExactFraction]) -> Option<Vec<i128>> {
    values.iter().map(|value| value.is_integer().then(|| value.numerator())).collect()
}
