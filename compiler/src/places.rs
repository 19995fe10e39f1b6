//! Chunks of memory by number: every chunk of every buffer of a rank, and of all ranks.
//!
//! An instance and a plan have at most [`MAX_PLACES`] chunks a rank, so that the numbers of a rank's own places fit
//! 32 bits. Those of many ranks may not fit a machine's: [`PlaceNumbers::all`] says so before memory is made for
//! them.
//!
//! [`MAX_PLACES`]: crate::plan::MAX_PLACES

use std::ops::Range;
use std::sync::Arc;

use crate::instance::ProgramInstance;
use crate::num::{count, index, short};
use crate::plan::{PlanBuffer, PlanRegion};
use crate::program::{BufferStyle, ProgramBuffer};

/// Numbers every chunk of every buffer of every rank.
#[derive(Debug, Clone)]
pub(crate) struct PlaceNumbers {
    /// First place of Data, Input, Output, then of each scratch buffer, inside a rank.
    first: Vec<usize>,
    /// Places a rank.
    pub(crate) per_rank: usize,
    /// The ranks that have places, ascending; `None` if all have.
    ranks: Option<Arc<[u32]>>,
}

impl PlaceNumbers {
    /// Creates the places of the buffers that a program names.
    pub(crate) fn new(instance: &ProgramInstance) -> Self {
        let spec = &instance.spec;
        let user = match instance.program.style {
            BufferStyle::Data => [spec.size(ProgramBuffer::Data), 0, 0],
            BufferStyle::InputOutput => {
                [0, spec.size(ProgramBuffer::Input), spec.size(ProgramBuffer::Output)]
            }
        };
        Self::of_sizes(user, instance.scratch_chunks())
    }

    /// Creates the places of buffers of these sizes: Data, Input and Output, then scratch. Their sum is a
    /// plan's or an instance's, which was checked.
    pub(crate) fn of_sizes(user: [u32; 3], scratch: impl IntoIterator<Item = u32>) -> Self {
        let mut first = Vec::new();
        let mut at = 0usize;
        for size in user.into_iter().chain(scratch) {
            first.push(at);
            at += index(size);
        }
        PlaceNumbers { first, per_rank: at, ranks: None }
    }

    /// Returns the number of places of `ranks` ranks; `None` if it is greater than numbers of this machine.
    pub(crate) fn all(&self, ranks: u32) -> Option<usize> {
        self.per_rank.checked_mul(index(ranks))
    }

    /// Returns the place of a chunk of a buffer, inside a rank.
    pub(crate) fn local(&self, buf: PlanBuffer, chunk: u32) -> usize {
        let i = match buf {
            PlanBuffer::Data => 0,
            PlanBuffer::Input => 1,
            PlanBuffer::Output => 2,
            PlanBuffer::Scratch(i) => 3 + index(i),
        };
        self.first[i] + index(chunk)
    }

    /// Returns the place of a chunk of a buffer of a rank. A rank that has no places has that of no cell.
    pub(crate) fn of(&self, rank: u32, buf: PlanBuffer, chunk: u32) -> usize {
        let row = match &self.ranks {
            None => index(rank),
            Some(ranks) => match ranks.binary_search(&rank) {
                Ok(row) => row,
                Err(_) => return usize::MAX,
            },
        };
        let before = row.checked_mul(self.per_rank);
        before.and_then(|at| at.checked_add(self.local(buf, chunk))).unwrap_or(usize::MAX)
    }

    /// Returns the places if only these ranks, which ascend, have some.
    pub(crate) fn of_ranks(self, ranks: &[u32]) -> Self {
        PlaceNumbers { ranks: Some(ranks.into()), ..self }
    }

    /// Returns the rank of a place.
    pub(crate) fn rank(&self, place: usize) -> u32 {
        let row = place / self.per_rank.max(1);
        match &self.ranks {
            None => count(row),
            Some(ranks) => ranks.get(row).copied().unwrap_or(u32::MAX),
        }
    }

    /// Returns the buffer and the chunk of a place, of whatever rank.
    pub(crate) fn name(&self, place: usize) -> (PlanBuffer, u32) {
        let local = place % self.per_rank.max(1);
        // Buffers of size 0 share their first place with the next one, which is meant.
        let i = self.first.partition_point(|&f| f <= local) - 1;
        let buf = match i {
            0 => PlanBuffer::Data,
            1 => PlanBuffer::Input,
            2 => PlanBuffer::Output,
            i => PlanBuffer::Scratch(short(i - 3)),
        };
        (buf, count(local - self.first[i]))
    }

    /// Returns the places of a region inside a rank, in order, as ranges.
    pub(crate) fn ranges<'a>(
        &'a self,
        region: &'a PlanRegion,
    ) -> impl Iterator<Item = Range<usize>> + 'a {
        region.pieces.iter().flat_map(move |piece| {
            piece.set.runs().map(move |(chunk, length)| {
                let first = self.local(piece.buf, chunk);
                first..first + index(length)
            })
        })
    }

    /// Returns the places of a region of a rank, in order.
    pub(crate) fn region<'a>(
        &'a self,
        rank: u32,
        region: &'a PlanRegion,
    ) -> impl Iterator<Item = usize> + 'a {
        region.iter().map(move |(buf, chunk)| self.of(rank, buf, chunk))
    }
}
