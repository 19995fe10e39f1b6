//! Makes calls on the memory of NVIDIA GPUs: each proved plan becomes a kernel, which the compiler writes.
//!
//! `Communicator::cuda` gives a rank a GPU (several may share one, which is slow). Calls take a [`CudaBuffer`] or a
//! [`CudaSlice`] in place of host memory, go into a [`CudaStream`] and return at once; `Communicator::synchronize` waits
//! for them and reports their errors. CUDA is looked for at run time: [`probe()`] describes what there is, or why nothing
//! is. `docs/cuda.md` is the user's view, `docs/device.md` the protocol.
//!
//! A part of `roundelay`, which re-exports what its users need as `roundelay::cuda`. There is no promise of stability.
//!
//! | to read | for |
//! |---|---|
//! | [`backend`] | the driver: contexts, streams, memory, NVRTC, kernels |
//! | `nvlink` | memory that the GPUs of one host share, and the descriptors that pass it |
//! | `gpu`, `setup`, `options` | a rank's GPU, and how it is opened |
//! | `program`, `region`, `cut`, `bound`, `call`, `named` | a call: lowered, placed, cut into passes, bound, launched |
//! | `graph`, `batch`, `counted`, `function` | calls in graphs, messages, counts on the GPU, schedules inside kernels |
//! | `window`, `served`, `beyond` | windows of device memory |
//! | `far` | the proxies that carry messages between hosts |
//! | `control`, `journal`, `wait`, `unplayable` | agreement of ranks, pending launches, waits, refusals |

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

pub mod backend;
mod batch;
mod beyond;
mod bound;
mod buffer;
mod call;
mod control;
mod counted;
mod cut;
mod engine;
mod far;
mod function;
mod gpu;
mod graph;
mod journal;
mod layout;
mod named;
pub(crate) mod nvlink;
mod options;
mod packed;
mod probe;
mod program;
mod region;
mod served;
mod setup;
mod share;
mod unplayable;
mod wait;
mod window;

pub use buffer::{CudaBuffer, CudaSlice, DevicePtr};
pub use call::Launch;
pub use control::agree;
pub use counted::CountedCall;
pub use counted::{Blocks, CountedShape};
pub use far::direct::GpuDirect;
pub use function::{CudaKernel, DeviceFunction, KernelArg, KernelGrid};
pub use gpu::Gpu;
pub use graph::{CudaGraph, CudaWork};
pub use options::CudaOptions;
pub use probe::{Machine, Nvrtc, probe};
pub use setup::{context, open};
pub use window::{Copied, There};
pub use window::{CudaRank, CudaWindow};

pub use crate::backend::{CudaStream, Device, DriverError, NvrtcError};
pub use roundelay_compiler::device::Protocol;

/// The engine of the memory of NVIDIA GPUs.
#[derive(Debug)]
pub enum Cuda {}
