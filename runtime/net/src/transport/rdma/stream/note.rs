//! Notes: messages of one end to the other in pieces that no reader sees.

use serde::{Deserialize, Serialize};

use crate::transport::rdma::targets::PutTarget;
use crate::transport::rdma::verbs::QueueAddress;

/// A message of one end to the other in a piece that no reader sees.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum StreamNote {
    PutTarget(PutTarget),
    Renewal(RenewalMessage),
}

/// A step towards a new queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RenewalMessage {
    /// The number of the old one.
    pub(super) of: u32,
    pub(super) attempt: u32,
    pub(super) step: RenewalStep,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RenewalStep {
    Ask(QueueAddress),
    Ready(QueueAddress),
    Go(u32),
    Not,
}
