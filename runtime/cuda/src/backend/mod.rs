//! The CUDA backend: memory, kernels and launches on NVIDIA GPUs, over the driver's own interface.
//!
//! A thin layer owns what the driver hands out and gives it back, and turns each failed call into a [`DriverFault`]
//! that names the call and the driver's code. It knows no rank and no plan. `nvlink` shares memory between processes;
//! the rest of the package makes collective calls of it all.
//!
//! The driver is found at run time ([`library`]). cudarc has its types and functions; it panics where a function is
//! missing, so [`library::load`] looks for every function that is used here before any is called. Nothing here may be
//! called before it: a [`DeviceContext`] exists only after it.
//!
//! Kernels are texts that the compiler writes. [`kernels`] turns them into code, from memory, from the disk
//! ([`cache`]), or by NVRTC ([`nvrtc`]).
//!
//! | to read, in this order | for |
//! |---|---|
//! | [`device`], [`fault`], [`library`], `devices` | a GPU, failed calls, loading the driver, the GPUs that it shows |
//! | [`context`], [`stream`], [`graph`] | contexts, streams and events, captures and graphs |
//! | [`memory`], [`network`], [`multicast`] | memory: shared by descriptors, for network devices, at one address on all |
//! | [`pinned`] | memory of the host that kernels load and store |
//! | [`raw_memory`] | memory by its address alone, for allocators of other libraries |
//! | [`mailbox`] | the words by which kernels are aborted and report |
//! | [`module`], [`kernels`], [`cache`], [`nvrtc`], [`wheels`] | kernels, and where their code comes from |

pub(crate) mod cache;
mod context;
mod device;
mod devices;
mod fault;
mod graph;
#[cfg(test)]
mod kernel_tests;
pub(crate) mod kernels;
pub(crate) mod library;
mod mailbox;
mod memory;
mod module;
pub(crate) mod multicast;
mod network;
pub(crate) mod nvrtc;
mod pinned;
mod raw_memory;
mod stream;
mod wheels;

pub use context::DeviceContext;
pub use device::CudaDevice;
pub(crate) use devices::{devices, reach};
pub(crate) use fault::DriverFault;
pub use fault::DriverFault as Fault;
pub(crate) use graph::{ExecutableGraph, RelaxedCapture, StreamCapture};
pub use library::DriverError;
pub(crate) use mailbox::KernelMailbox;
pub(crate) use memory::{DeviceAllocation, ForeignAllocation, IpcHandle, IpcMapping, MappedRange};
pub(crate) use module::{LaunchGrid, LoadedKernel};
pub(crate) use network::NetworkMemory;
pub(crate) use nvrtc::CompileMode;
pub use nvrtc::NvrtcError;
pub(crate) use pinned::{PinnedMemory, RELEASE_ALIGN};
pub use raw_memory::{allocate_bytes, free_bytes};
pub use stream::CudaStream;
pub(crate) use stream::{SideStream, StreamEvent};
pub use wheels::wheels;
