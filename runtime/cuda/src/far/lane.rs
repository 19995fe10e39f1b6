//! A lane: the thread that carries the messages of some blocks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver as Inbox, TryRecvError};
use std::time::{Duration, Instant};

use roundelay_compiler::device::abi;
use roundelay_compiler::plan::Dir;

use super::call::FarCall;
use super::exchange::{FarBatch, Queues};
use super::flow::Flow;
use super::lanes::Common;
use super::memory::{FarMemory, MOST_BLOCKS};
use super::packet::{Kind, Packet};
use super::pause::Pause;
use super::stream::{Held, Stream};
use roundelay_net::error::Error;
use roundelay_net::transport::message::IoVec;

/// An order tells a lane what kernels will ask for. What is asked for, and when, kernels say themselves.
#[derive(Debug)]
pub(super) enum Order {
    /// A call that will be launched, or is captured.
    Call(FarCall),
    /// The call of that number, which was not launched after all.
    Forget(u32),
    /// Messages between single ranks.
    Exchange(Arc<FarBatch>),
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

/// The time for which a lane looks for work before it sleeps until an order comes.
const BRISK: Duration = Duration::from_micros(500);
/// The longest sleep until an order comes, and where connections must be looked after.
const REST: Duration = Duration::from_millis(20);
const SHORT_REST: Duration = Duration::from_millis(1);
/// The most packets of one connection before the others are looked at.
pub(super) const TURN: u32 = 64;

/// A thread's state.
pub(super) struct Lane {
    /// Its number, and how many there are.
    pub(super) number: u32,
    pub(super) lanes: u32,
    pub(super) memory: Arc<FarMemory>,
    pub(super) common: Arc<Common>,
    pub(super) streams: Vec<Stream>,
    pub(super) queues: Queues,
    /// The calls that kernels may enter, by number: those that were launched once, those that were captured again and
    /// again.
    calls: BTreeMap<u32, FarCall>,
    /// True once something was captured.
    pub(super) has_graphs: bool,
    /// The words by which this lane's blocks say what they have entered, as they were last looked at, and the epoch of
    /// the last call that was begun.
    entered: Vec<u64>,
    last: Option<u32>,
    /// The call that is being carried.
    work: Option<Work>,
}

/// A call that a kernel has entered.
pub(super) struct Work {
    pub(super) call: FarCall,
    pub(super) flows: Vec<Flow>,
}

impl Work {
    fn is_over(&self) -> bool {
        let links = &self.call.part.links;
        self.flows.iter().all(|flow| flow.is_over(&links[flow.link]))
    }
}

impl Lane {
    pub(super) fn new(
        (number, lanes): (u32, u32),
        memory: Arc<FarMemory>,
        common: Arc<Common>,
        streams: Vec<Stream>,
    ) -> Self {
        Lane {
            number,
            lanes,
            memory,
            common,
            streams,
            queues: Queues::default(),
            calls: BTreeMap::new(),
            has_graphs: false,
            entered: vec![0; MOST_BLOCKS as usize],
            last: None,
            work: None,
        }
    }

    /// Carries what kernels ask for until nobody gives orders any more, or something fails.
    pub(super) fn run(mut self, orders: &Inbox<Order>) {
        let mut pause = Pause::new();
        let end = loop {
            let is_open = self.take_orders(orders);
            match self.turn(&pause) {
                Ok(true) => {
                    pause.moved();
                    continue;
                }
                Ok(false) => {}
                Err(end) => break end,
            }
            let waited = match (self.is_busy(), is_open) {
                (true, _) => self.pause(&mut pause),
                (false, true) => self.rest(orders, &mut pause),
                (false, false) => return self.linger(),
            };
            if let Err(end) = waited {
                break end;
            }
        };
        match end {
            End::Stopped => self.common.follow(),
            End::Failed(error) => self.common.fail(*error),
        }
    }

