//! A part of a group as a group of its own, with connections of its own and the same arenas.

use std::sync::Arc;

use parking_lot::FairMutex;
use roundelay_dsl::diag::codes;

use super::alarm::{AlarmScope, OF_WHOLE};
use super::rank_group::{LocalRank, RankGroup};
use super::terms::JobTerms;
use crate::net::RankNetwork;
use crate::transport::shm::{PAGE, SegmentLayout, ShmSegment};
use roundelay_support::abort;
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;

/// A part being split off: what its ranks exchange through the whole group.
pub struct GroupPart {
    /// Ranks of the whole, in the order of the part.
    members: Vec<u32>,
    /// The members that share memory with this one, in the order of the part.
    near: Vec<u32>,
    id: u64,
    control: Option<Arc<ShmSegment>>,
}

impl RankGroup {
    /// Begins to split off a part that this rank is in. The first of each machine makes its control segment.
    pub fn begin_part(&self, members: &[u32], id: u64) -> Result<GroupPart, Error> {
        let near: Vec<u32> = members.iter().copied().filter(|&r| self.local(r).is_some()).collect();
        let whole = self.layout();
        let processes: Vec<_> = near.iter().map(|&r| self.state(r).1).collect();
        // Buffers stay in the arenas of the whole.
        let layout = SegmentLayout {
            channels: whole.channels,
            slot_bytes: whole.slot_bytes,
            arena_bytes: PAGE,
            ..SegmentLayout::among(&processes)
        };
        let is_first = near.first() == Some(&self.rank);
        let control = is_first.then(|| ShmSegment::create(layout)).transpose()?;
        Ok(GroupPart { members: members.to_vec(), near, id, control })
    }

    /// Opens the control segment of a part whose first rank shows the number of its descriptor.
    pub fn open_part(&self, part: &mut GroupPart, numbers: &[u64]) -> Result<(), Error> {
        if part.control.is_none() {
            let first = part.near.first().copied().unwrap_or(self.rank);
            let pid = self.state(first).1.unwrap_or(0);
            let number = numbers.get(first as usize).map_or(0, |&n| n as i32);
            part.control = Some(ShmSegment::of_process(pid, number)?);
        }
        Ok(())
    }

    /// Links this rank with those of the part that it does not share memory with.
    pub fn part_net(&self, part: &GroupPart) -> Result<Option<RankNetwork>, Error> {
        let apart = part.near.len() < part.members.len();
        let net = self.net().filter(|_| apart);
        net.map(|net| net.part(part.id, &part.members, part.at(self.rank))).transpose()
    }

    /// Returns the part as a group, once all of its ranks have opened its control segment and are linked.
    pub fn end_part(&self, part: &GroupPart, net: Option<RankNetwork>) -> Result<RankGroup, Error> {
        let Some(control) = part.control.clone() else {
            return Err(Error::Start("a part without a control segment".into()));
        };
        let at = |r: u32| part.at(r);
        let GroupPart { members, near, id, .. } = part;
        let mut locals = vec![None; members.len()];
        for (local, &r) in (0u32..).zip(near) {
            let heap = self.local(r).map_or(0, |local| local.heap);
            locals[at(r) as usize] = Some(LocalRank { control: local, heap });
        }
        // Many parts are idle, and an idle one has no use for connections of its own.
        let terms = JobTerms { lazy: true, ..self.terms };
        let mut group = Self::local_ranks(at(self.rank), control, self.heap.clone(), locals, terms);
        group.net = net.map(|net| Arc::new(FairMutex::new(net)));
        let whole = AlarmScope {
            control: self.control.clone(),
            net: self.net.clone(),
            members: members.as_slice().into(),
        };
        group.above = self.above.iter().map(|above| above.beyond(members)).collect();
        group.above.insert(0, whole);
        group.id = *id;
        (group.paths, group.costs) = (self.paths.clone(), self.costs.clone());
        group.carried = self.carried;
        group.means = self.means.clone();
        group.all_have = self.all_have;
        group.hosts = members.iter().map(|&r| self.hosts[r as usize]).collect();
        group.pids = members.iter().map(|&r| self.state(r).1).collect();
        group.routes = (0u32..)
            .zip(members)
            .filter_map(|(rank, &r)| {
                let way = self.routes.get(r as usize)?.clone();
                Some(crate::route::RankRoute { rank, ..way })
            })
            .collect();
        group.show_number();
        Ok(group)
    }
}

impl GroupPart {
    /// Returns its ranks, by their numbers in the whole.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Returns the number in the part of a rank of the whole.
    fn at(&self, rank: u32) -> u32 {
        self.members.iter().position(|&m| m == rank).unwrap_or(0) as u32
    }

    /// Returns the abort record for the part, of a failure of this rank of the whole.
    pub fn record(&self, own: u32, error: &Error) -> AbortRecord {
        let AbortRecord { code, rank, text } = abort::record(own, error);
        match self.members.contains(&rank) {
            true => AbortRecord { code, rank: self.at(rank), text: text + OF_WHOLE },
            // A rank that the part does not have.
            false => AbortRecord {
                code: codes::START,
                rank: self.at(own),
                text: error.to_string() + OF_WHOLE,
            },
        }
    }

    /// Returns the word that this rank shows the others: the number of its descriptor, or 0.
    pub fn number(&self) -> u64 {
        self.control.as_ref().map_or(0, |control| control.number() as u64)
    }
}
