//! Loads an algorithm of a job in a rank.

use std::path::Path;

use roundelay::{Algorithm, Communicator, Error};
use roundelay_compiler::plan::WireType;
use roundelay_compiler::program::ArgumentedName;
use roundelay_compiler::{BufferPlacement, Shape};

use super::super::JobEntry;
use super::super::data::wire_epsilon;
use super::super::ready::ReadyAlgorithm;
use crate::args::TargetArgs;
use crate::load::entry;
use crate::report::{VerbError, usage};

/// Loads it; `root` is the only one, or every rank is in turn.
pub(super) fn load(
    gpu: &mut Communicator,
    entry: &JobEntry,
    root: Option<u32>,
) -> Result<ReadyAlgorithm<Algorithm>, VerbError> {
    let shape: Shape = entry.shape.parse().map_err(usage)?;
    let algorithm = named(gpu, &entry.target(0))?;
    let algorithm = if shape.axes.len() > 1 { algorithm.on(shape) } else { algorithm };
    let mut ready =
        ReadyAlgorithm::new(entry, root, |source| Ok(algorithm.clone().rooted(source.root)))?;
    // Data is whole numbers, whose results are compared bit by bit on every rank.
    ready.bitwise = false;
    Ok(ready)
}

/// Returns an algorithm of the library with all its roots in turn; none if it does not allow these ranks or
/// this placement.
pub(crate) fn of_library(
    gpu: &mut Communicator,
    name: &str,
    shape: &Shape,
    in_place: bool,
) -> Result<Option<ReadyAlgorithm<Algorithm>>, Error> {
    let entry = JobEntry {
        target: name.into(),
        algorithm: None,
        paths: 1,
        shape: shape.to_string(),
        in_place,
        bitwise: false,
        wire: 0.0,
    };
    let placement = if in_place { BufferPlacement::InPlace } else { BufferPlacement::OutOfPlace };
    let mut ready = match load(gpu, &entry, None) {
        Ok(ready) => ready,
        Err(VerbError::Call(error)) => return Err(error),
        Err(_) => return Ok(None),
    };
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

fn named(gpu: &mut Communicator, target: &TargetArgs) -> Result<Algorithm, Error> {
    if let Some((collective, name)) = entry(&target.target) {
        return gpu.algorithm(collective, name);
    }
    let wrong = |why: String| Error::Usage(why);
    let asked: ArgumentedName = match target.target.ends_with(')') {
        true => target.target.parse().map_err(wrong)?,
        false => ArgumentedName { name: target.target.clone(), arguments: Vec::new() },
    };
    let algorithm = gpu.load(Path::new(&asked.name))?;
    match (&target.algorithm, asked.arguments) {
        (Some(name), _) => algorithm.named(name),
        (None, arguments) if arguments.is_empty() => Ok(algorithm),
        (None, arguments) => {
            let name = algorithm.name().to_owned();
            algorithm.named(&ArgumentedName { name, arguments }.to_string())
        }
    }
}
