//! Messages between single ranks of different hosts, as the lane at one end has them.
//!
//! A kernel moves such messages in pieces through slots, a queue for each block ([`batch`]). Both ends count pieces from
//! the beginning of the communicator on, and a slot begins with the number of its piece. So a lane need not know which
//! kernel a piece is of, and what one rank sends in a batch another may receive in two. An order says how many pieces a
//! lane is to carry before the next one.
//!
//! A piece goes when the receiver's kernel has taken out the one [`batch::SLOTS`] before it, as the receiver's lane says
//! by a packet (`Room`). So there is always a slot for a piece, and lanes take pieces and such packets from the socket
//! whenever they come, also in calls of all ranks: nothing else waits behind them. Before the first order with a
//! peer there is no memory for its pieces; they are kept aside until then, no more than there are slots. The
//! sender's kernel may fill a slot again when its lane has taken the content.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roundelay_compiler::emit::cuda::batch;
use roundelay_compiler::plan::Dir;

use super::lane::{End, Lane, TURN};
use super::mail::{Mail, Word};
use super::packet::{Kind, Packet};
use super::pause::Pause;
use super::stream::Coming;
use crate::error::{Error, Location};
use crate::transport::fault::Fault;
use crate::transport::message::{IoVec, IoVecMut};
use crate::transport::posted::PostedReceiver;

/// Slots of a queue.
const SLOTS: u64 = batch::SLOTS as u64;

/// The messages of a launch with ranks on other hosts.
#[derive(Debug)]
pub(in super::super) struct FarBatch {
    pub(in super::super) ends: Vec<FarEnd>,
    /// The longest time without progress of a kernel's wait.
    pub(in super::super) timeout: Duration,
}

/// The messages to a rank, or from it.
#[derive(Debug)]
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
    /// Pieces that orders have asked for.
    due: u64,
    /// The latest pieces that have come, or are coming, before there was memory for them, with their tags.
    early: VecDeque<(u32, Vec<u8>)>,
}

/// The messages of a lane with single ranks, by the number of the stream.
#[derive(Debug, Default)]
pub(super) struct Queues {
    mail: BTreeMap<usize, Arc<Mail>>,
    blocks: BTreeMap<(usize, u32), Queue>,
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

    /// Makes ready for a piece that is coming, or refuses it.
    fn expect(&mut self, stream: usize, packet: &Packet, blocks: u32) -> Result<(), Fault> {
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

/// One block's pieces of an end that are to be carried.
struct Move<'a> {
    end: &'a FarEnd,
    stream: usize,
    block: u32,
    /// The count of the queue before the first of them, and the bytes of each.
    before: u64,
    pieces: Vec<u64>,
}

impl Move<'_> {
    /// Returns the count of the queue behind the last piece.
    fn target(&self) -> u64 {
        self.before + self.pieces.len() as u64
    }

    fn is_over(&self, queues: &mut Queues) -> bool {
        let queue = queues.of(self.stream, self.block);
        let count = if self.end.dir == Dir::Send { queue.taken } else { queue.landed };
        count >= self.target()
    }

    fn location(&self, rank: u32) -> Location {
        let (verb, peer) = match self.end.dir {
            Dir::Send => ("send to", self.end.peer),
            Dir::Recv => ("receive from", self.end.peer),
        };
        let text = format!("{verb} rank {peer}");
        Location { rank, name: "batch".into(), step: 0, site: String::new(), text }
    }
}

impl Lane {
    /// Carries the messages of a batch.
    pub(super) fn exchange(&mut self, batch: &FarBatch) -> Result<(), End> {
        let moves = self.moves(batch);
        let mut pause = Pause::new();
        while !moves.iter().all(|all| all.is_over(&mut self.queues)) || self.is_sending() {
            let mut moved = self.take(&moves)?;
            moved |= self.post(&moves);
            if moved {
                pause.moved();
                continue;
            }
            self.whole(&moves)?;
            // Kernels give up sooner, if they wait for it.
            if pause.lasts() > batch.timeout.saturating_mul(2) {
                return Err(End::failed(self.stalled(&moves, pause.lasts())));
            }
            self.pause(&mut pause)?;
        }
        Ok(())
    }

