//! Proxies: the threads that carry the messages of kernels between hosts.
//!
//! A client of the progress engine ([`roundelay_engine::progress`]): its wait, its packets and its text of blame are
//! those of the engine.
//!
//! Each rank of a communicator over several hosts has memory that its kernels and its proxies share ([`memory`]): words
//! and slots on its host. It has up to eight *lanes* ([`lane`]), each with connections of its own to every rank on
//! another host; one thread serves them by turns, with helpers while messages are long ([`run`]). Block b of a kernel is served by lane `b mod L`. Calls
//! ([`call`]) have numbers, which are ordered from the proxies before a kernel is launched or captured. A kernel
//! publishes the number of the call that it enters, so that proxies follow the order of the streams, also where graphs
//! are launched, of which the host does not know.
//!
//! A lane begins a call when a kernel has entered it, and carries both ways ([`sending`], [`landing`]) until all its
//! messages ([`flow`]) are over:
//!
//! * A message that the kernel has published is a packet of 32 bytes ([`packet`]) and its content, which the socket
//!   reads straight into the receiver's slot; a short one is copied on its way. The first `slots` messages of a link go
//!   at once, the others with *credit*: a packet of the receiver's proxy with the count of messages that its kernel has
//!   consumed.
//! * Credit is sent only as long as messages follow that need it. So at the end of a call none of it is unread.
//! * A message of the next call stays outside its slot until this rank's kernel has entered that call. All that
//!   comes before it in the stream is then over, so that no proxy waits for itself: a peer's kernel has left only when
//!   its proxies had sent all, and messages on one connection do not overtake each other.
//!
//! Messages between single ranks belong to no call ([`exchange`]): their pieces are counted from the beginning of the
//! communicator on ([`queues`]), in memory of their own ([`peer_slots`]); lanes carry what they find there, and no
//! message waits behind what comes.
//!
//! A thread of its own, the window proxy, performs what streams ask of windows of ranks on other hosts
//! ([`window_proxy`]), through slots and words that it shares with them ([`window_slots`]).
//!
//! Proxies end before the memory that they use.
//!
//! | to read, in this order | for |
//! |---|---|
//! | [`packet`], [`call`], [`flow`] | what goes over a connection, the messages of a call, their progress |
//! | [`mapped`], [`memory`], [`peer_slots`], [`window_slots`] | the memory that kernels, streams and proxies share |
//! | [`stream`], [`queues`] | packets and contents on one connection; pieces of messages between single ranks |
//! | [`state`], [`lane`] | what all proxies of a rank share; the state of a lane |
//! | [`sending`], [`landing`], [`exchange`], [`lane_progress`] | the halves of a lane, and its turn |
//! | [`failure`] | lost connections, and calls that stall |
//! | [`lane_inbox`], [`run`], [`threads`] | orders of lanes; the loop of a thread; starting and ending threads |
//! | [`direct_slots`], [`direct_writes`], [`direct_probe`] | slots on the GPU that devices of the network write into |
//! | [`window_proxy`] | window operations for streams |
//! | `emulated`, `tests` | kernels that threads run, for tests without a GPU |

mod call;
mod direct_probe;
mod direct_slots;
#[cfg(test)]
mod direct_slots_tests;
mod direct_writes;
#[cfg(test)]
mod emulated;
mod exchange;
#[cfg(test)]
mod exchange_tests;
mod failure;
#[cfg(test)]
mod failure_tests;
mod flow;
#[cfg(test)]
mod gpu_tests;
mod landing;
mod lane;
mod lane_inbox;
mod lane_progress;
mod mapped;
mod memory;
mod packet;
mod peer_slots;
mod queues;
mod run;
mod sending;
#[cfg(test)]
mod speed_tests;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod threads;
mod window_proxy;
#[cfg(test)]
mod window_proxy_failure_tests;
#[cfg(test)]
mod window_proxy_tests;
mod window_slots;

pub(super) use call::{ProxyCall, ProxyProgram};
pub use direct_slots::GpuDirect;
pub(super) use memory::ProxyMemory;
pub use packet::wires;
pub(super) use peer_slots::PeerSlots;
pub(super) use queues::{BatchEnd, ProxyBatch};
pub(super) use threads::{MemoryOffer, ProxyThreads};
pub(super) use window_proxy::{StreamSteps, WindowProxy, WindowTarget};
pub(super) use window_slots::ProxySlots;
