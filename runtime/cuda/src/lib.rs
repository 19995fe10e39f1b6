//! Makes calls on the memory of NVIDIA GPUs: each proved plan becomes a kernel, which the compiler writes.
//!
//! `Communicator::cuda` gives a rank a GPU (several may share one, which is slow). Calls take a [`CudaBuffer`] or a
//! [`CudaSlice`] in place of host memory, go into a [`CudaStream`] and return at once; `Communicator::synchronize`
//! waits for them and reports their errors. CUDA is looked for at run time: [`probe()`] describes what there is, or why
//! nothing is. `docs/cuda.md` is the user's view, `docs/device.md` the protocol.
//!
//! A part of `roundelay`, which re-exports what its users need as `roundelay::cuda`. There is no promise of stability.
//!
//! A [`Gpu`] is a face over what all kinds of calls use (`rank`) and one table for each kind of call. A function takes
//! the part that it needs: `device` is what is this rank's alone, `memory` what ranks share, `proxy` what goes to other
//! hosts. A kernel that gives up writes a report, which the next poll, call or wait makes an error (`rank`, `report`).
//!
//! | to read, in this order | for |
//! |---|---|
//! | [`backend`] | the driver: contexts, streams, memory, NVRTC, kernels |
//! | `nvlink` | memory that the GPUs of one host share, and the descriptors that pass it |
//! | `control`, `journal`, `params` | agreement of ranks, the order of launches over streams, words of parameters |
//! | `region`, `layout`, `share`, `memory` | regions and arenas: what is mapped where, and how all ranks map it |
//! | `device`, `rank`, `report` | a rank's device, what all calls use, waits and failures |
//! | `calls` | collective calls: lowered, keyed, cut, bound, launched |
//! | `batch`, `counted` | messages between single ranks; calls whose counts lie on the GPU |
//! | `windows` | windows of device memory |
//! | `proxy` | the threads that carry messages between hosts |
//! | `buffer`, `graph`, `options`, `probe` | what users hold: memory, graphs, options, the machine |
//! | `suspend` | memory that goes back to the device until the next call |
//! | `gpu`, `setup` | the face of all that, and how it is opened |
//!
//! Conventions: calls that all ranks make together take `core` and agree (`control::agree`) before any rank depends on
//! the result; an error that one rank finds after that ends the communicator (`GpuRank::end`). Whatever loads code or
//! maps memory relaxes the capture mode of its thread first (`RelaxedCapture`).

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod backend;
mod batch;
mod buffer;
mod calls;
mod control;
mod counted;
mod device;
mod gpu;
mod graph;
mod journal;
mod layout;
mod memory;
mod nvlink;
mod options;
mod params;
mod probe;
mod proxy;
mod rank;
mod region;
mod report;
mod setup;
mod share;
mod suspend;
pub mod tunables;
mod windows;

pub use buffer::{CudaBuffer, CudaSlice, DevicePtr};
pub use calls::{CudaKernel, CudaLaunch, DeviceFunction, KernelArg, KernelGrid};
pub use control::agree;
pub use counted::{BlockLayout, CountedCall, CountedShape};
pub use gpu::Gpu;
pub use graph::{CudaGraph, CudaWork};
pub use options::CudaOptions;
pub use probe::{CudaMachine, NvrtcCompiler, probe};
pub use proxy::{GpuDirect, wires};
pub use setup::{context, open};
pub use suspend::GpuMemory;
pub use windows::{CopyDirection, WindowPart, WindowSpan};

pub use crate::backend::{
    CudaDevice, CudaStream, DriverError, NvrtcError, allocate_bytes, free_bytes,
};
pub use roundelay_compiler::device::DeviceProtocol;

/// The engine of the memory of NVIDIA GPUs.
#[derive(Debug)]
pub enum Cuda {}
