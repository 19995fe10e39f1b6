//! The cut rule: solves equations that have a coefficient of 1 or -1, and rounds what is left.
//!
//! Case distinctions and branches alone never end on parity (`2h + e = 2g + f + 1` with `e = f`): each branch leaves a
//! rational solution. Without the equations, every row has a divisor, and rounding shows the contradiction.

use std::collections::{BTreeMap, BTreeSet};

use super::bound_simplex::{BoundSimplex, RowSum};
use super::found_refutation::{DerivedRows, FoundRefutation};
use super::linear_term::{FormulaVariable, LinearTerm, TermOverflow};
use super::normal_form::{NormalForm, RowIndex, tighten};
use super::step_budget::{StepBudget, UnprovedReason};

/// Rows, and those derived from them.
struct EquationCuts<'a> {
    form: &'a mut NormalForm,
    known: BTreeSet<RowIndex>,
    derived: DerivedRows,
}

/// Two rows that are an equation, and a variable of it with the coefficient 1 or -1.
struct SolvableEquation {
    rows: [RowIndex; 2],
    variable: FormulaVariable,
}

enum EquationSearch {
    Contradiction(RowSum),
    Solvable(SolvableEquation),
    Solved,
}

/// Refutes rows by the cut rule, if it can; `variables` is how many there are.
pub(super) fn refute_by_cuts(
    form: &mut NormalForm,
    rows: Vec<RowIndex>,
    variables: usize,
    budget: &mut StepBudget,
) -> Result<Option<FoundRefutation>, UnprovedReason> {
    let known = rows.iter().copied().collect();
    let mut cuts = EquationCuts { form, known, derived: Vec::new() };
    let mut rows = rows;
    loop {
        rows = cuts.strongest(&rows);
        match cuts.find_equation(&rows)? {
            EquationSearch::Contradiction(sum) => {
                return Ok(Some(FoundRefutation::of_derived(cuts.derived, sum)));
            }
            EquationSearch::Solvable(equation) => {
                budget.draw(1)?;
                rows = cuts.eliminate(&rows, &equation)?;
            }
            EquationSearch::Solved => break,
        }
    }
    if cuts.derived.is_empty() {
        return Ok(None);
    }
    let left: Vec<LinearTerm> = rows.iter().map(|&row| cuts.form.row(row).clone()).collect();
    let mut simplex = BoundSimplex::new(variables);
    simplex.learn_rows(&left)?;
    let mut conflict = None;
    for index in 0..left.len() {
        conflict = simplex.assert_row(RowIndex(index))?;
        if conflict.is_some() {
            break;
        }
    }
    if conflict.is_none() {
        conflict = simplex.solve(budget)?;
    }
    Ok(conflict.map(|sum| {
        let sum = sum.into_iter().map(|(at, multiple)| (rows[at.0], multiple)).collect();
        FoundRefutation::of_derived(cuts.derived, sum)
    }))
}

impl EquationCuts<'_> {
    /// Returns the strongest row of each form.
    fn strongest(&self, rows: &[RowIndex]) -> Vec<RowIndex> {
        let mut best: BTreeMap<&[_], RowIndex> = BTreeMap::new();
        for &row in rows {
            let term = self.form.row(row);
            let entry = best.entry(term.coefficients()).or_insert(row);
            if self.form.row(*entry).constant() < term.constant() {
                *entry = row;
            }
        }
        best.into_values().collect()
    }

    fn find_equation(&self, rows: &[RowIndex]) -> Result<EquationSearch, TermOverflow> {
        let by_form: BTreeMap<&[_], RowIndex> =
            rows.iter().map(|&row| (self.form.row(row).coefficients(), row)).collect();
        let mut found = None;
        for &row in rows {
            let term = self.form.row(row);
            if term.coefficients().is_empty() {
                if term.constant() > 0 {
                    return Ok(EquationSearch::Contradiction(vec![(row, 1)]));
                }
                continue;
            }
            let negated = term.scale(-1)?;
            let Some(&opposite) = by_form.get(negated.coefficients()) else { continue };
            let slack = term.add(self.form.row(opposite))?.constant();
            if slack > 0 {
                return Ok(EquationSearch::Contradiction(vec![(row, 1), (opposite, 1)]));
            }
            if slack == 0 && found.is_none() {
                let unit = term.coefficients().iter().find(|(_, c)| c.unsigned_abs() == 1);
                found =
                    unit.map(|&(variable, _)| SolvableEquation { rows: [row, opposite], variable });
            }
        }
        Ok(found.map_or(EquationSearch::Solved, EquationSearch::Solvable))
    }

    /// Takes a variable out of all rows but those of its equation, which are left out.
    fn eliminate(
        &mut self,
        rows: &[RowIndex],
        equation: &SolvableEquation,
    ) -> Result<Vec<RowIndex>, TermOverflow> {
        let mut left = Vec::new();
        for &row in rows {
            if equation.rows.contains(&row) {
                continue;
            }
            let coefficient = self.form.row(row).coefficient(equation.variable);
            if coefficient == 0 {
                left.push(row);
                continue;
            }
            let is_opposite = |&other: &RowIndex| {
                (self.form.row(other).coefficient(equation.variable) > 0) != (coefficient > 0)
            };
            let other = equation.rows.iter().copied().find(is_opposite).ok_or(TermOverflow)?;
            let multiple = coefficient.checked_abs().ok_or(TermOverflow)?;
            left.extend(self.derive(row, other, multiple)?);
        }
        Ok(left)
    }

    /// Adds the row `row + multiple * other`, rounded; none if it says nothing.
    fn derive(
        &mut self,
        row: RowIndex,
        other: RowIndex,
        multiple: i128,
    ) -> Result<Option<RowIndex>, TermOverflow> {
        let sum = self.form.row(row).add_scaled(self.form.row(other), multiple)?;
        if sum.coefficients().is_empty() && sum.constant() <= 0 {
            return Ok(None);
        }
        let index = self.form.add_row(tighten(&sum)?);
        if self.known.insert(index) {
            self.derived.push((index, vec![(row, 1), (other, multiple)]));
        }
        Ok(Some(index))
    }
}
