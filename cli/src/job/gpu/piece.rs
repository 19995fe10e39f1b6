//! Loads an algorithm of a job in a rank.

use std::path::Path;
use std::sync::Arc;

use roundelay::{Algorithm, Communicator, Error};
use roundelay_compiler::collective::{Kind, Spec};
use roundelay_compiler::plan::WireType;
use roundelay_compiler::{Instance, Placement, Shape};

use super::super::JobEntry;
use super::super::data::wire_epsilon;
use super::super::places::Places;
use crate::args::Target;
use crate::load::{entry, load_one};
use crate::report::Failure;

/// An algorithm, for one root or for all in turn.
pub(crate) struct Ready {
    roots: Vec<(u32, Algorithm, Spec)>,
    /// The extents of the axes.
    axes: Vec<u32>,
    /// True if calls are in place.
    pub(crate) in_place: bool,
    /// Rounding on the wire.
    pub(crate) wire: f64,
}

impl Ready {
    /// Loads it; `root` is the only one, or every rank is in turn.
    pub(crate) fn new(
        gpu: &mut Communicator,
        piece: &JobEntry,
        root: Option<u32>,
    ) -> Result<Result<Self, Error>, Failure> {
        let shape: Shape = piece.shape.parse().map_err(Failure::Usage)?;
        let ranks = u32::try_from(shape.ranks()).unwrap_or(1);
        let mut algorithm = match loaded(gpu, &piece.target(0)) {
            Ok(algorithm) => algorithm,
            Err(error) => return Ok(Err(error)),
        };
        if shape.axes.len() > 1 {
            algorithm = algorithm.on(shape.clone());
        }
        let (mut roots, mut axes) = (Vec::new(), Vec::new());
        for root in root.map_or(0..ranks, |root| root..root + 1) {
            let target = piece.target(root);
            let (sources, program) = load_one(&target)?;
            let options = target.options();
            let found = |found| Failure::Input(Box::new(sources.clone()), found);
            let instance = Arc::new(Instance::new(&program, &shape, &options).map_err(found)?);
            axes.clone_from(&instance.shape.axes);
            let spec = instance.spec.clone();
            let rooted = spec.kind.rooted();
            roots.push((root, algorithm.clone().rooted(root), spec));
            if !rooted {
                break;
            }
        }
        Ok(Ok(Ready { roots, axes, in_place: piece.in_place, wire: piece.wire }))
    }

    /// Returns an algorithm of the book with all its roots in turn; none if it does not allow these ranks or
    /// this placement.
    pub(crate) fn of_book(
        gpu: &mut Communicator,
        name: &str,
        shape: &Shape,
        in_place: bool,
    ) -> Result<Option<Self>, Error> {
        let piece = JobEntry {
            target: name.into(),
            algorithm: None,
            paths: 1,
            shape: shape.to_string(),
            in_place,
            bitwise: false,
            wire: 0.0,
        };
        let placement = if in_place { Placement::InPlace } else { Placement::OutOfPlace };
        let Ok(ready) = Ready::new(gpu, &piece, None) else { return Ok(None) };
        let mut ready = ready?;
        match gpu.plan(ready.algorithm(0), placement) {
            Ok(plan) => {
                // This rounding is as coarse as any.
                ready.wire = if plan.header.lossy { wire_epsilon(WireType::Bf16) } else { 0.0 };
                Ok(Some(ready))
            }
            Err(Error::Refused { .. } | Error::Usage(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn turn(&self, turn: u64) -> &(u32, Algorithm, Spec) {
        &self.roots[(turn % self.roots.len() as u64) as usize]
    }

    /// Returns the number of roots that take turns.
    pub(crate) fn roots(&self) -> usize {
        self.roots.len()
    }

    /// Returns the algorithm of a call, by the number of calls before it.
    pub(crate) fn algorithm(&self, turn: u64) -> &Algorithm {
        &self.turn(turn).1
    }

    /// Returns the root of a call.
    pub(crate) fn root(&self, turn: u64) -> u32 {
        self.turn(turn).0
    }

    /// Returns the collective.
    pub(crate) fn kind(&self) -> &Kind {
        &self.turn(0).2.kind
    }

    /// Returns the places that a call reads and must write.
    pub(crate) fn places(&self, turn: u64, gpu: &Communicator, count: usize) -> Places<'_> {
        let (root, _, spec) = self.turn(turn);
        Places {
            kind: &spec.kind,
            axes: &self.axes,
            ranks: gpu.size(),
            root: *root,
            rank: gpu.rank(),
            count,
        }
    }
}

fn loaded(gpu: &mut Communicator, target: &Target) -> Result<Algorithm, Error> {
    if let Some((collective, name)) = entry(&target.target) {
        return gpu.algorithm(collective, name);
    }
    let algorithm = gpu.load(Path::new(&target.target))?;
    match &target.algorithm {
        Some(name) => algorithm.named(name),
        None => Ok(algorithm),
    }
}
