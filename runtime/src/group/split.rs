//! A part of a group as a group of its own, with connections of its own and the same arenas.

use std::sync::Arc;

use super::{Group, Seat};
use crate::error::Error;
use crate::net::Net;
use crate::transport::shm::{Layout, PAGE, Segment};

/// A part being split off: what its ranks tell each other through the whole group.
pub(crate) struct Part {
    /// Ranks of the whole, in the order of the part.
    members: Vec<u32>,
    /// Those that share memory with this one, in the order of the part.
    near: Vec<u32>,
    id: u64,
    wires: Option<Arc<Segment>>,
}

impl Group {
    /// Begins to split off a part that this rank is in. The first of each machine makes its wires.
    pub(crate) fn begin_part(&self, members: &[u32], id: u64) -> Result<Part, Error> {
        let near: Vec<u32> = members.iter().copied().filter(|&r| self.seat(r).is_some()).collect();
        let whole = self.layout();
        // Buffers stay in the arenas of the whole.
        let layout = Layout {
            channels: whole.channels,
            slot_bytes: whole.slot_bytes,
            arena_bytes: PAGE,
            ..Layout::new(near.len() as u32)
        };
        let is_first = near.first() == Some(&self.rank);
        let wires = is_first.then(|| Segment::create(layout)).transpose()?;
        Ok(Part { members: members.to_vec(), near, id, wires })
    }

    /// Opens the wires of a part whose first rank told the number of its descriptor.
    pub(crate) fn open_part(&self, part: &mut Part, numbers: &[u64]) -> Result<(), Error> {
        if part.wires.is_none() {
            let first = part.near.first().copied().unwrap_or(self.rank);
            let pid = self.state(first).1.unwrap_or(0);
            let number = numbers.get(first as usize).map_or(0, |&n| n as i32);
            part.wires = Some(Segment::of_process(pid, number)?);
        }
        Ok(())
    }

    /// The part as a group, once all of its ranks have opened its wires.
    pub(crate) fn end_part(&self, part: Part) -> Result<Group, Error> {
        let Part { members, near, id, wires } = part;
        let Some(wires) = wires else {
            return Err(Error::Start("a part without wires".into()));
        };
        let at = |r: u32| members.iter().position(|&m| m == r).unwrap_or(0) as u32;
        let mut seats = vec![None; members.len()];
        for (seat, &r) in (0u32..).zip(&near) {
            let pool = self.seat(r).map_or(0, |seat| seat.pool);
            seats[at(r) as usize] = Some(Seat { wires: seat, pool });
        }
        let apart = seats.iter().any(Option::is_none);
        let net: Option<Net> = match &self.net {
            Some(net) if apart => Some(net.split(id, &members, at(self.rank))?),
            _ => None,
        };
        let mut group = Self::seated(at(self.rank), wires, self.pool.clone(), seats, self.terms);
        group.net = net;
        group.id = id;
        group.hosts = members.iter().map(|&r| self.hosts[r as usize]).collect();
        group.pids = members.iter().map(|&r| self.state(r).1).collect();
        group.routes = (0u32..)
            .zip(&members)
            .filter_map(|(rank, &r)| {
                let way = self.routes.get(r as usize)?.clone();
                Some(crate::route::Route { rank, ..way })
            })
            .collect();
        Ok(group)
    }
}

impl Part {
    /// What this rank tells the others: the number of its descriptor, or 0.
    pub(crate) fn number(&self) -> u64 {
        self.wires.as_ref().map_or(0, |wires| wires.number() as u64)
    }
}
