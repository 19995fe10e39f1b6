//! Whether a plan is consistent in itself: every index, region and count. What it takes several
//! ranks to see is [`crate::verify::plan`]'s.

use super::{Buf, Dir, Input, Op, Placement, Plan, Region, Weighted};
use crate::chunks::ChunkSet;

impl Plan {
    /// Chunks of a buffer of this plan; `None` if it has no such buffer.
    pub fn buffer_chunks(&self, buf: Buf) -> Option<u32> {
        let h = &self.header;
        match (buf, h.placement) {
            (Buf::Data, Placement::InPlace) => Some(h.chunks),
            (Buf::Input, Placement::OutOfPlace) => Some(h.input_chunks),
            (Buf::Output, Placement::OutOfPlace) => Some(h.output_chunks),
            (Buf::Scratch(i), _) => h.scratch.get(i as usize).copied(),
            _ => None,
        }
    }

    /// Checks; says in words what is wrong.
    pub fn check(&self) -> Result<(), String> {
        let (h, part) = (&self.header, &self.part);
        let need = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
        need(h.ranks >= 1 && part.rank < h.ranks, "the rank is not one of the ranks")?;
        need(h.root < h.ranks, "the root is not one of the ranks")?;
        need((1..=super::MAX_SLOTS).contains(&h.slots), "slots are out of range")?;
        need(h.chunks >= 1 && h.blocks >= 1, "there are no chunks")?;
        need((1..=4096).contains(&h.pipeline), "the pipeline is out of range")?;
        need(part.lanes.len() <= 64, "there are too many lanes")?;
        for c in &part.conns {
            need(c.peer < h.ranks, "a connection leads to no rank")?;
        }
        let mut used = vec![0u32; part.conns.len()];
        for (l, lane) in part.lanes.iter().enumerate() {
            for (i, op) in lane.ops.iter().enumerate() {
                self.op(op, &mut used).map_err(|e| format!("lane {l}, operation {i}: {e}"))?;
            }
        }
        for (c, &used) in part.conns.iter().zip(&used) {
            need(c.messages == used, "a connection's message count is wrong")?;
        }
        self.paths()?;
        match &h.split {
            Some(split) => self.parts(split),
            None => need(part.lanes.iter().all(|l| l.part.is_none()), "a part of no split"),
        }
    }

    /// Every channel is of one path.
    fn paths(&self) -> Result<(), String> {
        let mut path_of = std::collections::BTreeMap::new();
        for c in &self.part.conns {
            if u32::from(c.path) >= super::MAX_PATHS {
                return Err("a connection rides no path".into());
            }
            if *path_of.entry(c.channel).or_insert(c.path) != c.path {
                return Err("a channel rides two paths".into());
            }
        }
        Ok(())
    }

    /// The parts of a split by bandwidth have nothing to do with each other: no memory, no connection and no
    /// wait. So each is a plan of its own, whose proof holds whatever its length.
    fn parts(&self, split: &Weighted) -> Result<(), String> {
        let (h, part) = (&self.header, &self.part);
        let need = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
        let cells = split.units.checked_mul(split.parts).filter(|&c| c > 0 && h.chunks % c == 0);
        need(split.units == h.blocks && split.parts >= 2, "a split of other units")?;
        need(split.scratch.len() == h.scratch.len(), "a split of other scratch buffers")?;
        need(split.loads.len() == split.parts as usize, "a split of other loads")?;
        let per_part = h.chunks / cells.ok_or("a split into parts of no chunks")?;
        let of_chunk = |c: u32| (c / per_part % split.parts) as u16;
        let mut owners: Vec<Option<u16>> = vec![None; part.conns.len()];
        for lane in &part.lanes {
            let Some(own) = lane.part else {
                let silent = |op: &Op| op.outs.is_empty() && op.after.is_empty() && !hears(op);
                need(lane.ops.iter().all(silent), "messages beside the parts")?;
                continue;
            };
            need(u32::from(own) < split.parts, "a part of another split")?;
            let held = |region: &Region| {
                region.pieces.iter().all(|p| match p.buf {
                    Buf::Scratch(i) => match split.scratch.get(i as usize) {
                        Some(None) => p.set.iter().all(|c| of_chunk(c) == own),
                        of => of == Some(&Some(own)),
                    },
                    _ => p.set.iter().all(|c| of_chunk(c) == own),
                })
            };
            for op in &lane.ops {
                need(regions(op).all(held), "a part touches what is not its own")?;
                if let super::Sizes::Of(sets) = &op.sizes {
                    let own = sets.iter().all(|s| s.iter().all(|c| of_chunk(c) == own));
                    need(own, "a part moves the sizes of another")?;
                }
                let waits = op.after.iter().all(|a| part.lanes[a.lane as usize].part == Some(own));
                need(waits, "a part waits for another")?;
                for conn in conns(op) {
                    let owner = owners[conn as usize].get_or_insert(own);
                    need(*owner == own, "two parts share a connection")?;
                }
            }
        }
        Ok(())
    }

