//! A stream of bytes in each direction over the queues of a connection.
//!
//! What is sent is cut into *pieces*, numbered from 0. Piece s is written into slot `s % SLOTS` of the
//! receiver's ring by one RDMA write, whose immediate value says so, over any of the queues: they may be
//! of different devices, and pieces may arrive in any order. The receiver hands out the bytes in the
//! order of the numbers, and from time to time tells how many pieces it has read, in the immediate value
//! of an empty write. A slot is written again when the peer has read its piece and the write is complete,
//! so nothing of an old piece is still on its way when its slot is used again.
//!
//! **When a queue fails** each end ends its side of it and tells the other so over another queue. What had
//! not been completed is written once more over another queue, but only when *both* sides have ended: a
//! packet of the old queue that is late in the network then finds nobody who would store it. The receiver
//! drops what it has already. So every byte is read once, whatever is lost, late or repeated. The stream
//! fails when no queue is left. A queue also fails when nothing of what is on it was completed for some time and
//! others could do it: a device is not trusted to say so itself.
//!
//! Receives are posted for all that a peer may send before it must hear from this end again: the pieces
//! of a ring, and what it tells of those that it read. If they run out nevertheless, the peer's device
//! waits and tries again.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::verbs::{Address, Completion, Device, Queue, Region, Write, status};

/// Bytes of a piece.
pub(super) const PIECE: usize = 16 << 10;
/// Pieces of a ring.
pub(super) const SLOTS: usize = 64;
/// The receiver tells that it has read so many pieces more.
const STRIDE: u64 = SLOTS as u64 / 4;
/// Writes in a queue, and receives: all pieces, and what is told.
pub(super) const DEPTH: u32 = 2 * SLOTS as u32;
/// Most queues: what is told of them fits into an immediate value.
const RAILS: usize = 30;
/// Where the parts of the region begin: what is sent, then what arrives.
const SENT: usize = 0;
const ARRIVED: usize = SENT + SLOTS * PIECE;
/// How long the end of a stream waits for the peer to have all.
const LINGER: Duration = Duration::from_secs(2);
/// A queue that completes nothing for so long has failed, where there is another; and where there is none. By then
/// a device should have said so.
const STALL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));
/// The clock is read when so many looks found nothing new.
const LOOKS: u32 = 64;
/// The number of a write that carries no piece.
const TOLD: u64 = u64::MAX;
/// A piece that is on no queue.
const NOWHERE: usize = usize::MAX;

/// What an immediate value says: a kind in two bits, a number in thirty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The piece of this number came with it.
    Piece(u32),
    /// So many pieces were read.
    Read(u32),
    /// The queues of this mask have ended on the other side.
    Ended(u32),
}

/// Numbers in immediate values are counted modulo this plus 1.
const MASK: u32 = (1 << 30) - 1;

impl Word {
    fn encode(self) -> u32 {
        match self {
            Word::Piece(number) => number & MASK,
            Word::Read(number) => 1 << 30 | number & MASK,
            Word::Ended(rails) => 2 << 30 | rails & MASK,
        }
    }

    fn decode(word: u32) -> Option<Word> {
        let number = word & MASK;
        match word >> 30 {
            0 => Some(Word::Piece(number)),
            1 => Some(Word::Read(number)),
            2 => Some(Word::Ended(number)),
            _ => None,
        }
    }
}

/// How far a number is ahead of a count, modulo what a word can say.
fn ahead(number: u32, count: u64) -> u64 {
    u64::from(number.wrapping_sub(count as u32) & MASK)
}

/// What a peer must know of this end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Card {
    /// Address of the region.
    start: u64,
    pieces: (u32, u32),
    /// A queue's address, and its device's key of the region.
    rails: Vec<(Address, u32)>,
}

struct Rail {
    queue: Queue,
    /// Keys of the region: for work of this process, for the peer's.
    keys: (u32, u32),
    peer_key: u32,
    /// Whether it has not ended here, and there.
    live: bool,
    live_there: bool,
    /// Writes that are not complete.
    open: u32,
    /// Since when the clock has found no write completed of those that were there; nothing if there was none.
    stuck: Option<Instant>,
}

