//! Runs jobs: an algorithm run by local processes on random data, checked and timed.
//!
//! The process that the user started proves the algorithm and starts this same program once for each rank
//! (`rank`), with a [`JobOrder`] to do. Every rank compiles for itself; the runtime compares plans before the
//! first byte moves. Ranks report [`JobEvent`]s and others, a line of JSON each (`event`).
//!
//! * `places`: the elements that each collective reads and must write.
//! * `data`, `element`: random elements of every type, and their comparison with a reference; `many` does both with
//!   several threads, `sample` selects the elements.
//! * `buffers`: memory between guard bytes. `ready`: an algorithm that can run. `trial`: a call whose result is
//!   checked. `measure`: the course of a case.
//! * `rank`, `gpu`: the rank on the host, and on a GPU.
//! * `prove`, `launch`, `argument`: the process that starts the ranks; `cause` and `traces` evaluate their reports,
//!   `table` prints results.
//! * `joined`: ranks that another launcher started.

mod argument;
mod buffers;
mod cause;
mod data;
mod element;
mod event;
pub(crate) mod gpu;
mod joined;
mod launch;
mod many;
pub(crate) mod measure;
mod order;
mod places;
mod prove;
pub(crate) mod rank;
mod ready;
mod refusals;
mod rule;
mod sample;
pub(crate) mod table;
mod traces;
mod trial;

pub(crate) use buffers::{GUARD, digest};
pub(crate) use event::{JobEvent, KernelChoice};
pub(crate) use launch::{StartSettings, execute};
pub(crate) use order::{GpuSettings, JobCase, JobEntry, JobOrder, JobTurn};
pub(crate) use prove::{JobProof, instances, is_choice, prove, resolve};
pub(crate) use ready::ReadyAlgorithm;
pub(crate) use refusals::RefusedCases;
pub(crate) use rule::FACTOR;
pub(crate) use traces::OutputFiles;
