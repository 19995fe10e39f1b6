//! The execution of a bound plan: the addresses of its buffers, the positions of its lanes, and all that it uses.

use crate::bind::{BoundPlan, CallStats};
use crate::progress::wait::WaitLoop;
use crate::trace::FlightRecorder;
use roundelay_net::endpoints::EndpointTable;
use roundelay_net::group::RankGroup;
use roundelay_net::paths::PartClock;
use roundelay_support::backend::{CacheLine, FoldSource, FoldTarget, HostKernel};

/// The place of a buffer of the call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BufferAddress {
    pub(crate) address: *mut u8,
    /// Its offset in the shared file, if peers can read it.
    pub(crate) mapped: Option<u64>,
}

/// Memory that executions reuse.
#[derive(Default)]
pub(crate) struct ExecutionBuffers {
    pub(super) cursors: Vec<LaneCursor>,
    pub(super) sources: Vec<OperandSource>,
    pub(super) targets: Vec<FoldTarget>,
    pub(super) inputs: Vec<FoldSource>,
    pub(super) outputs: Vec<FoldTarget>,
    /// The memory to which that of other processes is copied to be folded.
    pub(super) bounce: Vec<CacheLine>,
    /// Messages sent on each end before the call.
    pub(super) before: Vec<u64>,
    pub(crate) bases: Vec<BufferAddress>,
    /// The times at which the parts of a split by bandwidth were there.
    pub(crate) clock: PartClock,
}

// SAFETY: the addresses inside are used only within a call, which fills them in anew.
unsafe impl Send for ExecutionBuffers {}

/// The position of a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneCursor {
    pub(super) pass: u32,
    /// Index into the steps of all lanes.
    pub(super) step: u32,
    /// Conditions of the step already seen to hold, in the order in which they are tested.
    pub(super) satisfied: u32,
    /// Elements that the step moves in this pass.
    pub(super) elements: u64,
}

impl LaneCursor {
    /// Returns step and pass.
    pub(super) fn at(self) -> (u32, u32) {
        (self.step, self.pass)
    }
}

/// The source from which an input of a step is read.
#[derive(Debug, Clone, Copy)]
pub(super) enum OperandSource {
    Local,
    /// The step's store, where all inputs went straight.
    Landed,
    /// A message's content, without gaps.
    Dense(*const u8),
    /// The peer's memory, from the base of its buffer.
    ZeroCopy(*const u8),
    /// Memory of the peer's own, from the base of its buffer, to be read through the kernel.
    Cma {
        pid: i32,
        base: u64,
        /// The address to which the part at hand was copied.
        copy: *mut u8,
    },
}

/// The execution of a bound plan in one call.
pub(crate) struct PlanExecution<'a> {
    pub(crate) bound: &'a BoundPlan,
    pub(crate) work: &'a mut ExecutionBuffers,
    pub(crate) endpoints: &'a mut EndpointTable,
    pub(crate) group: &'a mut RankGroup,
    pub(crate) kernel: HostKernel,
    pub(crate) rank: u32,
    pub(crate) call: u64,
    pub(crate) digest: u32,
    /// The digest that peers compare with their calls; `None` for messages between some ranks.
    pub(crate) entered: Option<u32>,
    pub(crate) wait: WaitLoop,
    pub(crate) stats: CallStats,
    /// True if memory of other ranks was read.
    pub(crate) reads_peer: bool,
    /// Bytes that sockets had moved at the last check, and those that pipes had passed on.
    pub(crate) moved: u64,
    pub(crate) taken: u64,
    pub(crate) recorder: &'a mut FlightRecorder,
}
