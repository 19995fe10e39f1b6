//! The sending half of a stream: pieces, from where, and to where.

use super::accesses::AccessQueue;
use super::note::StreamNote;
use super::pieces::SentPiece;
use super::rail_stream::RailStream;
use super::ring::{ARRIVED_OFFSET, NO_PIECE, NO_RAIL, PIECE, SENT_OFFSET, SLOTS};
use crate::transport::rdma::immediate::ImmediateWord;
use crate::transport::rdma::registrations::RegisteredBytes;
use crate::transport::rdma::verbs::WriteRequest;

impl RailStream {
    /// Takes what it can of some bytes; returns how many.
    pub(crate) fn write<'a>(&mut self, places: impl Iterator<Item = &'a [u8]>) -> usize {
        self.accept(places, false)
    }

    /// Writes without a copy, where the bytes lie in registered memory.
    ///
    /// # Safety
    ///
    /// The bytes that were taken are neither written nor unmapped while [`Self::zero_copy`] counts them, or
    /// until [`Self::cut`].
    pub(crate) unsafe fn write_zero_copy<'a>(
        &mut self,
        places: impl Iterator<Item = &'a [u8]>,
    ) -> usize {
        self.accept(places, true)
    }

    fn accept<'a>(&mut self, places: impl Iterator<Item = &'a [u8]>, zero_copy: bool) -> usize {
        self.progress();
        // The bytes that the piece which is being filled has, and may have.
        let (mut taken, mut fill, mut room) = (0, 0, 0);
        for mut place in places {
            while !place.is_empty() {
                if fill == 0 && !self.has_slot() {
                    return taken;
                }
                let zero_copy = if zero_copy { self.find(place) } else { None };
                if fill > 0 && zero_copy.is_some() {
                    self.launch(fill, None);
                    fill = 0;
                    continue;
                }
                if fill == 0 {
                    room = self.peer_targets.room(self.taken);
                }
                let len;
                if let Some(found) = zero_copy {
                    len = found.len.min(room);
                    self.launch(len, Some(found));
                } else {
                    len = place.len().min(room - fill);
                    let to = SENT_OFFSET + (self.next as usize % SLOTS) * PIECE + fill;
                    self.region.put(to, &place[..len]);
                    fill += len;
                    if fill == room {
                        self.launch(fill, None);
                        fill = 0;
                    }
                }
                (taken, place) = (taken + len, &place[len..]);
            }
        }
        if fill > 0 {
            self.launch(fill, None);
        }
        taken
    }

    /// Finds the registered memory of a piece that needs not be copied: a whole one, unless its block ends
    /// before.
    fn find(&self, place: &[u8]) -> Option<RegisteredBytes> {
        match &self.registrations {
            Some(registrations) if place.len() >= PIECE => registrations.find(place),
            _ => None,
        }
    }

    /// Returns true if the next piece has a slot here and at the peer.
    pub(super) fn has_slot(&self) -> bool {
        self.rails.are_live()
            && self.next - self.read_there < SLOTS as u64
            && self.sent[self.next as usize % SLOTS].done
    }

    /// Sends the next piece, which is in its slot or zero-copy.
    fn launch(&mut self, len: usize, zero_copy: Option<RegisteredBytes>) {
        let (start, place) = (self.taken, self.peer_targets.place(self.taken));
        self.zero_copy += usize::from(zero_copy.is_some());
        self.taken += len as u64;
        self.send(SentPiece {
            len: len as u32,
            done: false,
            start,
            zero_copy,
            place,
            ..SentPiece::NONE
        });
    }

    /// Sends a note to the peer's stream, if there is a slot for it.
    pub(super) fn note(&mut self, note: &StreamNote) -> bool {
        let note = postcard::to_allocvec(note).unwrap_or_default();
        if !self.has_slot() || note.len() > PIECE || note.is_empty() {
            return false;
        }
        self.region.put(SENT_OFFSET + (self.next as usize % SLOTS) * PIECE, &note);
        let (len, start) = (note.len() as u32, self.taken);
        self.send(SentPiece { len, done: false, start, is_note: true, ..SentPiece::NONE });
        true
    }

    fn send(&mut self, sent: SentPiece) {
        let piece = self.next;
        self.sent[piece as usize % SLOTS] = sent;
        self.next += 1;
        self.post(piece);
    }

    /// Returns the number of bytes from the first that is still zero-copy to the last that was taken.
    pub(crate) fn zero_copy(&self) -> u64 {
        if self.zero_copy == 0 {
            return 0;
        }
        let pieces = self.next.saturating_sub(SLOTS as u64)..self.next;
        let mut sent = pieces.map(|piece| &self.sent[piece as usize % SLOTS]);
        let first = sent.find(|sent| sent.zero_copy.is_some());
        first.map_or(0, |sent| self.taken - sent.start)
    }

    /// Returns the bytes that were taken, from the first one on that the peer's memory may not have.
    pub(crate) fn undelivered(&self) -> u64 {
        let pieces = self.next.saturating_sub(SLOTS as u64)..self.next;
        let mut sent = pieces.map(|piece| &self.sent[piece as usize % SLOTS]);
        sent.find(|sent| !sent.done).map_or(0, |sent| self.taken - sent.start)
    }

    /// Writes a piece over the next queue that has room.
    pub(super) fn post(&mut self, piece: u64) {
        let Some(at) = self.rails.pick() else {
            self.again.push_back(piece);
            return;
        };
        let slot = piece as usize % SLOTS;
        let sent = &mut self.sent[slot];
        sent.rail = at;
        let rail = &self.rails.all[at];
        let number = piece as u32;
        let ring = (self.peer + (ARRIVED_OFFSET + slot * PIECE) as u64, rail.peer_key);
        let place = sent.place.as_ref().and_then(|p| Some((p.address, *p.keys.get(at)?)));
        let (word, (to, to_key)) = match place {
            Some(place) => (ImmediateWord::Placed(number), place),
            None if sent.is_note => (ImmediateWord::Note(number), ring),
            None => (ImmediateWord::Piece(number), ring),
        };
        let from = match &sent.zero_copy {
            Some(found) => found.block.span(found.offset, sent.len, rail.device.1),
            None => self.region.span(SENT_OFFSET + slot * PIECE, sent.len, rail.device.0),
        };
        let write = WriteRequest { id: piece, from, to, to_key, immediate: word.encode() };
        if let Err(why) = self.rails.write(at, &write) {
            self.lose(at, why);
        }
    }

    /// Sends a word without a piece over a queue that was picked.
    pub(super) fn post_word(&mut self, at: usize, word: ImmediateWord) {
        let rail = &self.rails.all[at];
        let (from, to_key) = (self.region.span(SENT_OFFSET, 0, rail.device.0), rail.peer_key);
        let to = self.peer + ARRIVED_OFFSET as u64;
        let write = WriteRequest { id: NO_PIECE, from, to, to_key, immediate: word.encode() };
        if let Err(why) = self.rails.write(at, &write) {
            self.lose(at, why);
        }
    }

    /// Moves what a queue did not complete to another, if it has ended on both sides.
    pub(super) fn reclaim(&mut self, at: usize) {
        if !self.rails.all[at].has_ended() || self.rails.all[at].live_there {
            return;
        }
        self.renewals.ended(&mut self.rails.all[at]);
        if self.rails.all[at].is_one_sided {
            self.accesses.iter_mut().for_each(AccessQueue::fail);
        }
        for piece in self.next.saturating_sub(SLOTS as u64)..self.next {
            let sent = &mut self.sent[piece as usize % SLOTS];
            if sent.rail == at && !sent.done {
                // Never twice to a place that is not the stream's own.
                (sent.rail, sent.place) = (NO_RAIL, None);
                self.again.push_back(piece);
            }
        }
    }
}
