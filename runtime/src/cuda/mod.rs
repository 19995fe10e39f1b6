//! Collective calls on buffers in the memory of NVIDIA GPUs.
//!
//! A [`CudaComm`] is made from a [`Communicator`](crate::Communicator) whose ranks are on one machine, one rank a
//! GPU (several may share one, which is slow). It plays the same proved plans, each as a kernel of its own that the
//! compiler writes for it. Calls are put into a [`CudaStream`] and return at once; [`CudaComm::synchronize`] waits for
//! them, and says what went wrong. `docs/cuda.md` is the user's view.
//!
//! CUDA is looked for at run time: [`probe()`] says what there is, or why nothing is.
//!
//! ```no_run
//! # fn main() -> Result<(), roundelay::Error> {
//! # let mut comm = roundelay::Communicator::local(1)?.remove(0);
//! use roundelay::RedOp;
//! use roundelay::cuda::CudaOptions;
//!
//! let mut gpu = comm.cuda(CudaOptions::default())?;
//! let stream = gpu.stream();
//! let buffer = gpu.alloc::<f32>(1 << 20)?;
//! buffer.copy_from(&vec![1.0; 1 << 20])?;
//! gpu.all_reduce(buffer.ptr(), buffer.len(), f32::DTYPE, RedOp::Sum, &stream)?;
//! gpu.synchronize(&stream)?;
//! # use roundelay::Element;
//! # Ok(())
//! # }
//! ```

mod bound;
mod buffer;
mod call;
mod collectives;
mod comm;
mod control;
mod cut;
mod engine;
mod gpu;
mod graph;
mod journal;
mod layout;
mod named;
mod probe;
mod program;
mod region;
mod setup;
mod share;
mod wait;

pub use buffer::{CudaBuffer, DevicePtr};
pub use call::{CudaArgs, CudaBuffers};
pub use comm::{CudaComm, CudaOptions};
pub use graph::{CudaGraph, CudaWork};
pub use probe::{Machine, Nvrtc, probe};

pub use crate::backend::cuda::{CudaStream, Device};
pub use roundelay_compiler::device::Protocol;
