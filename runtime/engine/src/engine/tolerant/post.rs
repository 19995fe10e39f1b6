//! Messages between the ranks of a tolerant call: they are queued, pushed on whatever this rank waits for, and end
//! where the peer has ended.
//!
//! A message is a head with its length, then its content in pieces that fit a slot; the last one to each peer is empty.
//! They travel
//! on the first channel of plans, as the calls before and after do: each rank takes all that is sent to it in a call.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;

use crate::progress::peer_failure::{self, PeerFailure, PeerLoss};
use crate::progress::wait::{WaitAction, WaitLoop};
use crate::progress::wait_report::{self, other_call, spell_call};
use crate::progress::{AwaitedAct, FailedWait, PacketClient, PacketHeader};
use crate::trace::{AwaitedEvent, FlightRecorder, WaitRecord};
use crate::tunables::{ALARM_GRACE, ALARM_POLL_INTERVAL};
use roundelay_net::endpoints::{EndpointReceiver, EndpointSender, EndpointTable, RecvEnd, SendEnd};
use roundelay_net::group::RankGroup;
use roundelay_net::net::{ConnectionId, WaitPolicy};
use roundelay_net::transport::message::{ContentKind, meta};
use roundelay_net::wire::{WireMessage, sized};
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::{Error, ErrorLocation};

/// Messages in flight on a connection.
const SLOTS: u64 = 4;
/// The bytes that announce a message: the header of a packet, and its length.
const HEAD: usize = 16;
/// The header of all packets of tolerant calls.
const HEADER: u64 = PacketHeader::new(PacketClient::Tolerant, 0).encode();

/// The facts of a call, for messages of errors.
pub(super) struct TolerantCall<'c> {
    pub(super) name: &'c str,
    pub(super) number: u64,
    pub(super) digest: u32,
    pub(super) timeout: Duration,
    /// The longest message that a peer may send, in bytes.
    pub(super) most: usize,
}

/// The way to and from one peer.
struct PeerMailbox {
    sender: u32,
    receiver: u32,
    /// Pieces that are not handed over yet, each with whether it fits a header.
    out: VecDeque<(Vec<u8>, ContentKind)>,
    /// The content that is coming, and its length; `None` between messages.
    coming: Option<(Vec<u8>, usize)>,
    /// Messages without a receive so far.
    here: VecDeque<Vec<u8>>,
    /// True once its last message of the call is here, which is empty: what follows is of the next call.
    is_over: bool,
    /// The way in which the peer has ended. Nothing is taken of it any more then.
    gone: Option<PeerLoss>,
    /// The time at which its connection was seen to have ended.
    cut: Option<Instant>,
}

/// All messages of one call.
pub(super) struct TolerantPost<'c> {
    pub(super) group: &'c mut RankGroup,
    endpoints: &'c mut EndpointTable,
    recorder: &'c mut FlightRecorder,
    call: TolerantCall<'c>,
    /// By rank; none for this one.
    mails: Vec<Option<PeerMailbox>>,
    ends: (Vec<SendEnd>, Vec<RecvEnd>),
    slot: usize,
    wait: WaitLoop,
    /// The time since which nothing has come although the alarm is raised for a lost rank.
    since: Option<Instant>,
}

impl<'c> TolerantPost<'c> {
    /// Opens the ways to all peers.
    pub(super) fn open(
        (group, endpoints): (&'c mut RankGroup, &'c mut EndpointTable),
        recorder: &'c mut FlightRecorder,
        call: TolerantCall<'c>,
    ) -> Result<Self, Error> {
        let own = group.rank();
        let id = |peer| ConnectionId { peer, channel: 0, path: 0 };
        let peers: Vec<u32> = (0..group.size()).filter(|&peer| peer != own).collect();
        let deadline = WaitPolicy { timeout: call.timeout, watch: &mut |_| None, members: &[] };
        endpoints.connect(group, peers.iter().map(|&peer| id(peer)), deadline)?;
        let mut mails: Vec<Option<PeerMailbox>> = (0..group.size()).map(|_| None).collect();
        let mut ends = (Vec::new(), Vec::new());
        let mut sockets = false;
        for peer in peers {
            let sender = endpoints.sender(group, id(peer))?;
            let receiver = endpoints.receiver(group, id(peer))?;
            let posted = matches!(endpoints.senders[sender as usize], EndpointSender::Posted(_));
            sockets |= posted;
            let (channel, path, messages) = (0, 0, 0);
            ends.0.push(SendEnd { sender, peer, channel, path, messages, posted });
            ends.1.push(RecvEnd { receiver, peer, channel, path, posted });
            mails[peer as usize] = Some(PeerMailbox {
                sender,
                receiver,
                out: VecDeque::new(),
                coming: None,
                here: VecDeque::new(),
                is_over: false,
                gone: None,
                cut: None,
            });
        }
        let slot = usize::try_from(group.layout().slot_bytes).unwrap_or(usize::MAX).max(HEAD);
        let crowded = sockets || group.layout().crowded;
        let wait = WaitLoop::new(call.timeout, crowded).for_sockets(sockets);
        Ok(TolerantPost { group, endpoints, recorder, call, mails, ends, slot, wait, since: None })
    }

