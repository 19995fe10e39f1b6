//! Messages of a connection whose contents a device of the network writes into the receiver's slots.

use std::collections::VecDeque;

use super::packet::ProxyPacket;
use roundelay_net::transport::one_sided::{AccessGrant, AccessReport, OneSided};

/// The messages of a stream that the device writes into the receiver's slots.
#[derive(Debug, Default)]
pub(super) struct DirectWrites {
    /// The peer's slots, as its device takes writes to them, and their bytes.
    pub(super) grant: Option<(AccessGrant, u64)>,
    /// Messages whose packets have not gone, in order.
    pub(super) begun: VecDeque<DirectWrite>,
    /// The number of the last access that was begun, and of the last that is done.
    pub(super) number: u64,
    pub(super) done: u64,
    /// The number of times that all accesses without an end failed.
    pub(super) failures: u32,
}

/// A message whose packet has not gone.
#[derive(Debug)]
pub(super) struct DirectWrite {
    pub(super) flow: usize,
    pub(super) packet: ProxyPacket,
    pub(super) slot: u64,
    /// The access that writes its content; none if there is no content, or if it is to go with the packet.
    pub(super) access: Option<u64>,
}

impl DirectWrites {
    /// Returns true if a message has not gone.
    pub(super) fn is_sending(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Returns the next message whose packet may go.
    pub(super) fn next(&mut self) -> Option<DirectWrite> {
        let first = self.begun.front()?;
        if first.access.is_some_and(|id| id > self.done) {
            return None;
        }
        self.begun.pop_front()
    }

    /// Applies what a device has done; contents that it could not write go with their packets.
    pub(super) fn poll(&mut self, device: &dyn OneSided) {
        let DirectWrites { grant, begun, done, failures, .. } = self;
        device.hear(&mut |news| match news {
            AccessReport::Moved { .. } => {}
            AccessReport::Done { id } => *done = id,
            AccessReport::Failed { refused } => {
                *failures += 1;
                begun.iter_mut().filter(|b| b.access > Some(*done)).for_each(|b| b.access = None);
                if refused {
                    *grant = None;
                }
            }
        });
    }
}
