//! Windows that are reached through connections: what peers want of this rank's parts, and what this rank wants of
//! theirs.
//!
//! A target looks up its part by the key that a packet names, checks bounds, type and rights, announces the access in
//! the words of the part, and does it: by copies and atomics in its own memory, while whatever moves its messages reads
//! the connection. More than a few bytes go straight to their place; in a part that lies on a device, which copies them, by
//! way of memory of the host.
//!
//! **Invariant:** nothing is read or written for a packet whose key, bounds, type or rights are wrong. It is refused,
//! and its content goes nowhere. An announced access holds the part until its last byte has come or gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::link::{Link, Out};
use super::operation::Operation;
use super::packet::{GET, Packet, Reason, Shape};
use super::transfer::{Part, Transfer, What};
use crate::executor::watchdog::{Trouble, examine};
use crate::window::{DeviceMemory, Entered, Exposed, Failed, Fetch, PIECE, Remote, Rights, STAGED};
use roundelay_net::dtype::RedOp;
use roundelay_net::error::{Error, Location, Refusal};
use roundelay_net::transport::shm::Sleeper;

/// The most bytes that are given as they were at one moment, from a copy.
const WHOLE: u64 = super::link::EAGER;
/// The time for which a lock may be held before its holder is examined.
const LOCKED: Duration = Duration::from_millis(2);
/// The longest time for which it may be held.
const LOCKED_OUT: Duration = Duration::from_secs(30);

/// Content for a window that is on its way.
pub(super) struct Landing {
    act: Act,
    /// Where content lies that does not go to its place by itself.
    aside: Vec<u8>,
}

/// What becomes of content.
enum Act {
    /// It goes to its place.
    Put(Entered, *mut u8),
    /// It goes to a device, at that offset.
    Device(Entered, u64),
    Accumulate(Entered, u64, RedOp),
    /// It was refused.
    Nothing,
}

// SAFETY: the address is one of the part that the access holds.
unsafe impl Send for Landing {}

impl Landing {
    /// Returns the address at which so many bytes of content may be written.
    pub(super) fn address(&mut self, len: usize) -> *mut u8 {
        match self.act {
            Act::Put(_, address) => address,
            _ => {
                if self.aside.is_empty() {
                    self.aside = vec![0; len];
                }
                self.aside.as_mut_ptr()
            }
        }
    }
}

/// A wait for a signal of a peer.
pub(super) struct Awaited {
    pub(super) peer: u32,
    exposed: Arc<Exposed>,
    /// The signals of each rank that were taken.
    taken: Arc<[AtomicU64]>,
    pub(super) transfer: Transfer,
}

