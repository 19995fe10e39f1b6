//! Dependences of steps on each other: of one on one, and of sets on sets, each set kept once.
//!
//! If many ranks reduce into one place and many read it, every reader waits for every writer. One join
//! says so with as many numbers as there are steps, not with as many edges as there are pairs.

/// The reason for which one step waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependenceKind {
    /// Its source was written by the other.
    Flow,
    /// Its target is read by the other first.
    Anti,
    /// Its target was written by the other before.
    Output,
}

/// Every step of `to` waits for every step of `from` but itself. Both are ascending.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepJoin {
    /// The kind of dependence.
    pub dep: DependenceKind,
    /// The steps that come before.
    pub from: Vec<u32>,
    /// The steps that wait.
    pub to: Vec<u32>,
}

/// Returns true if the dependences of `to` steps on `from` steps are kept as a join.
pub(super) fn joined(from: usize, to: usize) -> bool {
    from * to > from + to
}