    /// Takes the orders that are here; returns false if there will be no more.
    fn take_orders(&mut self, orders: &Inbox<Order>) -> bool {
        loop {
            match orders.try_recv() {
                Ok(order) => self.take_order(order),
                Err(none) => return none == TryRecvError::Empty,
            }
        }
    }

    fn take_order(&mut self, order: Order) {
        match order {
            Order::Call(call) => {
                self.has_graphs |= call.is_captured;
                // Of a call in which it has nothing to carry a lane need not know.
                if !self.flows(&call).is_empty() {
                    self.calls.insert(call.number, call);
                }
            }
            Order::Forget(number) => drop(self.calls.remove(&number)),
            Order::Exchange(batch) => self.expect(&batch),
        }
    }

    /// Returns true if something is under way, or will be without another order.
    fn is_busy(&self) -> bool {
        self.work.is_some()
            || self.calls.values().any(|call| !call.is_captured)
            || self.streams.iter().any(Stream::is_sending)
            || self.queues.is_awaited()
    }

    /// Looks at everything once; returns true if something moved.
    fn turn(&mut self, pause: &Pause) -> Result<bool, End> {
        let begun = if self.work.is_none() { self.begin() } else { None };
        let mut moved = begun.is_some();
        let mut work = self.work.take().or(begun);
        moved |= self.make_room();
        moved |= self.post_pieces();
        match &mut work {
            Some(Work { call, flows }) => {
                moved |= self.say(call, flows);
                // Looking at a word takes less time than looking at a socket.
                let has_said = |flow: &Flow| {
                    call.part.links[flow.link].dir == Dir::Recv || flow.moved == flow.total
                };
                if moved || pause.is_glance() || flows.iter().all(has_said) {
                    moved |= self.hear(call, flows)?;
                }
            }
            None if pause.is_glance() => moved |= self.look_ahead()?,
            None => {}
        }
        moved |= self.settle(work.as_mut())?;
        if !moved && pause.is_glance() {
            self.check(work.as_ref(), pause)?;
        }
        self.work = work.filter(|work| !work.is_over());
        Ok(moved)
    }

    /// Returns the call that a block of this lane has entered, if it is another than the last.
    fn begin(&mut self) -> Option<Work> {
        for block in (self.number..MOST_BLOCKS).step_by(self.lanes as usize) {
            let word = abi::entered(self.memory.ranks(), self.common.rank, block);
            let word = self.memory.said(word).load(Ordering::Acquire);
            let seen = &mut self.entered[block as usize];
            let (epoch, number) = ((word >> 32) as u32, word as u32);
            if word == *seen || self.last == Some(epoch) {
                *seen = word;
                continue;
            }
            // Else its order is about to come, or it is of a call without messages for this lane.
            let Some(call) = self.calls.get(&number) else { continue };
            *seen = word;
            self.last = Some(epoch);
            let call = FarCall { epoch, ..call.clone() };
            if !call.is_captured {
                self.calls.remove(&number);
            }
            let flows = self.flows(&call);
            self.mark_pieces();
            return Some(Work { call, flows });
        }
        None
    }

