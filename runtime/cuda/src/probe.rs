//! Finds the parts of CUDA that there are on this machine.

use std::path::PathBuf;

use crate::backend::nvrtc::NvrtcLibrary;
use crate::backend::{CudaDevice, DriverError, NvrtcError, devices, library, reach};

/// A machine with GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaMachine {
    /// The CUDA version of the driver, such as (13, 0).
    pub cuda: (u32, u32),
    /// The version of the driver, such as `580.159.04`, if the kernel module reports it.
    pub driver: Option<String>,
    /// The compiler of kernels; why there is none, otherwise.
    pub nvrtc: Result<NvrtcCompiler, NvrtcError>,
    /// The GPUs, at least one.
    pub devices: Vec<CudaDevice>,
    /// True at `[a][b]` if GPU a can load and store in the memory of GPU b.
    pub reach: Vec<Vec<bool>>,
}

/// The library that compiles kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvrtcCompiler {
    /// Its version.
    pub version: (u32, u32),
    /// The place at which it was found: a path, or the name by which the system knows it.
    pub path: PathBuf,
}

/// Returns the parts of CUDA that there are. Never panics.
///
/// # Errors
///
/// The reason why GPUs cannot be used here: no driver, one that is too old, no device.
pub fn probe() -> Result<CudaMachine, DriverError> {
    let cuda = library::load()?;
    let devices = devices()?;
    let nvrtc = NvrtcLibrary::load(None)
        .map(|library| NvrtcCompiler { version: library.version(), path: library.path().into() });
    let reach = reach(&devices)?;
    Ok(CudaMachine { cuda, driver: driver(), nvrtc, devices, reach })
}

/// Returns the version that the driver's kernel module reports.
fn driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version(&text).map(str::to_string)
}

fn version(text: &str) -> Option<&str> {
    let digits =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    text.lines().next()?.split_whitespace().find(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_or_it_is_said_why_not() {
        match probe() {
            Ok(machine) => assert!(!machine.devices.is_empty()),
            Err(why) => assert!(why.to_string().len() > 20, "{why}"),
        }
    }

    #[test]
    fn the_version_is_found_among_words() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC 13.3.0";
        assert_eq!(version(text), Some("580.159.04"));
        assert_eq!(version("nothing"), None);
    }
}
