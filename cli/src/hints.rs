//! Reads the hints of the command line and of the environment, and the paths between hosts that they name.

use std::path::Path;

use roundelay::fabric::{FabricTopology, NetworkPath, RDMA};
use roundelay::hints::{HintLevel, MergedHints};
use roundelay::internal::system;
use roundelay::{HintError, Hints};
use roundelay_compiler::cost::{LinkCost, PathCost};

use crate::args::JobArgs;
use crate::report::{VerbError, fault, refused, usage};

/// Returns the hints of the command line.
pub(crate) fn given(texts: &[String]) -> Result<Hints, HintError> {
    texts.join(",").parse()
}

/// Returns the hints of a job as text, those that have an option of their own among them.
pub(crate) fn texts(job_args: &JobArgs) -> Vec<String> {
    let transport = job_args.transport.map(|name| format!("transport={}", name.name()));
    job_args.hints.iter().cloned().chain(transport).collect()
}

/// Returns the hints of the command line and of the environment.
pub(crate) fn merged(texts: &[String]) -> Result<Hints, VerbError> {
    let (call, environment) = (given(texts)?, Hints::from_env()?);
    let merged =
        MergedHints::new([(HintLevel::Call, &call), (HintLevel::Environment, &environment)]);
    Ok(merged.hints().clone())
}

/// Returns the paths between hosts that hints name, with what the topology file says of them.
pub(crate) fn costs(hints: &Hints) -> Result<Vec<PathCost>, VerbError> {
    if let Some(file) = hints.topology() {
        return load(file)?.costs(hints.paths(), &[]).map_err(usage);
    }
    let unknown = |path: NetworkPath| {
        let link = if path.transport == RDMA { LinkCost::DEVICE } else { LinkCost::NETWORK };
        PathCost { name: path.name, link }
    };
    Ok(paths(hints)?.into_iter().map(unknown).collect())
}

/// Returns the paths between hosts that hints name, and what they are.
pub(crate) fn paths(hints: &Hints) -> Result<Vec<NetworkPath>, VerbError> {
    match (hints.paths(), hints.topology()) {
        (Some(names), _) => named_paths(hints, names),
        (None, Some(file)) => Ok(load(file)?.paths),
        (None, None) => Ok(Vec::new()),
    }
}

/// Returns the paths of these names: as the topology file says, or else as they are called on this machine.
pub(crate) fn named_paths(hints: &Hints, names: &[String]) -> Result<Vec<NetworkPath>, VerbError> {
    let paths = match hints.topology() {
        Some(file) => load(file)?.named_paths(names),
        None => system::named_paths(names),
    };
    paths.map_err(usage)
}

fn load(file: &str) -> Result<FabricTopology, VerbError> {
    FabricTopology::load(Path::new(file)).map_err(|e| refused(fault(e.code(), e.to_string())))
}
