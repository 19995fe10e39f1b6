//! A stream of bytes in each direction over the queues of a connection.
//!
//! What is sent is cut into *pieces*, numbered from 0. Piece s is written into slot `s % SLOTS` of the
//! receiver's ring by one RDMA write, whose immediate value is s, over any of the queues: they may be of
//! different devices, and pieces may arrive in any order. The receiver hands out the bytes in the order
//! of the numbers, and from time to time writes the number of pieces that it has read into a word of the
//! sender's memory. A slot of the sender's ring is written again when the peer has read its piece and
//! the write is complete, so nothing of an old piece is still on its way when its slot is used again.
//!
//! **When a queue fails** its pieces that were not completed are written once more over another queue.
//! The receiver drops what it has already: every byte is read once. The stream fails when no queue is
//! left.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::verbs::{Address, Completion, Device, Queue, Region, Write, status};

/// Bytes of a piece.
pub(super) const PIECE: usize = 16 << 10;
/// Pieces of a ring.
pub(super) const SLOTS: usize = 64;
/// The receiver tells that it has read so many pieces more.
const STRIDE: u64 = SLOTS as u64 / 4;
/// Writes in a queue: all pieces, and what is told about pieces read.
const DEPTH: u32 = 2 * SLOTS as u32;
/// Where the parts of the region begin: words, then what is sent, then what arrives.
const SENT: usize = 128;
const ARRIVED: usize = SENT + SLOTS * PIECE;
/// How long the end of a stream waits for the peer to have all.
const LINGER: Duration = Duration::from_secs(2);
/// A number that is no piece's: a write that tells how many were read.
const TOLD: u64 = u64::MAX;

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
    key: u32,
    peer_key: u32,
    live: bool,
    /// Writes that are not complete.
    open: u32,
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
    /// By slot: the piece's length, the rail that it is on, whether it was completed.
    sent: Vec<(u32, usize, bool)>,
    /// Pieces to be written once more.
    again: VecDeque<u64>,
    turn: usize,
    /// The number of the piece that is read next, how many of its bytes were, and what arrived.
    head: u64,
    offset: usize,
    arrived: Vec<u32>,
    told: u64,
    /// Why the last queue failed.
    trouble: Option<String>,
    /// Empty between calls.
    news: Vec<(usize, Completion)>,
}

impl Stream {
    /// One end, with `pairs` queues on each device, not connected yet.
    pub(super) fn new(devices: &[Arc<Device>], pairs: usize) -> Result<Stream, String> {
        let said = |what: &str, device: &str, e: std::io::Error| {
            format!("{what} on {device} failed: {e}; see `ulimit -l` if memory is refused")
        };
        let region = Region::new(ARRIVED + SLOTS * PIECE, devices);
        let region = Arc::new(region.map_err(|e| said("registering memory", "a device", e))?);
        let mut rails = Vec::new();
        for (at, device) in (0..pairs).flat_map(|_| devices.iter().enumerate()) {
            let sequence = (region.start() as u64 >> 12) as u32 ^ rails.len() as u32;
            let queue = Queue::new(device, &region, DEPTH, sequence)
                .map_err(|e| said("making a queue pair", &device.name, e))?;
            for _ in 0..DEPTH {
                queue.receive().map_err(|e| said("posting a receive", &device.name, e))?;
            }
            let (key, _) = region.keys(at);
            rails.push(Rail { queue, key, peer_key: 0, live: true, open: 0 });
        }
        Ok(Stream {
            region,
            rails,
            peer: 0,
            next: 0,
            read_there: 0,
            sent: vec![(0, 0, true); SLOTS],
            again: VecDeque::new(),
            turn: 0,
            head: 0,
            offset: 0,
            arrived: vec![0; SLOTS],
            told: 0,
            trouble: None,
            news: Vec::new(),
        })
    }

