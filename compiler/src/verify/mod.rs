//! The proofs. One file a property:
//!
//! * `rounds`: what one `each` may do. No two plain writes to one place; reductions into one place
//!   cover the same chunks; every read is of something stored; chunks that may differ in bytes never
//!   meet. Replays the contributions of every place.
//! * `result`: after the last round every place holds exactly what the collective asks for, each
//!   contribution once; and whether the trees of additions agree on all ranks.
//! * `reduction_order`: whether contributions are combined in one order, wherever an element lies; `fold_text` says how
//!   two results differ.
//! * `race`: conflicting accesses are ordered by a dependence of the step graph.
//! * `deadlock`: the step graph has no cycle, each step taken as its read and its write.
//! * `faults`: no proof; keeps the findings of different faults apart, and drops what comes of one.
//! * `plan`: the same again on the lowered plans: matching, deadlock with bounded slots, races with
//!   peers that read this rank's memory, and the result, replayed from the operations that will run.
//! * `waste`: no proof; names the transfers of a right program that could be left out.
//! * `symmetry`: one rank stands for all, where the program maps onto itself.
//!
//! Only [`verify`] makes a [`Verified`] graph; only a verified graph becomes plans.

mod deadlock;
mod faults;
pub mod fold_text;
pub mod plan;
mod race;
mod reduction_order;
pub(crate) mod result;
pub(crate) mod rounds;
pub mod symmetry;
pub mod value;
pub mod waste;

use std::collections::BTreeSet;

use roundelay_dsl::diag::Diagnostics;
use roundelay_dsl::span::Span;

use crate::graph::StepGraph;
use crate::num::index;
use faults::GraphFaults;
pub use reduction_order::{FoldDifference, FoldOrder, ReductionOrder};
use result::ResultTrees;

/// A value that was proved. Cannot be made outside of this module.
#[derive(Debug, Clone)]
pub struct Verified<T> {
    inner: T,
    facts: ProofFacts,
    /// Statements of rounds that changed nothing; see [`rounds::KernelState::idle`].
    idle: BTreeSet<(u32, Span)>,
    trees: ResultTrees,
}

impl<T> Verified<T> {
    /// Returns the proved value.
    pub fn get(&self) -> &T {
        &self.inner
    }

    /// Returns the findings of the proof.
    pub fn facts(&self) -> &ProofFacts {
        &self.facts
    }

    /// Returns the trees of additions of the results.
    pub(crate) fn trees(&self) -> &ResultTrees {
        &self.trees
    }
}

/// The findings of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofFacts {
    /// Length of the longest chain of messages.
    pub depth: u32,
    /// Messages between different ranks.
    pub messages: u64,
    /// Most chunks that one rank sends to others.
    pub sent: u64,
    /// Most chunks that one rank receives from others.
    pub received: u64,
    /// True if all ranks that are to hold the same sum hold the same tree of additions, so that they hold the
    /// same bits; `None` where the proof does not tell.
    pub bitwise: Option<bool>,
    /// The order in which contributions are combined; `None` where nothing is reduced or the proof does not say.
    pub order: Option<ReductionOrder>,
    /// True if a value is ever rounded to a narrower type.
    pub lossy: bool,
}

impl ProofFacts {
    /// Returns true if an element's bits depend on its contributions alone, wherever it lies ([`ReductionOrder`]), and
    /// nothing is rounded on the wire; `None` where the proof does not say.
    pub fn is_invariant(&self, exact: bool) -> Option<bool> {
        self.order.map(|order| order.is_invariant(exact) && !self.lossy)
    }
}

/// Proves a step graph, or says what is wrong with it: one finding for each fault, as `faults` tells them apart.
pub fn verify(graph: StepGraph) -> Result<Verified<StepGraph>, Diagnostics> {
    let mut faults = GraphFaults::new(&graph);
    let state = rounds::replay(&mut faults);
    let (trees, sums) = result::check(&mut faults, &state);
    race::check(&mut faults);
    let depth = deadlock::check(&mut faults);
    faults.done()?;
    let facts = facts(&graph, depth, sums);
    Ok(Verified { inner: graph, facts, idle: state.idle, trees })
}

fn facts(graph: &StepGraph, depth: u32, sums: Option<result::SumProperties>) -> ProofFacts {
    let n = index(graph.instance.ranks());
    let (mut sent, mut received) = (vec![0u64; n], vec![0u64; n]);
    let (mut messages, mut lossy) = (0, false);
    for t in graph.graph.node_weights().filter(|t| t.src != t.dst) {
        messages += 1;
        sent[index(t.src)] += u64::from(t.from.chunks());
        received[index(t.dst)] += u64::from(t.from.chunks());
        lossy |= t.wire.is_some();
    }
    let most = |v: Vec<u64>| v.into_iter().max().unwrap_or(0);
    ProofFacts {
        depth,
        messages,
        sent: most(sent),
        received: most(received),
        bitwise: sums.map(|s| s.equal),
        order: sums.map(|s| s.order),
        lossy,
    }
}
