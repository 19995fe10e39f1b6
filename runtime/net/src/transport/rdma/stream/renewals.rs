//! The renewals of a stream: queues in the making, in the place of those that failed. `renewing` moves them on.

use std::collections::VecDeque;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::note::{RenewalMessage, RenewalStep};
use crate::transport::rdma::rails::QueueRail;
use crate::tunables::{RDMA_RENEWAL_INTERVAL, RDMA_RENEWAL_INTERVAL_MAX, RDMA_STABLE_TIME};

/// A queue in the making.
pub(super) enum RenewalStage {
    /// The peer was asked.
    Asked(QueueRail),
    Connecting(JoinHandle<std::io::Result<QueueRail>>),
    /// Its first write is under way.
    Proving(QueueRail, Instant),
    /// It was delivered.
    Proved(QueueRail),
    /// Its number is in this piece.
    Going(QueueRail, usize, u64),
    /// The peer may use it.
    Ready(QueueRail),
}

/// The queues in the making, and the messages about them that are still to be sent.
pub(super) struct RailRenewals {
    /// True if this end asks.
    pub(super) chooses: bool,
    /// Queues that have ended on the other side, as a mask.
    pub(super) ended_there: u32,
    /// Receives of a queue.
    pub(super) receives: u32,
    pub(super) attempts: u32,
    /// The queues in the making, by the number of the old one, and attempt.
    pub(super) making: Vec<(u32, u32, RenewalStage)>,
    /// The messages that the peer is to be sent.
    pub(super) steps: VecDeque<RenewalMessage>,
    /// The new queues, each with its number and that of the old one.
    pub(super) coming: Vec<(usize, usize, QueueRail)>,
    /// Numbers that this end has given to queues that do not take part yet.
    pub(super) given: usize,
    pub(super) pause: (Duration, Duration),
}

impl RailRenewals {
    pub(super) fn new(receives: u32) -> RailRenewals {
        RailRenewals {
            chooses: false,
            ended_there: 0,
            receives,
            attempts: 0,
            making: Vec::new(),
            steps: VecDeque::new(),
            coming: Vec::new(),
            given: 0,
            pause: (RDMA_RENEWAL_INTERVAL, RDMA_RENEWAL_INTERVAL_MAX),
        }
    }

    /// Records that a queue has ended on both sides.
    pub(super) fn ended(&self, rail: &mut QueueRail) {
        if rail.due.is_none() {
            let is_old = rail.pause.is_zero() || rail.made.elapsed() > RDMA_STABLE_TIME;
            rail.pause = if is_old { self.pause.0 } else { rail.pause };
            rail.due = Some(Instant::now() + rail.pause);
        }
    }

    /// Puts off the renewal of a queue.
    pub(super) fn put_off(&self, rail: &mut QueueRail) {
        rail.pause = (2 * rail.pause).min(self.pause.1);
        rail.due = Some(Instant::now() + rail.pause);
    }

    /// Destroys all that is in the making.
    pub(super) fn clear(&mut self) {
        self.making.clear();
        self.coming.clear();
    }

    pub(super) fn take(&mut self, renewal: &RenewalMessage) -> Option<RenewalStage> {
        let is = |(of, attempt, _): &(u32, u32, RenewalStage)| {
            (*of, *attempt) == (renewal.of, renewal.attempt)
        };
        let at = self.making.iter().position(is)?;
        Some(self.making.swap_remove(at).2)
    }

    pub(super) fn queue_message(&mut self, of: u32, attempt: u32, step: RenewalStep) {
        self.steps.push_back(RenewalMessage { of, attempt, step });
    }
}

#[cfg(test)]
impl RailRenewals {
    /// Describes the queues in the making, and the numbers that were given.
    pub(super) fn state(&self) -> String {
        let making = |(of, attempt, making): &(u32, u32, RenewalStage)| {
            let stage = match making {
                RenewalStage::Asked(_) => "asked",
                RenewalStage::Connecting(_) => "connecting",
                RenewalStage::Proving(..) => "proving",
                RenewalStage::Proved(_) => "proved",
                RenewalStage::Going(..) => "going",
                RenewalStage::Ready(_) => "ready",
            };
            format!("attempt {attempt} of {of}: {stage}")
        };
        let making: Vec<String> = self.making.iter().map(making).collect();
        let coming: Vec<_> = self.coming.iter().map(|(number, of, _)| (number, of)).collect();
        format!("making {making:?}, coming {coming:?}, given {}", self.given)
    }
}
