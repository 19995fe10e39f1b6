//! The parts of a tolerant algorithm: what each rank does, round by round, and the messages between them.

use roundelay_dsl::ast::TransferOp;

use crate::num::{count, index};
use crate::plan::{PlanBuffer, PlanRegion, SourceLine};

/// The facts that all ranks have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TolerantHeader {
    /// Identity over all ranks, which they compare.
    pub hash: [u8; 16],
    /// Name of the algorithm.
    pub algorithm: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Chunks of the whole vector: chunk c of C over N elements is `[c*N/C, (c+1)*N/C)`, rounded down.
    pub chunks: u32,
    /// The buffer that holds the rank's contribution at the start.
    pub input: PlanBuffer,
    /// The buffer that holds the result.
    pub output: PlanBuffer,
    /// Chunks of the scratch buffers. Nothing is in them at the start.
    pub scratch: Vec<u32>,
    /// Source lines; sends and takes refer to them by index.
    pub sites: Vec<SourceLine>,
}

/// The part of one rank, round by round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TolerantPart {
    /// The rounds in which it does anything.
    pub rounds: Vec<TolerantRound>,
}

/// One round of one rank. What it sends and takes of its own is read before anything is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TolerantRound {
    /// Number of the program's `each`, counted from 0: the step in messages.
    pub number: u32,
    /// Messages, in the order in which their receivers take those of this rank.
    pub sends: Vec<TolerantSend>,
    /// The chunks that are taken, in the order in which it is folded.
    pub takes: Vec<TolerantTake>,
}

/// A message to another rank: the chunks of a region, each with the ranks whose contributions it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TolerantSend {
    /// The receiver.
    pub peer: u32,
    /// The chunks.
    pub from: PlanRegion,
    /// Index into [`TolerantHeader::sites`].
    pub site: u32,
}

/// Chunks that are copied or reduced into a region. All of one round into one place are folded in ascending order of
/// `src`; what the place holds takes part at this rank's own place in the order, unless something is copied there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TolerantTake {
    /// The rank that they come from: by its next message, or this rank itself.
    pub src: u32,
    /// The chunks, of this rank's own memory; `None` if a message brings them.
    pub from: Option<PlanRegion>,
    /// Copied or reduced.
    pub op: TransferOp,
    /// The places.
    pub to: PlanRegion,
    /// Index into [`TolerantHeader::sites`].
    pub site: u32,
}

/// Returns the messages that each rank sends to each other, by number of the round in [`TolerantPart::rounds`].
pub(super) fn messages(parts: &[TolerantPart], ranks: u32) -> Vec<Vec<Vec<NamedMessage>>> {
    let mut all = vec![vec![Vec::new(); index(ranks)]; index(ranks)];
    for (src, part) in parts.iter().enumerate() {
        for round in &part.rounds {
            for send in &round.sends {
                all[src][index(send.peer)]
                    .push(NamedMessage { number: round.number, site: send.site });
            }
        }
    }
    debug_assert!(count(parts.len()) == ranks, "a part for each rank");
    all
}

/// A message, as the proof names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedMessage {
    /// The step in which it is sent.
    pub(super) number: u32,
    pub(super) site: u32,
}
