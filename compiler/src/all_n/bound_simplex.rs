//! A simplex over exact fractions that decides whether rows have a common rational solution.
//!
//! A row bounds one *form*, a sum of variables, from above or below. Forms that have a bound are equations of the
//! tableau; bounds come and go with the case distinctions of the search, in the order of a stack.

use std::collections::BTreeMap;

use super::exact_fraction::ExactFraction;
use super::linear_term::{FormulaVariable, LinearTerm, TermOverflow};
use super::normal_form::RowIndex;
use super::step_budget::{StepBudget, UnprovedReason};

/// Multiples of rows that add up to a contradiction.
pub(super) type RowSum = Vec<(RowIndex, i128)>;

/// The meaning of a row: a bound of a form, or a constant that is to be zero at most.
#[derive(Debug, Clone, Copy)]
enum RowMeaning {
    Upper { form: usize, bound: i128 },
    Lower { form: usize, bound: i128 },
    Constant(i128),
}

#[derive(Debug, Clone, Copy)]
struct FormBound {
    value: i128,
    row: RowIndex,
}

/// The place of a form in the tableau.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableauPlace {
    Absent,
    Row(usize),
    Column(usize),
}

/// A form: its definition by variables, its bounds and its value.
#[derive(Debug)]
struct TableauForm {
    definition: Vec<(usize, i128)>,
    lower: Option<FormBound>,
    upper: Option<FormBound>,
    value: ExactFraction,
    place: TableauPlace,
}

#[derive(Debug)]
struct TableauRow {
    form: usize,
    entries: Vec<ExactFraction>,
}

/// The tableau, the bounds and the values of all forms; the first forms are the variables.
#[derive(Debug)]
pub(super) struct BoundSimplex {
    variables: usize,
    forms: Vec<TableauForm>,
    indices: BTreeMap<Vec<(FormulaVariable, i128)>, usize>,
    meanings: Vec<RowMeaning>,
    rows: Vec<TableauRow>,
    columns: Vec<usize>,
    trail: Vec<(usize, bool, Option<FormBound>)>,
}

impl BoundSimplex {
    /// Creates a simplex of variables without bounds.
    pub(super) fn new(variables: usize) -> Self {
        let form = |index| TableauForm {
            definition: Vec::new(),
            lower: None,
            upper: None,
            value: ExactFraction::ZERO,
            place: TableauPlace::Column(index),
        };
        BoundSimplex {
            variables,
            forms: (0..variables).map(form).collect(),
            indices: BTreeMap::new(),
            meanings: Vec::new(),
            rows: Vec::new(),
            columns: (0..variables).collect(),
            trail: Vec::new(),
        }
    }

    /// Takes in the rows of a normal form that are new, by index.
    pub(super) fn learn_rows(&mut self, rows: &[LinearTerm]) -> Result<(), TermOverflow> {
        while let Some(row) = rows.get(self.meanings.len()) {
            let meaning = self.read_row(row)?;
            self.meanings.push(meaning);
        }
        Ok(())
    }

    fn read_row(&mut self, row: &LinearTerm) -> Result<RowMeaning, TermOverflow> {
        let bound = row.constant().checked_neg().ok_or(TermOverflow)?;
        let Some(&(first, leading)) = row.coefficients().first() else {
            return Ok(RowMeaning::Constant(row.constant()));
        };
        let is_upper = leading > 0;
        let positive = if is_upper { row.clone() } else { row.scale(-1)? };
        let form = if positive.coefficients().len() == 1 && leading.unsigned_abs() == 1 {
            index_of(first)
        } else if let Some(&form) = self.indices.get(positive.coefficients()) {
            form
        } else {
            let definition = positive.coefficients().iter().map(|&(v, c)| (index_of(v), c));
            self.forms.push(TableauForm {
                definition: definition.collect(),
                lower: None,
                upper: None,
                value: ExactFraction::ZERO,
                place: TableauPlace::Absent,
            });
            self.indices.insert(positive.coefficients().to_vec(), self.forms.len() - 1);
            self.forms.len() - 1
        };
        Ok(if is_upper {
            RowMeaning::Upper { form, bound }
        } else {
            RowMeaning::Lower { form, bound: row.constant() }
        })
    }

