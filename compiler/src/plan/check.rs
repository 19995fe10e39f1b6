//! The check that a plan is consistent in itself: every index, region and count. What it takes several
//! ranks to see is [`crate::verify::plan`]'s.

use super::contract::{
    BufferPlacement, ChunkSizes, MAX_CHUNKS, MAX_PLACES, MOST_MOVED, MessageDirection,
    OperationInput, Plan, PlanBuffer, PlanHeader, PlanOperation, PlanRegion, UnprovedPlan,
};
use super::shares::WeightedSplit;
use crate::chunks::ChunkSet;
use crate::num::{index, wide};
use crate::shape::MAX_RANKS;

/// A plan contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct InconsistentPlan {
    /// The operation at fault, as lane and index, if it is one alone.
    pub op: Option<(usize, usize)>,
    /// The contradiction.
    pub what: &'static str,
}

impl std::fmt::Display for InconsistentPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.op {
            Some((lane, op)) => write!(f, "lane {lane}, operation {op}: {}", self.what),
            None => f.write_str(self.what),
        }
    }
}

impl From<&'static str> for InconsistentPlan {
    fn from(what: &'static str) -> Self {
        InconsistentPlan { op: None, what }
    }
}

fn need(ok: bool, what: &'static str) -> Result<(), InconsistentPlan> {
    if ok { Ok(()) } else { Err(what.into()) }
}

impl UnprovedPlan {
    /// Returns the number of chunks of a buffer of this plan; `None` if it has no such buffer.
    pub fn buffer_chunks(&self, buf: PlanBuffer) -> Option<u32> {
        let h = &self.header;
        match (buf, h.placement) {
            (PlanBuffer::Data, BufferPlacement::InPlace) => Some(h.chunks),
            (PlanBuffer::Input, BufferPlacement::OutOfPlace) => Some(h.input_chunks),
            (PlanBuffer::Output, BufferPlacement::OutOfPlace) => Some(h.output_chunks),
            (PlanBuffer::Scratch(i), _) => h.scratch.get(usize::from(i)).copied(),
            _ => None,
        }
    }

    /// Checks that the plan is consistent in itself.
    pub fn check(self) -> Result<Plan, InconsistentPlan> {
        self.consistent()?;
        Ok(Plan::proved(self))
    }

