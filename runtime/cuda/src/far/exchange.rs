//! Messages between single ranks of different hosts, as the lane at one end has them.
//!
//! A kernel moves such messages in pieces through slots, a queue for each block ([`batch`]). Both ends count pieces from
//! the beginning of the communicator on, and a slot begins with the number of its piece and its bytes. So a lane carries
//! what it finds there, and need not know which kernel a piece is of: what one rank sends in a batch another may receive
//! in two, and a graph sends it again. An order says what will come, so that a lane is awake, and tells a rank that is
//! lost from one that has nothing more to say.
//!
//! A piece goes when the receiver's kernel has taken out the one [`batch::SLOTS`] before it, as the receiver's lane says
//! by a packet (`Room`). So there is always a slot for a piece, and lanes take pieces and such packets from the socket
//! whenever they come, also in calls of all ranks: nothing else waits behind them. Before the first order with a
//! peer there is no memory for its pieces; they are kept aside until then, no more than there are slots. The
//! sender's kernel may fill a slot again when its lane has taken the content.
//!
//! A kernel may leave while its last pieces are still in their slots. What it says in the next call goes behind them, since
//! the receiver's kernel enters that call when it has them all.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roundelay_compiler::emit::cuda::batch;
use roundelay_compiler::plan::Dir;

use super::lane::{End, Lane};
use super::mail::{Mail, Word};
use super::packet::{Kind, Packet};
use super::stream::{Coming, Held};
use roundelay_net::error::{Error, Location};
use roundelay_net::transport::fault::Fault;
use roundelay_net::transport::message::{IoVec, IoVecMut};
use roundelay_net::transport::posted::PostedReceiver;

/// Slots of a queue.
const SLOTS: u64 = batch::SLOTS as u64;

/// The messages of a launch with ranks on other hosts.
#[derive(Debug)]
pub(in super::super) struct FarBatch {
    pub(in super::super) ends: Vec<FarEnd>,
    /// True if it is captured, to be launched again and again.
    pub(in super::super) is_captured: bool,
    /// The longest time without progress of a kernel's wait.
    pub(in super::super) timeout: Duration,
}

/// The messages to a rank, or from it.
#[derive(Debug, Clone)]
pub(in super::super) struct FarEnd {
    pub(in super::super) peer: u32,
    pub(in super::super) dir: Dir,
    pub(in super::super) mail: Arc<Mail>,
    /// Bytes of each message, in order.
    pub(in super::super) messages: Vec<u64>,
}

/// The pieces between a block of this rank and one of a peer that were ever carried.
#[derive(Debug, Default)]
struct Queue {
    /// Pieces that were posted, those of them of which nothing is read in the slot any more, and those that the receiver's
    /// kernel has taken out, as far as that was said.
    sent: u64,
    taken: u64,
    room: u64,
    /// Pieces that have come, and how many of them this lane has said to be taken out.
    landed: u64,
    said: u64,
    /// Pieces that were in slots when the latest call was entered: they go before its messages.
    before: u64,
    /// Pieces that orders have announced, to be sent and to come. More may be, of graphs.
    due: [u64; 2],
    /// The latest pieces that have come, or are coming, before there was memory for them, with their tags.
    early: VecDeque<(u32, Vec<u8>)>,
}

/// The messages of a lane with single ranks, by the number of the stream.
#[derive(Debug, Default)]
pub(super) struct Queues {
    mail: BTreeMap<usize, Arc<Mail>>,
    blocks: BTreeMap<(usize, u32), Queue>,
    /// The longest time without progress, as the latest order has it.
    timeout: Duration,
}

impl Queue {
    /// Returns the direction in which something was announced that has not been carried.
    fn awaits(&self) -> Option<Dir> {
        match self.due {
            [_, recv] if self.landed < recv => Some(Dir::Recv),
            [send, _] if self.taken < send => Some(Dir::Send),
            _ => None,
        }
    }
}

impl Queues {
    fn of(&mut self, stream: usize, block: u32) -> &mut Queue {
        self.blocks.entry((stream, block)).or_default()
    }

