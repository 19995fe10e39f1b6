//! The connection ends that a rank has opened, by number.

use std::sync::Arc;

use crate::error::Error;
use crate::transport::shm::{Layout, Receiver, Segment, Sender};

/// All open ends of one rank. Ends stay open: messages are numbered over the whole job.
pub(crate) struct Ends {
    segment: Arc<Segment>,
    rank: u32,
    pub(crate) senders: Vec<Sender>,
    pub(crate) receivers: Vec<Receiver>,
    to: Vec<(u32, u16)>,
    from: Vec<(u32, u16)>,
}

impl Ends {
    pub(crate) fn new(segment: Arc<Segment>, rank: u32) -> Self {
        let (senders, receivers) = (Vec::new(), Vec::new());
        Ends { segment, rank, senders, receivers, to: Vec::new(), from: Vec::new() }
    }

    pub(crate) fn layout(&self) -> &Layout {
        self.segment.layout()
    }

    /// The number of the end that sends to a peer.
    pub(crate) fn sender(&mut self, peer: u32, channel: u16) -> Result<u32, Error> {
        if let Some(at) = self.to.iter().position(|&to| to == (peer, channel)) {
            return Ok(at as u32);
        }
        let sender = Sender::open(&self.segment, self.rank, peer, channel.into())?;
        self.senders.push(sender);
        self.to.push((peer, channel));
        Ok(self.senders.len() as u32 - 1)
    }

    /// The number of the end that receives from a peer.
    pub(crate) fn receiver(&mut self, peer: u32, channel: u16) -> Result<u32, Error> {
        if let Some(at) = self.from.iter().position(|&from| from == (peer, channel)) {
            return Ok(at as u32);
        }
        let receiver = Receiver::open(&self.segment, peer, self.rank, channel.into())?;
        self.receivers.push(receiver);
        self.from.push((peer, channel));
        Ok(self.receivers.len() as u32 - 1)
    }
}