    /// Adds the bound of a row; returns the sum of the two rows that contradict each other.
    pub(super) fn assert_row(&mut self, row: RowIndex) -> Result<Option<RowSum>, TermOverflow> {
        let (form, bound, is_upper) = match self.meanings[row.0] {
            RowMeaning::Constant(value) => {
                return Ok((value > 0).then(|| vec![(row, 1)]));
            }
            RowMeaning::Upper { form, bound } => (form, bound, true),
            RowMeaning::Lower { form, bound } => (form, bound, false),
        };
        let state = &self.forms[form];
        let (own, other) =
            if is_upper { (state.upper, state.lower) } else { (state.lower, state.upper) };
        let exceeds = |a: i128, b: i128| if is_upper { a > b } else { a < b };
        if own.is_some_and(|own| !exceeds(own.value, bound)) {
            return Ok(None);
        }
        if let Some(other) = other.filter(|other| exceeds(other.value, bound)) {
            return Ok(Some(vec![(other.row, 1), (row, 1)]));
        }
        self.activate(form)?;
        self.trail.push((form, is_upper, own));
        let state = &mut self.forms[form];
        let new = Some(FormBound { value: bound, row });
        if is_upper {
            state.upper = new;
        } else {
            state.lower = new;
        }
        if let TableauPlace::Column(column) = state.place {
            let order = state.value.compare(bound)?;
            if if is_upper { order.is_gt() } else { order.is_lt() } {
                self.move_column(column, bound.into())?;
            }
        }
        Ok(None)
    }

    /// Returns the depth of the stack of bounds.
    pub(super) fn mark(&self) -> usize {
        self.trail.len()
    }

    /// Takes back the bounds that were added since a mark. Values stay; [`BoundSimplex::restore`] sets those of before.
    pub(super) fn undo(&mut self, mark: usize) {
        while self.trail.len() > mark {
            let Some((form, is_upper, old)) = self.trail.pop() else { return };
            let state = &mut self.forms[form];
            if is_upper {
                state.upper = old;
            } else {
                state.lower = old;
            }
            self.drop_idle(form);
        }
    }

    /// Returns the values of the variables.
    pub(super) fn values(&self) -> Vec<ExactFraction> {
        self.forms[..self.variables].iter().map(|form| form.value).collect()
    }

    /// Sets the values of the variables, which satisfy all bounds, and those of all forms in the tableau.
    pub(super) fn restore(&mut self, values: &[ExactFraction]) -> Result<(), TermOverflow> {
        for (form, &value) in self.forms.iter_mut().zip(values) {
            form.value = value;
        }
        for form in self.variables..self.forms.len() {
            if self.forms[form].place != TableauPlace::Absent {
                self.forms[form].value = self.compute_value(form)?;
            }
        }
        Ok(())
    }

    /// Returns true if the current values satisfy a row.
    pub(super) fn is_satisfied(&self, row: RowIndex) -> Result<bool, TermOverflow> {
        let value = |form: usize| {
            let state = &self.forms[form];
            if state.place == TableauPlace::Absent {
                self.compute_value(form)
            } else {
                Ok(state.value)
            }
        };
        Ok(match self.meanings[row.0] {
            RowMeaning::Constant(constant) => constant <= 0,
            RowMeaning::Upper { form, bound } => value(form)?.compare(bound)?.is_le(),
            RowMeaning::Lower { form, bound } => value(form)?.compare(bound)?.is_ge(),
        })
    }

    /// Returns the lower and the upper bound of a variable.
    pub(super) fn bounds(&self, variable: usize) -> (Option<i128>, Option<i128>) {
        let state = &self.forms[variable];
        (state.lower.map(|bound| bound.value), state.upper.map(|bound| bound.value))
    }