/// A piece that was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    len: u32,
    /// The queue that it is on.
    rail: usize,
    done: bool,
}

/// Both directions of a connection.
pub(crate) struct Stream {
    region: Arc<Region>,
    rails: Vec<Rail>,
    /// Address of the peer's region.
    peer: u64,
    /// The number of the next piece to send, and of the first that the peer has not read.
    next: u64,
    read_there: u64,
    /// By slot.
    sent: Vec<Sent>,
    /// Pieces to be written once more.
    again: VecDeque<u64>,
    turn: usize,
    /// The number of the piece that is read next, how many of its bytes were, and what arrived.
    head: u64,
    offset: usize,
    arrived: Vec<u32>,
    /// What the peer was told: pieces read; queues that have ended here.
    told: u64,
    told_ended: u32,
    /// Looks that found nothing new.
    idle: u32,
    /// Why the last queue failed.
    trouble: Option<String>,
    /// Empty between calls.
    news: Vec<(usize, Completion)>,
    #[cfg(test)]
    pub(super) unruly: Option<super::tests::Unruly>,
    /// A queue of which nothing more is heard.
    #[cfg(test)]
    pub(super) silent: Option<usize>,
}

impl Stream {
    /// One end, with `pairs` queues on each device and so many receives in each, not connected yet.
    pub(super) fn new(
        devices: &[Arc<Device>],
        pairs: usize,
        gid: Option<u32>,
        receives: u32,
    ) -> Result<Stream, String> {
        let said = |what: &str, device: &str, e: std::io::Error| {
            format!("{what} on {device} failed: {e}{}", remedy(&e))
        };
        let region = Region::new(ARRIVED + SLOTS * PIECE, devices);
        let region = Arc::new(region.map_err(|e| said("registering memory", "a device", e))?);
        let mut rails = Vec::new();
        let each = devices.iter().enumerate().flat_map(|device| (0..pairs).map(move |_| device));
        for (at, device) in each.take(RAILS) {
            let sequence = (region.start() as u64 >> 12) as u32 ^ rails.len() as u32;
            let gid = device.gid(gid)?;
            let queue = Queue::new(device, gid, &region, DEPTH, sequence)
                .map_err(|e| said("making a queue pair", &device.name, e))?;
            for _ in 0..receives {
                queue.receive().map_err(|e| said("posting a receive", &device.name, e))?;
            }
            let keys = region.keys(at);
            rails.push(Rail {
                queue,
                keys,
                peer_key: 0,
                live: true,
                live_there: true,
                open: 0,
                stuck: None,
            });
        }
        Ok(Stream {
            region,
            rails,
            peer: 0,
            next: 0,
            read_there: 0,
            sent: vec![Sent { len: 0, rail: NOWHERE, done: true }; SLOTS],
            again: VecDeque::new(),
            turn: 0,
            head: 0,
            offset: 0,
            arrived: vec![0; SLOTS],
            told: 0,
            told_ended: 0,
            idle: 0,
            trouble: None,
            news: Vec::new(),
            #[cfg(test)]
            unruly: None,
            #[cfg(test)]
            silent: None,
        })
    }

    /// What the peer must know.
    pub(super) fn card(&self) -> Card {
        Card {
            start: self.region.start() as u64,
            pieces: (PIECE as u32, SLOTS as u32),
            rails: self.rails.iter().map(|rail| (rail.queue.address(), rail.keys.1)).collect(),
        }
    }

