//! Several findings of one program, each of a fault of its own.
//!
//! A fault shows in many places. Statements and chunks that have to do with each other, over whatever ranks and
//! rounds, are one *strand*: the first finding of a strand is reported, and what comes of it later is not looked
//! at. Two parts of a program that touch different chunks are judged apart.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use roundelay_dsl::diag::{Diagnostic, Diagnostics};
use roundelay_dsl::span::Span;

use crate::graph::{ChunkTransfer, StepGraph};
use crate::num::{count, index};
use crate::plan::{PlanBuffer, PlanRegion};

/// The most findings that are reported.
pub(crate) const MOST: usize = 10;

/// A strand by number; `None` is what no statement touches.
pub(super) type StrandId = Option<u32>;

/// The findings about a graph.
pub(super) struct GraphFaults<'g> {
    pub(super) graph: &'g StepGraph,
    found: Diagnostics,
    /// The strands of the graph, once something was found, and those with a finding.
    strands: Option<StrandForest>,
    faulty: BTreeSet<StrandId>,
}

impl<'g> GraphFaults<'g> {
    pub(super) fn new(graph: &'g StepGraph) -> Self {
        GraphFaults { graph, found: Vec::new(), strands: None, faulty: BTreeSet::new() }
    }

    /// Returns the findings, if there are any.
    pub(super) fn done(self) -> Result<(), Diagnostics> {
        if self.found.is_empty() { Ok(()) } else { Err(self.found) }
    }

    /// Returns true if nothing was found.
    pub(super) fn none(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns true if no more are reported.
    pub(super) fn full(&self) -> bool {
        self.found.len() >= MOST
    }

    fn strands(&mut self) -> &mut StrandForest {
        self.strands.get_or_insert_with(|| StrandForest::new(self.graph))
    }

    /// Returns the strand of a chunk of a buffer.
    pub(super) fn of_chunk(&mut self, buf: PlanBuffer, chunk: u32) -> StrandId {
        self.strands().of(&StrandNode::Chunk(buf, chunk))
    }

    /// Adds a finding of a strand.
    pub(super) fn add(&mut self, strand: StrandId, d: Diagnostic) {
        if !self.full() {
            self.found.push(d);
        }
        self.faulty.insert(strand);
    }

    /// Adds the findings of one round, each with the statement at fault.
    pub(super) fn extend(&mut self, found: Vec<(Span, Diagnostic)>) {
        for (span, d) in found {
            let strand = self.strands().of(&StrandNode::Statement(span));
            self.add(strand, d);
        }
    }

    /// Returns true if something was found about the strand of a chunk; what nothing touches may come of any
    /// fault.
    pub(super) fn knows(&mut self, buf: PlanBuffer, chunk: u32) -> bool {
        if self.none() {
            return false;
        }
        let strand = self.of_chunk(buf, chunk);
        strand.is_none() || self.faulty.contains(&strand)
    }

    /// Returns the transfers of a round whose strands have no finding.
    pub(super) fn sound<'r, 't>(
        &mut self,
        round: &'r [&'t ChunkTransfer],
    ) -> Cow<'r, [&'t ChunkTransfer]> {
        if self.none() {
            return Cow::Borrowed(round);
        }
        let mut sound = round.to_vec();
        sound.retain(|t| {
            let strand = self.strands().of(&StrandNode::Statement(t.span));
            !self.faulty.contains(&strand)
        });
        Cow::Owned(sound)
    }
}

/// A node of a strand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StrandNode {
    Statement(Span),
    /// A chunk of a buffer, on all ranks.
    Chunk(PlanBuffer, u32),
}

/// All strands, as trees of nodes whose roots stand for them.
#[derive(Default)]
struct StrandForest {
    numbers: BTreeMap<StrandNode, u32>,
    parents: Vec<u32>,
}

impl StrandForest {
    fn new(graph: &StepGraph) -> Self {
        let mut strands = StrandForest::default();
        let mut seen: BTreeSet<(Span, &PlanRegion)> = BTreeSet::new();
        for t in graph.graph.node_weights() {
            let statement = strands.number(StrandNode::Statement(t.span));
            for region in [&t.from, &t.to].into_iter().filter(|r| seen.insert((t.span, r))) {
                for (buf, chunk) in region.iter() {
                    let chunk = strands.number(StrandNode::Chunk(buf, chunk));
                    strands.join(statement, chunk);
                }
            }
        }
        strands
    }

    fn number(&mut self, node: StrandNode) -> u32 {
        let next = count(self.parents.len());
        let number = *self.numbers.entry(node).or_insert(next);
        if number == next {
            self.parents.push(next);
        }
        number
    }

    fn root(&mut self, mut at: u32) -> u32 {
        while let Some(&up) = self.parents.get(index(at)).filter(|&&up| up != at) {
            let above = self.parents[index(up)];
            self.parents[index(at)] = above;
            at = up;
        }
        at
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[index(b)] = a;
    }

    /// Returns the strand of a node.
    fn of(&mut self, node: &StrandNode) -> StrandId {
        let number = self.numbers.get(node).copied()?;
        Some(self.root(number))
    }
}
