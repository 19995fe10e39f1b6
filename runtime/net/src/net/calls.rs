//! Reports of the calls in which ranks wait for words, so that one that makes another call finds out.
//!
//! Words go from rank to rank, and a rank that makes a call without words sends none and reads none: the others would
//! wait until their deadline. So a rank that has waited for a while reports the number and the digest of its call, once,
//! to the ranks that it is linked with. A rank whose own call of that number had another digest fails. Of ranks that
//! wait in a round that others never enter, one at the least is linked with one of those.

use std::collections::BTreeMap;

use super::Net;
use super::link::Frame;

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
}

impl Net {
    /// Reports the call in which this rank waits for words, once.
    pub(crate) fn report_call(&mut self, call: u64, digest: u32) {
        if self.calls.reported < call {
            self.calls.reported = call;
            self.tell_all(&Frame::Call { call, digest }, None);
        }
    }

    /// Returns a rank and the number of the call that it reported, if its digest is not the one that `own` returns for
    /// that number: this rank's, if it got there and still knows it.
    pub(crate) fn other_call(&self, own: impl Fn(u64) -> Option<u32>) -> Option<(u32, u64)> {
        let mut known = self.calls.known.iter();
        let found = known.find(|(_, (call, digest))| own(*call).is_some_and(|own| own != *digest));
        found.map(|(peer, (call, _))| (*peer, *call))
    }
}
