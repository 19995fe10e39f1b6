//! A program at one shape: its specification, its chunk counts, its scratch buffers. `instantiate` makes
//! them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::budget;
use crate::collective::CollectiveSpec;
use crate::program::Program;
use crate::shape::Shape;

/// Options of a compilation beside the program and its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileOptions {
    /// The root of a rooted collective.
    pub root: u32,
    /// Paths that `split … in paths` finds.
    pub paths: u32,
    /// More chunk moves than this are not unrolled.
    pub limit: u64,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions { root: 0, paths: 1, limit: budget::MOVES }
    }
}

/// A program at one shape.
#[derive(Debug, Clone)]
pub struct ProgramInstance {
    /// The program.
    pub program: Arc<Program>,
    /// The ranks.
    pub shape: Shape,
    /// Root, paths, limits.
    pub options: CompileOptions,
    /// The specification to be met, in the instance's chunks.
    pub spec: CollectiveSpec,
    /// Chunks of the program's own `chunks` clause.
    pub units: u32,
    /// Scratch buffers.
    pub(crate) scratch: ScratchBuffers,
    /// Parallel copies of the whole program.
    pub(crate) channels: u32,
    /// Least passes, from the schedule.
    pub pipeline: u32,
    /// Slots asked for by the schedule.
    pub slots: Option<u32>,
}

/// The scratch buffers of a program and of all that it uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScratchBuffers {
    /// First buffer of each program entered, by its path of uses and parts.
    pub(crate) first: BTreeMap<Vec<u32>, u16>,
    /// The buffers, by number.
    pub(crate) buffers: Vec<ScratchBuffer>,
    /// Chunks of all of them.
    pub(crate) chunks: u64,
}

/// A scratch buffer.
#[derive(Debug, Clone)]
pub(crate) struct ScratchBuffer {
    /// Its name.
    pub(crate) name: String,
    /// Its chunks.
    pub(crate) chunks: u32,
    /// The part of a split by bandwidth that it belongs to.
    pub(crate) part: Option<u16>,
}

/// The part of an instance that is known before its scratch buffers are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstanceSetting<'i> {
    /// The program.
    pub(crate) program: &'i Program,
    /// Extents of the ranks.
    pub(crate) axes: &'i [u32],
    /// Root, paths, limits.
    pub(crate) options: &'i CompileOptions,
    /// The specification, in the instance's chunks.
    pub(crate) spec: &'i CollectiveSpec,
    /// Chunks of the program's own `chunks` clause.
    pub(crate) units: u32,
    /// Parallel copies of the whole program.
    pub(crate) channels: u32,
}

impl InstanceSetting<'_> {
    /// Returns the number of the statement that shares cut: of a split by bandwidth, if there are several paths.
    pub(crate) fn weighted_site(&self) -> Option<u32> {
        let several = self.options.paths > 1;
        self.program.weighted().filter(|_| several).map(|split| split.site)
    }
}

impl ProgramInstance {
    /// Returns the number of ranks.
    pub fn ranks(&self) -> u32 {
        self.spec.ranks
    }

    /// Returns the number of parts into which shares cut each block of the vector; `None` if they cut nothing.
    pub(crate) fn parts(&self) -> Option<u32> {
        self.setting().weighted_site().map(|_| self.options.paths)
    }

    /// Returns the chunks of each scratch buffer.
    pub(crate) fn scratch_chunks(&self) -> impl Iterator<Item = u32> + '_ {
        self.scratch.buffers.iter().map(|buffer| buffer.chunks)
    }

    /// Returns all of it but its scratch buffers.
    pub(crate) fn setting(&self) -> InstanceSetting<'_> {
        InstanceSetting {
            program: &self.program,
            axes: &self.shape.axes,
            options: &self.options,
            spec: &self.spec,
            units: self.units,
            channels: self.channels,
        }
    }
}
