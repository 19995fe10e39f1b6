//! The few calls of libibverbs that are needed: open, register, connect, write, poll.
//!
//! The published `ibverbs` crate sends and receives, but neither writes into a peer's memory nor registers
//! memory that it did not allocate, and keeps its handles to itself. So the objects are made here, over
//! `ibverbs-sys`. Everything `unsafe` about verbs is in this folder: handles are freed in the order that
//! the library asks for (queue, registration, device), and work names a [`memory::MemorySpan`] only, which is inside
//! memory that is registered while it is posted. Of what is registered no more later a device reads nothing:
//! the work fails.
//!
//! `device` has devices and their addresses, `memory` what is registered with them, `queue` reliable connections and
//! their work, `status` the meaning of failed work, `check` the results of the library's calls.

mod check;
mod device;
mod memory;
mod queue;
mod status;

pub(super) use device::{DeviceGid, VerbsDevice};
pub(super) use memory::{ArenaBlock, MemoryRegistration, OwnedRegion};
pub(super) use queue::{AccessRequest, QueueAddress, QueuePair, WorkCompletion, WriteRequest};
pub(super) use status::{describe_status, is_refused};
