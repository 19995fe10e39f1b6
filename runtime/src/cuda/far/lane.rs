//! A lane: the thread that carries the messages of some blocks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::Dir;

use super::call::{FarCall, FarLink};
use super::exchange::{FarBatch, Queues};
use super::flow::Flow;
use super::lanes::Common;
use super::memory::FarMemory;
use super::packet::{Kind, Packet};
use super::pause::{EXAMINE, Pause};
use super::stream::{Coming, Stream};
use crate::error::{Error, Location, Source};
use crate::transport::fault::Fault;
use crate::transport::message::{IoVec, IoVecMut};
use crate::transport::posted::PostedReceiver;

/// An order tells a lane its next work.
#[derive(Debug)]
pub(super) enum Order {
    /// Carry the messages of a call.
    Carry(FarCall),
    /// Carry messages between single ranks.
    Exchange(Arc<FarBatch>),
    /// Raise words that are old: see [`Lane::renew`].
    Renew(u32),
}

/// The reason for which a lane ends.
pub(super) enum End {
    /// The communicator is being dropped, or has failed elsewhere.
    Stopped,
    /// It failed.
    Failed(Box<Error>),
}

impl End {
    pub(super) fn failed(error: Error) -> Self {
        End::Failed(Box::new(error))
    }
}

/// The reason for which a packet of a peer is not taken.
pub(super) enum Trouble {
    /// Its connection is lost, or it broke the protocol.
    Fault(Fault),
    /// It makes another call.
    OtherCall,
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Trouble::Fault(fault)
    }
}

/// The time for which a lane looks for another order before it sleeps until one comes.
const BRISK: Duration = Duration::from_micros(500);
/// The longest sleep until an order comes, and where connections must be looked after.
const REST: Duration = Duration::from_millis(20);
const SHORT_REST: Duration = Duration::from_millis(1);
/// The time after the end of a connection in which its reason may be heard otherwise.
const LAST_WORDS: Duration = Duration::from_millis(150);
/// The most packets of one connection before the others are looked at.
pub(super) const TURN: u32 = 64;
/// The distance of calls after which words are raised; a word may be 2^31 calls old.
pub(super) const RENEWED: u32 = 1 << 28;

/// A thread's state.
pub(super) struct Lane {
    /// Its number, and how many there are.
    pub(super) number: u32,
    pub(super) lanes: u32,
    pub(super) memory: Arc<FarMemory>,
    pub(super) common: Arc<Common>,
    pub(super) streams: Vec<Stream>,
    pub(super) queues: Queues,
}

impl Lane {
    /// Plays orders until nobody gives any more, or something fails.
    pub(super) fn run(mut self, orders: &Inbox<Order>) {
        while let Some(order) = self.next(orders) {
            let end = match order {
                Order::Carry(call) => self.carry(&call),
                Order::Exchange(batch) => self.exchange(&batch),
                Order::Renew(epoch) => {
                    self.renew(epoch);
                    Ok(())
                }
            };
            match end {
                Ok(()) => {}
                Err(End::Stopped) => return self.common.follow(),
                Err(End::Failed(error)) => return self.common.fail(*error),
            }
        }
        self.linger();
    }

