//! NCCL's interface over roundelay: `libroundelay_nccl.so` exports what `nccl.h` of NCCL 2.28 declares, so that a
//! program that was written against NCCL uses roundelay when it finds this library in place of `libnccl.so.2`.
//!
//! `abi` holds the exported functions; they check their arguments and make `call::NcclCall`s. `group` collects the
//! calls of a thread until its outermost group ends, and `issue` runs them: collectives in order, then all messages
//! at once, for each communicator. `comm` is what a handle stands for; `open` brings ranks together, which meet at
//! the `board` of the process that made the unique id (`id`). `cuda` is what this package itself asks of the driver.
//! `docs/nccl.md` is the user's view.
//!
//! Nothing unwinds into the caller, and the caller's current CUDA context is what it was when a function returns.

mod abi;
mod board;
mod call;
mod comm;
mod config;
mod cuda;
mod debug;
mod elements;
mod failure;
mod group;
mod guard;
mod id;
mod issue;
mod last_error;
mod memory;
mod open;
mod operator;
mod suspend;
mod tunables;