    /// Returns the rows that bound a form now.
    pub(super) fn bounding_rows(&self) -> Vec<RowIndex> {
        let bounds = self.forms.iter().flat_map(|form| [form.lower, form.upper]);
        bounds.flatten().map(|bound| bound.row).collect()
    }

    /// Finds values that satisfy all bounds, or returns a sum of rows that is a contradiction.
    pub(super) fn solve(
        &mut self,
        budget: &mut StepBudget,
    ) -> Result<Option<RowSum>, UnprovedReason> {
        loop {
            let Some((row, is_below, target)) = self.find_violation()? else { return Ok(None) };
            budget.draw(1)?;
            match self.find_entering(row, is_below)? {
                Some(column) => self.pivot(row, column, target)?,
                None => return Ok(Some(self.explain(row, is_below)?)),
            }
        }
    }

    /// Returns the first form in a row whose value is outside its bounds, whether it is below, and the bound.
    fn find_violation(&self) -> Result<Option<(usize, bool, i128)>, TermOverflow> {
        let mut found: Option<(usize, usize, bool, i128)> = None;
        for (at, row) in self.rows.iter().enumerate() {
            if found.is_some_and(|(form, ..)| form < row.form) {
                continue;
            }
            let state = &self.forms[row.form];
            if let Some(bound) = state.lower
                && state.value.compare(bound.value)?.is_lt()
            {
                found = Some((row.form, at, true, bound.value));
            } else if let Some(bound) = state.upper
                && state.value.compare(bound.value)?.is_gt()
            {
                found = Some((row.form, at, false, bound.value));
            }
        }
        Ok(found.map(|(_, row, is_below, bound)| (row, is_below, bound)))
    }

    /// Returns the column of the first form that can move a row's value towards its bound.
    fn find_entering(&self, row: usize, is_below: bool) -> Result<Option<usize>, TermOverflow> {
        let mut found: Option<(usize, usize)> = None;
        for (column, (&form, &entry)) in
            self.columns.iter().zip(&self.rows[row].entries).enumerate()
        {
            if entry.is_zero() || found.is_some_and(|(first, _)| first < form) {
                continue;
            }
            let state = &self.forms[form];
            let limit = if entry.is_positive() == is_below { state.upper } else { state.lower };
            let can_move = match limit {
                None => true,
                Some(limit) => !state.value.compare(limit.value)?.is_eq(),
            };
            if can_move {
                found = Some((form, column));
            }
        }
        Ok(found.map(|(_, column)| column))
    }

    /// Returns the sum of rows which shows that no form can move a row's value to its bound.
    fn explain(&self, row: usize, is_below: bool) -> Result<RowSum, TermOverflow> {
        let missing = "a form that cannot move has a bound";
        let bound = |form: usize, is_lower: bool| {
            let state = &self.forms[form];
            if is_lower { state.lower } else { state.upper }.expect(missing).row
        };
        let row = &self.rows[row];
        let mut fractions = vec![(bound(row.form, is_below), ExactFraction::from(1))];
        for (&form, &entry) in self.columns.iter().zip(&row.entries) {
            if !entry.is_zero() {
                let is_lower = entry.is_positive() != is_below;
                let size = if entry.is_positive() {
                    entry
                } else {
                    ExactFraction::ZERO.subtract(entry)?
                };
                fractions.push((bound(form, is_lower), size));
            }
        }
        let mut common = ExactFraction::from(1);
        for &(_, fraction) in &fractions {
            let scaled = common.multiply(fraction)?;
            common = common.multiply(scaled.denominator().into())?;
        }
        fractions
            .into_iter()
            .map(|(row, fraction)| Ok((row, common.multiply(fraction)?.numerator())))
            .collect()
    }

