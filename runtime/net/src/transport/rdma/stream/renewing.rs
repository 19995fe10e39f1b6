//! New queues in the place of those that failed, while others live.
//!
//! One end, the one that *chooses*, asks for it in a note when the old queue has ended on both sides, after a
//! pause that grows, and if its port works:
//!
//! 1. it makes a queue and *asks*;
//! 2. the other makes one, connects it, and answers that it is *ready*: from then on its device takes what comes;
//! 3. the first connects its own, and sends an empty write through it: when that is delivered the way works;
//! 4. it sends *go*, with the number of the new queue. The other uses it from when that arrives; the first one
//!    from when that was delivered, through another queue: the new one is not polled before.
//!
//! Either may answer *not* instead, and both drop what they had made. A new queue has a number of its own, so a late
//! message about the old one cannot be taken for one about the new. No number is used twice, which bounds the queues of
//! a stream by [`RAILS`].

use std::time::Instant;

use super::note::{RenewalMessage, RenewalStep, StreamNote};
use super::rail_stream::RailStream;
use super::renewals::{RailRenewals, RenewalStage};
use super::ring::{ARRIVED_OFFSET, DEPTH, NO_PIECE, SENT_OFFSET, SLOTS};
use crate::transport::rdma::error::QueueError;
use crate::transport::rdma::immediate::{ImmediateWord, RAILS};
use crate::transport::rdma::rails::QueueRail;
use crate::transport::rdma::verbs::{QueueAddress, QueuePair, WorkCompletion, WriteRequest};
use crate::tunables::RDMA_RENEWAL_PROOF_TIMEOUT;

/// Connects a queue, on a thread of its own: the system may take a second to resolve the address.
fn connect(rail: QueueRail, address: QueueAddress) -> std::io::Result<RenewalStage> {
    let connecting = move || {
        let connected = rail.queue().map_or(Ok(()), |queue| queue.connect(&address));
        connected.map(|()| rail)
    };
    let thread = std::thread::Builder::new().name("roundelay-rdma".into()).spawn(connecting)?;
    Ok(RenewalStage::Connecting(thread))
}

impl RailStream {
    /// Moves all new queues on as far as possible.
    pub(super) fn renew(&mut self) {
        let RailRenewals { making, steps, coming, chooses, .. } = &self.renewals;
        let is_idle = making.is_empty() && steps.is_empty() && coming.is_empty();
        if is_idle && (!chooses || self.rails.all.iter().all(QueueRail::is_live)) {
            return;
        }
        if self.renewals.chooses {
            self.request_renewals();
        }
        for (of, attempt, making) in std::mem::take(&mut self.renewals.making) {
            match self.step(of, attempt, making) {
                Ok(Some(making)) => self.renewals.making.push((of, attempt, making)),
                Ok(None) => {}
                Err(_) => self.abandon_renewal(of, attempt),
            }
        }
        let number = self.rails.all.len();
        if let Some(at) = self.renewals.coming.iter().position(|(is, ..)| *is == number) {
            let (_, of, rail) = self.renewals.coming.swap_remove(at);
            self.admit_rail(of, rail);
            self.renewals.given = self.renewals.given.saturating_sub(1);
        }
        while let Some(step) = self.renewals.steps.pop_front() {
            if !self.note(&StreamNote::Renewal(step.clone())) {
                self.renewals.steps.push_front(step);
                break;
            }
        }
    }

    /// Asks for queues that are due.
    fn request_renewals(&mut self) {
        let now = Instant::now();
        for of in 0..self.rails.all.len() {
            let rail = &self.rails.all[of];
            let is_due = !rail.is_replaced && rail.due.is_some_and(|due| due <= now);
            let RailRenewals { making, coming, .. } = &self.renewals;
            // Refused accesses whose queue is made anew again and again take no numbers from what carries pieces.
            let most = if rail.is_one_sided { RAILS / 2 } else { RAILS };
            let has_number = self.rails.all.len() + making.len() + coming.len() < most;
            // A second request makes the peer drop what it made for the first.
            let is_under_way = making.iter().any(|(is, ..)| *is as usize == of)
                || coming.iter().any(|(_, is, _)| *is == of);
            if !is_due || !has_number || is_under_way {
                continue;
            }
            let of = of as u32;
            self.renewals.attempts += 1;
            let attempt = self.renewals.attempts;
            match self.make_replacement(of).and_then(|rail| Some((rail.queue()?.address(), rail))) {
                Some((address, rail)) => {
                    self.renewals.queue_message(of, attempt, RenewalStep::Ask(address));
                    self.renewals.making.push((of, attempt, RenewalStage::Asked(rail)));
                }
                None => self.renewals.put_off(&mut self.rails.all[of as usize]),
            }
        }
    }

    /// Makes a queue as one that has ended on both sides was, not connected yet.
    fn make_replacement(&self, of: u32) -> Option<QueueRail> {
        let old = self.rails.all.get(of as usize)?;
        let (device, gid) = &old.source;
        if !old.has_ended() || old.live_there || old.is_replaced || !device.is_active() {
            return None;
        }
        let sequence = self.region.start() as usize as u32 >> 12 ^ self.next as u32;
        let queue = QueuePair::new(device, *gid, &self.region, DEPTH, sequence).ok()?;
        let mut rail = QueueRail::new(queue, old.device.0, self.renewals.receives).ok()?;
        (rail.device, rail.peer_key) = (old.device, old.peer_key);
        rail.is_one_sided = old.is_one_sided;
        rail.pause = (2 * old.pause).min(self.renewals.pause.1);
        Some(rail)
    }

