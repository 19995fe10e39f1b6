//! Device programs as CUDA C: one kernel for what one rank runs, in one type and with one operator.
//!
//! The text has two parts. The *prelude* (`machine.cuh`, `prelude.cuh`, `numbers.cuh`) is the same in every
//! kernel: words, packets, waits and signals, formats and operators. The *body* is the program: a block of
//! code for each kind of task, with its source line beside it, in the order of the phases. All that the
//! program knows is a constant in it: ranks, peers, chunks, numbers of messages, slots. Sizes, addresses and
//! epochs are parameters ([`roundelay_compiler::device::abi`]).
//!
//! | file | holds |
//! |---|---|
//! | `types.rs` | element types and operators, and which go together |
//! | `share.rs` | which warps run which task of a phase |
//! | `alike.rs` | tasks, and phases, that differ in numbers only as one |
//! | `place.rs` | chunks, regions and messages as expressions |
//! | `task.rs` | the code of a task |
//! | `moves.rs` | loops that tasks share, as functions |
//! | `batch.rs`, `counted.rs` | kernels that are no program's: messages of single ranks, counts on the device |
//! | `window.rs`, `accumulate.rs` | those of windows |
//! | `multicast.rs` | what the switch combines |
//! | `average.rs` | where results of `avg` are divided |
//! | `function.rs` | a header with that function, for kernels of users |
//! | `body.rs` | the function around the tasks, which the kernel calls |
//!
//! Elements are handled in *groups*: as many as fill 16 bytes, or, of messages that are packets, as many as fill
//! a packet's 8. Where memory is not aligned to that, single ones: that is another kernel ([`KernelSpec::aligned`]), so
//! that neither has a decision to make while it runs.

pub mod accumulate;
mod alike;
mod average;
pub mod batch;
mod body;
pub mod counted;
pub mod function;
mod kernel;
mod moves;
mod multicast;
mod place;
mod share;
mod spec;
mod task;
#[cfg(test)]
mod tests;
mod types;
pub mod window;

pub use function::{FunctionSource, cuda_function, usual_namespace};
pub use kernel::{KernelSource, MOST_RANKS, UnsupportedKernel, aligned, cuda};
pub use spec::{KERNEL, KernelSpec};
pub use types::{Element, Operator};
