//! The cargo feature `experimental`: values of hints that no hardware has run.

use roundelay_compiler::device::DeviceProtocol;

use super::error::HintError;
use super::values::Hints;

/// True in builds with the cargo feature `experimental`, which accept values of hints that no hardware has run.
pub const EXPERIMENTAL: bool = cfg!(feature = "experimental");

/// Checks that this build executes calls by a protocol.
///
/// # Errors
///
/// [`HintError::Experimental`] for a protocol that no hardware has run, in a build without the feature.
pub fn check_protocol(protocol: DeviceProtocol) -> Result<(), HintError> {
    let untried = !DeviceProtocol::TRIED.contains(&protocol);
    refuse(untried && !EXPERIMENTAL, "protocol", protocol.name())
}

/// Checks that the value which a key was given belongs to this build; `experimental` says whether the feature is there.
pub(super) fn check_value(
    hints: &Hints,
    key: &'static str,
    value: &str,
    experimental: bool,
) -> Result<(), HintError> {
    let untried = match key {
        "protocol" => hints.protocol().is_some_and(|p| !DeviceProtocol::TRIED.contains(&p)),
        "gpu_direct" => hints.gpu_direct() == Some(true),
        _ => false,
    };
    refuse(untried && !experimental, key, value)
}

fn refuse(refused: bool, key: &'static str, value: &str) -> Result<(), HintError> {
    match refused {
        true => Err(HintError::Experimental { key, value: value.into() }),
        false => Ok(()),
    }
}
