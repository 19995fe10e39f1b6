//! Chunks of memory by number: every chunk of every buffer of a rank, and of all ranks.

use crate::instance::Instance;
use crate::num::{count, index, short};
use crate::plan::{Buf, Region};
use crate::program::{Buffer, Style};

/// Numbers every chunk of every buffer of every rank.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// First place of Data, Input, Output, then of each scratch buffer, inside a rank.
    first: Vec<u32>,
    /// Places a rank.
    pub(crate) per_rank: u32,
    /// Distance of the ranks that have places: 1, unless a few stand for all.
    spacing: u32,
}

impl Places {
    /// Creates the places of the buffers that a program names.
    pub(crate) fn new(instance: &Instance) -> Self {
        let spec = &instance.spec;
        let user = match instance.program.style {
            Style::Data => [spec.size(Buffer::Data), 0, 0],
            Style::InputOutput => [0, spec.size(Buffer::Input), spec.size(Buffer::Output)],
        };
        Self::of_sizes(user, instance.scratch_chunks())
    }

    /// Creates the places of buffers of these sizes: Data, Input and Output, then scratch.
    pub(crate) fn of_sizes(user: [u32; 3], scratch: impl IntoIterator<Item = u32>) -> Self {
        let mut first = Vec::new();
        let mut at = 0u32;
        for size in user.into_iter().chain(scratch) {
            first.push(at);
            at = at.saturating_add(size);
        }
        Places { first, per_rank: at, spacing: 1 }
    }

    /// Returns the number of places of `ranks` ranks.
    pub(crate) fn all(&self, ranks: u32) -> usize {
        index(self.per_rank) * index(ranks)
    }

    /// Returns the place of a chunk of a buffer, inside a rank.
    pub(crate) fn local(&self, buf: Buf, chunk: u32) -> usize {
        let i = match buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(i) => 3 + index(i),
        };
        index(self.first[i] + chunk)
    }

    /// Returns the place of a chunk of a buffer of a rank.
    pub(crate) fn of(&self, rank: u32, buf: Buf, chunk: u32) -> usize {
        index(rank / self.spacing) * index(self.per_rank) + self.local(buf, chunk)
    }

    /// Returns the places if only every `spacing`-th rank has some.
    pub(crate) fn spaced(self, spacing: u32) -> Self {
        Places { spacing, ..self }
    }

    /// Returns the rank of a place.
    pub(crate) fn rank(&self, place: usize) -> u32 {
        count(place / index(self.per_rank.max(1))) * self.spacing
    }

    /// Returns the buffer and the chunk of a place inside a rank.
    pub(crate) fn name(&self, local: u32) -> (Buf, u32) {
        // Buffers of size 0 share their first place with the next one, which is meant.
        let i = self.first.partition_point(|&f| f <= local) - 1;
        let buf = match i {
            0 => Buf::Data,
            1 => Buf::Input,
            2 => Buf::Output,
            i => Buf::Scratch(short(i) - 3),
        };
        (buf, local - self.first[i])
    }

    /// Returns the places of a region of a rank, in order.
    pub(crate) fn region<'a>(
        &'a self,
        rank: u32,
        region: &'a Region,
    ) -> impl Iterator<Item = usize> + 'a {
        region.iter().map(move |(buf, chunk)| self.of(rank, buf, chunk))
    }
}