    /// Takes in that a peer's kernel has taken out pieces.
    fn give(&mut self, stream: usize, packet: &Packet) -> Result<(), Fault> {
        let odd = Fault::Protocol("it gave room for no piece");
        let queue = self.blocks.get_mut(&(stream, packet.block)).ok_or(odd.clone())?;
        if packet.digest <= queue.room || packet.digest > queue.sent {
            return Err(odd);
        }
        queue.room = packet.digest;
        Ok(())
    }

    /// Returns true if something was announced that has not been carried.
    pub(super) fn is_awaited(&self) -> bool {
        self.blocks.values().any(|queue| queue.awaits().is_some())
    }

    /// Returns true if pieces of before the call that is being carried have not gone.
    pub(super) fn go_first(&self) -> bool {
        self.blocks.values().any(|queue| queue.sent < queue.before)
    }

    /// Returns true if that goes over a stream.
    pub(super) fn is_awaited_of(&self, stream: usize) -> bool {
        self.blocks.iter().any(|((at, _), queue)| *at == stream && queue.awaits().is_some())
    }

    /// Tells a kernel that one more of its pieces was taken out of its slot.
    pub(super) fn take_out(&mut self, stream: usize, block: u32) {
        let Some(mail) = self.mail.get(&stream).cloned() else { return };
        let queue = self.of(stream, block);
        queue.taken += 1;
        mail.word(Word::Taken, block).store(queue.taken, Ordering::Release);
    }

    /// Makes ready for a piece that is coming, or refuses it.
    fn admit(&mut self, stream: usize, packet: &Packet, blocks: u32) -> Result<(), Fault> {
        let fits = packet.bytes <= batch::PIECE && packet.block < blocks;
        let has_mail = self.mail.contains_key(&stream);
        let queue = self.blocks.get(&(stream, packet.block));
        let (landed, said) = queue.map_or((0, 0), |queue| (queue.landed, queue.said));
        if packet.digest != landed + 1 || landed >= said + SLOTS || !fits {
            return Err(Fault::Protocol("it sent a piece for which there is no slot"));
        }
        let queue = self.of(stream, packet.block);
        if !has_mail {
            queue.early.push_back((packet.number, vec![0; packet.bytes as usize]));
        }
        Ok(())
    }

    /// Returns the place of the content of the piece that is coming.
    fn place(&mut self, stream: usize, block: u32) -> Option<*mut u8> {
        let mail = self.mail.get(&stream).cloned();
        let queue = self.of(stream, block);
        match queue.early.back_mut() {
            Some((_, early)) => Some(early.as_mut_ptr()),
            None => mail?.content(Dir::Recv, block, queue.landed + 1),
        }
    }

    /// Counts the piece that was coming, and tells the kernel if it is in its slot.
    fn land(&mut self, stream: usize, block: u32, tag: u32) {
        let mail = self.mail.get(&stream).cloned();
        let queue = self.of(stream, block);
        queue.landed += 1;
        match mail {
            Some(mail) if queue.early.is_empty() => tell(&mail, block, queue.landed, tag),
            Some(_) => self.settle(stream, block, 0),
            None => {}
        }
    }

    /// Takes the memory of a peer, for what comes and for what was kept aside but for the piece that is `coming`.
    fn meet(&mut self, stream: usize, mail: &Arc<Mail>, coming: Option<u32>) {
        if self.mail.insert(stream, mail.clone()).is_none() {
            for block in 0..mail.blocks() {
                self.settle(stream, block, usize::from(coming == Some(block)));
            }
        }
    }

    /// Puts what was kept aside into slots, but for the latest so many pieces, and tells the kernel.
    fn settle(&mut self, stream: usize, block: u32, but: usize) {
        let Some(mail) = self.mail.get(&stream) else { return };
        let Some(queue) = self.blocks.get_mut(&(stream, block)) else { return };
        while queue.early.len() > but {
            let number = queue.landed + 1 - (queue.early.len() - but) as u64;
            let Some((tag, early)) = queue.early.pop_front() else { break };
            if let Some(content) = mail.content(Dir::Recv, block, number) {
                let bytes = early.len().min(batch::PIECE as usize);
                // SAFETY: the slot has as many bytes, and no kernel was told of a piece there that it has not taken out.
                unsafe { content.copy_from_nonoverlapping(early.as_ptr(), bytes) };
            }
            tell(mail, block, number, tag);
        }
    }
}

