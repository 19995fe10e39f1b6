//! Proxies: what carries the messages of kernels between hosts.
//!
//! Each rank of a communicator over several hosts has *far memory* ([`memory`]), words and slots of its host that its
//! kernels and its proxies load and store, and some *lanes*: threads with connections of their own to every rank on
//! another host. Block b of a kernel is served by lane `b mod L`. Lanes know calls ([`call`]) by numbers, of which they are
//! told before a kernel is launched or captured. A kernel says the number of the call that it enters, and which call it is:
//! so lanes have the order of the streams, also where graphs are launched, of which the host does not know.
//!
//! A lane begins when a kernel has said that it entered the call ([`lane`]). Then it carries both ways ([`landing`] is what
//! comes):
//!
//! * A message that the kernel has told of is a packet of 32 bytes ([`packet`]) and its content, which the socket reads
//!   straight into the receiver's slot; a short one is copied on its way. The first `slots` messages of a link go at
//!   once, the others with *credit*: a packet of the receiver's lane, which says how many messages its kernel has
//!   consumed.
//! * Credit is sent only as long as messages follow that need it. So at the end of a call nothing of it is unread.
//! * What belongs to the call after stays outside its slot until this rank's kernel has entered that one. All that
//!   comes before it in the stream is then over, so that no lane waits for itself: a peer's kernel has left only when
//!   its lanes had sent all, and messages on one connection do not overtake each other.
//!
//! Messages between single ranks are no call's ([`exchange`]): their pieces are counted from the beginning of the
//! communicator on, in memory of their own ([`mail`]), lanes carry what they find there, and nothing waits behind what
//! comes.
//!
//! Slots may lie on the GPU, where devices of the network write into them ([`direct`]).
//!
//! A thread of its own does what streams want of windows of ranks on other hosts ([`courier`]), through slots and words
//! that it shares with them ([`tray`]).
//!
//! Lanes and the courier end before the memory that they use.

mod call;
mod courier;
#[cfg(test)]
mod courier_failure_tests;
#[cfg(test)]
mod courier_tests;
pub(super) mod direct;
#[cfg(test)]
mod direct_tests;
#[cfg(test)]
mod emulated;
mod exchange;
#[cfg(test)]
mod exchange_tests;
#[cfg(test)]
mod failure_tests;
mod flow;
#[cfg(test)]
mod gpu_tests;
mod landing;
mod lane;
mod lanes;
mod mail;
mod memory;
mod packet;
mod pause;
mod stream;
#[cfg(test)]
mod tests;
mod tray;
mod trouble;

pub(super) use call::{FarCall, FarPart};
pub(super) use courier::{Courier, Errands, Steps};
pub(super) use exchange::{FarBatch, FarEnd};
pub(super) use lanes::{Lanes, Offer};
pub(super) use mail::Mail;
pub(super) use memory::{CAPACITY, FarMemory, MOST_BLOCKS};
pub(super) use tray::Tray;
