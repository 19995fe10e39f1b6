//! The engine that plays calls on buffers in the memory of NVIDIA GPUs.
//!
//! A communicator that `Communicator::cuda` made has a GPU, one a rank (several may
//! share one, which is slow). Between hosts proxies carry what kernels tell each other (`far`). It plays the same proved
//! plans, each as a kernel of its own that the compiler writes for it. Calls are the communicator's, with a [`CudaBuffer`] or a [`CudaSlice`] in
//! place of host memory. They are put into a [`CudaStream`] and return at once;
//! `Communicator::synchronize` waits for them, and says what went wrong.
//! `docs/cuda.md` is the user's view.
//!
//! CUDA is looked for at run time: [`probe()`] says what there is, or why nothing is.

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
