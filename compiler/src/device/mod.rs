//! Device programs: what the thread blocks of one rank play of a plan.
//!
//! A kernel has B blocks. Every chunk is cut into slices, at the same elements of every chunk, and a block
//! plays the whole plan on slices of its own, with connections of its own, so that no block waits for
//! another one of its rank. It plays them one after the other, in *passes*, as a host's executor does.
//! Packets carry the epoch and not the pass: a program of packets is played in one.
//!
//! **Phases.** A program is a list of phases, played in order. The tasks of a phase touch nothing of each
//! other's: groups of warps play them side by side ([`abi`]). After its tasks a phase may have a *block
//! barrier* (`__syncthreads`), and then signal. A task is a fold, element by element and in
//! the order listed, like an operation of a plan; what it reads and writes says how its messages travel:
//!
//! | protocol | sender | receiver |
//! |---|---|---|
//! | packet | writes units of 8 bytes, each beside the call's epoch, into the receiver's staging memory | polls each unit: no flag, no fence, no block barrier |
//! | staged | writes the content into a slot of the receiver's staging memory, then signals `Sent` | waits for `Sent`, folds from the slot, signals `Consumed` |
//! | landed | writes the content to its last place in the receiver's buffer, then signals `Sent` | waits for `Sent`, moves nothing |
//! | pulled | signals `Sent`; waits for `Consumed` before it overwrites the region, and before it ends | waits for `Sent`, folds from the sender's buffer, signals `Consumed` |
//!
//! **Parts.** A program for copy engines moves data in one phase alone, whose tasks copy and do not wait. The
//! driver copies what they say, all blocks' at once, between two parts of the kernel: the phases before, and
//! that phase's signals with all that follows. It asks for less order than that gives: a block's copies
//! behind its own waits, and its signals behind its copies.
//!
//! **Multicast.** A program for the switch is one of `get` whose folds each read one place on every rank, and whose
//! results each go to one place on every rank: an instruction does for all ranks what loads and stores do for one. It
//! reads and writes nothing else, and waits for no less.
//!
//! **Words.** Every connection has two words of 64 bits a block, each with one writer: `sent` in the
//! receiver's memory, `consumed` in the sender's. They hold `epoch << 32 | messages so far in this call` and
//! only grow, but for epochs that begin again at 0 ([`abi`]). The i-th message of pass p has the number
//! `p * messages + i + 1`. Every rank also has a word `entered` a peer and block in each peer's memory: of
//! the call that it has entered.
//!
//! **Far links.** What two ranks on different hosts have between them is carried by *proxies*, threads of the hosts.
//! Both ends of a far link have slots and words in memory of their own host, the *far memory*, and each kernel
//! speaks with its own proxy alone. Messages are always staged:
//!
//! | | sender's end | receiver's end |
//! |---|---|---|
//! | `Sent` | the kernel tells that the slot is filled | the proxy tells that the slot is filled, waited for as ever |
//! | `Consumed` | the proxy tells that it has taken the content: the slot is free | the kernel tells that it has read the slot |
//!
//! So `Room` asks for the sender's own proxy, and who waits for it learns nothing of the peer. A message is copied
//! when the receiver's kernel has entered the call, and has consumed the message `slots` before. A kernel leaves
//! when its proxy has taken all that it sent: the slots are free for the next call, and need no halves.
//!
//! **Epochs.** A call's number on its communicator, the same on every rank, kept in device memory and counted
//! on by the kernels themselves, so that a graph can replay one. Staging memory has two
//! halves, used by odd and even epochs. A call may write into a peer's half when the peer has ended the call
//! two before, of which it is enough to know that it has entered the one before. A program that
//! [`synchronizes`](DeviceProgram::synchronizes) proves that by ending; after others, ranks wait for `entered`.

pub mod abi;
mod inside;
mod lower;
mod print;
mod verify;

pub use inside::interchangeable;
pub use lower::{Options, Refused, lower};
pub use print::UnknownProtocol;
pub use verify::{Fault, Programs, ProvedProgram, prove, verify};

use serde::Serialize;

use crate::plan::{Dir, Header, Region, Site, Sizes, WireType};

/// The protocol by which the messages of a program travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Protocol {
    /// All as packets: for latency.
    Packet,
    /// All through slots: needs nothing of the callers' buffers.
    Staged,
    /// Copies land in the peers' buffers, what is folded is staged.
    Put,
    /// Copies land in the peers' buffers, what is folded is read in the peers' buffers.
    Get,
    /// Copies are made by the GPUs' copy engines, which read in the peers' buffers; nothing is folded.
    Engine,
    /// As `get`, by the switch: it reads what is folded in the buffers of all ranks at once, and writes what is copied
    /// into those of all.
    Multicast,
}

impl Protocol {
    /// Returns true if a call is played in one pass, whatever its size.
    pub const fn is_one_pass(self) -> bool {
        matches!(self, Protocol::Packet | Protocol::Engine)
    }