    /// Makes a form an equation of the tableau, unless it is in it.
    fn activate(&mut self, form: usize) -> Result<(), TermOverflow> {
        if self.forms[form].place != TableauPlace::Absent {
            return Ok(());
        }
        let mut entries = vec![ExactFraction::ZERO; self.columns.len()];
        for &(variable, coefficient) in &self.forms[form].definition {
            let coefficient = ExactFraction::from(coefficient);
            match self.forms[variable].place {
                TableauPlace::Column(column) => {
                    entries[column] = entries[column].add_product(coefficient, 1.into())?;
                }
                TableauPlace::Row(row) => {
                    for (entry, &other) in entries.iter_mut().zip(&self.rows[row].entries) {
                        if !other.is_zero() {
                            *entry = entry.add_product(coefficient, other)?;
                        }
                    }
                }
                TableauPlace::Absent => {}
            }
        }
        self.forms[form].value = self.compute_value(form)?;
        self.forms[form].place = TableauPlace::Row(self.rows.len());
        self.rows.push(TableauRow { form, entries });
        Ok(())
    }

    fn compute_value(&self, form: usize) -> Result<ExactFraction, TermOverflow> {
        let mut sum = ExactFraction::ZERO;
        for &(variable, coefficient) in &self.forms[form].definition {
            sum = sum.add_product(coefficient.into(), self.forms[variable].value)?;
        }
        Ok(sum)
    }

    /// Removes the equation of a form that has no bound any more and is no variable.
    fn drop_idle(&mut self, form: usize) {
        let state = &mut self.forms[form];
        if form >= self.variables
            && state.lower.is_none()
            && state.upper.is_none()
            && let TableauPlace::Row(row) = state.place
        {
            state.place = TableauPlace::Absent;
            self.rows.swap_remove(row);
            if let Some(moved) = self.rows.get(row) {
                self.forms[moved.form].place = TableauPlace::Row(row);
            }
        }
    }

    /// Sets the value of a column's form, and those of all rows with it.
    fn move_column(&mut self, column: usize, value: ExactFraction) -> Result<(), TermOverflow> {
        let form = self.columns[column];
        let change = value.subtract(self.forms[form].value)?;
        self.forms[form].value = value;
        for row in &self.rows {
            let entry = row.entries[column];
            if !entry.is_zero() {
                let state = &mut self.forms[row.form];
                state.value = state.value.add_product(entry, change)?;
            }
        }
        Ok(())
    }

    /// Exchanges the form of a row, whose value becomes the target, with that of a column.
    fn pivot(&mut self, at: usize, column: usize, target: i128) -> Result<(), TermOverflow> {
        let leaving = self.rows[at].form;
        let entering = self.columns[column];
        let entry = self.rows[at].entries[column];
        let distance = ExactFraction::from(target).subtract(self.forms[leaving].value)?;
        let moved = self.forms[entering].value.add_product(distance.divide(entry)?, 1.into())?;
        self.move_column(column, moved)?;

        let mut solved = std::mem::take(&mut self.rows[at].entries);
        let factor = ExactFraction::from(-1).divide(entry)?;
        for (place, value) in solved.iter_mut().enumerate() {
            *value = if place == column {
                ExactFraction::from(1).divide(entry)?
            } else if value.is_zero() {
                ExactFraction::ZERO
            } else {
                value.multiply(factor)?
            };
        }
        for (other, row) in self.rows.iter_mut().enumerate() {
            if other == at || row.entries[column].is_zero() {
                continue;
            }
            let scale = std::mem::replace(&mut row.entries[column], ExactFraction::ZERO);
            for (value, &part) in row.entries.iter_mut().zip(&solved) {
                if !part.is_zero() {
                    *value = value.add_product(scale, part)?;
                }
            }
        }
        self.rows[at] = TableauRow { form: entering, entries: solved };
        self.columns[column] = leaving;
        self.forms[entering].place = TableauPlace::Row(at);
        self.forms[leaving].place = TableauPlace::Column(column);
        self.drop_idle(entering);
        Ok(())
    }
}

fn index_of(variable: FormulaVariable) -> usize {
    usize::try_from(variable.0).expect("an address has 32 bits at least")
}