    /// Connects each queue with the peer's of the same number.
    pub(super) fn connect(&mut self, peer: &Card) -> Result<(), String> {
        if peer.pieces != (PIECE as u32, SLOTS as u32) {
            return Err("it cuts messages into other pieces: another version of roundelay".into());
        }
        self.peer = peer.start;
        self.rails.truncate(peer.rails.len());
        if self.rails.is_empty() {
            return Err("it offers no queue pair".into());
        }
        for (rail, (address, key)) in self.rails.iter_mut().zip(&peer.rails) {
            rail.peer_key = *key;
            rail.queue.connect(address).map_err(|e| {
                let device = rail.queue.device();
                format!(
                    "connecting a queue pair on {device} with its {address} failed: {e}; the two must \
                     be of one network: the hint `rdma_gid` picks another address"
                )
            })?;
        }
        Ok(())
    }

    /// Why nothing moves any more.
    pub(crate) fn trouble(&self) -> Option<String> {
        let dead = self.rails.iter().all(|rail| !rail.live);
        let why = self.trouble.as_deref().unwrap_or("unknown");
        dead.then(|| {
            format!("all {} queue pairs to it failed, the last one {why}", self.rails.len())
        })
    }

    /// Takes what it can of some bytes; says how many.
    pub(crate) fn write<'a>(&mut self, places: impl Iterator<Item = &'a [u8]>) -> usize {
        self.progress();
        let (mut taken, mut fill) = (0, 0);
        for mut place in places {
            while !place.is_empty() {
                if fill == 0 && !self.has_slot() {
                    return taken;
                }
                let len = place.len().min(PIECE - fill);
                let to = SENT + (self.next as usize % SLOTS) * PIECE + fill;
                self.region.put(to, &place[..len]);
                (fill, taken, place) = (fill + len, taken + len, &place[len..]);
                if fill == PIECE {
                    self.launch(fill);
                    fill = 0;
                }
            }
        }
        if fill > 0 {
            self.launch(fill);
        }
        taken
    }

    /// Whether the next piece has a slot here and at the peer.
    fn has_slot(&self) -> bool {
        self.rails.iter().any(|rail| rail.live)
            && self.next - self.read_there < SLOTS as u64
            && self.sent[self.next as usize % SLOTS].done
    }

    /// Sends the next piece, which is in its slot.
    fn launch(&mut self, len: usize) {
        let piece = self.next;
        self.sent[piece as usize % SLOTS] = Sent { len: len as u32, rail: NOWHERE, done: false };
        self.next += 1;
        self.post(piece);
    }

    /// Writes a piece over the next queue that has room.
    fn post(&mut self, piece: u64) {
        let slot = piece as usize % SLOTS;
        let Some(at) = self.pick() else {
            self.again.push_back(piece);
            return;
        };
        self.sent[slot].rail = at;
        let (len, place) = (self.sent[slot].len, slot * PIECE);
        self.hand_over(at, piece, len, place, Word::Piece(piece as u32));
    }

    /// Posts a write of `len` bytes to the place of a slot.
    fn hand_over(&mut self, at: usize, id: u64, len: u32, place: usize, word: Word) {
        let rail = &mut self.rails[at];
        let write = Write {
            id,
            from: self.region.at(SENT + place),
            len,
            key: rail.keys.0,
            to: self.peer + (ARRIVED + place) as u64,
            to_key: rail.peer_key,
            immediate: word.encode(),
        };
        match rail.queue.write(&write) {
            Ok(()) => rail.open += 1,
            Err(error) => self.lose(at, error.to_string()),
        }
    }

    /// A live queue with room, in turn.
    fn pick(&mut self) -> Option<usize> {
        let count = self.rails.len();
        let fits = |&at: &usize| self.rails[at].live && self.rails[at].open < DEPTH;
        let found = (1..=count).map(|step| (self.turn + step) % count).find(fits)?;
        self.turn = found;
        Some(found)
    }

    /// A queue failed.
    fn lose(&mut self, at: usize, why: String) {
        if !self.rails[at].live {
            return;
        }
        self.rails[at].live = false;
        self.rails[at].queue.end();
        self.trouble = Some(format!("on device {}: {why}", self.rails[at].queue.device()));
        // What was told over it may be lost.
        (self.told, self.told_ended) = (self.told.saturating_sub(SLOTS as u64), 0);
        self.reclaim(at);
    }

    /// What a queue did not complete goes over another, if it has ended on both sides.
    fn reclaim(&mut self, at: usize) {
        if self.rails[at].live || self.rails[at].live_there {
            return;
        }
        for piece in self.next.saturating_sub(SLOTS as u64)..self.next {
            let sent = &mut self.sent[piece as usize % SLOTS];
            if sent.rail == at && !sent.done {
                sent.rail = NOWHERE;
                self.again.push_back(piece);
            }
        }
    }

    /// Does what can be done now.
    pub(super) fn progress(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        for at in 0..self.rails.len() {
            while self.rails[at].queue.poll(|c| news.push((at, c))) == 16 {}
        }
        #[cfg(test)]
        news.retain(|(at, _)| Some(*at) != self.silent);
        #[cfg(test)]
        if let Some(unruly) = &mut self.unruly {
            unruly.stir(&mut news);
        }
        self.idle = if news.is_empty() { self.idle + 1 } else { 0 };
        for (at, completion) in news.drain(..) {
            self.completed(at, completion);
        }
        self.news = news;
        if self.idle >= LOOKS {
            self.idle = 0;
            self.examine(Instant::now());
        }
        for _ in 0..self.again.len() {
            if let Some(piece) = self.again.pop_front() {
                self.post(piece);
            }
        }
        self.tell();
    }

    /// Ends queues that have completed nothing for too long.
    fn examine(&mut self, now: Instant) {
        for at in 0..self.rails.len() {
            let rail = &self.rails[at];
            let since = match rail.live && rail.open > 0 {
                true => *self.rails[at].stuck.get_or_insert(now),
                false => continue,
            };
            let alone = self.rails.iter().filter(|rail| rail.live).count() == 1;
            if now - since > if alone { STALL.1 } else { STALL.0 } {
                let ms = (now - since).as_millis();
                self.lose(at, format!("nothing was acknowledged for {ms} ms"));
            }
        }
    }

    fn completed(&mut self, at: usize, completion: Completion) {
        match completion {
            Completion::Written(id) => {
                self.rails[at].stuck = None;
                self.rails[at].open = self.rails[at].open.saturating_sub(1);
                // Of a piece that was sent twice, the write that counts is the last.
                let sent = &mut self.sent[id as usize % SLOTS];
                if id != TOLD && sent.rail == at {
                    sent.done = true;
                }
            }
            Completion::Arrived { immediate, len } => {
                self.heard(immediate, len);
                if let Err(error) = self.rails[at].queue.receive() {
                    self.lose(at, error.to_string());
                }
            }
            Completion::Failed(code) => self.lose(at, status(code)),
        }
    }

    /// The peer wrote.
    fn heard(&mut self, immediate: u32, len: u32) {
        match Word::decode(immediate) {
            Some(Word::Piece(number)) => {
                let ahead = ahead(number, self.head);
                // Else it was read already, and came once more.
                if ahead < SLOTS as u64 {
                    let slot = (self.head + ahead) as usize % SLOTS;
                    self.arrived[slot] = len.min(PIECE as u32);
                }
            }
            Some(Word::Read(number)) => {
                let more = ahead(number, self.read_there);
                // Else it is old.
                if more <= self.next - self.read_there {
                    self.read_there += more;
                }
            }
            Some(Word::Ended(rails)) => {
                for at in (0..self.rails.len()).filter(|at| rails & 1 << at != 0) {
                    if self.rails[at].live_there {
                        self.rails[at].live_there = false;
                        self.lose(at, "it has ended on the other side".into());
                        self.reclaim(at);
                    }
                }
            }
            None => {}
        }
    }

    /// Copies what has arrived to some places, in order; says how many bytes.
    pub(crate) fn read(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        self.progress();
        let mut total = 0;
        for place in places {
            let mut rest: &mut [u8] = place;
            while !rest.is_empty() {
                let slot = self.head as usize % SLOTS;
                let len = self.arrived[slot] as usize;
                if len == 0 {
                    return total;
                }
                let take = rest.len().min(len - self.offset);
                self.region.get(ARRIVED + slot * PIECE + self.offset, &mut rest[..take]);
                rest = &mut rest[take..];
                (total, self.offset) = (total + take, self.offset + take);
                if self.offset == len {
                    self.arrived[slot] = 0;
                    (self.head, self.offset) = (self.head + 1, 0);
                    self.tell();
                }
            }
        }
        total
    }

    /// Tells the peer what is news to it: how many pieces were read, if that is news enough, and which
    /// queues have ended.
    fn tell(&mut self) {
        let ended = (0..self.rails.len()).filter(|&at| !self.rails[at].live);
        let ended = ended.fold(0, |mask, at| mask | 1 << at);
        if ended != self.told_ended
            && let Some(at) = self.pick()
        {
            self.told_ended = ended;
            self.hand_over(at, TOLD, 0, 0, Word::Ended(ended));
        }
        if self.head - self.told >= STRIDE
            && let Some(at) = self.pick()
        {
            self.told = self.head;
            self.hand_over(at, TOLD, 0, 0, Word::Read(self.head as u32));
        }
    }

    /// Does what can be done now; says whether the peer's memory has all that was sent, whatever fails from
    /// now on. Until then this end must be looked at: it may have to send once more.
    pub(crate) fn settle(&mut self) -> bool {
        self.progress();
        self.is_delivered()
    }

    /// Whether the peer has all that was sent.
    fn is_delivered(&self) -> bool {
        self.again.is_empty() && self.sent.iter().all(|s| s.done)
    }
}