    /// Returns true if it reaches as far as one host.
    pub const fn is_of_one_host(self) -> bool {
        matches!(self, Protocol::Packet | Protocol::Engine | Protocol::Multicast)
    }

    /// Returns true if what is folded is read in the peers' buffers.
    pub(crate) const fn pulls(self) -> bool {
        matches!(self, Protocol::Get | Protocol::Engine | Protocol::Multicast)
    }

    /// Returns true if what is copied is written into the peers' buffers.
    pub(crate) const fn lands(self) -> bool {
        matches!(self, Protocol::Put | Protocol::Get | Protocol::Multicast)
    }
}

/// The program that the blocks of one rank play.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceProgram {
    /// The facts that the plans have in common.
    pub header: Header,
    /// The rank that plays it.
    pub rank: u32,
    /// The protocol by which messages travel.
    #[serde(rename = "way")]
    pub protocol: Protocol,
    /// Connection ends that this rank uses; tasks refer to them by index.
    pub links: Vec<DeviceConnection>,
    /// Peers that land in this rank's buffers and hear nothing else of it before: told at entry that it has
    /// entered.
    pub greets: Vec<u32>,
    /// The ranks on other hosts: nothing of theirs is addressed.
    pub elsewhere: Vec<u32>,
    /// Played in order, once a pass.
    pub phases: Vec<Phase>,
    /// Waits after the last pass, before the callers' buffers are theirs again.
    pub leave: Vec<Wait>,
    /// Chunks of staging memory that a block needs, on the rank that needs most.
    pub staging: u32,
    /// Chunks of far memory that a block needs for the slots of far links, on the rank that needs most.
    pub far: u32,
    /// True if a rank that has ended knows that every rank has entered. Holds for a block if no chunk's slice
    /// is empty.
    pub synchronizes: bool,
    /// Source lines; tasks refer to them by index.
    pub sites: Vec<Site>,
}

impl DeviceProgram {
    /// Returns the phase of a program for copy engines whose tasks they play, or the number of phases if
    /// there is none.
    pub fn copying(&self) -> usize {
        let moves = |phase: &Phase| phase.tasks.iter().any(Task::moves);
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
    pub dir: Dir,
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
pub struct Phase {
    /// Folds that touch nothing of each other's.
    pub tasks: Vec<Task>,
    /// True if a block barrier follows the tasks.
    #[serde(rename = "meet")]
    pub block_barrier: bool,
    /// The signals to peers after that.
    pub signals: Vec<Signal>,
}

/// A fold: waits, then folds `inputs` in order, element by element, into the store and the outs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    /// All of them before the first element.
    pub waits: Vec<Wait>,
    /// The operands of the fold; empty if the task only waits.
    pub inputs: Vec<TaskInput>,
    /// The region in which this rank keeps the result.
    pub store: Option<Region>,
    /// The destinations of the result at peers.
    pub outs: Vec<Target>,
    /// Elements of each chunk.
    pub sizes: Sizes,
    /// Index into [`DeviceProgram::sites`].
    pub site: u32,
    /// Number of the program's `each` that this task belongs to: the step in messages.
    pub round: u32,
}

impl Task {
    /// Returns true if the task moves data, and does not only wait.
    pub fn moves(&self) -> bool {
        !self.inputs.is_empty()
    }
}

/// A message of a pass on one of this rank's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Message {
    /// Index into [`DeviceProgram::links`].
    pub link: u32,
    /// Counted from 0 in each pass.
    pub index: u32,
}

/// The source of an operand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum TaskInput {
    /// This rank's own memory. After a landed message, its place.
    Local(Region),
    /// Units in this rank's staging memory, each polled.
    Packet(Message, Option<WireType>),
    /// A slot in this rank's staging memory.
    Staged(Message, Option<WireType>),
    /// A region of the peer's buffers.
    Pulled(Message, Region),
}

/// The destination of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Target {
    /// Units in the peer's staging memory.
    Packet(Message, Option<WireType>),
    /// A slot in the peer's staging memory.
    Staged(Message, Option<WireType>),
    /// A region of the peer's buffers.
    Landed(Message, Region),
}

/// A condition on words that peers write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The event that must have happened.
    pub event: Event,
    /// True if everything before the event is visible after the wait, as in every program that is lowered.
    /// Tests clear it.
    pub acquire: bool,
}

/// An event that a peer signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Event {
    /// A peer has entered the call: its buffers may be read and written.
    Entered {
        /// The peer.
        peer: u32,
    },
    /// A message has come, on a link that receives.
    Sent(Message),
    /// A message was consumed, on a link that sends.
    Consumed(Message),
    /// There is room for a staged message, on a link that sends: the one `slots` before it was consumed.
    Room(Message),
}

/// A word written in a peer's memory after a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Signal {
    /// The message: sent if its link sends, consumed if its link receives.
    pub message: Message,
    /// True if everything that the block did before is visible before the signal, as in every program that is
    /// lowered. Tests clear it.
    pub release: bool,
}
