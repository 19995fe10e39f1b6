//! Which messages may stay where their content lies until the peer has read it: what `emit` allows, and what
//! the cost model counts on.

use super::place::Place;
use crate::graph::Transfer;
use crate::instance::Instance;
use crate::places::Places;
use crate::plan::{Buf, Placement, Region};

/// Whether the peer may read a message in place: it lies in one buffer that both sides address alike, and is
/// not overwritten in its own round. The input is never written.
pub(super) fn may_stay(
    instance: &Instance,
    t: &Transfer,
    local: &Region,
    overwritten: impl FnOnce() -> bool,
) -> bool {
    let Some(first) = local.pieces.first().map(|p| p.buf) else { return false };
    let extra = instance.scratch.len() as u16;
    let one = local.pieces.iter().all(|p| p.buf == first);
    let shared = one && !matches!(first, Buf::Scratch(i) if i >= extra);
    let allowed = t.wire.is_none() && t.src != t.dst && shared && single(&t.from);
    allowed && (first == Buf::Input || !overwritten())
}

/// Whether a region lies in one buffer.
pub(super) fn single(region: &Region) -> bool {
    region.pieces.first().is_some_and(|f| region.pieces.iter().all(|p| p.buf == f.buf))
}

/// What a message is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// The input, which nobody writes.
    Input,
    /// Memory that the call writes, but not before the message is read.
    Kept,
    /// What must be copied to be sent.
    Copied,
}

/// What the messages of one rank are made of, while rounds go by.
pub(crate) struct Contents {
    place: Place,
    places: Places,
    /// The last round that wrote each place.
    stamp: Vec<u32>,
}

impl Contents {
    pub(crate) fn new(instance: &Instance, placement: Placement, rank: u32) -> Self {
        let places = Places::new(instance);
        let stamp = vec![u32::MAX; places.per_rank as usize];
        Contents { place: Place::new(instance, placement, rank), places, stamp }
    }

    /// A round writes this region.
    pub(crate) fn writes(&mut self, region: &Region, round: u32) {
        for place in self.places.region(0, region) {
            self.stamp[place] = round;
        }
    }

    /// What a message of a round is made of, all whose writes are known.
    pub(crate) fn of(&self, instance: &Instance, t: &Transfer, round: u32) -> Content {
        let local = self.place.read(&t.from);
        let overwritten = || self.places.region(0, &t.from).any(|p| self.stamp[p] == round);
        match may_stay(instance, t, &local, overwritten) {
            true if local.pieces.iter().all(|p| p.buf == Buf::Input) => Content::Input,
            true => Content::Kept,
            false => Content::Copied,
        }
    }

    /// The round that writes this region is over.
    pub(crate) fn wrote(&mut self, region: &Region) {
        self.place.wrote(region);
    }
}
