//! Messages between single ranks, as calls name them.

use super::buffer::{InputBuffer, MemoryKind, OutputBuffer};
use crate::bind::BatchTransfer;
use roundelay_compiler::plan::MessageDirection;
use roundelay_support::error::Error;

/// A message of a call.
#[derive(Debug)]
pub struct CallMessage<'a> {
    /// The rank at the other end.
    pub peer: u32,
    /// This rank's end.
    pub end: MessageEnd<'a>,
}

/// The end of a message that a rank is, with its memory.
#[derive(Debug)]
pub enum MessageEnd<'a> {
    /// This rank sends, from that memory.
    Sent(InputBuffer<'a>),
    /// This rank receives, into that memory.
    Received(OutputBuffer<'a>),
}

impl<'a> CallMessage<'a> {
    /// Describes a message to a rank.
    pub fn sent(data: InputBuffer<'a>, to: u32) -> Self {
        CallMessage { peer: to, end: MessageEnd::Sent(data) }
    }

    /// Describes a message from a rank.
    pub fn received(data: OutputBuffer<'a>, from: u32) -> Self {
        CallMessage { peer: from, end: MessageEnd::Received(data) }
    }

    /// Returns the message without its memory.
    pub fn transfer(&self) -> BatchTransfer {
        let (dir, dtype, len) = match &self.end {
            MessageEnd::Sent(data) => (MessageDirection::Send, data.dtype(), data.len()),
            MessageEnd::Received(data) => (MessageDirection::Recv, data.dtype(), data.len()),
        };
        BatchTransfer { peer: self.peer, dir, dtype, bytes: len as u64 }
    }

    /// Returns the address of this end's memory.
    pub fn address(&self) -> u64 {
        match &self.end {
            MessageEnd::Sent(data) => data.address(),
            MessageEnd::Received(data) => data.address(),
        }
    }

    /// Returns where this end's memory lies.
    pub fn memory(&self) -> MemoryKind {
        match &self.end {
            MessageEnd::Sent(data) => data.memory(),
            MessageEnd::Received(data) => data.memory(),
        }
    }
}

/// Fails unless the other end of every message is one of that many ranks; `what` is done with it.
pub fn check_peers(what: &str, messages: &[CallMessage<'_>], ranks: u32) -> Result<(), Error> {
    match messages.iter().find(|message| message.peer >= ranks) {
        None => Ok(()),
        Some(message) => Err(Error::Usage(format!(
            "there is no rank {} to {what} with: the ranks are 0 to {}",
            message.peer,
            ranks - 1
        ))),
    }
}
