//! What of CUDA there is on this machine.

use std::path::PathBuf;

/// A machine with GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The CUDA version of the driver, such as (13, 0).
    pub cuda: (u32, u32),
    /// The version of the driver, such as `580.159`, if the kernel module tells it.
    pub driver: Option<String>,
    /// The compiler of kernels; why there is none, otherwise. Without it only kernels of the cache can be
    /// played.
    pub nvrtc: Result<Nvrtc, String>,
    /// The GPUs, at least one.
    pub devices: Vec<Device>,
}

/// The library that compiles kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nvrtc {
    /// Its version.
    pub version: (u32, u32),
    /// Where it was found.
    pub path: PathBuf,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number, as the driver counts for this process.
    pub index: u32,
    /// Its model.
    pub name: String,
    /// Its identity on this machine and any other.
    pub uuid: [u8; 16],
    /// Its address on the bus, such as `0000:1b:00.0`.
    pub bus: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
}

/// What of CUDA there is.
///
/// # Errors
///
/// Why GPUs cannot be used here, in words: no driver, one that is too old, no device. Never panics.
pub fn probe() -> Result<Machine, String> {
    Err("CUDA is not wired yet".into())
}
