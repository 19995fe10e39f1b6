//! The seam of mapped links: both ends load and store in the same memory.
//!
//! A message is a flag with content beside it. The receiver may also pull: it reads the sender's memory where it
//! lies, or what the sender pushes bit by bit.

use super::message::{ArrivedMessage, IoVec};
use roundelay_support::error::Error;

/// The sending end of a connection in memory that the peer maps.
pub trait MappedSender {
    /// Returns the number of messages sent since the job began.
    fn sent(&self) -> u64;

    /// Returns one more than the last message whose content was not copied when it was handed over.
    fn zero_copied(&self) -> u64;

    /// Returns true if the memory of all messages up to this one is no longer read.
    fn is_free(&mut self, message: u64) -> bool;

    /// Returns true if the next message may go whose content is not in a slot.
    fn has_header(&mut self) -> bool;

    /// Returns true if the next message may use a slot of a plan with `slots` of them.
    fn has_slot(&mut self, slots: u64) -> bool;

    /// Returns the address to which the content of a short message is to be written; after [`Self::has_header`].
    fn inline(&self) -> *mut u8;

    /// Returns the address to which a longer message is to be written; after [`Self::has_slot`] said yes.
    fn slot(&mut self, slots: u64, len: u64) -> Result<*mut u8, Error>;

    /// Hands the next message over, its content being written.
    fn post(&mut self, meta: u64);

    /// Hands over the place of the next message's content in memory that the peer maps.
    fn post_pull(&mut self, meta: u64, offset: u64);

    /// Hands over the next message, of `len` bytes in memory of this process: where that lies, or its content as
    /// there is room.
    ///
    /// # Safety
    ///
    /// The pieces are readable, and neither freed nor written until [`Self::is_free`] has said yes of this
    /// message, or until this end is dropped or never called again.
    unsafe fn post_private(
        &mut self,
        meta: u64,
        address: u64,
        len: usize,
        pieces: impl Iterator<Item = IoVec>,
    );

    /// Returns true if the receiver takes this process's own memory without slots, by what it had published when this
    /// rank last [learned](Self::learn) of it.
    fn would_read(&self) -> bool;

    /// Returns true if it [would](Self::would_read), and the system lets it: the same until this rank learns anew.
    fn reads(&self) -> bool;

    /// Reads how the receiver asks for this process's memory.
    fn learn(&mut self);

    /// Pushes what the peer takes bit by bit as far as that can be done now; returns true if it was anything.
    fn push(&mut self) -> bool;
}

/// The receiving end of a connection in memory that the peer maps.
pub trait MappedReceiver {
    /// Probes whether the sender's memory can be read, and publishes the result to the sender, which has joined.
    fn try_reach(&mut self);

    /// Returns the sender's process, if its memory can be read.
    fn reach(&self) -> Option<i32>;

    /// Records that the sender's memory can no longer be read, and notifies the sender.
    fn lose_reach(&mut self);

    /// Returns the number of messages that were consumed since the end was opened.
    fn received(&self) -> u64;

    /// Returns the bytes of memory that are kept to put messages together.
    fn kept(&self) -> u64;

    /// Returns the position up to which was taken what the sender pushes: what grows is not stuck.
    fn taken(&self) -> u64;

    /// Returns true if the message has begun to come that follows the next `ahead` ones.
    fn has_begun(&self, ahead: u64) -> bool;

    /// Returns true if the message is there that follows the next `ahead` ones. It is to have `len` bytes; if
    /// it has not, it is there at once.
    fn is_ready(&mut self, ahead: u64, len: usize) -> bool;

    /// Returns true if the next message can go to its destination [part by part](Self::part); `None` while it
    /// has not begun to come. One that a plan did not ask for, by `meta`, goes nowhere.
    fn lands(&self, meta: u64) -> Option<bool>;

    /// Returns a part of the next message that is there, after [`Self::lands`] said yes: its address, the
    /// bytes of the message before it, and its own. The next call releases it.
    fn part(&mut self) -> Option<(*const u8, usize, usize)>;

    /// Returns true if the next message went straight to its destination.
    fn has_landed(&self) -> bool;

    /// Returns the message that follows the next `ahead` ones, after [`Self::is_ready`] said yes.
    fn message(&self, slots: u64, ahead: u64) -> ArrivedMessage;

    /// Releases the next message's content, which is no longer needed.
    fn consume(&mut self);
}
