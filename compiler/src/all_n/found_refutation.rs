//! Refutations while they are found: nodes name rows and disjunctions by index, and know which they use.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::bound_simplex::RowSum;
use super::certificate::RefutationTree;
use super::linear_term::FormulaVariable;
use super::normal_form::{NormalForm, NormalPart, RowIndex, SplitIndex};

/// A row or a disjunction that a refutation uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UsedFact {
    Row(RowIndex),
    Split(SplitIndex),
}

/// Rows derived one after the other, each with the sum that gives it.
pub(super) type DerivedRows = Vec<(RowIndex, RowSum)>;

/// A refutation of the facts that it uses, whatever else holds.
#[derive(Debug, Clone)]
pub(super) struct FoundRefutation {
    node: Rc<RefutationNode>,
    used: Rc<[UsedFact]>,
}

#[derive(Debug)]
enum RefutationNode {
    Sum(RowSum),
    Split(SplitIndex, Vec<FoundRefutation>),
    Branch {
        variable: FormulaVariable,
        bound: i128,
        rows: [RowIndex; 2],
        cases: [FoundRefutation; 2],
    },
    Derive(DerivedRows, RowSum),
}

impl FoundRefutation {
    /// Creates the refutation of rows that add up to a contradiction.
    pub(super) fn of_sum(sum: RowSum) -> Self {
        let used = sum.iter().map(|&(row, _)| UsedFact::Row(row)).collect();
        FoundRefutation::new(RefutationNode::Sum(sum), used)
    }

    /// Creates the refutation of rows of which some are derived; leaves out those that the sum does not need.
    pub(super) fn of_derived(derived: DerivedRows, sum: RowSum) -> Self {
        let mut needed: Vec<RowIndex> = sum.iter().map(|&(row, _)| row).collect();
        let mut kept = Vec::new();
        for (row, combination) in derived.into_iter().rev() {
            if needed.contains(&row) {
                needed.retain(|&other| other != row);
                needed.extend(combination.iter().map(|&(other, _)| other));
                kept.push((row, combination));
            }
        }
        kept.reverse();
        let used = needed.into_iter().map(UsedFact::Row).collect();
        FoundRefutation::new(RefutationNode::Derive(kept, sum), used)
    }

    /// Creates the refutation of a disjunction by those of its parts.
    pub(super) fn of_split(
        split: SplitIndex,
        parts: &[NormalPart],
        refutations: Vec<FoundRefutation>,
    ) -> Self {
        let mut used = vec![UsedFact::Split(split)];
        for (part, refutation) in parts.iter().zip(&refutations) {
            used.extend(refutation.used_beside(part));
        }
        FoundRefutation::new(RefutationNode::Split(split, refutations), used)
    }

    /// Creates the refutation of two cases, which are two rows.
    pub(super) fn of_branch(
        variable: FormulaVariable,
        bound: i128,
        rows: [RowIndex; 2],
        cases: [FoundRefutation; 2],
    ) -> Self {
        let mut used = Vec::new();
        for (case, row) in cases.iter().zip(rows) {
            used.extend(case.used.iter().copied().filter(|&fact| fact != UsedFact::Row(row)));
        }
        FoundRefutation::new(RefutationNode::Branch { variable, bound, rows, cases }, used)
    }

    fn new(node: RefutationNode, mut used: Vec<UsedFact>) -> Self {
        used.sort_unstable();
        used.dedup();
        FoundRefutation { node: Rc::new(node), used: used.into() }
    }

    /// Returns the facts used, but not those of a part.
    pub(super) fn used_beside(&self, part: &NormalPart) -> impl Iterator<Item = UsedFact> {
        let is_own = |fact: &UsedFact| match fact {
            UsedFact::Row(row) => part.rows.contains(row),
            UsedFact::Split(split) => part.splits.contains(split),
        };
        self.used.iter().copied().filter(move |fact| !is_own(fact))
    }

