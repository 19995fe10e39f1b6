//! The window server: applies the operations of peers to this rank's parts, and starts this rank's operations on
//! theirs.
//!
//! A target looks up its part by the key in the packet, checks bounds, type and rights, announces the access in the
//! words of the part, and applies the operation by copies and atomics in its own memory, on the thread that drives
//! progress. Payloads beyond a few bytes are received in place; those for a part on a device are staged in host memory.
//!
//! **Invariant:** nothing is read or written for a packet whose key, bounds, type or rights are wrong. It is refused,
//! and its payload is discarded. An announced access holds the part until its last byte has been received or sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::engine::{MessageEngine, SignalWait};
use super::link::PeerLink;
use super::operation::MessageOperation;
use super::outgoing::OutgoingEntry;
use super::packet::{GET_BIT, MessagePacket, MessageShape, RefusalReason};
use super::payload::{IncomingPayload, PayloadTarget};
use super::transfer::{MessageTransfer, PartialTransfer, TransferKind};
use crate::progress::failed_wait::remark_on_silence;
use crate::progress::peer_failure::{PeerFailure, examine};
use crate::progress::{AwaitedAct, FailedWait};
use crate::tunables::{
    DEVICE_GET_BYTES, EAGER_BYTES, LOCK_CHECK_DELAY, LOCK_TIMEOUT, WINDOW_COPY_BYTES,
};
use crate::window::{
    AccumulateFailure, AtomicFetch, DeviceMemory, ExposedPart, PeerAccess, ServedPart, WindowRights,
};
use roundelay_net::transport::shm::SleeperRole;
use roundelay_support::dtype::RedOp;
use roundelay_support::error::{AccessRefusal, Error, ErrorLocation};

impl MessageEngine {
    /// Serves this rank's part of a window, and opens the connections by which it and its peers reach each other.
    pub(super) fn serve_window(
        &mut self,
        key: u64,
        exposed: Option<Arc<ExposedPart>>,
        remotes: Vec<Arc<ServedPart>>,
        peers: &[u32],
    ) -> Result<(), Error> {
        for &peer in peers {
            self.open(peer)?;
            if let Some(link) = self.links.get_mut(&peer) {
                link.has_windows = true;
            }
        }
        self.served.extend(exposed.map(|exposed| (key, exposed)));
        self.remotes.extend(remotes.into_iter().map(|r| ((r.peer(), r.key()), r)));
        Ok(())
    }

    /// Opens the connection to a peer, which may request parts at any time from now on.
    pub(super) fn serve_peer(&mut self, peer: u32) -> Result<(), Error> {
        self.serve_window(0, None, Vec::new(), &[peer])?;
        self.serves_unasked = true;
        Ok(())
    }

    /// Stops serving this rank's part, and removes those of peers. Unless `all` ranks have ended the window, later
    /// requests for the part are refused.
    pub(super) fn end_window(&mut self, key: u64, remotes: &[(u32, u64)], all: bool) {
        self.serves_unasked |= self.served.remove(&key).is_some() && !all;
        for remote in remotes {
            self.remotes.remove(remote);
            let device = self.links.get_mut(&remote.0).and_then(|link| link.device.as_mut());
            device.into_iter().for_each(|device| device.forget(remote.1));
        }
        self.renew_grants(key);
    }

    /// Sends new grants to the peers whose devices access this rank's part: none, if it is not served any more.
    pub(super) fn renew_grants(&mut self, key: u64) {
        let exposed = self.served.get(&key);
        for link in self.links.values_mut() {
            if let Some(device) = link.device.as_mut().filter(|device| device.has_granted(key)) {
                let granted = device.grant(key, exposed);
                // It cannot fail: there is one for each grant that was sent.
                let _ = link.push_unsolicited(granted);
            }
        }
    }

    /// Returns true if peers may have requests at any time.
    pub(super) fn serves_windows(&self) -> bool {
        (self.serves_unasked || !self.served.is_empty()) && self.check_usable().is_ok()
    }