impl Engine {
    /// Serves this rank's part of a window to peers, and opens the connections by which either reaches the other.
    pub(super) fn serve_window(
        &mut self,
        key: u64,
        exposed: Option<Arc<Exposed>>,
        remotes: Vec<Arc<Remote>>,
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

    /// Opens the connection to a peer, which may ask for parts at any time from now on.
    pub(super) fn attend(&mut self, peer: u32) -> Result<(), Error> {
        self.serve_window(0, None, Vec::new(), &[peer])?;
        self.refuses = true;
        Ok(())
    }

    /// Serves this rank's part no longer, and forgets those of peers, who may yet ask for it unless `all` have ended it:
    /// they are told.
    pub(super) fn end_window(&mut self, key: u64, remotes: &[(u32, u64)], all: bool) {
        self.refuses |= self.served.remove(&key).is_some() && !all;
        for remote in remotes {
            self.remotes.remove(remote);
            let device = self.links.get_mut(&remote.0).and_then(|link| link.device.as_mut());
            device.into_iter().for_each(|device| device.forget(remote.1));
        }
        self.renew_grants(key);
    }

    /// Tells peers whose devices know this rank's part what they may do now: nothing, if it is not served any more.
    pub(super) fn renew_grants(&mut self, key: u64) {
        let exposed = self.served.get(&key);
        for link in self.links.values_mut() {
            if let Some(device) = link.device.as_mut().filter(|device| device.has_granted(key)) {
                let granted = device.grant(key, exposed);
                // Not more than this rank has given.
                let _ = link.tell(granted);
            }
        }
    }

    /// Returns true if peers may want something of this rank at any time.
    pub(super) fn serves(&self) -> bool {
        (self.refuses || !self.served.is_empty()) && self.usable().is_ok()
    }

    /// Takes an operation on a peer's part.
    pub(super) fn operate(&mut self, peer: u32, transfer: Transfer) -> Result<(), Error> {
        self.open(peer)?;
        self.pending += 1;
        let serves = self.serves();
        let Some(link) = self.links.get_mut(&peer) else { return Ok(()) };
        let is_short = transfer.what.changes() && transfer.shape.bytes <= WHOLE;
        link.gathers = is_short && serves && link.may_gather(&self.endpoints.senders);
        link.out.push_back(match transfer.what {
            What::Put(_) | What::Accumulate(..) => Out::Stream(Part { transfer, moved: 0 }, 0),
            _ => Out::Send(transfer),
        });
        Ok(())
    }

    /// Signals a peer, after all that was said to it before.
    pub(super) fn signal(&mut self, peer: u32, key: u64) -> Result<(), Error> {
        self.open(peer)?;
        if let Some(link) = self.links.get_mut(&peer) {
            link.out.push_back(Out::Packet(Packet::Signal { key }));
        }
        Ok(())
    }

    /// Takes a wait for a signal.
    pub(super) fn await_signal(
        &mut self,
        (peer, transfer): (u32, Transfer),
        (exposed, taken): (Arc<Exposed>, Arc<[AtomicU64]>),
    ) {
        self.pending += 1;
        self.awaited.push(Awaited { peer, exposed, taken, transfer });
        self.take_signals();
    }

    /// Ends waits for signals that are there.
    pub(super) fn take_signals(&mut self) -> bool {
        let mut came = Vec::new();
        self.awaited.retain(|Awaited { peer, exposed, taken, transfer }| {
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

    /// Lets a peer's access begin, if it may.
    fn admit(
        &self,
        peer: u32,
        key: u64,
        (offset, bytes): (u64, u64),
        needed: Rights,
    ) -> Result<Entered, Reason> {
        let Some(exposed) = self.served.get(&key) else { return Err(Reason::Over) };
        let place = exposed.place();
        if place.at(offset, bytes).is_err() {
            return Err(Reason::Bounds { bytes: place.bytes() });
        }
        exposed.enter(peer, needed).map_err(|has| Reason::Rights { needed, has })
    }

    /// Does what a packet for a window asks for; of one with content, says where that is to go.
    pub(super) fn heed_window(&mut self, link: &mut Link, packet: Packet) -> Result<(), Error> {
        let peer = link.peer;
        let refuse = |link: &mut Link, (key, id, offset), reason| {
            let refused = Packet::Refused { key, id, offset, reason };
            if id == 0 { link.tell(refused) } else { link.answer(Out::Packet(refused)) }
        };
        match packet {
            Packet::Put { key, offset, .. } | Packet::Accumulate { key, offset, .. } => {
                let act = match self.begin(peer, packet) {
                    Ok(act) => act,
                    Err(reason) => {
                        refuse(link, (key, 0, offset), reason)?;
                        Act::Nothing
                    }
                };
                if packet.content() > 0 {
                    link.landing = Some(Landing { act, aside: Vec::new() });
                }
            }
            Packet::Get { key, offset, bytes, id } => {
                let on_device =
                    self.served.get(&key).is_some_and(|exposed| exposed.device().is_some());
                let most = if on_device { STAGED } else { PIECE as u64 };
                let admitted = match bytes > most {
                    true => Err(Reason::Bounds { bytes: most }),
                    false => self.admit(peer, key, (offset, bytes), Rights::READ),
                };
                match admitted {
                    Ok(entered) => self.give(link, entered, (offset, bytes), id)?,
                    Err(reason) => refuse(link, (key, id, offset), reason)?,
                }
            }
            Packet::Fetch { key, offset, id, fetch } => {
                match self.fetch(peer, (key, offset), fetch)? {
                    Ok(value) => link.answer(Out::Packet(Packet::Answer { id, value }))?,
                    Err(reason) => refuse(link, (key, id, offset), reason)?,
                }
            }
            Packet::Signal { key } => match self.served.get(&key) {
                Some(exposed) => {
                    let block = exposed.place().block();
                    block.signal(peer);
                    if let Some(device) = exposed.device() {
                        let count = block.signals(peer).load(Ordering::Relaxed);
                        self.on_device(device.signal(peer, count))?;
                    }
                    self.group.wake_own(Sleeper::Windows);
                    self.take_signals();
                }
                None => refuse(link, (key, 0, 0), Reason::Over)?,
            },
            Packet::Reach { key } => {
                let exposed = self.served.get(&key);
                let granted = link.device.as_mut().map(|device| device.grant(key, exposed));
                granted.map_or(Ok(()), |granted| link.tell(granted))?;
            }
            Packet::Grant { key, grant } => {
                let remote = self.remotes.get(&(peer, key)).cloned();
                if let Some(device) = &mut link.device {
                    device.hear(key, grant, remote);
                }
            }
            Packet::Flush { key, id } => {
                let device = self.served.get(&key).and_then(|exposed| exposed.device());
                self.on_device(device.map_or(Ok(()), DeviceMemory::settle))?;
                link.answer(Out::Packet(Packet::Answer { id, value: 0 }))?;
            }
            Packet::Answer { id, value } => {
                let Some(asked) = link.asked.remove(&id) else { return Err(link.strange()) };
                if let What::Fetch(..) = asked.what {
                    // SAFETY: the word of an operation that has not ended, which its caller keeps.
                    unsafe { asked.address.cast::<u64>().write_unaligned(value) };
                }
                self.end(&asked, Ok(peer));
            }
            Packet::Refused { key, id, offset, reason } => {
                let remote = self.remotes.get(&(peer, key)).cloned();
                if let (Reason::Rights { has, .. }, Some(remote)) = (reason, &remote) {
                    remote.know(has);
                }
                let asked = link.asked.remove(&id);
                let got = || link.accepted.remove(&(GET | id)).map(|part| part.transfer);
                match asked.or_else(got) {
                    Some(asked) => {
                        let error = self.refused(peer, &asked, reason.into());
                        self.end(&asked, Err(error));
                    }
                    None if id != 0 => return Err(link.strange()),
                    None => {
                        remote.iter().for_each(|remote| remote.refuse(offset, reason.into()));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins a put or an accumulate.
    fn begin(&self, peer: u32, packet: Packet) -> Result<Act, Reason> {
        Ok(match packet {
            Packet::Put { key, offset, bytes } => {
                let entered = self.admit(peer, key, (offset, bytes), Rights::WRITE)?;
                if entered.device().is_some() {
                    return Ok(Act::Device(entered, offset));
                }
                let address = entered.place().at(offset, bytes);
                let address = address.map_err(|_| Reason::Bounds { bytes: 0 })?;
                Act::Put(entered, address)
            }
            Packet::Accumulate { key, offset, bytes, dtype, op } => {
                let entered = self.admit(peer, key, (offset, bytes), Rights::ATOMICS)?;
                let fits = entered.place().accumulates(dtype, op, offset, bytes);
                if fits.is_err() || entered.device().is_some() {
                    return Err(Reason::Elements);
                }
                Act::Accumulate(entered, offset, op)
            }
            _ => Act::Nothing,
        })
    }

    fn fetch(
        &self,
        peer: u32,
        (key, offset): (u64, u64),
        fetch: Fetch,
    ) -> Result<Result<u64, Reason>, Error> {
        let entered = match self.admit(peer, key, (offset, 8), Rights::ATOMICS) {
            Ok(entered) => entered,
            Err(reason) => return Ok(Err(reason)),
        };
        let odd = Reason::Alignment { offset };
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

    /// Gives bytes of this rank's part to a peer.
    fn give(
        &mut self,
        link: &mut Link,
        entered: Entered,
        (offset, bytes): (u64, u64),
        id: u64,
    ) -> Result<(), Error> {
        let place = entered.place();
        let mut address = place.at(offset, bytes).unwrap_or(std::ptr::null_mut());
        let dtype = place.dtype();
        let kept: Box<dyn std::any::Any + Send> = if bytes <= WHOLE || entered.device().is_some() {
            let mut copy = vec![0u8; bytes as usize];
            let (from, to) = ((offset, copy.len()), copy.as_mut_ptr());
            match entered.device() {
                // SAFETY: the copy has so many bytes; in bounds, as `admit` has found.
                Some(device) => self.on_device(unsafe { device.get(from, to) })?,
                // SAFETY: as above.
                None => drop(unsafe { place.get(from, to, || true) }),
            }
            address = copy.as_mut_ptr();
            Box::new(copy)
        } else {
            Box::new(entered)
        };
        let transfer = Transfer {
            what: What::Give,
            operation: Operation::new(Some(kept)),
            address,
            shape: Shape { dtype, bytes },
            tag: 0,
            since: Instant::now(),
            // Whoever gets it waits: this rank does not.
            timeout: Duration::MAX,
        };
        link.answer(Out::Stream(Part { transfer, moved: 0 }, GET | id))?;
        self.pending += 1;
        Ok(())
    }

    /// Applies content that has come at once.
    pub(super) fn apply(
        &mut self,
        link: &mut Link,
        packet: Packet,
        content: *const u8,
    ) -> Result<(), Error> {
        let (Packet::Put { key, offset, bytes } | Packet::Accumulate { key, offset, bytes, .. }) =
            packet
        else {
            return Err(link.strange());
        };
        match self.begin(link.peer, packet) {
            Ok(Act::Put(entered, _)) => {
                // SAFETY: the content of a message that was not consumed yet; in bounds, as `admit` has found.
                let _ = unsafe { entered.place().put((offset, bytes as usize), content, || true) };
                Ok(())
            }
            Ok(Act::Device(entered, offset)) => {
                // SAFETY: as above.
                unsafe { self.put_on_device(&entered, (offset, bytes as usize), content) }
            }
            Ok(Act::Accumulate(entered, offset, op)) => {
                self.combine(&entered, (offset, bytes as usize), content, op)
            }
            Ok(Act::Nothing) => Ok(()),
            Err(reason) => link.tell(Packet::Refused { key, id: 0, offset, reason }),
        }
    }

    /// Does what is left to be done with content that has landed.
    pub(super) fn landed(&mut self, landing: Landing) -> Result<(), Error> {
        match landing.act {
            Act::Accumulate(entered, offset, op) => {
                let content = landing.aside.as_ptr();
                self.combine(&entered, (offset, landing.aside.len()), content, op)
            }
            Act::Device(entered, offset) => {
                let content = (landing.aside.as_ptr(), landing.aside.len());
                // SAFETY: the bytes lie there; in bounds, as `admit` has found.
                unsafe { self.put_on_device(&entered, (offset, content.1), content.0) }
            }
            Act::Put(..) | Act::Nothing => Ok(()),
        }
    }

    /// Has a device copy bytes to its memory.
    ///
    /// # Safety
    ///
    /// So many bytes lie at the address, and the place is in bounds.
    unsafe fn put_on_device(
        &self,
        entered: &Entered,
        place: (u64, usize),
        from: *const u8,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let put = entered.device().map(|device| unsafe { device.put(place, from) });
        self.on_device(put.unwrap_or(Ok(())))
    }

    fn combine(
        &self,
        entered: &Entered,
        place: (u64, usize),
        content: *const u8,
        op: RedOp,
    ) -> Result<(), Error> {
        let own = self.group.rank();
        let waits = |holder, waited| self.wait_lock(holder, waited).map_err(Failed::Ended);
        // SAFETY: content that has come, of this length.
        let done = unsafe { entered.place().accumulate(place, (content, op), own, waits) };
        match done {
            Err(Failed::Ended(error)) => Err(error),
            // What is refused was refused before.
            Ok(()) | Err(Failed::Refused(_)) => Ok(()),
        }
    }

    /// Fails once a wait for a lock that a rank of this machine holds is in vain.
    fn wait_lock(&self, holder: u32, waited: Duration) -> Result<(), Error> {
        if waited < LOCKED {
            return Ok(());
        }
        if self.group.is_aborted() {
            return Err(self.group.aborted(None));
        }
        let awaited = format!("rank {holder} to end its accumulate");
        let location = || Location {
            rank: self.group.rank(),
            name: "accumulate".into(),
            step: 0,
            site: String::new(),
            text: format!("wait for {awaited}"),
        };
        match examine(&self.group, holder, 0, None) {
            Some(Trouble::Gone(gone)) => Err(gone.lost(holder, &awaited, location())),
            _ if waited < LOCKED_OUT => Ok(()),
            _ => Err(Error::Timeout {
                location: location().into(),
                awaited: awaited.clone(),
                peer: holder,
                after: waited,
                remark: format!("; is the process of rank {holder} stopped?"),
            }),
        }
    }

    /// Returns the error of an operation that a peer has refused.
    fn refused(&self, peer: u32, transfer: &Transfer, refusal: Refusal) -> Error {
        let Transfer { what, shape, tag, .. } = transfer;
        let (name, rank) = (what.name(), self.group.rank());
        let what = format!("{name} of {shape} at byte {tag} of the part of rank {peer}");
        Error::Window { rank, what, refusal }
    }
}