    /// Returns true if the refutation uses a fact.
    pub(super) fn uses(&self, fact: UsedFact) -> bool {
        self.used.binary_search(&fact).is_ok()
    }

    /// Returns the tree, whose rows and disjunctions are numbered as a reader meets them.
    pub(super) fn to_tree(&self, form: &NormalForm, root: &NormalPart) -> RefutationTree {
        let mut numbers = PathNumbers::default();
        numbers.enter(root);
        numbers.write(form, self)
    }
}

/// The numbers of rows and disjunctions on the way from the root to a node.
#[derive(Debug, Default)]
struct PathNumbers {
    numbers: BTreeMap<UsedFact, u32>,
    rows: u32,
    splits: u32,
    added: Vec<UsedFact>,
}

impl PathNumbers {
    fn add(&mut self, fact: UsedFact) {
        let count = match fact {
            UsedFact::Row(_) => &mut self.rows,
            UsedFact::Split(_) => &mut self.splits,
        };
        // A fact that a reader has met already keeps its number.
        self.numbers.entry(fact).or_insert_with(|| {
            self.added.push(fact);
            *count
        });
        *count += 1;
    }

    fn enter(&mut self, part: &NormalPart) {
        part.rows.iter().for_each(|&row| self.add(UsedFact::Row(row)));
        part.splits.iter().for_each(|&split| self.add(UsedFact::Split(split)));
    }

    /// Writes what follows with more facts, which are then taken back.
    fn write_within(
        &mut self,
        enter: impl FnOnce(&mut Self),
        write: impl FnOnce(&mut Self) -> RefutationTree,
    ) -> RefutationTree {
        let (rows, splits, added) = (self.rows, self.splits, self.added.len());
        enter(self);
        let tree = write(self);
        (self.rows, self.splits) = (rows, splits);
        for fact in self.added.drain(added..) {
            self.numbers.remove(&fact);
        }
        tree
    }

    fn number(&self, fact: UsedFact) -> u32 {
        *self.numbers.get(&fact).expect("a refutation uses facts of its path")
    }

    fn sum(&self, sum: &RowSum) -> Vec<(u32, i128)> {
        sum.iter().map(|&(row, multiple)| (self.number(UsedFact::Row(row)), multiple)).collect()
    }

    fn write(&mut self, form: &NormalForm, found: &FoundRefutation) -> RefutationTree {
        match found.node.as_ref() {
            RefutationNode::Sum(sum) => RefutationTree::Sum(self.sum(sum)),
            RefutationNode::Split(split, refutations) => {
                let disjunction = self.number(UsedFact::Split(*split));
                let parts = form.parts(*split).iter().zip(refutations).map(|(part, refutation)| {
                    self.write_within(|s| s.enter(part), |s| s.write(form, refutation))
                });
                RefutationTree::Split { disjunction, parts: parts.collect() }
            }
            RefutationNode::Branch { variable, bound, rows, cases } => {
                let cases = [0, 1].map(|case| {
                    self.write_within(
                        |s| s.add(UsedFact::Row(rows[case])),
                        |s| s.write(form, &cases[case]),
                    )
                });
                RefutationTree::Branch {
                    variable: *variable,
                    bound: *bound,
                    cases: Box::new(cases),
                }
            }
            RefutationNode::Derive(derived, sum) => {
                self.write_within(|_| {}, |s| s.write_derived(derived, sum))
            }
        }
    }

    fn write_derived(&mut self, derived: &[(RowIndex, RowSum)], sum: &RowSum) -> RefutationTree {
        match derived {
            [] => RefutationTree::Sum(self.sum(sum)),
            [(row, combination), rest @ ..] => {
                let combination = self.sum(combination);
                self.add(UsedFact::Row(*row));
                let rest = Box::new(self.write_derived(rest, sum));
                RefutationTree::Derive { sum: combination, rest }
            }
        }
    }
}