    /// Starts an operation on a peer's part.
    pub(super) fn operate(&mut self, peer: u32, transfer: MessageTransfer) -> Result<(), Error> {
        self.open(peer)?;
        self.pending += 1;
        let serves = self.serves_windows();
        let Some(link) = self.links.get_mut(&peer) else { return Ok(()) };
        let is_short = transfer.what.is_write() && transfer.shape.bytes <= EAGER_BYTES;
        link.coalesces = is_short && serves && link.may_coalesce(&self.endpoints.senders);
        link.out.push_back(match transfer.what {
            TransferKind::Put(_) | TransferKind::Accumulate(..) => {
                OutgoingEntry::Stream(PartialTransfer { transfer, moved: 0 }, 0)
            }
            _ => OutgoingEntry::Send(transfer),
        });
        Ok(())
    }

    /// Signals a peer, after all entries that were queued before.
    pub(super) fn signal(&mut self, peer: u32, key: u64) -> Result<(), Error> {
        self.open(peer)?;
        if let Some(link) = self.links.get_mut(&peer) {
            link.out.push_back(OutgoingEntry::Packet(MessagePacket::Signal { key }));
        }
        Ok(())
    }

    /// Starts a wait for a signal.
    pub(super) fn await_signal(
        &mut self,
        (peer, transfer): (u32, MessageTransfer),
        (exposed, taken): (Arc<ExposedPart>, Arc<[AtomicU64]>),
    ) {
        self.pending += 1;
        self.signal_waits.push(SignalWait { peer, exposed, taken, transfer });
        self.complete_signals();
    }

    /// Completes the waits whose signals have come; returns true if there were any.
    pub(super) fn complete_signals(&mut self) -> bool {
        let mut came = Vec::new();
        self.signal_waits.retain(|SignalWait { peer, exposed, taken, transfer }| {
            let block = exposed.place().block();
            let is_there = block.take_signal(*peer, &taken[*peer as usize]);
            if is_there {
                came.push((*peer, transfer.operation.clone(), transfer.shape, transfer.tag));
            }
            !is_there
        });
        let any = !came.is_empty();
        for (peer, operation, shape, tag) in came {
            self.end_operation(&operation, shape, tag, Ok(peer));
        }
        any
    }

    /// Announces the access of a peer, if bounds and rights permit it.
    fn admit(
        &self,
        peer: u32,
        key: u64,
        (offset, bytes): (u64, u64),
        needed: WindowRights,
    ) -> Result<PeerAccess, RefusalReason> {
        let Some(exposed) = self.served.get(&key) else { return Err(RefusalReason::Over) };
        let place = exposed.place();
        if place.at(offset, bytes).is_err() {
            return Err(RefusalReason::Bounds { bytes: place.bytes() });
        }
        exposed.enter(peer, needed).map_err(|has| RefusalReason::Rights { needed, has })
    }