    /// Sends a message, as far as it goes now.
    pub(super) fn send(&mut self, peer: u32, content: &[u8]) -> Result<(), Error> {
        let Some(mail) = self.mails[peer as usize].as_mut() else { return Ok(()) };
        if mail.gone.is_none() {
            mail.out.push_back((head_of(content.len()).to_vec(), ContentKind::Inline));
            mail.out
                .extend(content.chunks(self.slot).map(|piece| (piece.to_vec(), ContentKind::Slot)));
        }
        self.poll().map(drop)
    }

    /// Returns the next message of a peer, waiting for it; `None` if the peer has ended without it.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if nothing has moved for too long, [`Error::LostRank`] if the peer cannot be reached and is
    /// not known to have ended, [`Error::Aborted`], [`Error::PlanMismatch`].
    pub(super) fn next(&mut self, peer: u32, at: &ErrorLocation) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let Some(mail) = self.mails[peer as usize].as_mut() else { return Ok(None) };
            if let Some(message) = mail.here.pop_front() {
                return Ok(Some(message));
            }
            if mail.gone.is_some() {
                self.progress();
                return Ok(None);
            }
            if self.poll()? {
                self.since = None;
                self.progress();
                self.not_stopped()?;
                continue;
            }
            match self.wait.pause(self.group) {
                WaitAction::Again => {}
                WaitAction::Doze => self.endpoints.doze((&self.ends.0, &self.ends.1)),
                WaitAction::Examine => self.examine(peer, at)?,
                WaitAction::Aborted => {
                    // A report that the lost rank has ended may still arrive.
                    if alarm(self.group) == TolerantAlarm::Final {
                        return Err(self.group.aborted(Some(at.clone())));
                    }
                    self.examine(peer, at)?;
                    let since = *self.since.get_or_insert_with(Instant::now);
                    // The rank that raised the alarm may not come to this call any more.
                    if since.elapsed() >= ALARM_GRACE.min(self.call.timeout)
                        && self.is_awaited(peer)
                    {
                        return Err(self.group.aborted(Some(at.clone())));
                    }
                    self.wait.sleeps();
                    std::thread::sleep(ALARM_POLL_INTERVAL);
                    self.group.listen();
                }
                WaitAction::Expired => {
                    self.examine(peer, at)?;
                    if self.is_awaited(peer) {
                        return Err(self.expired(peer, at));
                    }
                }
            }
        }
    }

    /// Records that something moved, or that nothing more is waited for.
    fn progress(&mut self) {
        if self.wait.progress() {
            wait_report::withdraw_wait(self.group, self.recorder);
        }
    }

    /// Returns the first rank that has ended, and how.
    pub(super) fn lost(&self) -> Option<(u32, &PeerLoss)> {
        let all = (0..).zip(&self.mails);
        all.filter_map(|(peer, mail)| Some((peer, mail.as_ref()?.gone.as_ref()?))).next()
    }

    /// Fails if this rank itself has ended the job, from another thread.
    pub(super) fn not_stopped(&self) -> Result<(), Error> {
        match self.group.is_stopped() {
            true => Err(self.group.aborted(None)),
            false => Ok(()),
        }
    }

    fn is_awaited(&self, peer: u32) -> bool {
        let mail = self.mails[peer as usize].as_ref();
        mail.is_some_and(|mail| mail.here.is_empty() && mail.gone.is_none())
    }

    /// Moves what can be moved to and from all peers; returns true if anything was.
    fn poll(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        for peer in 0..self.group.size() {
            moved |= self.push(peer)?;
            moved |= self.take(peer)?;
        }
        Ok(moved)
    }

    /// Hands over what there is room for.
    fn push(&mut self, peer: u32) -> Result<bool, Error> {
        let Some(mail) = self.mails[peer as usize].as_mut() else { return Ok(false) };
        let sender = &mut self.endpoints.senders[mail.sender as usize];
        let mut moved = false;
        while let Some((piece, kind)) = mail.out.front()
            && sender.has_room(*kind, SLOTS)
        {
            let place = sender.place(*kind, SLOTS, piece.len())?;
            // SAFETY: there is room for a piece: what announces a message fits a header, and others are no longer
            // than a slot.
            unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), place, piece.len()) };
            sender.post(meta(self.call.digest, piece.len(), *kind), piece.len());
            mail.out.pop_front();
            moved = true;
        }
        sender.flush();
        Ok(moved)
    }

    /// Takes what has come.
    fn take(&mut self, peer: u32) -> Result<bool, Error> {
        let Some(mail) = self.mails[peer as usize].as_mut().filter(|mail| mail.gone.is_none())
        else {
            return Ok(false);
        };
        let receiver: &mut EndpointReceiver = &mut self.endpoints.receivers[mail.receiver as usize];
        let mut moved = false;
        while !mail.is_over {
            let (len, kind) = match &mail.coming {
                None => (HEAD, ContentKind::Inline),
                Some((got, whole)) => ((whole - got.len()).min(self.slot), ContentKind::Slot),
            };
            if !receiver.is_ready(0, len) {
                return Ok(moved);
            }
            let message = receiver.message(SLOTS, 0);
            // The lowest bits are the kind, which is a matter of the link.
            if message.meta >> 2 != meta(self.call.digest, len, kind) >> 2 {
                // Messages of a rank that has ended, from an earlier call, had no receive.
                if let Some(ended) = peer_failure::end_of(self.group, peer) {
                    mail.gone = Some(ended);
                    return Ok(moved);
                }
                let (number, name) = (self.call.number, self.call.name);
                return Err(other_call(self.group, peer, number, name));
            }
            // SAFETY: the content of a message of this length that was not consumed yet.
            let piece = unsafe { std::slice::from_raw_parts(message.content, len) };
            match &mut mail.coming {
                Some((got, _)) => got.extend_from_slice(piece),
                None => {
                    let whole = announced(piece, self.call.most).map_err(|odd| {
                        Error::Plan(format!("rank {peer} announces {odd} in {}", self.call.name))
                    })?;
                    mail.coming = Some((Vec::with_capacity(whole), whole));
                }
            }
            receiver.consume();
            moved = true;
            if let Some((got, _)) = mail.coming.take_if(|(got, whole)| got.len() == *whole) {
                mail.is_over = got.is_empty();
                mail.here.push_back(got);
            }
        }
        Ok(moved)
    }

    /// Looks whether a peer that this rank waits for has ended.
    #[cold]
    fn examine(&mut self, peer: u32, at: &ErrorLocation) -> Result<(), Error> {
        let record = self.wait_record(peer, at);
        wait_report::publish_wait(self.group, self.recorder, &record);
        self.endpoints.tend();
        peer_failure::bear_witness(self.group);
        let entered = Some(self.call.digest);
        let trouble = peer_failure::examine(self.group, peer, self.call.number, entered);
        if let Some(PeerFailure::OtherCall { peer, call }) = trouble {
            let (number, name) = (self.call.number, self.call.name);
            let what = spell_call((peer, call), Some(number), || name.to_owned());
            return Err(other_call(self.group, peer, call, &what));
        }
        let Some(ended) = peer_failure::end_of(self.group, peer) else {
            let fault = self.endpoints.fault(peer).map(PeerLoss::Cut);
            let reported = match trouble {
                Some(PeerFailure::Gone(gone)) => Some(gone),
                _ => None,
            };
            let Some(gone) = fault.or(reported) else { return Ok(()) };
            // A process closes its sockets before it has ended.
            let Some(mail) = self.mails[peer as usize].as_mut() else { return Ok(()) };
            let cut = *mail.cut.get_or_insert_with(Instant::now);
            return match cut.elapsed() < ALARM_GRACE.min(self.call.timeout) {
                true => Ok(()),
                false => {
                    not_aborted(self.group, Some(at))?;
                    Err(failed_wait(peer, at).lost(gone))
                }
            };
        };
        // A rank that ends after a failure of its own has raised the alarm first.
        self.group.hear_out();
        if alarm(self.group) == TolerantAlarm::Open {
            return Ok(());
        }
        not_aborted(self.group, Some(at))?;
        // Whatever it sent before it ended is here now.
        while self.take(peer)? {}
        if let Some(mail) = self.mails[peer as usize].as_mut().filter(|mail| mail.here.is_empty()) {
            mail.gone = Some(ended);
            mail.out.clear();
        }
        Ok(())
    }

    /// Returns the record of the wait for a peer.
    fn wait_record(&self, peer: u32, at: &ErrorLocation) -> WaitRecord {
        let since = wait_report::start_time(self.recorder, self.wait.waited());
        let TolerantCall { number, digest, .. } = self.call;
        let mut record = WaitRecord::new(AwaitedEvent::Message, peer, number, digest, since);
        record.step = at.step;
        record
    }

    /// Returns the error of a wait that has lasted too long: the peer is silent, which is no proof that it has ended.
    #[cold]
    fn expired(&mut self, peer: u32, at: &ErrorLocation) -> Error {
        let record = self.wait_record(peer, at);
        self.group.ask_around();
        let remark = wait_report::remark(self.group, &record, &[]);
        self.group.listen();
        if let Err(error) = not_aborted(self.group, Some(at)) {
            return error;
        }
        failed_wait(peer, at).timed_out(self.call.timeout, remark)
    }
}

