//! The dependences of a step graph one by one, those that joins hold among them.

use petgraph::visit::EdgeRef;
use smallvec::SmallVec;

use super::dependence::DependenceKind;
use super::step_graph::{StepGraph, StepId};
use crate::num::{count, index};

/// The dependences of all steps one by one, joins among them.
pub(super) struct ExpandedGraph<'g> {
    graph: &'g StepGraph,
    /// The joins in which each step waits.
    joins: Vec<SmallVec<[u32; 2]>>,
}

impl<'g> ExpandedGraph<'g> {
    pub(super) fn of(graph: &'g StepGraph) -> Self {
        let mut joins = vec![SmallVec::new(); graph.graph.node_count()];
        for (i, join) in graph.joins.iter().enumerate() {
            for &step in &join.to {
                joins[index(step)].push(count(i));
            }
        }
        ExpandedGraph { graph, joins }
    }

    /// Returns the steps that a step waits for, and why, in ascending order.
    pub(super) fn waits(&self, step: StepId) -> Vec<(u32, DependenceKind)> {
        let into = self.graph.graph.edges_directed(step, petgraph::Direction::Incoming);
        let mut waits: Vec<(u32, DependenceKind)> =
            into.map(|e| (count(e.source().index()), *e.weight())).collect();
        for &join in &self.joins[step.index()] {
            let join = &self.graph.joins[index(join)];
            let others = join.from.iter().filter(|&&from| index(from) != step.index());
            waits.extend(others.map(|&from| (from, join.dep)));
        }
        waits.sort_unstable();
        waits.dedup();
        waits
    }
}