    /// Returns an error unless the plan is consistent in itself.
    pub(crate) fn consistent(&self) -> Result<(), InconsistentPlan> {
        let (h, part) = (&self.header, &self.part);
        header(h)?;
        need(part.rank < h.ranks, "the rank is not one of the ranks")?;
        need(part.lanes.len() <= 64, "there are too many lanes")?;
        for c in &part.conns {
            need(c.peer < h.ranks, "a connection leads to no rank")?;
        }
        let (mut used, mut moved) = (vec![0u32; part.conns.len()], 0);
        for (l, lane) in part.lanes.iter().enumerate() {
            for (i, op) in lane.ops.iter().enumerate() {
                moved += self
                    .op(op, &mut used)
                    .map_err(|e| InconsistentPlan { op: Some((l, i)), ..e })?;
                need(moved <= MOST_MOVED, "more chunks are moved than a plan may")?;
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

    /// Checks that every channel is of one path.
    fn paths(&self) -> Result<(), InconsistentPlan> {
        let mut path_of = std::collections::BTreeMap::new();
        for c in &self.part.conns {
            if u32::from(c.path) >= super::contract::MAX_PATHS {
                return Err("a connection rides no path".into());
            }
            if *path_of.entry(c.channel).or_insert(c.path) != c.path {
                return Err("a channel rides two paths".into());
            }
        }
        Ok(())
    }

    /// Checks that the parts of a split by bandwidth have nothing to do with each other: no memory, no
    /// connection and no wait. So each is a plan of its own, whose proof holds whatever its length.
    fn parts(&self, split: &WeightedSplit) -> Result<(), InconsistentPlan> {
        let (h, part) = (&self.header, &self.part);
        let cells = split.units.checked_mul(split.parts).filter(|&c| c > 0 && h.chunks % c == 0);
        need(split.units == h.blocks && split.parts >= 2, "a split of other units")?;
        need(split.units == 1 || split.units == h.ranks, "a split of other units")?;
        need(split.scratch.len() == h.scratch.len(), "a split of other scratch buffers")?;
        need(split.loads.len() == index(split.parts), "a split of other loads")?;
        let per_part = h.chunks / cells.ok_or("a split into parts of no chunks")?;
        // Neighbouring ranges are of different parts: what one part holds does not leave its ranges.
        let inside = |set: &ChunkSet, own: u16| {
            set.runs().all(|(c, len)| {
                c / per_part % split.parts == u32::from(own) && len <= per_part - c % per_part
            })
        };
        let mut owners: Vec<Option<u16>> = vec![None; part.conns.len()];
        for lane in &part.lanes {
            let Some(own) = lane.part else {
                let silent = |op: &PlanOperation| {
                    op.outs.is_empty() && op.after.is_empty() && !op.receives()
                };
                need(lane.ops.iter().all(silent), "messages beside the parts")?;
                continue;
            };
            need(u32::from(own) < split.parts, "a part of another split")?;
            let held = |region: &PlanRegion| {
                region.pieces.iter().all(|p| match p.buf {
                    PlanBuffer::Scratch(i) => match split.scratch.get(usize::from(i)) {
                        Some(None) => inside(&p.set, own),
                        of => of == Some(&Some(own)),
                    },
                    _ => inside(&p.set, own),
                })
            };
            for op in &lane.ops {
                need(regions(op).all(held), "a part touches what is not its own")?;
                if let ChunkSizes::Of(sets) = &op.sizes {
                    let own = sets.iter().all(|s| inside(s, own));
                    need(own, "a part moves the sizes of another")?;
                }
                let waits =
                    op.after.iter().all(|a| part.lanes[usize::from(a.lane)].part == Some(own));
                need(waits, "a part waits for another")?;
                for conn in conns(op) {
                    let owner = owners[index(conn)].get_or_insert(own);
                    need(*owner == own, "two parts share a connection")?;
                }
            }
        }
        Ok(())
    }

    /// Checks an operation; gives how many chunks its operands have in all.
    fn op(&self, op: &PlanOperation, used: &mut [u32]) -> Result<u64, InconsistentPlan> {
        let part = &self.part;
        need(!op.inputs.is_empty(), "no input")?;
        need(index(op.site) < part.sites.len(), "no such source line")?;
        let chunks = match &op.sizes {
            ChunkSizes::Full(n) => u64::from(*n),
            ChunkSizes::Of(sets) => {
                for set in sets {
                    self.set(set, self.header.chunks)?;
                }
                sets.iter().map(|s| u64::from(s.total)).sum()
            }
        };
        need(chunks > 0, "nothing moves")?;
        need(chunks <= MAX_CHUNKS.into(), "more chunks than a buffer has")?;
        for input in &op.inputs {
            match input {
                OperationInput::Local(region) => self.region(region, chunks)?,
                OperationInput::Message { conn, pull, .. } => {
                    self.conn(*conn, MessageDirection::Recv, used)?;
                    if let Some(region) = pull {
                        self.offered(region, chunks)?;
                    }
                }
            }
        }
        if let Some(store) = &op.store {
            self.region(&store.region, chunks)?;
            need(
                store.region.pieces.iter().all(|p| p.buf != PlanBuffer::Input),
                "the input is written",
            )?;
        }
        let mut seen = std::collections::BTreeSet::new();
        for out in &op.outs {
            self.conn(out.conn, MessageDirection::Send, used)?;
            need(seen.insert(out.conn), "two messages of one operation on one connection")?;
            need(out.origin < self.header.chunks, "an offer beyond the vector")?;
            if let Some(region) = &out.pull {
                self.region(region, chunks)?;
                need(single(region), "an offer of several buffers")?;
            }
        }
        for a in &op.after {
            let lane = part.lanes.get(usize::from(a.lane)).ok_or("waits for no lane")?;
            need(index(a.op) < lane.ops.len(), "waits for no operation")?;
        }
        for m in &op.drained {
            let conn = part.conns.get(index(m.conn)).ok_or("drains no connection")?;
            need(
                conn.dir == MessageDirection::Send && m.message < conn.messages,
                "drains no message",
            )?;
        }
        Ok(chunks * (wide(op.inputs.len()) + wide(op.outs.len()) + 1))
    }

    fn conn(
        &self,
        conn: u32,
        dir: MessageDirection,
        used: &mut [u32],
    ) -> Result<(), InconsistentPlan> {
        match (self.part.conns.get(index(conn)), used.get_mut(index(conn))) {
            (Some(c), Some(used)) if c.dir == dir => {
                *used += 1;
                Ok(())
            }
            _ => Err("no such connection".into()),
        }
    }

    fn region(&self, region: &PlanRegion, chunks: u64) -> Result<(), InconsistentPlan> {
        self.pieces(region, chunks, |buf| self.buffer_chunks(buf))
    }

    /// Checks a region that a peer offers: its vector is `data` in either placement, and its other buffers
    /// have as many chunks as this rank's.
    fn offered(&self, region: &PlanRegion, chunks: u64) -> Result<(), InconsistentPlan> {
        need(single(region), "an offer of several buffers")?;
        self.pieces(region, chunks, |buf| match buf {
            PlanBuffer::Data => Some(self.header.chunks),
            buf => self.buffer_chunks(buf),
        })
    }

    fn pieces(
        &self,
        region: &PlanRegion,
        chunks: u64,
        size: impl Fn(PlanBuffer) -> Option<u32>,
    ) -> Result<(), InconsistentPlan> {
        let mut total = 0u64;
        for p in &region.pieces {
            self.set(&p.set, size(p.buf).ok_or("no such buffer")?)?;
            total += u64::from(p.set.total);
        }
        need(total == chunks, "regions of different lengths")
    }

    fn set(&self, s: &ChunkSet, size: u32) -> Result<(), InconsistentPlan> {
        let fine = s.modulus > 0
            && (s.modulus <= size || s.total == 0)
            && s.start < s.modulus
            && s.total <= s.modulus
            && (s.is_interval() || (s.block > 0 && s.stride >= s.block))
            && s.is_simple();
        need(fine, "a chunk set out of bounds")
    }
}

/// Checks the facts that all ranks have in common.
fn header(h: &PlanHeader) -> Result<(), InconsistentPlan> {
    need((1..=MAX_RANKS).contains(&h.ranks.into()), "the ranks are out of range")?;
    need(h.root < h.ranks, "the root is not one of the ranks")?;
    need((1..=super::contract::MAX_SLOTS).contains(&h.slots), "slots are out of range")?;
    need(h.chunks >= 1 && h.blocks >= 1, "there are no chunks")?;
    need(h.chunks <= MAX_CHUNKS, "there are too many chunks")?;
    need(h.chunks.is_multiple_of(h.blocks), "the blocks are no whole chunks")?;
    let per_block = h.chunks / h.blocks;
    let whole = |chunks: u32| chunks <= h.chunks && chunks.is_multiple_of(per_block);
    need(whole(h.input_chunks), "the input is no whole blocks")?;
    need(whole(h.output_chunks), "the output is no whole blocks")?;
    need(h.scratch.iter().all(|&s| s <= MAX_CHUNKS), "a scratch buffer has too many chunks")?;
    let user = [h.chunks, h.input_chunks, h.output_chunks];
    let all = user.iter().chain(&h.scratch).map(|&chunks| u64::from(chunks)).sum::<u64>();
    need(all <= MAX_PLACES, "the buffers have too many chunks together")?;
    need((1..=4096).contains(&h.pipeline), "the pipeline is out of range")
}

/// Returns true if a region lies in one buffer.
fn single(region: &PlanRegion) -> bool {
    region.pieces.windows(2).all(|w| w[0].buf == w[1].buf)
}

/// Returns all regions that an operation names.
fn regions(op: &PlanOperation) -> impl Iterator<Item = &PlanRegion> {
    let inputs = op.inputs.iter().filter_map(|input| match input {
        OperationInput::Local(region) => Some(region),
        OperationInput::Message { pull, .. } => pull.as_ref(),
    });
    inputs
        .chain(op.store.iter().map(|s| &s.region))
        .chain(op.outs.iter().filter_map(|out| out.pull.as_ref()))
}

/// Returns the connections that an operation uses.
fn conns(op: &PlanOperation) -> impl Iterator<Item = u32> {
    let received = op.inputs.iter().filter_map(|input| match input {
        OperationInput::Local(_) => None,
        OperationInput::Message { conn, .. } => Some(*conn),
    });
    received.chain(op.outs.iter().map(|out| out.conn))
}