/// Returns the bytes that announce a message of that length.
fn head_of(bytes: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&HEADER.to_le_bytes());
    head[8..].copy_from_slice(&(bytes as u64).to_le_bytes());
    head
}

/// Returns the wire formats of this module: heads of any length.
pub(super) fn wires() -> Vec<WireMessage> {
    vec![WireMessage {
        name: "tolerant calls: head",
        samples: [0, 1, 1 << 20].map(|bytes| head_of(bytes).to_vec()).into(),
        read: |bytes| {
            let bytes: &[u8; HEAD] = sized(bytes)?;
            Some(head_of(announced(bytes, usize::MAX).ok()?).to_vec())
        },
    }]
}

/// Returns the length of the message that a head announces, which is at most `most`; else what is wrong with it.
fn announced(head: &[u8], most: usize) -> Result<usize, String> {
    let word = |at: usize| head.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let (Some(HEADER), Some(bytes)) = (word(0), word(8)) else {
        return Err("what is no message of a tolerant call".into());
    };
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= most);
    fits.ok_or_else(|| format!("{bytes} bytes, where {most} are the most,"))
}

/// The alarm, as a tolerant call takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TolerantAlarm {
    /// It is not raised, or for a rank that is known to have ended: that is what such calls are for.
    Tolerated,
    /// It is for a rank elsewhere, whose end was not reported yet.
    Open,
    /// The call fails.
    Final,
}