    fn op(&self, op: &Op, used: &mut [u32]) -> Result<(), String> {
        let part = &self.part;
        let need = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_string()) };
        need(!op.inputs.is_empty(), "no input")?;
        need((op.site as usize) < part.sites.len(), "no such source line")?;
        let chunks = op.sizes.chunks();
        need(chunks > 0, "nothing moves")?;
        if let super::Sizes::Of(sets) = &op.sizes {
            for set in sets {
                self.set(set, self.header.chunks.max(set.modulus))?;
                need(set.modulus <= self.header.chunks, "sizes beyond the vector")?;
            }
        }
        for input in &op.inputs {
            match input {
                Input::Local(region) => self.region(region, chunks)?,
                Input::Message { conn, pull, .. } => {
                    self.conn(*conn, Dir::Recv, used)?;
                    if let Some(region) = pull {
                        need(region.chunks() == chunks, "a pulled region of another length")?;
                    }
                }
            }
        }
        if let Some(store) = &op.store {
            self.region(&store.region, chunks)?;
            need(store.region.pieces.iter().all(|p| p.buf != Buf::Input), "the input is written")?;
        }
        let mut seen = Vec::new();
        for out in &op.outs {
            self.conn(out.conn, Dir::Send, used)?;
            need(!seen.contains(&out.conn), "two messages of one operation on one connection")?;
            seen.push(out.conn);
            need(out.origin < self.header.chunks, "an offer beyond the vector")?;
            if let Some(region) = &out.pull {
                self.region(region, chunks)?;
            }
        }
        for a in &op.after {
            let lane = part.lanes.get(a.lane as usize).ok_or("waits for no lane")?;
            need((a.op as usize) < lane.ops.len(), "waits for no operation")?;
        }
        for m in &op.drained {
            let conn = part.conns.get(m.conn as usize).ok_or("drains no connection")?;
            need(conn.dir == Dir::Send && m.message < conn.messages, "drains no message")?;
        }
        Ok(())
    }

    fn conn(&self, conn: u32, dir: Dir, used: &mut [u32]) -> Result<(), String> {
        match self.part.conns.get(conn as usize) {
            Some(c) if c.dir == dir => {
                used[conn as usize] += 1;
                Ok(())
            }
            _ => Err("no such connection".into()),
        }
    }

    fn region(&self, region: &Region, chunks: u32) -> Result<(), String> {
        let mut total = 0u64;
        for p in &region.pieces {
            let size = self.buffer_chunks(p.buf).ok_or("no such buffer")?;
            self.set(&p.set, size)?;
            total += p.set.total as u64;
        }
        if total == chunks as u64 { Ok(()) } else { Err("regions of different lengths".into()) }
    }

    fn set(&self, s: &ChunkSet, size: u32) -> Result<(), String> {
        let fine = s.modulus > 0
            && s.modulus <= size.max(1)
            && s.start < s.modulus
            && s.total <= s.modulus
            && (s.is_interval() || (s.block > 0 && s.stride >= s.block))
            && s.is_simple();
        if fine { Ok(()) } else { Err("a chunk set out of bounds".into()) }
    }
}

/// Whether an operation takes messages.
fn hears(op: &Op) -> bool {
    op.inputs.iter().any(|input| matches!(input, Input::Message { .. }))
}

/// All regions that an operation names.
fn regions(op: &Op) -> impl Iterator<Item = &Region> {
    let inputs = op.inputs.iter().filter_map(|input| match input {
        Input::Local(region) => Some(region),
        Input::Message { pull, .. } => pull.as_ref(),
    });
    inputs
        .chain(op.store.iter().map(|s| &s.region))
        .chain(op.outs.iter().filter_map(|out| out.pull.as_ref()))
}

/// The connections that an operation uses.
fn conns(op: &Op) -> impl Iterator<Item = u32> {
    let heard = op.inputs.iter().filter_map(|input| match input {
        Input::Local(_) => None,
        Input::Message { conn, .. } => Some(*conn),
    });
    heard.chain(op.outs.iter().map(|out| out.conn))
}
