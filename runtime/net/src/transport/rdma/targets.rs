//! Targets: registered memory that waits for bytes. A peer that has the offer in time writes there directly.
//!
//! An end that lands a message in registered memory announces the place as a *target*: which bytes of the
//! stream belong there, address and keys. The target goes as a piece that no reader sees, so it comes once,
//! whatever fails. An offer binds neither side: what the peer has sent already, or sends before the offer
//! arrives, goes through the ring.
//!
//! **Invariant:** a piece is written to an offered place at most once. If its queue fails it goes through the ring, as
//! any other, when both ends have ended that queue. So when all bytes of a place have arrived nothing can
//! be written there any more: each of its pieces has come, or the queue that it was on has ended here.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::registrations::RegisteredBytes;
use super::stream::PIECE;
use crate::tunables::RDMA_TARGETS_MAX;

/// The least bytes that are offered.
pub(super) const LEAST_TARGET: usize = 2 * PIECE;

/// The description of a place that is sent to the peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PutTarget {
    /// The first byte of the stream that belongs there, and how many do.
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) address: u64,
    /// The keys by queue.
    pub(super) keys: Arc<[u32]>,
}

/// The place to which a piece goes.
#[derive(Debug, Clone)]
pub(super) struct RemoteAddress {
    pub(super) address: u64,
    /// The keys by queue.
    pub(super) keys: Arc<[u32]>,
}

/// Offers of the peer.
#[derive(Default)]
pub(super) struct PeerTargets(VecDeque<PutTarget>);

impl PeerTargets {
    /// Adds a target; they come in any order.
    pub(super) fn add(&mut self, target: PutTarget) {
        let at = self.0.partition_point(|known| known.start < target.start);
        self.0.insert(at, target);
    }

    /// Returns the most bytes of a piece that begins here: all of it goes to one place, or to none.
    pub(super) fn room(&mut self, start: u64) -> usize {
        while self.0.front().is_some_and(|target| target.start.saturating_add(target.len) <= start)
        {
            self.0.pop_front();
        }
        let next = self.0.front().map_or(u64::MAX, |target| match target.start > start {
            true => target.start,
            false => target.start.saturating_add(target.len),
        });
        (next - start).min(PIECE as u64) as usize
    }

    /// Returns the place of the piece that begins here, of no more bytes than there is [`Self::room`] for.
    pub(super) fn place(&self, start: u64) -> Option<RemoteAddress> {
        let target = self.0.front().filter(|target| target.start <= start)?;
        let address = target.address.wrapping_add(start - target.start);
        Some(RemoteAddress { address, keys: target.keys.clone() })
    }
}

/// Offers to the peer.
#[derive(Default)]
pub(super) struct OwnTargets {
    list: VecDeque<(u64, RegisteredBytes)>,
    /// The byte of the stream before which everything was offered, or cannot be.
    upto: u64,
}

impl OwnTargets {
    /// Returns the number of these bytes that were offered already, if there are others and more may be
    /// offered.
    pub(super) fn news(&mut self, start: u64, len: usize) -> Option<usize> {
        self.upto = self.upto.max(start);
        let skip = (self.upto - start) as usize;
        (skip < len && self.list.len() < RDMA_TARGETS_MAX).then_some(skip)
    }

    /// Records that `len` more bytes were offered, here, or cannot be.
    pub(super) fn said(&mut self, len: usize, found: Option<RegisteredBytes>) {
        self.list.extend(found.map(|found| (self.upto, found)));
        self.upto += len as u64;
    }

    /// Returns the offset in the segment to which the peer put what begins at this byte.
    pub(super) fn at(&self, byte: u64) -> Option<(u64, &RegisteredBytes)> {
        let has = |(start, found): &&(u64, RegisteredBytes)| byte - start < found.len as u64;
        let mut before = self.list.iter().filter(|(start, _)| *start <= byte);
        let (start, found) = before.find(has)?;
        Some((found.offset + (byte - start), found))
    }

    /// Records that all bytes before this one have been read.
    pub(super) fn read(&mut self, byte: u64) {
        while self.list.front().is_some_and(|(start, found)| start + found.len as u64 <= byte) {
            self.list.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(start: u64, len: u64) -> PutTarget {
        PutTarget { start, len, address: 1 << 20, keys: Arc::new([7]) }
    }

    #[test]
    fn a_piece_goes_to_one_place_or_to_none() {
        let mut peer_targets = PeerTargets::default();
        assert!(peer_targets.room(5) == PIECE && peer_targets.place(5).is_none());
        peer_targets.add(target(100_000, 20_000));
        peer_targets.add(target(30_000, 40_000));
        for (start, room, place) in [
            (0, PIECE, None),
            (20_000, 10_000, None),
            (30_000, PIECE, Some(0)),
            (69_999, 1, Some(39_999)),
            (70_000, PIECE, None),
            (90_000, 10_000, None),
            (110_000, 10_000, Some(10_000)),
            (120_000, PIECE, None),
        ] {
            assert_eq!(peer_targets.room(start), room, "at {start}");
            let found = peer_targets.place(start).map(|place| place.address - (1 << 20));
            assert_eq!(found, place, "at {start}");
        }
    }

    #[test]
    fn an_offer_that_comes_too_late_is_of_what_is_left() {
        let mut peer_targets = PeerTargets::default();
        peer_targets.add(target(0, 50_000));
        assert_eq!(peer_targets.room(49_000), 1000);
        peer_targets.add(target(10, 10));
        assert_eq!(peer_targets.room(51_000), PIECE);
        assert!(peer_targets.place(51_000).is_none());
    }
}