    /// Returns what this lane has to carry of a batch.
    fn moves<'a>(&mut self, batch: &'a FarBatch) -> Vec<Move<'a>> {
        let mut moves = Vec::new();
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
                let cut = |&bytes: &u64| batch::pieces(bytes, block, blocks);
                let pieces: Vec<u64> = end.messages.iter().flat_map(cut).collect();
                let queue = self.queues.of(stream, block);
                let before = match end.dir {
                    Dir::Send => queue.sent,
                    Dir::Recv => queue.due,
                };
                queue.due += if end.dir == Dir::Recv { pieces.len() as u64 } else { 0 };
                moves.push(Move { end, stream, block, before, pieces });
            }
        }
        moves
    }

    /// Takes what peers have sent; returns true if something moved.
    fn take(&mut self, moves: &[Move<'_>]) -> Result<bool, End> {
        let mut moved = false;
        for at in 0..self.streams.len() {
            for _ in 0..TURN {
                match self.piece(at) {
                    Ok(Some(true)) => moved = true,
                    // Nothing, or what belongs to a call behind these messages.
                    Ok(_) => break,
                    Err(fault) => return Err(self.cut_off(at, moves, &fault)),
                }
            }
        }
        Ok(moved)
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
            Coming::Read(packet) if packet.kind == Kind::Piece => {
                self.queues.expect(at, &packet, batch::lanes(self.memory.ranks()))?;
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

    /// Sends what kernels have told of and receivers have room for, and says what was taken out; returns true if something
    /// moved.
    fn post(&mut self, moves: &[Move<'_>]) -> bool {
        let mut moved = self.make_room();
        for (at, all) in moves.iter().enumerate().filter(|(_, all)| all.end.dir == Dir::Send) {
            let (mail, block) = (&all.end.mail, all.block);
            let queue = self.queues.of(all.stream, block);
            let stream = &mut self.streams[all.stream];
            while queue.sent < all.target() && queue.sent < queue.room + SLOTS {
                let (number, piece) = (queue.sent + 1, (queue.sent - all.before) as usize);
                let head = mail.head(Dir::Send, block, number).load(Ordering::Acquire);
                if (head >> 32) as u32 != number as u32 {
                    break;
                }
                let Some(ptr) = mail.content(Dir::Send, block, number) else { break };
                let bytes = all.pieces[piece];
                let packet = Packet::of_pieces(Kind::Piece, block, number, (head as u32, bytes));
                let content = (bytes > 0).then_some(IoVec { ptr, len: bytes as usize });
                let keeps = queue.taken < queue.sent;
                // SAFETY: the slot lies in the memory, which the order keeps. The kernel writes there again when it is told
                // that the content was taken.
                if unsafe { stream.post(&packet, content, (at, keeps)) } {
                    queue.taken = number;
                    mail.word(Word::Taken, block).store(number, Ordering::Release);
                }
                queue.sent = number;
                moved = true;
            }
        }
        for (at, stream) in self.streams.iter_mut().enumerate() {
            stream.flush();
            while let Some(of) = stream.taken() {
                let Move { end, block, .. } = &moves[of];
                let queue = self.queues.of(at, *block);
                queue.taken += 1;
                end.mail.word(Word::Taken, *block).store(queue.taken, Ordering::Release);
                moved = true;
            }
        }
        moved
    }

    /// Fails if a connection is lost over which something is still to come, or to go.
    fn whole(&mut self, moves: &[Move<'_>]) -> Result<(), End> {
        for at in 0..self.streams.len() {
            let Some(fault) = self.streams[at].connection.fault().cloned() else { continue };
            let needed = |all: &Move<'_>| all.stream == at && !all.is_over(&mut self.queues);
            if self.streams[at].is_sending() || moves.iter().any(needed) {
                return Err(self.cut_off(at, moves, &fault));
            }
        }
        Ok(())
    }

    /// Returns the end by a lost connection.
    fn cut_off(&mut self, at: usize, moves: &[Move<'_>], fault: &Fault) -> End {
        let open = moves.iter().find(|all| all.stream == at && !all.is_over(&mut self.queues));
        let location = open.map(|all| all.location(self.common.rank));
        self.lost_at(at, location, fault)
    }

    /// Returns the error of a batch in which nothing has moved for long.
    fn stalled(&mut self, moves: &[Move<'_>], after: Duration) -> Error {
        let mut open: Vec<&Move<'_>> =
            moves.iter().filter(|all| !all.is_over(&mut self.queues)).collect();
        open.sort_by_key(|all| all.end.dir == Dir::Send);
        let all = open.first().copied().unwrap_or(&moves[0]);
        let (peer, block) = (all.end.peer, all.block);
        let queue = self.queues.of(all.stream, block);
        let (awaited, moved) = match all.end.dir {
            Dir::Recv => (format!("a message from rank {peer}"), queue.landed),
            Dir::Send => (format!("rank {peer} to take a message"), queue.taken),
        };
        let (done, of) = (moved.saturating_sub(all.before), all.pieces.len());
        Error::Timeout {
            location: Box::new(all.location(self.common.rank)),
            awaited,
            peer,
            after,
            remark: format!(
                " on lane {} between their hosts ({done} of {of} pieces of block {block}); see whether rank {peer} makes \
                 the matching call, or raise the timeout",
                self.number
            ),
        }
    }
}
