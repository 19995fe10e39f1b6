//! The normal form of an obligation: rows that hold, and disjunctions of which one part holds each.
//!
//! The checker of refutations makes the same form by the same definition, which `certificate.rs` states: a refutation
//! names rows and disjunctions by the order in which they appear.

use std::collections::BTreeMap;

use super::exact_fraction::divisor;
use super::formula::{LinearFormula, ProofObligation};
use super::linear_term::{LinearTerm, TermOverflow};
use super::step_budget::{StepBudget, UnprovedReason};

/// Formulas nest so deep at most.
const DEPTH: u32 = 200;

/// The index of a row `term <= 0` of a [`NormalForm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowIndex(pub(super) usize);

/// The index of a disjunction of a [`NormalForm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SplitIndex(pub(super) usize);

/// A conjunction: rows and disjunctions in the order in which the formula has them, repeated ones too.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NormalPart {
    pub(super) rows: Vec<RowIndex>,
    pub(super) splits: Vec<SplitIndex>,
}

/// The rows and disjunctions of an obligation; equal ones are the same.
#[derive(Debug, Default)]
pub(super) struct NormalForm {
    rows: Vec<LinearTerm>,
    row_indices: BTreeMap<LinearTerm, RowIndex>,
    splits: Vec<Vec<NormalPart>>,
    split_indices: BTreeMap<Vec<NormalPart>, SplitIndex>,
}

/// A formula in negation normal form: neither kind of list holds a list of its own kind.
enum NormalTree {
    Row(LinearTerm),
    And(Vec<NormalTree>),
    Or(Vec<NormalTree>),
}

impl NormalForm {
    /// Makes the normal form of the assumptions and the negated goal, which are to have no common solution.
    pub(super) fn of_obligation(
        obligation: &ProofObligation,
        budget: &mut StepBudget,
    ) -> Result<(Self, NormalPart), UnprovedReason> {
        let mut form = NormalForm::default();
        let mut root = NormalPart::default();
        let goal = (&obligation.goal, false);
        let assumptions = obligation.assumptions.iter().map(|assumption| (assumption, true));
        for (formula, is_positive) in assumptions.chain([goal]) {
            let tree = normalize(formula, is_positive, DEPTH, budget)?;
            form.assert(tree, &mut root);
        }
        Ok((form, root))
    }

    pub(super) fn row(&self, row: RowIndex) -> &LinearTerm {
        &self.rows[row.0]
    }

    pub(super) fn rows(&self) -> &[LinearTerm] {
        &self.rows
    }

    pub(super) fn parts(&self, split: SplitIndex) -> &[NormalPart] {
        &self.splits[split.0]
    }

    pub(super) fn splits(&self) -> usize {
        self.splits.len()
    }

    /// Returns the index of a row, which is added if it is new.
    pub(super) fn add_row(&mut self, row: LinearTerm) -> RowIndex {
        let NormalForm { rows, row_indices, .. } = self;
        *row_indices.entry(row).or_insert_with_key(|row| {
            rows.push(row.clone());
            RowIndex(rows.len() - 1)
        })
    }

    fn assert(&mut self, tree: NormalTree, part: &mut NormalPart) {
        match tree {
            NormalTree::Row(row) => {
                let row = self.add_row(row);
                part.rows.push(row);
            }
            NormalTree::And(trees) => trees.into_iter().for_each(|tree| self.assert(tree, part)),
            NormalTree::Or(trees) => {
                let mut parts = Vec::with_capacity(trees.len());
                for tree in trees {
                    let mut inner = NormalPart::default();
                    self.assert(tree, &mut inner);
                    parts.push(inner);
                }
                let NormalForm { splits, split_indices, .. } = self;
                let split = *split_indices.entry(parts).or_insert_with_key(|parts| {
                    splits.push(parts.clone());
                    SplitIndex(splits.len() - 1)
                });
                part.splits.push(split);
            }
        }
    }
}

/// Divides a row `term <= 0` by the divisor of its coefficients, and rounds its constant up.
pub(super) fn tighten(term: &LinearTerm) -> Result<LinearTerm, TermOverflow> {
    let mut common = 0;
    for &(_, coefficient) in term.coefficients() {
        common = divisor(common, coefficient)?;
    }
    if common <= 1 {
        return Ok(term.clone());
    }
    let floor = term.constant().checked_neg().ok_or(TermOverflow)?.div_euclid(common);
    LinearTerm::new(term.coefficients().iter().map(|&(v, c)| (v, c / common)), -floor)
}

fn normalize(
    formula: &LinearFormula,
    is_positive: bool,
    depth: u32,
    budget: &mut StepBudget,
) -> Result<NormalTree, UnprovedReason> {
    budget.draw(1)?;
    let depth = depth.checked_sub(1).ok_or(UnprovedReason::Depth)?;
    let mut all = |parts: &[(&LinearFormula, bool)]| {
        let trees = parts.iter().map(|&(part, sign)| normalize(part, sign, depth, budget));
        trees.collect::<Result<Vec<_>, _>>()
    };
    let row = |term: &LinearTerm| tighten(term).map(NormalTree::Row);
    let above = |term: &LinearTerm| row(&LinearTerm::from(1).sub(term)?);
    let one = LinearTerm::from(1);
    Ok(match (formula, is_positive) {
        (LinearFormula::True, true) | (LinearFormula::False, false) => NormalTree::And(Vec::new()),
        (LinearFormula::True, false) | (LinearFormula::False, true) => NormalTree::Or(Vec::new()),
        (LinearFormula::AtMost(term), true) => row(term)?,
        (LinearFormula::AtMost(term), false) => above(term)?,
        (LinearFormula::Equal(term), true) => {
            NormalTree::And(vec![row(term)?, row(&term.scale(-1)?)?])
        }
        (LinearFormula::Equal(term), false) => {
            NormalTree::Or(vec![row(&term.add(&one)?)?, above(term)?])
        }
        (LinearFormula::Not(inner), sign) => return normalize(inner, !sign, depth, budget),
        (LinearFormula::And(parts) | LinearFormula::Or(parts), sign) => {
            let signed: Vec<_> = parts.iter().map(|part| (part, sign)).collect();
            let trees = all(&signed)?;
            if matches!(formula, LinearFormula::And(_)) == sign { and(trees) } else { or(trees) }
        }
        // Both hold or neither; negated: one of them and not the other.
        (LinearFormula::Iff(a, b), sign) => {
            or(vec![and(all(&[(a, true), (b, sign)])?), and(all(&[(a, false), (b, !sign)])?)])
        }
    })
}

fn and(trees: Vec<NormalTree>) -> NormalTree {
    let splice = |tree| match tree {
        NormalTree::And(inner) => inner,
        other => vec![other],
    };
    NormalTree::And(trees.into_iter().flat_map(splice).collect())
}

fn or(trees: Vec<NormalTree>) -> NormalTree {
    let splice = |tree| match tree {
        NormalTree::Or(inner) => inner,
        other => vec![other],
    };
    NormalTree::Or(trees.into_iter().flat_map(splice).collect())
}
