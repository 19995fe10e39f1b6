//! Device programs: what the thread blocks of one rank execute of a plan.
//!
//! A kernel has B blocks. Every chunk is cut into slices, at the same elements of every chunk, and a block
//! executes the whole plan on slices of its own, with connections of its own, so that no block waits for
//! another one of its rank. It runs them one after the other, in *passes*, as a host's executor does.
//! Packets carry the epoch and not the pass: a program of packets is run in one.
//!
//! **Phases.** A program is a list of phases, run in order. The tasks of a phase touch nothing of each
//! other's: groups of warps run them side by side ([`abi`]). After its tasks a phase may have a *block
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
//!
//! **Files.** `protocol`, `program`, [`abi`]: this contract, as types. `options`, `refusal`, `switch`: what a
//! lowering is asked, when it refuses, what the switch can do. `lower`, `verify`: makes programs, and proves them.
//! `print`, `inside`.

pub mod abi;
mod inside;
mod lower;
mod options;
mod print;
mod program;
mod protocol;
mod refusal;
mod switch;
mod verify;

pub use inside::interchangeable;
pub use lower::lower;
pub use options::DeviceOptions;
pub use program::{
    DeviceConnection, DeviceEvent, DeviceMessage, DevicePhase, DeviceProgram, DeviceSignal,
    DeviceTask, DeviceWait, TaskInput, TaskOutput,
};
pub use protocol::{DeviceProtocol, UnknownProtocol};
pub use refusal::LoweringRefusal;
pub use verify::{ProgramFault, ProvedProgram, ProvedPrograms, prove, verify};
