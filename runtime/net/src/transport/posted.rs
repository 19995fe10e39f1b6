//! The seam of posted links: messages are handed over, and progress while either end polls.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::fault::ConnectionFault;
use super::message::{ArrivedMessage, IoVec, IoVecMut};

/// The sending end of a connection that messages are posted to.
pub trait PostedSender {
    /// Returns the number of messages posted since the end was made.
    fn sent(&self) -> u64;

    /// Returns one more than the last message posted by [`Self::post_from`].
    fn zero_copied(&self) -> u64;

    /// Returns true if nothing reads a message any more where it lies: its memory may be written again.
    fn is_consumed(&mut self, message: u64) -> bool;

    /// Returns true if fewer than `slots` messages have yet to be taken.
    fn has_room(&mut self, slots: u64) -> bool;

    /// Returns the address to which the next message's content of `len` bytes is to be written, after
    /// [`Self::has_room`]. Memory is made for `slots` messages of that length, and kept.
    fn stage(&mut self, slots: u64, len: usize) -> *mut u8;

    /// Posts the message of `len` bytes that was staged, and moves what can be moved.
    fn post(&mut self, meta: u64, len: usize);

    /// Posts as [`Self::post`] does, but leaves it to the next post or flush to move it, with what is posted by then.
    fn post_later(&mut self, meta: u64, len: usize);

    /// Posts a message straight from where its content lies, in order.
    ///
    /// # Safety
    ///
    /// Every piece is readable, and neither freed nor written until [`Self::is_consumed`] has said
    /// yes of this message, or until this end is dropped or never called again.
    unsafe fn post_from(&mut self, meta: u64, pieces: impl Iterator<Item = IoVec>);

    /// Moves what can be moved; returns true if nothing is left.
    fn flush(&mut self) -> bool;

    /// Returns true if something is posted that has yet to be taken.
    fn has_backlog(&self) -> bool;

    /// Returns the bytes that were taken, headers too: what grows is not stuck.
    fn bytes(&self) -> u64;

    /// Returns the bytes of memory that are kept for messages.
    fn kept(&self) -> u64;

    /// Returns the reason for which something that was posted will never arrive, if there is one.
    fn lost(&self) -> Option<ConnectionFault>;

    /// Returns the descriptor that shows when more can be taken, and true if it always does.
    fn wakes(&self) -> (Option<Arc<OwnedFd>>, bool);
}

/// The receiving end of a connection that messages are posted to.
pub trait PostedReceiver {
    /// Returns true if the message is wholly here that follows the next `ahead` ones; tries to read it. It
    /// has `len` bytes; if its header says otherwise it is ready at once and has no content.
    ///
    /// Messages are asked for in turn: while the message before is not here, this one is not.
    fn is_ready(&mut self, ahead: u64, len: usize) -> bool;

    /// Returns a message that is here: after [`Self::is_ready`] said yes of it. Its content is aligned to 64
    /// bytes; it has none if it has landed, or if its `meta` announces another length than was asked for.
    fn message(&self, ahead: u64) -> ArrivedMessage;

    /// Reads the next message, of `len` bytes, straight to where it is to be; returns true if all of it
    /// is there. Until then this is called again and again with the same pieces. What was already
    /// staged of it is copied.
    ///
    /// If its header announces another length it has landed at once, and the pieces hold anything.
    ///
    /// # Safety
    ///
    /// The pieces are writable and have `len` bytes together, and nothing else reads or writes them
    /// before the message is consumed, or the connection was cut.
    unsafe fn land(&mut self, len: usize, pieces: impl Iterator<Item = IoVecMut>) -> bool;

    /// Releases the next message, which is no longer needed.
    fn consume(&mut self);

    /// Returns the number of messages that were consumed since the end was made.
    fn received(&self) -> u64;

    /// Returns the bytes read, headers too: what grows is not stuck.
    fn bytes(&self) -> u64;

    /// Returns the bytes of memory that are kept for messages.
    fn kept(&self) -> u64;

    /// Returns the descriptor that shows when something comes, and true if it always does.
    fn wakes(&self) -> (Option<Arc<OwnedFd>>, bool);
}