fn alarm(group: &RankGroup) -> TolerantAlarm {
    let lost = |record: &AbortRecord| record.code == codes::LOST_RANK;
    match group.abort_record().filter(|_| group.is_aborted()) {
        _ if group.is_stopped() => TolerantAlarm::Final,
        None => TolerantAlarm::Tolerated,
        Some(record) if !lost(&record) => TolerantAlarm::Final,
        Some(record) if peer_failure::end_of(group, record.rank).is_some() => {
            TolerantAlarm::Tolerated
        }
        Some(record) if peer_failure::is_elsewhere(group, record.rank) => TolerantAlarm::Open,
        Some(_) => TolerantAlarm::Final,
    }
}

/// Fails if the alarm is raised, unless it is tolerated.
pub(super) fn not_aborted(group: &RankGroup, at: Option<&ErrorLocation>) -> Result<(), Error> {
    match alarm(group) {
        TolerantAlarm::Tolerated => Ok(()),
        TolerantAlarm::Open | TolerantAlarm::Final => Err(group.aborted(at.cloned())),
    }
}

/// Returns the wait for a peer's message, which has failed.
fn failed_wait(peer: u32, at: &ErrorLocation) -> FailedWait {
    FailedWait { location: at.clone(), peer, awaited: AwaitedAct::Message.of(peer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_its_bytes_and_a_forged_one_is_refused() {
        for bytes in [0, 1, 77, 1 << 20] {
            assert_eq!(announced(&head_of(bytes), 1 << 20), Ok(bytes));
        }
        let long = announced(&head_of(78), 77).expect_err("longer than any message of the call");
        assert_eq!(long, "78 bytes, where 77 are the most,");
        let forged = [
            [0; HEAD],
            [255; HEAD],
            std::array::from_fn(|at| head_of(8)[at] ^ u8::from(at == 0)),
            std::array::from_fn(|at| head_of(8)[at] ^ u8::from(at == 1)),
            std::array::from_fn(|at| head_of(8)[at] ^ u8::from(at == 7)),
        ];
        for head in forged {
            let odd = announced(&head, usize::MAX).expect_err("no head");
            assert_eq!(odd, "what is no message of a tolerant call", "{head:?}");
        }
    }
}
