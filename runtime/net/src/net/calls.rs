//! Reports of the calls in which ranks wait for words, by which a rank that makes another call detects it.
//!
//! Words go from rank to rank, and a rank that makes a call without words sends none and reads none: the others
//! would wait until their deadline. So a rank that has waited for a while reports the number and the digest of
//! its call, once, to the ranks that it is linked with. A rank whose own call of that number had another digest
//! fails. Of ranks that wait in a round that others never enter, one at the least is linked with one of those.

use std::collections::BTreeMap;

use super::link_frame::LinkFrame;

/// The reports of calls.
#[derive(Debug, Default)]
pub(super) struct CallReports {
    /// The latest call that each linked rank reported, and its digest.
    known: BTreeMap<u32, (u64, u32)>,
    /// The latest call that this rank reported.
    reported: u64,
}

impl CallReports {
    /// Takes the report of a linked rank.
    pub(super) fn add(&mut self, peer: u32, call: u64, digest: u32) {
        self.known.insert(peer, (call, digest));
    }

    /// Returns the report of this rank's call, unless it has been made.
    pub(super) fn report(&mut self, call: u64, digest: u32) -> Option<LinkFrame> {
        let is_new = self.reported < call;
        self.reported = self.reported.max(call);
        is_new.then_some(LinkFrame::Call { call, digest })
    }

    /// Returns a rank and the number of the call that it reported, if `own` returns another digest for that number.
    pub(super) fn mismatch(&self, own: impl Fn(u64) -> Option<u32>) -> Option<(u32, u64)> {
        let mut known = self.known.iter();
        let found = known.find(|(_, (call, digest))| own(*call).is_some_and(|own| own != *digest));
        found.map(|(peer, (call, _))| (*peer, *call))
    }
}