    /// Gives up this attempt, and notifies the peer.
    fn abandon_renewal(&mut self, of: u32, attempt: u32) {
        self.renewals.queue_message(of, attempt, RenewalStep::Not);
        if self.renewals.chooses
            && let Some(rail) = self.rails.all.get_mut(of as usize)
        {
            self.renewals.put_off(rail);
        }
    }

    /// Moves a new queue on as far as it can go without the peer; returns what becomes of it.
    fn step(
        &mut self,
        of: u32,
        attempt: u32,
        making: RenewalStage,
    ) -> std::io::Result<Option<RenewalStage>> {
        match making {
            RenewalStage::Connecting(thread) if thread.is_finished() => {
                let rail = thread.join().map_err(|_| std::io::ErrorKind::Other)??;
                let Some(queue) = rail.queue() else { return Ok(None) };
                if self.renewals.chooses {
                    let from = self.region.span(SENT_OFFSET, 0, rail.device.0);
                    let (to, to_key) = (self.peer + ARRIVED_OFFSET as u64, rail.peer_key);
                    let immediate = ImmediateWord::Ended(0).encode();
                    queue.write(&WriteRequest { id: NO_PIECE, from, to, to_key, immediate })?;
                    return Ok(Some(RenewalStage::Proving(rail, Instant::now())));
                }
                self.renewals.queue_message(of, attempt, RenewalStep::Ready(queue.address()));
                Ok(Some(RenewalStage::Ready(rail)))
            }
            RenewalStage::Proving(rail, since) => {
                let mut news = Vec::new();
                if let Some(queue) = rail.queue() {
                    queue.poll(|completion| news.push(completion));
                }
                match news[..] {
                    [WorkCompletion::Written(_)] => Ok(Some(RenewalStage::Proved(rail))),
                    [] if since.elapsed() < RDMA_RENEWAL_PROOF_TIMEOUT => {
                        Ok(Some(RenewalStage::Proving(rail, since)))
                    }
                    _ => Err(std::io::ErrorKind::TimedOut.into()),
                }
            }
            RenewalStage::Proved(rail) => {
                let number = self.rails.all.len() + self.renewals.given;
                let renewal = RenewalMessage { of, attempt, step: RenewalStep::Go(number as u32) };
                if !self.note(&StreamNote::Renewal(renewal)) {
                    return Ok(Some(RenewalStage::Proved(rail)));
                }
                self.renewals.given += 1;
                Ok(Some(RenewalStage::Going(rail, number, self.next - 1)))
            }
            RenewalStage::Going(rail, number, piece) => {
                let is_reused = self.next - piece > SLOTS as u64;
                if !is_reused && !self.sent[piece as usize % SLOTS].done {
                    return Ok(Some(RenewalStage::Going(rail, number, piece)));
                }
                self.renewals.coming.push((number, of as usize, rail));
                Ok(None)
            }
            making => Ok(Some(making)),
        }
    }

    /// Lets a new queue take part from now on.
    fn admit_rail(&mut self, of: usize, mut rail: QueueRail) {
        if let Some(old) = self.rails.all.get_mut(of) {
            old.is_replaced = true;
        }
        rail.made = Instant::now();
        let number = self.rails.all.len();
        self.rails.all.push(rail);
        if self.renewals.ended_there & 1 << number != 0 {
            self.rails.all[number].live_there = false;
            self.lose(number, QueueError::EndedThere);
        }
    }

    /// Handles a step of the peer.
    pub(super) fn handle_renewal(&mut self, renewal: RenewalMessage) {
        let RenewalMessage { of, attempt, .. } = renewal;
        let known = self.renewals.take(&renewal);
        let made = match (renewal.step, known) {
            (RenewalStep::Ask(address), _) => {
                // Both sides of that queue have ended, though that may be news here.
                let at = of as usize;
                if self.rails.all.get_mut(at).is_some_and(|r| std::mem::take(&mut r.live_there)) {
                    self.lose(at, QueueError::EndedThere);
                    self.reclaim(at);
                }
                self.renewals.making.retain(|(is, ..)| *is != of);
                self.make_replacement(of).and_then(|rail| connect(rail, address).ok())
            }
            (RenewalStep::Ready(address), Some(RenewalStage::Asked(rail))) => {
                connect(rail, address).ok()
            }
            (RenewalStep::Go(number), Some(RenewalStage::Ready(rail))) => {
                self.renewals.coming.push((number as usize, of as usize, rail));
                return;
            }
            (RenewalStep::Not, known) => {
                if let (true, Some(_), Some(rail)) =
                    (self.renewals.chooses, known, self.rails.all.get_mut(of as usize))
                {
                    self.renewals.put_off(rail);
                }
                return;
            }
            _ => return,
        };
        match made {
            Some(made) => self.renewals.making.push((of, attempt, made)),
            None => self.abandon_renewal(of, attempt),
        }
    }
}
