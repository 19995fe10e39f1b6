//! Plays jobs: an algorithm played by local processes on random data, checked and timed.
//!
//! The process that the user started proves the algorithm and starts this same program once for each rank
//! (`rank`), with a [`Job`] to do. Every rank compiles for itself; the runtime compares plans before the
//! first byte moves. Contributors report [`Event`]s, a line of JSON each. `places` says what each collective reads
//! and must write, `data` makes and judges elements of the types of `element`, `many` does so by several
//! threads, `sample` says which. `buffers` is memory with guard bytes, `ready` an algorithm to be played, `trial` a
//! call that is checked, `measure` the course of a case; `rank` has what differs on the host, `gpu` what differs on
//! GPUs. `table` prints;
//! `prove` and `launch` are the first process's side, `cause` and `traces` what it makes of what ranks
//! report and remember; `joined` is for ranks that another launcher started.

mod buffers;
mod cause;
mod data;
mod element;
mod event;
pub(crate) mod gpu;
mod handed;
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
pub(crate) use event::{How, JobEvent};
pub(crate) use launch::{Start, play};
pub(crate) use order::{Case, GpuSettings, Job, JobEntry, Turn};
pub(crate) use prove::{Proof, is_choice, prove, resolve};
pub(crate) use ready::Ready;
pub(crate) use refusals::RefusedCases;
pub(crate) use rule::FACTOR;
pub(crate) use traces::Output;