/// What helps against an error of the library, if anything is known.
fn remedy(error: &std::io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
            "; devices need memory that stays in place: raise `ulimit -l`"
        }
        _ => "",
    }
}

/// What tests do to a stream.
#[cfg(test)]
impl Stream {
    /// How many queues there are.
    pub(super) fn rails(&self) -> usize {
        self.rails.len()
    }

    /// Writes that are complete, of pieces.
    pub(super) fn complete(&self) -> usize {
        self.sent.iter().filter(|sent| sent.done && sent.len > 0).count()
    }

    /// Queues that have failed.
    pub(super) fn dead(&self) -> Vec<usize> {
        (0..self.rails.len()).filter(|&at| !self.rails[at].live).collect()
    }

    /// Takes completions that were held back.
    pub(super) fn release(&mut self, held: Vec<(usize, Completion)>) {
        held.into_iter().for_each(|(at, completion)| self.completed(at, completion));
    }

    /// Lets a queue die.
    pub(super) fn break_rail(&mut self, at: usize) {
        self.rails[at].queue.end();
    }

    /// Makes every later write go to a key that the peer never gave.
    pub(super) fn forge_key(&mut self) {
        self.rails.iter_mut().for_each(|rail| rail.peer_key ^= 0x5a5a);
    }
}

impl Stream {
    /// Before the end: nothing but this process sends what is still to be sent. Not to a peer that is `gone`.
    pub(crate) fn linger(&mut self, gone: impl Fn() -> bool) {
        let deadline = Instant::now() + LINGER;
        while !self.is_delivered()
            && self.trouble().is_none()
            && !gone()
            && Instant::now() < deadline
        {
            self.progress();
            rustix::thread::sched_yield();
        }
    }

    /// Bytes that were taken, from the first one on that the peer's memory may not have.
    pub(crate) fn undelivered(&self) -> u64 {
        let recent = self.next.saturating_sub(SLOTS as u64)..self.next;
        let sent = recent.map(|piece| &self.sent[piece as usize % SLOTS]);
        sent.skip_while(|sent| sent.done).map(|sent| u64::from(sent.len)).sum()
    }

    /// Lets all queues die.
    #[cfg(test)]
    pub(crate) fn break_all(&mut self) {
        self.rails.iter().for_each(|rail| rail.queue.end());
    }
}
