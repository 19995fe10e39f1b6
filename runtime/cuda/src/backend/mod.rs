//! The CUDA backend: memory, kernels and launches on NVIDIA GPUs, over the driver's own interface.
//!
//! A thin layer owns what the driver hands out and gives it back, and turns each failed call into a [`Fault`]
//! that names the call and the driver's code. It knows no rank and no plan. `transport/nvlink` shares the
//! memory between processes, `crate::cuda` makes collective calls of it all.
//!
//! The driver is found at run time ([`library`]). cudarc has its types and functions; it panics where a function is
//! missing, so [`library::load`] looks for every function that is used here before any is called. Nothing here may be
//! called before it: whoever holds a [`Context`] has come past it.
//!
//! Kernels are texts that the compiler writes. [`kernels`] turns them into code, from memory, from the disk
//! ([`cache`]), or by NVRTC ([`nvrtc`]).

pub(crate) mod cache;
mod context;
mod device;
mod fault;
mod graph;
#[cfg(test)]
mod kernel_tests;
pub(crate) mod kernels;
pub mod library;
mod mailbox;
mod memory;
mod module;
pub(crate) mod multicast;
mod network;
pub(crate) mod nvrtc;
mod stream;
mod wheels;

pub use context::Context;
pub use device::Device;
pub use device::{devices, reach};
pub use fault::Fault;
pub(crate) use graph::{Aside, Graph, Recording};
pub use library::DriverError;
pub(crate) use mailbox::Mailbox;
pub(crate) use memory::{Found, IpcMemory, Physical, Pinned};
pub use memory::{Handle, Range};
pub(crate) use module::{Grid, Kernel};
pub(crate) use network::NetworkMemory;
pub use nvrtc::NvrtcError;
pub use nvrtc::Options;
pub use stream::CudaStream;
pub(crate) use stream::{Beside, Event};
pub use wheels::wheels;