    /// Returns the next order.
    fn next(&self, orders: &Inbox<Order>) -> Option<Order> {
        let since = Instant::now();
        loop {
            let found = match since.elapsed() < BRISK {
                true => orders.try_recv().map_err(|none| match none {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
                false => {
                    let wakes = self.streams.iter().all(|stream| stream.connection.wakes());
                    orders.recv_timeout(if wakes { REST } else { SHORT_REST })
                }
            };
            match found {
                Ok(order) => return Some(order),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.common.is_over() => return None,
                Err(RecvTimeoutError::Timeout) => std::thread::yield_now(),
            }
            self.tend();
        }
    }

    /// Looks after what moves only while somebody looks at it.
    fn tend(&self) {
        let slow = self.streams.iter().filter(|stream| !stream.connection.wakes());
        slow.for_each(|stream| stream.connection.tend());
    }

    /// Stays until what was sent over several paths has arrived, for a moment at most.
    fn linger(&self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        let waits = |stream: &Stream| {
            let state = stream.connection.stream();
            state.is_some_and(|mut s| s.fault().is_none() && !s.is_acknowledged())
        };
        while self.streams.iter().any(waits) && !self.common.is_over() && Instant::now() < deadline
        {
            self.tend();
            std::thread::yield_now();
        }
    }

    /// Raises words to what is so since long: no kernel may take one for newer than it is, which it would after 2^31
    /// calls. Ordered when a call is launched, once in [`RENEWED`] of them.
    fn renew(&self, epoch: u32) {
        let old = abi::mark(epoch.wrapping_sub(RENEWED), u32::MAX);
        let raise = |word: u64| {
            let word = self.memory.heard(word);
            if !abi::reached(word.load(Ordering::Relaxed), old) {
                word.store(old, Ordering::Release);
            }
        };
        for block in (self.number..abi::BLOCKS).step_by(self.lanes as usize) {
            for (peer, channel) in
                (0..self.memory.ranks()).flat_map(|p| (0..abi::CHANNELS).map(move |c| (p, c)))
            {
                raise(abi::sent(peer, channel, block));
                raise(abi::consumed(self.memory.ranks(), peer, channel, block));
            }
        }
    }

    /// Carries the messages of a call.
    fn carry(&mut self, call: &FarCall) -> Result<(), End> {
        let mut flows = self.flows(call);
        if flows.is_empty() {
            return Ok(());
        }
        let mut pause = Pause::new();
        while !self.has_entered(call) {
            self.pause(&mut pause)?;
            if pause.is_glance() {
                self.look_ahead(call, &flows)?;
            }
        }
        pause.moved();
        // Kernels before this one are over: all that they have taken out is known now.
        self.make_room();
        let links = &call.part.links;
        while !flows.iter().all(|flow| flow.is_over(&links[flow.link])) || self.is_sending() {
            let mut moved = self.hear(call, &mut flows)?;
            moved |= self.say(call, &mut flows);
            if moved {
                pause.moved();
                continue;
            }
            self.check(call, &flows)?;
            // Kernels give up sooner, if they wait for it.
            if pause.lasts() > call.timeout.saturating_mul(2) {
                return Err(End::failed(self.late(call, &flows, pause.lasts())));
            }
            self.pause(&mut pause)?;
        }
        Ok(())
    }

    /// Returns true if something was posted that has not gone yet, whatever kernels were told.
    pub(super) fn is_sending(&self) -> bool {
        self.streams.iter().any(Stream::is_sending)
    }

    /// Returns what this lane has to carry of a call.
    fn flows(&self, call: &FarCall) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (at, link) in call.part.links.iter().enumerate() {
            let Some(stream) = self.streams.iter().position(|s| s.peer == link.peer) else {
                continue;
            };
            for block in (self.number..call.blocks).step_by(self.lanes as usize) {
                let total = call.messages(link);
                flows.push(Flow { link: at, stream, block, total, moved: 0, taken: 0, credit: 0 });
            }
        }
        flows
    }

    /// Returns true if some block of the kernel has entered the call: then the kernel before is over.
    fn has_entered(&self, call: &FarCall) -> bool {
        let entered = |block| {
            let word = abi::entered(self.memory.ranks(), self.common.rank, block);
            self.memory.said(word).load(Ordering::Acquire) == abi::mark(call.epoch, 1)
        };
        // This lane's own blocks first: mostly that is enough.
        entered(self.number) || (0..call.blocks).any(entered)
    }

    /// Reads what has come of a call that no block has entered, as far as it needs no slot.
    fn look_ahead(&mut self, call: &FarCall, flows: &[Flow]) -> Result<(), End> {
        for at in 0..self.streams.len() {
            if let Err(fault) = self.piece(at) {
                return Err(self.lost(at, call, flows, &fault));
            }
            self.streams[at].read_ahead();
        }
        Ok(())
    }

    /// Takes what peers have sent; returns true if something moved.
    fn hear(&mut self, call: &FarCall, flows: &mut [Flow]) -> Result<bool, End> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..TURN {
                match self.step(at, call, flows) {
                    Ok(true) => moved = true,
                    Ok(false) => break,
                    Err(Trouble::Fault(fault)) => return Err(self.lost(at, call, flows, &fault)),
                    Err(Trouble::OtherCall) => {
                        let (rank, peer) = (self.common.rank, self.streams[at].peer);
                        let name = call.location(&call.part.links[0], 1).name;
                        let detail = format!(
                            "rank {rank} plays {name} of {} elements as call {} on its GPU",
                            call.count, call.epoch
                        );
                        return Err(End::failed(Error::PlanMismatch { rank, peer, detail }));
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Takes the next packet of a connection, or the next part of a content; returns false if none is here that belongs
    /// to the call.
    fn step(&mut self, at: usize, call: &FarCall, flows: &mut [Flow]) -> Result<bool, Trouble> {
        if let Some(moved) = self.piece(at)? {
            return Ok(moved);
        }
        let stream = &mut self.streams[at];
        let links = &call.part.links;
        match stream.coming {
            // Of the call after, whose kernel has not entered here.
            Coming::Read(packet) if packet.epoch != call.epoch => {
                match abi::reached(abi::mark(call.epoch, 0), abi::mark(packet.epoch, 0)) {
                    false => Ok(false),
                    true => Err(Fault::Protocol("it sent a message of a call that is over").into()),
                }
            }
            Coming::Read(packet) => {
                if packet.digest != call.digest {
                    return Err(Trouble::OtherCall);
                }
                let receives = packet.kind == Kind::Message;
                let flow = flows.iter().position(|flow| {
                    let link: &FarLink = &links[flow.link];
                    flow.stream == at
                        && (link.dir == Dir::Recv) == receives
                        && (link.channel, flow.block) == (packet.channel, packet.block)
                });
                let none = Fault::Protocol("it sent a message that this rank does not wait for");
                let Some(at) = flow else { return Err(none.into()) };
                let flow = &mut flows[at];
                let link = &links[flow.link];
                if !receives {
                    if packet.number <= flow.credit || packet.number > flow.total {
                        return Err(Fault::Protocol("it gave credit for no message").into());
                    }
                    flow.credit = packet.number;
                    stream.coming = Coming::Packet;
                    return Ok(true);
                }
                if !flow.may_land(link, packet.number)
                    || packet.bytes != call.bytes(link, packet.block, packet.number)
                {
                    return Err(none.into());
                }
                stream.coming = Coming::Content { flow: at, bytes: packet.bytes };
                Ok(true)
            }
            Coming::Content { flow: at, bytes } => {
                let flow = &mut flows[at];
                let link = &links[flow.link];
                if bytes > 0 {
                    let slot = call.slot(link, flow.block, flow.moved + 1);
                    let place = self.memory.slot(slot, bytes.max(call.slot_bytes(link)));
                    let outside = Fault::Protocol("its slot lies outside the memory of slots");
                    let ptr = place.ok_or(outside)?;
                    let piece = IoVecMut { ptr, len: bytes as usize };
                    // SAFETY: the slot lies in the memory, which outlives this thread. It is this flow's until its
                    // kernel is told, which has consumed what was there: the sender has credit.
                    let landed =
                        unsafe { stream.receiver.land(bytes as usize, std::iter::once(piece)) };
                    if !landed {
                        return Ok(false);
                    }
                    stream.receiver.consume();
                }
                stream.coming = Coming::Packet;
                flow.moved += 1;
                flow.taken = flow.moved;
                flow.tell(&self.memory, link, call);
                Ok(true)
            }
            Coming::Packet | Coming::Piece { .. } => Ok(false),
        }
    }

    /// Sends what kernels have told of and receivers have room for, and says what was consumed; returns true if
    /// something moved.
    fn say(&mut self, call: &FarCall, flows: &mut [Flow]) -> bool {
        let mut moved = false;
        let packet = |kind, flow: &Flow, channel, number, bytes| {
            let (epoch, digest, block) = (call.epoch, call.digest, flow.block);
            Packet { kind, epoch, channel, block, number, bytes, digest }
        };
        for (at, flow) in flows.iter_mut().enumerate() {
            let link = &call.part.links[flow.link];
            let stream = &mut self.streams[flow.stream];
            let told = flow.told(&self.memory, link, call);
            if link.dir == Dir::Recv {
                if let Some(credit) = flow.owed(link, told) {
                    let credit_packet = packet(Kind::Credit, flow, link.channel, credit, 0);
                    stream.say(&credit_packet);
                    flow.credit = credit;
                    moved = true;
                }
                continue;
            }
            while flow.may_send(link, told) {
                let number = flow.moved + 1;
                let bytes = call.bytes(link, flow.block, number);
                let slot = call.slot(link, flow.block, number);
                // What lies outside is the receiver's fault to find, for both cut alike.
                let Some(ptr) = self.memory.slot(slot, bytes) else { break };
                let packet = packet(Kind::Message, flow, link.channel, number, bytes);
                let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                let keeps = flow.taken < flow.moved;
                // SAFETY: the slot lies in the memory, which outlives this thread. The kernel writes there again when it
                // is told that the content was taken.
                if unsafe { stream.post(&packet, content, (at, keeps)) } {
                    flow.taken = number;
                    flow.tell(&self.memory, link, call);
                }
                flow.moved = number;
                moved = true;
            }
        }
        for stream in &mut self.streams {
            stream.flush();
            while let Some(at) = stream.taken() {
                let flow = &mut flows[at];
                flow.taken += 1;
                flow.tell(&self.memory, &call.part.links[flow.link], call);
                moved = true;
            }
        }
        moved
    }

    /// Fails if a connection is lost over which something is still to come, or to go.
    fn check(&self, call: &FarCall, flows: &[Flow]) -> Result<(), End> {
        for (at, stream) in self.streams.iter().enumerate() {
            let Some(fault) = stream.connection.fault() else { continue };
            let needed =
                |flow: &&Flow| flow.stream == at && !flow.is_over(&call.part.links[flow.link]);
            if stream.is_sending() || flows.iter().any(|flow| needed(&flow)) {
                return Err(self.lost(at, call, flows, &fault.clone()));
            }
        }
        Ok(())
    }

    /// Returns the end by a lost connection.
    fn lost(&self, at: usize, call: &FarCall, flows: &[Flow], fault: &Fault) -> End {
        let links = &call.part.links;
        let of = |flow: &&Flow| flow.stream == at && !flow.is_over(&links[flow.link]);
        let flow = flows.iter().find(of).or(flows.iter().find(|flow| flow.stream == at));
        let location = flow.map(|f| call.location(&links[f.link], f.moved + 1));
        self.lost_at(at, location, fault)
    }

    /// Returns the end by a lost connection, at a place in an algorithm. Its peer may have failed for a reason that comes
    /// otherwise.
    pub(super) fn lost_at(&self, at: usize, location: Option<Location>, fault: &Fault) -> End {
        let since = Instant::now();
        while since.elapsed() < LAST_WORDS {
            if self.common.is_over() {
                return End::Stopped;
            }
            std::thread::sleep(EXAMINE);
        }
        End::failed(Error::LostRank {
            rank: self.common.rank,
            lost: self.streams[at].peer,
            how: format!("{fault}, on lane {} between their hosts", self.number),
            location: location.map(Box::new),
            source: Some(Source::new(fault.clone())),
        })
    }

    /// Returns the error of a call in which nothing has moved for long.
    fn late(&self, call: &FarCall, flows: &[Flow], after: Duration) -> Error {
        let links = &call.part.links;
        let open = || flows.iter().filter(|flow| !flow.is_over(&links[flow.link]));
        let waits = |dir| open().find(|flow| links[flow.link].dir == dir);
        let flow = waits(Dir::Recv).or(waits(Dir::Send)).unwrap_or(&flows[0]);
        let link = &links[flow.link];
        let peer = link.peer;
        let awaited = match link.dir {
            Dir::Recv => format!("a message from rank {peer}"),
            Dir::Send => format!("rank {peer} to take a message"),
        };
        Error::Timeout {
            location: Box::new(call.location(link, flow.moved + 1)),
            awaited,
            peer,
            after,
            remark: format!(
                " on lane {} between their hosts (block {} of call {}, {} of {} messages); see whether rank {peer} \
                 makes the same call, or raise the timeout",
                self.number, flow.block, call.epoch, flow.moved, flow.total
            ),
        }
    }

    /// Waits for a moment; fails if the lane is to end.
    pub(super) fn pause(&self, pause: &mut Pause) -> Result<(), End> {
        if pause.is_due() {
            if self.common.is_over() {
                return Err(End::Stopped);
            }
            self.tend();
        }
        pause.rest(&self.streams);
        Ok(())
    }
}
