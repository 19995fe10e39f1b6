//! The parts of a device program, from the program of a rank down to one wait.

use serde::Serialize;

use super::protocol::DeviceProtocol;
use crate::plan::{ChunkSizes, MessageDirection, PlanHeader, PlanRegion, SourceLine, WireType};

/// The program that the blocks of one rank run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceProgram {
    /// The facts that the plans have in common.
    pub header: PlanHeader,
    /// The rank that runs it.
    pub rank: u32,
    /// The protocol by which messages travel.
    #[serde(rename = "way")]
    pub protocol: DeviceProtocol,
    /// Connection ends that this rank uses; tasks refer to them by index.
    pub links: Vec<DeviceConnection>,
    /// Peers that land in this rank's buffers without another signal of it before: it signals its entry to them.
    pub greets: Vec<u32>,
    /// The ranks on other hosts: nothing of theirs is addressed.
    pub elsewhere: Vec<u32>,
    /// Run in order, once a pass.
    pub phases: Vec<DevicePhase>,
    /// Waits after the last pass, before the callers' buffers are theirs again.
    pub leave: Vec<DeviceWait>,
    /// Chunks of staging memory that a block needs, on the rank that needs most.
    pub staging: u32,
    /// Chunks of far memory that a block needs for the slots of far links, on the rank that needs most.
    pub far: u32,
    /// True if a rank that has ended knows that every rank has entered. Holds for a block if no chunk's slice
    /// is empty.
    pub synchronizes: bool,
    /// Source lines; tasks refer to them by index.
    pub sites: Vec<SourceLine>,
}

impl DeviceProgram {
    /// Returns the phase of a program for copy engines whose tasks they run, or the number of phases if
    /// there is none.
    pub fn copying(&self) -> usize {
        let moves = |phase: &DevicePhase| phase.tasks.iter().any(DeviceTask::moves);
        self.phases.iter().position(moves).unwrap_or(self.phases.len())
    }

    /// Returns true if this rank has links to ranks on other hosts.
    pub fn is_far(&self) -> bool {
        self.links.iter().any(|link| link.far)
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct DeviceConnection {
    /// The other rank.
    pub peer: u32,
    /// Number of the connection among the parallel ones to that peer, counted without gaps.
    pub channel: u16,
    /// The direction of this end.
    pub dir: MessageDirection,
    /// Messages a pass.
    pub messages: u32,
    /// Most chunks of a message that goes through staging memory; 0 if none does.
    pub chunks: u32,
    /// Messages that the receiver's staging memory has room for: all of a pass if they are packets.
    pub slots: u32,
    /// Chunks of staging memory, a block, that belong to links before this one: of the receiver's, or of a far link
    /// of this end's own far memory.
    pub base: u32,
    /// True if the peer is on another host: a proxy carries what goes over the link.
    pub far: bool,
}

/// Tasks side by side, then what follows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DevicePhase {
    /// Folds that touch nothing of each other's.
    pub tasks: Vec<DeviceTask>,
    /// True if a block barrier follows the tasks.
    #[serde(rename = "meet")]
    pub block_barrier: bool,
    /// The signals to peers after that.
    pub signals: Vec<DeviceSignal>,
}

/// A fold: waits, then folds `inputs` in order, element by element, into the store and the outs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceTask {
    /// All of them before the first element.
    pub waits: Vec<DeviceWait>,
    /// The operands of the fold; empty if the task only waits.
    pub inputs: Vec<TaskInput>,
    /// The region in which this rank keeps the result.
    pub store: Option<PlanRegion>,
    /// The destinations of the result at peers.
    pub outs: Vec<TaskOutput>,
    /// Elements of each chunk.
    pub sizes: ChunkSizes,
    /// Index into [`DeviceProgram::sites`].
    pub site: u32,
    /// Number of the program's `each` that this task belongs to: the step in messages.
    pub round: u32,
}

impl DeviceTask {
    /// Returns true if the task moves data, and does not only wait.
    pub fn moves(&self) -> bool {
        !self.inputs.is_empty()
    }
}

/// A message of a pass on one of this rank's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeviceMessage {
    /// Index into [`DeviceProgram::links`].
    pub link: u32,
    /// Counted from 0 in each pass.
    pub index: u32,
}

/// The source of an operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum TaskInput {
    /// This rank's own memory. After a landed message, its place.
    Local(PlanRegion),
    /// Units in this rank's staging memory, each polled.
    Packet(DeviceMessage, Option<WireType>),
    /// A slot in this rank's staging memory.
    Staged(DeviceMessage, Option<WireType>),
    /// A region of the peer's buffers.
    Pulled(DeviceMessage, PlanRegion),
}

/// The destination of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum TaskOutput {
    /// Units in the peer's staging memory.
    Packet(DeviceMessage, Option<WireType>),
    /// A slot in the peer's staging memory.
    Staged(DeviceMessage, Option<WireType>),
    /// A region of the peer's buffers.
    Landed(DeviceMessage, PlanRegion),
}

/// A condition on words that peers write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceWait {
    /// The event that must have happened.
    pub event: DeviceEvent,
    /// True if everything before the event is visible after the wait, as in every program that is lowered.
    /// Tests clear it.
    pub acquire: bool,
}

/// An event that a peer signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum DeviceEvent {
    /// A peer has entered the call: its buffers may be read and written.
    Entered {
        /// The peer.
        peer: u32,
    },
    /// A message has come, on a link that receives.
    Sent(DeviceMessage),
    /// A message was consumed, on a link that sends.
    Consumed(DeviceMessage),
    /// There is room for a staged message, on a link that sends: the one `slots` before it was consumed.
    Room(DeviceMessage),
}

/// A word written in a peer's memory after a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DeviceSignal {
    /// The message: sent if its link sends, consumed if its link receives.
    pub message: DeviceMessage,
    /// True if everything that the block did before is visible before the signal, as in every program that is
    /// lowered. Tests clear it.
    pub release: bool,
}
