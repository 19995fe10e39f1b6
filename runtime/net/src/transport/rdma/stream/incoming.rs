//! The receiving half of a stream: pieces in their slots, pieces where they belong already, notes.

use std::io::IoSliceMut;

use super::note::StreamNote;
use super::pieces::PieceArrival;
use super::rail_stream::RailStream;
use super::ring::{ARRIVED_OFFSET, PIECE, SLOTS};
use crate::transport::rdma::immediate::ahead;
use crate::transport::rdma::rails::QueueRail;
use crate::transport::rdma::registrations::BLOCK;
use crate::transport::rdma::targets::{LEAST_TARGET, PutTarget};

impl RailStream {
    /// Copies what has arrived to some places, in order; returns the number of bytes.
    pub(crate) fn read(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        self.progress();
        self.hand_out(places)
    }

    /// Reads like [`Self::read`], and lets the peer write straight to those of the places that lie in
    /// registered memory.
    ///
    /// # Safety
    ///
    /// Until these places are full, or until [`Self::cut`], nothing else reads or writes what lies there, and
    /// later calls name the same places.
    pub(crate) unsafe fn read_placed(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        self.progress();
        let read = self.hand_out(places);
        self.target(places, read);
        read
    }

    fn hand_out(&mut self, places: &mut [IoSliceMut<'_>]) -> usize {
        let mut total = 0;
        for place in places {
            let mut rest: &mut [u8] = place;
            while !rest.is_empty() {
                self.skip_notes();
                let slot = self.head as usize % SLOTS;
                let (len, placed) = match self.arrived[slot] {
                    PieceArrival::Slot(len) => (len as usize, false),
                    PieceArrival::Placed(len) => (len as usize, true),
                    PieceArrival::Not | PieceArrival::Note => return total,
                };
                let take = rest.len().min(len - self.offset);
                let (part, after) = rest.split_at_mut(take);
                match placed {
                    true => self.take_placed(part),
                    false => self.region.get(ARRIVED_OFFSET + slot * PIECE + self.offset, part),
                }
                rest = after;
                (total, self.offset) = (total + take, self.offset + take);
                self.read += take as u64;
                if self.offset == len {
                    self.own_targets.read(self.read);
                    self.next_piece();
                }
            }
        }
        total
    }

    /// Takes the bytes that are read next from where this end wanted them.
    fn take_placed(&self, to: &mut [u8]) {
        if let Some((offset, found)) = self.own_targets.at(self.read) {
            found.block.bring(offset, to);
        }
    }

    /// Records that the piece at the head has been read.
    fn next_piece(&mut self) {
        self.arrived[self.head as usize % SLOTS] = PieceArrival::Not;
        (self.head, self.offset) = (self.head + 1, 0);
        self.report_progress();
    }

    /// Skips notes, which were read when they came.
    pub(super) fn skip_notes(&mut self) {
        while self.arrived[self.head as usize % SLOTS] == PieceArrival::Note {
            self.next_piece();
        }
    }

    /// Offers the peer what is left of some places, behind the `skip` bytes that were read.
    fn target(&mut self, places: &[IoSliceMut<'_>], mut skip: usize) {
        let Some(registrations) = self.registrations.clone() else { return };
        let mut start = self.read;
        for place in places {
            let mut rest: &[u8] = &place[skip.min(place.len())..];
            skip -= skip.min(place.len());
            while let Some(known) = self.own_targets.news(start, rest.len()) {
                (start, rest) = (start + known as u64, &rest[known..]);
                if !self.has_slot() {
                    return;
                }
                let found = match rest.len() >= LEAST_TARGET {
                    true => registrations.find(rest).filter(|found| found.len >= LEAST_TARGET),
                    false => None,
                };
                let len = found.as_ref().map_or(rest.len().min(BLOCK), |found| found.len);
                if let Some(found) = &found {
                    let key = |rail: &QueueRail| found.block.peer_key(rail.device.1);
                    let keys = self.rails.all.iter().map(key).collect();
                    let (len, address) = (len as u64, found.block.address(found.offset));
                    let target = PutTarget { start, len, address, keys };
                    if !self.note(&StreamNote::PutTarget(target)) {
                        return;
                    }
                }
                self.own_targets.said(len, found);
            }
            start += rest.len() as u64;
        }
    }

    /// Records that a piece came, in one of three ways.
    pub(super) fn came(&mut self, number: u32, how: PieceArrival) {
        let ahead = ahead(number, self.head);
        // Else it was read already, and came once more.
        if ahead >= SLOTS as u64 {
            return;
        }
        let slot = (self.head + ahead) as usize % SLOTS;
        // The copy that came first stays: a part of it may have been read.
        if self.arrived[slot] != PieceArrival::Not {
            return;
        }
        #[cfg(test)]
        if matches!(how, PieceArrival::Placed(_)) {
            self.placed += 1;
        }
        self.arrived[slot] = match how {
            PieceArrival::Slot(len) => PieceArrival::Slot(len.min(PIECE as u32)),
            how => how,
        };
    }

    /// Reads a note that came into the slot of its number.
    pub(super) fn note_came(&mut self, number: u32, len: u32) {
        let ahead = ahead(number, self.head);
        let slot = (self.head + ahead) as usize % SLOTS;
        if ahead < SLOTS as u64 && self.arrived[slot] == PieceArrival::Not {
            let mut note = vec![0; len.min(PIECE as u32) as usize];
            self.region.get(ARRIVED_OFFSET + slot * PIECE, &mut note);
            self.came(number, PieceArrival::Note);
            // A note that cannot be read is not used: nothing depends on it.
            match postcard::from_bytes(&note) {
                Ok(StreamNote::PutTarget(target)) => self.peer_targets.add(target),
                Ok(StreamNote::Renewal(renewal)) => self.handle_renewal(renewal),
                Err(_) => {}
            }
        }
    }
}