/// Tells the kernel that a piece is in its slot.
fn tell(mail: &Mail, block: u32, number: u64, tag: u32) {
    mail.head(Dir::Recv, block, number).store(number << 32 | u64::from(tag), Ordering::Release);
}

impl Lane {
    /// Takes in what messages will come and go.
    pub(super) fn expect(&mut self, batch: &FarBatch) {
        self.has_graphs |= batch.is_captured;
        self.queues.timeout = batch.timeout;
        for end in &batch.ends {
            let Some(stream) = self.streams.iter().position(|s| s.peer == end.peer) else {
                continue;
            };
            let coming = match self.streams[stream].coming {
                Coming::Piece { block, .. } => Some(block),
                _ => None,
            };
            self.queues.meet(stream, &end.mail, coming);
            let blocks = end.mail.blocks();
            for block in (self.number..blocks).step_by(self.lanes as usize) {
                let cut = |&bytes: &u64| batch::pieces(bytes, block, blocks).count() as u64;
                let pieces: u64 = end.messages.iter().map(cut).sum();
                let due = &mut self.queues.of(stream, block).due;
                due[usize::from(end.dir == Dir::Recv)] +=
                    if batch.is_captured { 0 } else { pieces };
            }
        }
    }

    /// Takes the next packet of a connection, or the next part of a piece: true if there was one, false if there is none,
    /// nothing if it belongs to a call of all ranks.
    pub(super) fn piece(&mut self, at: usize) -> Result<Option<bool>, Fault> {
        let stream = &mut self.streams[at];
        match stream.coming {
            Coming::Packet => {
                let Some(packet) = stream.packet()? else { return Ok(Some(false)) };
                stream.coming = Coming::Read(packet);
            }
            Coming::Read(packet) if packet.kind == Kind::Room => {
                self.queues.give(at, &packet)?;
                stream.coming = Coming::Packet;
            }
            // Ranks have not agreed on what it was for.
            Coming::Read(packet) if [Kind::Grant, Kind::Probe].contains(&packet.kind) => {
                stream.coming = Coming::Packet;
            }
            Coming::Read(packet) if packet.kind == Kind::Piece => {
                self.queues.admit(at, &packet, batch::lanes(self.memory.ranks()))?;
                let Packet { block, number: tag, bytes, .. } = packet;
                stream.coming = Coming::Piece { block, tag, bytes };
            }
            Coming::Piece { block, tag, bytes: 0 } => {
                stream.coming = Coming::Packet;
                self.queues.land(at, block, tag);
            }
            Coming::Piece { block, tag, bytes } => {
                let outside = Fault::Protocol("its slot lies outside the memory of slots");
                let ptr = self.queues.place(at, block).ok_or(outside)?;
                let whole = IoVecMut { ptr, len: bytes as usize };
                // SAFETY: as many bytes were made there, or the slot lies in the memory, which the queues keep. It is
                // this lane's until its kernel is told, which has taken out what was there: this lane has said so, or
                // the slot was never used.
                if !unsafe { stream.receiver.land(bytes as usize, std::iter::once(whole)) } {
                    return Ok(Some(false));
                }
                stream.receiver.consume();
                stream.coming = Coming::Packet;
                self.queues.land(at, block, tag);
            }
            Coming::Read(_) | Coming::Content { .. } => return Ok(None),
        }
        Ok(Some(true))
    }

    /// Says what kernels have taken out; returns true if there was something.
    pub(super) fn make_room(&mut self) -> bool {
        let mut moved = false;
        for (&(at, block), queue) in &mut self.queues.blocks {
            let Some(mail) = self.queues.mail.get(&at) else { continue };
            let freed = mail.word(Word::Freed, block).load(Ordering::Acquire);
            if freed > queue.said {
                self.streams[at].say(&Packet::of_pieces(Kind::Room, block, freed, (0, 0)));
                queue.said = freed;
                moved = true;
            }
        }
        moved
    }

