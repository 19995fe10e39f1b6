//! Step graphs: every transfer of one instance, and what must wait for what.
//!
//! A step reads at its source and writes at its target. Edges are the data dependences that program
//! order implies, at the granularity of chunks: a read after the write that it sees, a write after
//! the reads of what it overwrites, a write after the write before it. The compiler runs at once
//! whatever no path orders.

mod print;
mod unroll;

use std::sync::Arc;

use petgraph::graph::{DiGraph, NodeIndex};

use crate::instance::Instance;
use crate::plan::{Buf, Region};
use crate::program::Style;
pub use crate::walk::Transfer;
pub(crate) use print::region as region_text;
pub use print::{dot, text};
pub(crate) use unroll::MOST_STEPS;
pub use unroll::unroll;

/// Index of a step.
pub type StepId = NodeIndex<u32>;

/// Why one step waits for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dep {
    /// Its source was written by the other.
    Flow,
    /// Its target is read by the other first.
    Anti,
    /// Its target was written by the other before.
    Output,
}

/// All steps of one instance.
#[derive(Debug, Clone)]
pub struct StepGraph {
    /// The program, the shape, what must hold.
    pub instance: Arc<Instance>,
    /// Steps in program order, and their dependences.
    pub graph: DiGraph<Transfer, Dep, u32>,
    /// Rounds of the program, the empty ones included.
    pub rounds: u32,
    /// Upper bound of the chunks in one message.
    pub message: u32,
    /// Whether messages may be rounded to a narrower type.
    pub lossy: bool,
}

/// Numbers every chunk of every buffer of every rank.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// First place of Data, Input, Output, then of each scratch buffer, inside a rank.
    first: Vec<u32>,
    /// Places a rank.
    pub(crate) per_rank: u32,
}

impl Places {
    pub(crate) fn new(instance: &Instance) -> Self {
        use crate::program::Buffer;
        let data = instance.program.style == Style::Data;
        let spec = &instance.spec;
        let mut first = Vec::new();
        let mut at = 0u32;
        let user = [
            if data { spec.size(Buffer::Data) } else { 0 },
            if data { 0 } else { spec.size(Buffer::Input) },
            if data { 0 } else { spec.size(Buffer::Output) },
        ];
        for size in user.into_iter().chain(instance.scratch.iter().map(|s| s.1)) {
            first.push(at);
            at = at.saturating_add(size);
        }
        Places { first, per_rank: at }
    }

    fn buffer(buf: Buf) -> usize {
        match buf {
            Buf::Data => 0,
            Buf::Input => 1,
            Buf::Output => 2,
            Buf::Scratch(i) => 3 + i as usize,
        }
    }

    /// The place of a chunk of a buffer, inside a rank.
    pub(crate) fn local(&self, buf: Buf, chunk: u32) -> usize {
        (self.first[Self::buffer(buf)] + chunk) as usize
    }

    /// The place of a chunk of a buffer of a rank.
    pub(crate) fn of(&self, rank: u32, buf: Buf, chunk: u32) -> usize {
        rank as usize * self.per_rank as usize + self.local(buf, chunk)
    }

    /// Buffer and chunk of a place inside a rank.
    pub(crate) fn name(&self, local: u32) -> (Buf, u32) {
        let i = self.first.partition_point(|&f| f <= local) - 1;
        // Buffers of size 0 share their first place with the next one.
        let buf = match i {
            0 => Buf::Data,
            1 => Buf::Input,
            2 => Buf::Output,
            i => Buf::Scratch(i as u16 - 3),
        };
        (buf, local - self.first[i])
    }

    /// The places of a region of a rank, in order.
    pub(crate) fn region<'a>(
        &'a self,
        rank: u32,
        region: &'a Region,
    ) -> impl Iterator<Item = usize> + 'a {
        region.iter().map(move |(buf, chunk)| self.of(rank, buf, chunk))
    }
}

/// A buffer as messages name it.
pub(crate) fn buf_name(instance: &Instance, buf: Buf) -> String {
    match buf {
        Buf::Data => "data".into(),
        Buf::Input => "input".into(),
        Buf::Output => "output".into(),
        Buf::Scratch(i) => {
            instance.scratch.get(i as usize).map_or("scratch".into(), |s| s.0.clone())
        }
    }
}