    /// Waits until an order comes, or for a moment if there is nothing to do since long.
    fn rest(&mut self, orders: &Inbox<Order>, pause: &mut Pause) -> Result<(), End> {
        if pause.is_due() {
            if self.common.is_over() {
                return Err(End::Stopped);
            }
            self.tend();
        }
        if pause.lasts() < BRISK {
            std::thread::yield_now();
            return Ok(());
        }
        let wakes = self.streams.iter().all(|stream| stream.connection.wakes());
        let limit = match (self.has_graphs, wakes) {
            // Kernels alone know of graphs that are launched.
            (true, _) => pause.nap(),
            (false, true) => REST,
            (false, false) => SHORT_REST,
        };
        if let Ok(order) = orders.recv_timeout(limit) {
            self.take_order(order);
            pause.moved();
        }
        Ok(())
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

    /// Returns what this lane has to carry of a call.
    fn flows(&self, call: &FarCall) -> Vec<Flow> {
        let mut flows = Vec::new();
        let (is_direct, moved, taken) = (self.memory.direct().is_some(), 0, 0);
        for (at, link) in call.part.links.iter().enumerate() {
            let Some(stream) = self.streams.iter().position(|s| s.peer == link.peer) else {
                continue;
            };
            for block in (self.number..call.blocks).step_by(self.lanes as usize) {
                let total = call.messages(link);
                let ahead = if is_direct { 0 } else { link.slots };
                let (link, credit, to) = (at, 0, 0);
                flows.push(Flow { link, stream, block, total, moved, taken, ahead, credit, to });
            }
        }
        flows
    }

    /// Takes pieces, and reads what has come of a call that no block has entered, as far as it needs no slot; returns
    /// true if there was something.
    fn look_ahead(&mut self) -> Result<bool, End> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..TURN {
                match self.piece(at) {
                    Ok(Some(true)) => moved = true,
                    Ok(_) => break,
                    Err(fault) => return Err(self.cut_off(at, &fault)),
                }
            }
            self.streams[at].read_ahead();
        }
        Ok(moved)
    }

    /// Sends what kernels have told of and receivers have room for, and says what was consumed; returns true if
    /// something moved.
    fn say(&mut self, call: &FarCall, flows: &mut [Flow]) -> bool {
        let mut moved = false;
        let waits = self.queues.go_first();
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
                    let slots = call.slot(link, flow.block, 1);
                    let credit_packet = packet(Kind::Credit, flow, link.channel, credit, slots);
                    stream.say(&credit_packet);
                    flow.credit = credit;
                    moved = true;
                }
                continue;
            }
            while !waits && flow.may_send(told) {
                let number = flow.moved + 1;
                let bytes = call.bytes(link, flow.block, number);
                let slot = call.slot(link, flow.block, number);
                if let Some(direct) = self.memory.direct() {
                    let packet = packet(Kind::Message, flow, link.channel, number, bytes);
                    let turn = u64::from((number - 1) % link.slots) * call.slot_bytes(link);
                    stream.place(direct, at, packet, (slot, flow.to.saturating_add(turn)));
                    (flow.moved, moved) = (number, true);
                    continue;
                }
                // What lies outside is the receiver's fault to find, for both cut alike.
                let Some(ptr) = self.memory.slot(slot, bytes) else { break };
                let packet = packet(Kind::Message, flow, link.channel, number, bytes);
                let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                let keeps = flow.taken < flow.moved;
                // SAFETY: the slot lies in the memory, which outlives this thread. The kernel writes there again when it
                // is told that the content was taken.
                if unsafe { stream.post(&packet, content, (Held::Flow(at), keeps)) } {
                    flow.taken = number;
                    flow.tell(&self.memory, link, call);
                }
                flow.moved = number;
                moved = true;
            }
        }
        moved
    }

    /// Moves what was posted, and tells kernels what is not read in their slots any more; returns true if there was some.
    fn settle(&mut self, mut work: Option<&mut Work>) -> Result<bool, End> {
        let mut moved = false;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if let (Some(direct), Some(Work { call, flows })) = (self.memory.direct(), &mut work) {
                let failed = |fault| End::failed(direct.error(self.common.rank, &fault));
                while let Some(flow) = stream.placed(direct).map_err(failed)? {
                    moved = true;
                    let flow = &mut flows[flow];
                    flow.taken += 1;
                    flow.tell(&self.memory, &call.part.links[flow.link], call);
                }
            }
            stream.flush();
            while let Some(held) = stream.taken() {
                moved = true;
                match (held, &mut work) {
                    (Held::Piece(block), _) => self.queues.take_out(at, block),
                    (Held::Flow(flow), Some(Work { call, flows })) => {
                        let flow = &mut flows[flow];
                        flow.taken += 1;
                        flow.tell(&self.memory, &call.part.links[flow.link], call);
                    }
                    // A call is over when nothing of it is read any more.
                    (Held::Flow(_), None) => {}
                }
            }
        }
        Ok(moved)
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