    /// Finds the pieces of the kernels before a call that was just entered.
    pub(super) fn mark_pieces(&mut self) {
        let Queues { mail, blocks, .. } = &mut self.queues;
        for (&(at, block), queue) in blocks {
            let Some(mail) = mail.get(&at) else { continue };
            let told = |number: &u64| told(mail, block, *number).is_some();
            let first = queue.sent + 1;
            queue.before = queue.sent + (first..first + SLOTS).take_while(told).count() as u64;
        }
    }

    /// Sends what kernels have told of and receivers have room for; returns true if there was something.
    pub(super) fn post_pieces(&mut self) -> bool {
        let mut moved = false;
        let Queues { mail, blocks, .. } = &mut self.queues;
        for (&at, mail) in &*mail {
            for block in (self.number..mail.blocks()).step_by(self.lanes as usize) {
                let queue = blocks.entry((at, block)).or_default();
                let stream = &mut self.streams[at];
                while queue.sent < queue.room + SLOTS {
                    let number = queue.sent + 1;
                    let Some(tag) = told(mail, block, number) else { break };
                    let Some(ptr) = mail.content(Dir::Send, block, number) else { break };
                    let bytes = mail.bytes_of(Dir::Send, block, number).load(Ordering::Relaxed);
                    let bytes = bytes.min(batch::PIECE);
                    let packet = Packet::of_pieces(Kind::Piece, block, number, (tag, bytes));
                    let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                    let keeps = queue.taken < queue.sent;
                    // SAFETY: the slot lies in the memory, which the queues keep. The kernel writes there again when it is
                    // told that the content was taken.
                    if unsafe { stream.post(&packet, content, (Held::Piece(block), keeps)) } {
                        queue.taken = number;
                        mail.word(Word::Taken, block).store(number, Ordering::Release);
                    }
                    queue.sent = number;
                    moved = true;
                }
            }
        }
        moved
    }

    /// Returns the end by a lost connection, of messages with the peer if there are some.
    pub(super) fn cut_off(&self, at: usize, fault: &Fault) -> End {
        let of = |((stream, _), queue): (&(usize, u32), &Queue)| {
            if *stream == at { queue.awaits() } else { None }
        };
        let dir = self.queues.blocks.iter().find_map(of);
        let location = dir.map(|dir| self.of_messages(self.streams[at].peer, dir));
        self.lost_at(at, location, fault)
    }

    fn of_messages(&self, peer: u32, dir: Dir) -> Location {
        let verb = if dir == Dir::Send { "send to" } else { "receive from" };
        let text = format!("{verb} rank {peer}");
        Location {
            rank: self.common.rank,
            name: "batch".into(),
            step: 0,
            site: String::new(),
            text,
        }
    }

    /// Returns the error of a piece that a kernel has told of and for which a peer has had no room for long. A kernel that
    /// receives says itself that nothing comes.
    pub(super) fn stalled(&self, after: Duration) -> Option<Error> {
        let Queues { mail, blocks, timeout } = &self.queues;
        if after <= timeout.saturating_mul(2) {
            return None;
        }
        let is_stuck = |(at, block): (usize, u32), queue: &Queue| {
            mail.get(&at).is_some_and(|mail| told(mail, block, queue.sent + 1).is_some())
        };
        let (&(at, block), queue) = blocks.iter().find(|&(&at, queue)| is_stuck(at, queue))?;
        let (peer, done) = (self.streams[at].peer, queue.sent);
        Some(Error::Timeout {
            location: Box::new(self.of_messages(peer, Dir::Send)),
            awaited: format!("rank {peer} to take a message"),
            peer,
            after,
            remark: format!(
                " on lane {} between their hosts (piece {} of block {block} since they met); see whether rank {peer} \
                 makes the matching call, or raise the timeout",
                self.number,
                done + 1
            ),
        })
    }
}

/// Returns the tag of a piece that a kernel has put into its slot.
fn told(mail: &Mail, block: u32, number: u64) -> Option<u32> {
    let head = mail.head(Dir::Send, block, number).load(Ordering::Acquire);
    ((head >> 32) as u32 == number as u32).then_some(head as u32)
}