    /// What the peer must know.
    pub(super) fn card(&self) -> Card {
        let devices = self.region.devices();
        let rail = |(at, rail): (usize, &Rail)| {
            let (_, peer_key) = self.region.keys(at % devices);
            (rail.queue.address(), peer_key)
        };
        Card {
            start: self.region.start() as u64,
            pieces: (PIECE as u32, SLOTS as u32),
            rails: self.rails.iter().enumerate().map(rail).collect(),
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
                format!("connecting a queue pair on {} failed: {e}", rail.queue.device())
            })?;
        }
        Ok(())
    }

    /// Why nothing moves any more.
    pub(crate) fn trouble(&self) -> Option<String> {
        let dead = self.rails.iter().all(|rail| !rail.live);
        let why = self.trouble.as_deref().unwrap_or("unknown");
        dead.then(|| format!("all {} queue pairs to it failed: {why}", self.rails.len()))
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
            && self.sent[self.next as usize % SLOTS].2
    }

    /// Sends the next piece, which is in its slot.
    fn launch(&mut self, len: usize) {
        let slot = self.next as usize % SLOTS;
        self.sent[slot] = (len as u32, 0, false);
        let piece = self.next;
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
        self.sent[slot].1 = at;
        let len = self.sent[slot].0;
        let write = self.work(at, piece, SENT + slot * PIECE, len, ARRIVED + slot * PIECE);
        let write = Write { immediate: Some(piece as u32), ..write };
        self.hand_over(at, &write, Some(piece));
    }

    fn work(&self, at: usize, id: u64, from: usize, len: u32, to: usize) -> Write {
        let rail = &self.rails[at];
        Write {
            id,
            from: self.region.at(from),
            len,
            key: rail.key,
            to: self.peer + to as u64,
            to_key: rail.peer_key,
            immediate: None,
        }
    }

    fn hand_over(&mut self, at: usize, write: &Write, piece: Option<u64>) {
        match self.rails[at].queue.write(write) {
            Ok(()) => self.rails[at].open += 1,
            Err(error) => {
                self.again.extend(piece);
                self.lose(at, error.to_string());
            }
        }
    }

    /// A live queue with room, in turn.
    fn pick(&mut self) -> Option<usize> {
        let count = self.rails.len();
        let fits = |&at: &usize| self.rails[at].live && self.rails[at].open < DEPTH - 1;
        let found = (1..=count).map(|step| (self.turn + step) % count).find(fits)?;
        self.turn = found;
        Some(found)
    }

    /// A queue failed: what it had not completed goes over another.
    fn lose(&mut self, at: usize, why: String) {
        if !self.rails[at].live {
            return;
        }
        self.rails[at].live = false;
        self.rails[at].queue.end();
        self.trouble = Some(format!("{why} (device {})", self.rails[at].queue.device()));
        let lost = |piece: &u64| {
            let (_, rail, done) = self.sent[*piece as usize % SLOTS];
            rail == at && !done
        };
        let lost: Vec<u64> = (self.next.saturating_sub(SLOTS as u64)..self.next)
            .filter(|piece| lost(piece) && !self.again.contains(piece))
            .collect();
        self.again.extend(lost);
        self.tell(true);
    }

    /// Does what can be done now.
    pub(crate) fn progress(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        for at in 0..self.rails.len() {
            while self.rails[at].queue.poll(|c| news.push((at, c))) == 16 {}
        }
        for (at, completion) in news.drain(..) {
            self.completed(at, completion);
        }
        self.news = news;
        self.read_there = self.read_there.max(self.region.word(0).load(Ordering::Acquire));
        for _ in 0..self.again.len() {
            if let Some(piece) = self.again.pop_front() {
                self.post(piece);
            }
        }
    }

    fn completed(&mut self, at: usize, completion: Completion) {
        match completion {
            Completion::Written(piece) => {
                self.rails[at].open = self.rails[at].open.saturating_sub(1);
                if piece != TOLD {
                    let sent = &mut self.sent[piece as usize % SLOTS];
                    // Of a piece that was sent twice, the write that counts is the last.
                    if sent.1 == at {
                        sent.2 = true;
                    }
                }
            }
            Completion::Arrived { immediate, len } => {
                let ahead = immediate.wrapping_sub(self.head as u32);
                if (ahead as usize) < SLOTS {
                    let slot = (self.head + u64::from(ahead)) as usize % SLOTS;
                    self.arrived[slot] = len.min(PIECE as u32);
                }
                if let Err(error) = self.rails[at].queue.receive() {
                    self.lose(at, error.to_string());
                }
            }
            Completion::Failed(code) => self.lose(at, status(code)),
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
                    self.tell(false);
                }
            }
        }
        total
    }

    /// Tells the peer how many pieces were read, if that is news enough.
    fn tell(&mut self, at_once: bool) {
        if self.head - self.told < STRIDE && !at_once {
            return;
        }
        let Some(at) = self.pick() else { return };
        self.told = self.head;
        self.region.word(8).store(self.head, Ordering::Release);
        let write = self.work(at, TOLD, 64, 8, 0);
        self.hand_over(at, &write, None);
    }

    /// Whether the peer has all that was sent.
    fn is_delivered(&self) -> bool {
        self.again.is_empty() && self.sent.iter().all(|s| s.2)
    }

    /// How many queues there are.
    #[cfg(test)]
    pub(super) fn rails(&self) -> usize {
        self.rails.len()
    }

    #[cfg(test)]
    pub(super) fn break_rail(&mut self, at: usize) {
        self.rails[at].queue.end();
    }

    /// Makes every later write go to a key that the peer never gave.
    #[cfg(test)]
    pub(super) fn forge_key(&mut self) {
        self.rails.iter_mut().for_each(|rail| rail.peer_key ^= 0x5a5a);
    }
}

impl Drop for Stream {
    /// Nothing but this process sends what is still to be sent.
    fn drop(&mut self) {
        let deadline = Instant::now() + LINGER;
        while !self.is_delivered() && self.trouble().is_none() && Instant::now() < deadline {
            self.progress();
            rustix::thread::sched_yield();
        }
    }
}
