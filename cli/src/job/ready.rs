//! Holds an algorithm of a job, ready to be run.

use std::sync::Arc;

use roundelay_compiler::collective::CollectiveSpec;
use roundelay_compiler::program::CollectiveKind;
use roundelay_compiler::program::ProgramBuffer;
use roundelay_compiler::{CompileOptions, Program, ProgramInstance, Shape};
use roundelay_dsl::span::SourceMap;

use super::JobEntry;
use super::places::CallPlaces;
use crate::load::load_one;
use crate::report::{VerbError, usage};

/// An algorithm of a job, for one root or for all in turn. `A` is the form in which the runtime runs it: a plan, or
/// what devices compile.
pub(crate) struct ReadyAlgorithm<A> {
    roots: Vec<RootedAlgorithm<A>>,
    /// The extents of the axes.
    axes: Vec<u32>,
    /// True if calls are in place.
    pub(crate) in_place: bool,
    /// True if results are to be bitwise equal on all ranks.
    pub(crate) bitwise: bool,
    /// Rounding on the wire, relative to the value.
    pub(crate) wire: f64,
}

/// An algorithm with one root.
struct RootedAlgorithm<A> {
    root: u32,
    spec: CollectiveSpec,
    algorithm: A,
}

/// The program of an entry with one root.
pub(super) struct RootedProgram<'a> {
    pub(super) root: u32,
    pub(super) program: &'a Arc<Program>,
    pub(super) sources: &'a SourceMap,
    pub(super) shape: &'a Shape,
    pub(super) options: CompileOptions,
}

impl<A> ReadyAlgorithm<A> {
    /// Loads an entry, as `make` brings it into the form that is run; `root` is the only one, or every rank is
    /// in turn.
    pub(super) fn new(
        entry: &JobEntry,
        root: Option<u32>,
        mut make: impl FnMut(&RootedProgram<'_>) -> Result<A, VerbError>,
    ) -> Result<Self, VerbError> {
        let shape: Shape = entry.shape.parse().map_err(usage)?;
        let ranks = u32::try_from(shape.ranks()).unwrap_or(1);
        let (mut roots, mut axes) = (Vec::new(), Vec::new());
        for root in root.map_or(0..ranks, |root| root..root + 1) {
            let target = entry.target(root);
            let (sources, program) = load_one(&target)?;
            let options = target.options();
            let instance = ProgramInstance::new(&program, &shape, &options)
                .map_err(|found| VerbError::Input(Box::new(sources.clone()), found))?;
            axes.clone_from(&instance.shape.axes);
            let spec = instance.spec.clone();
            let source = RootedProgram {
                root,
                program: &program,
                sources: &sources,
                shape: &shape,
                options,
            };
            let (rooted, algorithm) = (spec.kind.rooted(), make(&source)?);
            roots.push(RootedAlgorithm { root, spec, algorithm });
            if !rooted {
                break;
            }
        }
        let JobEntry { in_place, bitwise, wire, .. } = *entry;
        Ok(ReadyAlgorithm { roots, axes, in_place, bitwise, wire })
    }

    fn turn(&self, turn: u64) -> &RootedAlgorithm<A> {
        &self.roots[(turn % self.roots.len() as u64) as usize]
    }

    /// Returns the number of roots that take turns.
    pub(crate) fn roots(&self) -> u32 {
        self.roots.len() as u32
    }

    /// Returns the algorithm of a call, by the number of calls before it.
    pub(crate) fn algorithm(&self, turn: u64) -> &A {
        &self.turn(turn).algorithm
    }

    /// Returns the root of a call.
    pub(crate) fn root(&self, turn: u64) -> u32 {
        self.turn(turn).root
    }

    /// Returns the collective.
    pub(crate) fn kind(&self) -> &CollectiveKind {
        &self.turn(0).spec.kind
    }

    /// Returns the chunks of the input that a call must not change, and of the result.
    pub(super) fn chunks(&self) -> [u32; 2] {
        let spec = &self.turn(0).spec;
        match self.in_place {
            true => [0, spec.size(ProgramBuffer::Data)],
            false => [spec.size(ProgramBuffer::Input), spec.size(ProgramBuffer::Output)],
        }
    }

    /// Returns the places that a call of one rank reads and must write.
    pub(crate) fn places(&self, turn: u64, rank: u32, ranks: u32, count: usize) -> CallPlaces<'_> {
        let RootedAlgorithm { root, spec, .. } = self.turn(turn);
        CallPlaces { kind: &spec.kind, axes: &self.axes, ranks, root: *root, rank, count }
    }

    /// Returns the bytes of the buffers of a call: data and nothing, or input and output.
    pub(crate) fn lens(&self, rank: u32, ranks: u32, count: u64, size: usize) -> [usize; 2] {
        let places = self.places(0, rank, ranks, usize::try_from(count).unwrap_or(usize::MAX));
        let lens = match self.in_place {
            true => [places.data(), 0],
            false => [places.input(), places.output()],
        };
        lens.map(|n| n.saturating_mul(size))
    }
}