    /// Executes a window packet; of one with a payload to follow, sets the destination of the payload.
    pub(super) fn handle_window_packet(
        &mut self,
        link: &mut PeerLink,
        packet: MessagePacket,
    ) -> Result<(), Error> {
        let peer = link.peer;
        let refuse = |link: &mut PeerLink, (key, id, offset), reason| {
            let refused = MessagePacket::Refused { key, id, offset, reason };
            if id == 0 {
                link.push_unsolicited(refused)
            } else {
                link.push_answer(OutgoingEntry::Packet(refused))
            }
        };
        match packet {
            MessagePacket::Put { key, offset, .. }
            | MessagePacket::Accumulate { key, offset, .. } => {
                let act = match self.open_payload(peer, packet) {
                    Ok(act) => act,
                    Err(reason) => {
                        refuse(link, (key, 0, offset), reason)?;
                        PayloadTarget::Nothing
                    }
                };
                if packet.payload_bytes() > 0 {
                    link.landing = Some(IncomingPayload { act, aside: Vec::new() });
                }
            }
            MessagePacket::Get { key, offset, bytes, id } => {
                let on_device =
                    self.served.get(&key).is_some_and(|exposed| exposed.device().is_some());
                let most = if on_device { DEVICE_GET_BYTES } else { WINDOW_COPY_BYTES as u64 };
                let admitted = match bytes > most {
                    true => Err(RefusalReason::Bounds { bytes: most }),
                    false => self.admit(peer, key, (offset, bytes), WindowRights::READ),
                };
                match admitted {
                    Ok(entered) => self.serve_get(link, entered, (offset, bytes), id)?,
                    Err(reason) => refuse(link, (key, id, offset), reason)?,
                }
            }
            MessagePacket::Fetch { key, offset, id, fetch } => {
                match self.apply_fetch(peer, (key, offset), fetch)? {
                    Ok(value) => link
                        .push_answer(OutgoingEntry::Packet(MessagePacket::Answer { id, value }))?,
                    Err(reason) => refuse(link, (key, id, offset), reason)?,
                }
            }
            MessagePacket::Signal { key } => match self.served.get(&key) {
                Some(exposed) => {
                    let block = exposed.place().block();
                    block.signal(peer);
                    if let Some(device) = exposed.device() {
                        let count = block.signals(peer).load(Ordering::Relaxed);
                        self.on_device(device.signal(peer, count))?;
                    }
                    self.group.wake_own(SleeperRole::Windows);
                    self.complete_signals();
                }
                None => refuse(link, (key, 0, 0), RefusalReason::Over)?,
            },
            MessagePacket::Reach { key } => {
                let exposed = self.served.get(&key);
                let granted = link.device.as_mut().map(|device| device.grant(key, exposed));
                granted.map_or(Ok(()), |granted| link.push_unsolicited(granted))?;
            }
            MessagePacket::Grant { key, grant } => {
                let remote = self.remotes.get(&(peer, key)).cloned();
                if let Some(device) = &mut link.device {
                    device.record_grant(key, grant, remote);
                }
            }
            MessagePacket::Flush { key, id } => {
                let device = self.served.get(&key).and_then(|exposed| exposed.device());
                self.on_device(device.map_or(Ok(()), DeviceMemory::settle))?;
                link.push_answer(OutgoingEntry::Packet(MessagePacket::Answer { id, value: 0 }))?;
            }
            MessagePacket::Answer { id, value } => {
                let Some(asked) = link.asked.remove(&id) else { return Err(link.protocol_error()) };
                if let TransferKind::Fetch(..) = asked.what {
                    // SAFETY: the word of an operation that has not ended, which its caller keeps.
                    unsafe { asked.address.cast::<u64>().write_unaligned(value) };
                }
                self.end(&asked, Ok(peer));
            }
            MessagePacket::Refused { key, id, offset, reason } => {
                let remote = self.remotes.get(&(peer, key)).cloned();
                if let (RefusalReason::Rights { has, .. }, Some(remote)) = (reason, &remote) {
                    remote.set_rights(has);
                }
                let asked = link.asked.remove(&id);
                let got = || link.accepted.remove(&(GET_BIT | id)).map(|part| part.transfer);
                match asked.or_else(got) {
                    Some(asked) => {
                        let error = self.refused(peer, &asked, reason.into());
                        self.end(&asked, Err(error));
                    }
                    None if id != 0 => return Err(link.protocol_error()),
                    None => {
                        remote.iter().for_each(|remote| remote.refuse(offset, reason.into()));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Admits a put or an accumulate; returns the destination of its payload.
    fn open_payload(
        &self,
        peer: u32,
        packet: MessagePacket,
    ) -> Result<PayloadTarget, RefusalReason> {
        Ok(match packet {
            MessagePacket::Put { key, offset, bytes } => {
                let entered = self.admit(peer, key, (offset, bytes), WindowRights::WRITE)?;
                if entered.device().is_some() {
                    return Ok(PayloadTarget::Device(entered, offset));
                }
                let address = entered.place().at(offset, bytes);
                let address = address.map_err(|_| RefusalReason::Bounds { bytes: 0 })?;
                PayloadTarget::Put(entered, address)
            }
            MessagePacket::Accumulate { key, offset, bytes, dtype, op } => {
                let entered = self.admit(peer, key, (offset, bytes), WindowRights::ATOMICS)?;
                let fits = entered.place().accumulates(dtype, op, offset, bytes);
                if fits.is_err() || entered.device().is_some() {
                    return Err(RefusalReason::Elements);
                }
                PayloadTarget::Accumulate(entered, offset, op)
            }
            _ => PayloadTarget::Nothing,
        })
    }

    fn apply_fetch(
        &self,
        peer: u32,
        (key, offset): (u64, u64),
        fetch: AtomicFetch,
    ) -> Result<Result<u64, RefusalReason>, Error> {
        let entered = match self.admit(peer, key, (offset, 8), WindowRights::ATOMICS) {
            Ok(entered) => entered,
            Err(reason) => return Ok(Err(reason)),
        };
        let odd = RefusalReason::Alignment { offset };
        match entered.device() {
            Some(_) if !offset.is_multiple_of(8) => Ok(Err(odd)),
            Some(device) => self.on_device(device.fetch(offset, fetch)).map(Ok),
            None => Ok(entered.place().fetch(offset, fetch).map_err(|_| odd)),
        }
    }

    /// Returns the result of a device's work; a failure of it after an abort is a consequence of that.
    fn on_device<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| match self.group.is_aborted() {
            true => self.group.aborted(None),
            false => error,
        })
    }

    /// Queues the bytes of this rank's part that a peer gets; few bytes are copied, so that they are of one moment.
    fn serve_get(
        &mut self,
        link: &mut PeerLink,
        entered: PeerAccess,
        (offset, bytes): (u64, u64),
        id: u64,
    ) -> Result<(), Error> {
        let place = entered.place();
        let mut address = place.at(offset, bytes).unwrap_or(std::ptr::null_mut());
        let dtype = place.dtype();
        let kept: Box<dyn std::any::Any + Send> =
            if bytes <= EAGER_BYTES || entered.device().is_some() {
                let mut copy = vec![0u8; bytes as usize];
                let (from, to) = ((offset, copy.len()), copy.as_mut_ptr());
                match entered.device() {
                    // SAFETY: the copy has that length; in bounds, as `admit` has found.
                    Some(device) => self.on_device(unsafe { device.get(from, to) })?,
                    // SAFETY: as above.
                    None => drop(unsafe { place.get(from, to, || true) }),
                }
                address = copy.as_mut_ptr();
                Box::new(copy)
            } else {
                Box::new(entered)
            };
        let transfer = MessageTransfer {
            what: TransferKind::Give,
            operation: MessageOperation::new(Some(kept)),
            address,
            shape: MessageShape { dtype, bytes },
            tag: 0,
            since: Instant::now(),
            // The origin of the get has the timeout.
            timeout: Duration::MAX,
        };
        link.push_answer(OutgoingEntry::Stream(
            PartialTransfer { transfer, moved: 0 },
            GET_BIT | id,
        ))?;
        self.pending += 1;
        Ok(())
    }

    /// Applies a short payload.
    pub(super) fn apply_payload(
        &mut self,
        link: &mut PeerLink,
        packet: MessagePacket,
        content: *const u8,
    ) -> Result<(), Error> {
        let (MessagePacket::Put { key, offset, bytes }
        | MessagePacket::Accumulate { key, offset, bytes, .. }) = packet
        else {
            return Err(link.protocol_error());
        };
        match self.open_payload(link.peer, packet) {
            Ok(PayloadTarget::Put(entered, _)) => {
                // SAFETY: the payload of a message that was not consumed yet; in bounds, as `admit` has found.
                let _ = unsafe { entered.place().put((offset, bytes as usize), content, || true) };
                Ok(())
            }
            Ok(PayloadTarget::Device(entered, offset)) => {
                // SAFETY: as above.
                unsafe { self.put_on_device(&entered, (offset, bytes as usize), content) }
            }
            Ok(PayloadTarget::Accumulate(entered, offset, op)) => {
                self.apply_accumulate(&entered, (offset, bytes as usize), content, op)
            }
            Ok(PayloadTarget::Nothing) => Ok(()),
            Err(reason) => {
                link.push_unsolicited(MessagePacket::Refused { key, id: 0, offset, reason })
            }
        }
    }

    /// Applies a payload that was received in segments, if it was not received in place.
    pub(super) fn finish_payload(&mut self, landing: IncomingPayload) -> Result<(), Error> {
        match landing.act {
            PayloadTarget::Accumulate(entered, offset, op) => {
                let content = landing.aside.as_ptr();
                self.apply_accumulate(&entered, (offset, landing.aside.len()), content, op)
            }
            PayloadTarget::Device(entered, offset) => {
                let content = (landing.aside.as_ptr(), landing.aside.len());
                // SAFETY: the bytes lie there; in bounds, as `admit` has found.
                unsafe { self.put_on_device(&entered, (offset, content.1), content.0) }
            }
            PayloadTarget::Put(..) | PayloadTarget::Nothing => Ok(()),
        }
    }

    /// Copies bytes to memory of a device.
    ///
    /// # Safety
    ///
    /// The bytes lie at the address, and the place is in bounds.
    unsafe fn put_on_device(
        &self,
        entered: &PeerAccess,
        place: (u64, usize),
        from: *const u8,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let put = entered.device().map(|device| unsafe { device.put(place, from) });
        self.on_device(put.unwrap_or(Ok(())))
    }

    fn apply_accumulate(
        &self,
        entered: &PeerAccess,
        place: (u64, usize),
        content: *const u8,
        op: RedOp,
    ) -> Result<(), Error> {
        let own = self.group.rank();
        let waits =
            |holder, waited| self.wait_lock(holder, waited).map_err(AccumulateFailure::Ended);
        // SAFETY: a payload that has come, of this length.
        let done = unsafe { entered.place().accumulate(place, (content, op), own, waits) };
        match done {
            Err(AccumulateFailure::Ended(error)) => Err(error),
            // A refusal was sent before the payload came.
            Ok(()) | Err(AccumulateFailure::Refused(_)) => Ok(()),
        }
    }

    /// Fails once the rank of this host that holds a lock is lost, or has held it for too long.
    fn wait_lock(&self, holder: u32, waited: Duration) -> Result<(), Error> {
        if waited < LOCK_CHECK_DELAY {
            return Ok(());
        }
        if self.group.is_aborted() {
            return Err(self.group.aborted(None));
        }
        let failed = || {
            let awaited = AwaitedAct::EndAccumulate.of(holder);
            let (name, site, text) =
                ("accumulate".into(), "".into(), format!("wait for {awaited}"));
            let location = ErrorLocation { rank: self.group.rank(), name, step: 0, site, text };
            FailedWait { location, peer: holder, awaited }
        };
        match examine(&self.group, holder, 0, None) {
            Some(PeerFailure::Gone(gone)) => Err(failed().lost(gone)),
            _ if waited < LOCK_TIMEOUT => Ok(()),
            _ => Err(failed().timed_out(waited, remark_on_silence(holder))),
        }
    }

    /// Returns the error of an operation that a peer has refused.
    fn refused(&self, peer: u32, transfer: &MessageTransfer, refusal: AccessRefusal) -> Error {
        let MessageTransfer { what, shape, tag, .. } = transfer;
        let (name, rank) = (what.name(), self.group.rank());
        let what = format!("{name} of {shape} at byte {tag} of the part of rank {peer}");
        Error::Window { rank, what, refusal }
    }
}
