//! Chunks of the vector that belong to ranks in an order of the program's own, as in Swing.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::instance::ProgramInstance;
use crate::num::index;
use crate::plan::{PlanBuffer, PlanRegion};
use crate::walk::{ChunkTransfer, walk};

/// More rounds than this are not searched for an order.
const MOST_ROUNDS: u32 = 64;

/// The rank that each chunk belongs to, one chunk a rank.
#[derive(Debug)]
pub(super) struct ChunkOwners {
    rank_of: Vec<u32>,
    chunk_of: Vec<u32>,
}

/// The images of all chunks under one element, and how far they spread over each interval.
#[derive(Debug)]
pub(super) struct ChunkImages {
    /// Least and greatest image of 2^k chunks from each on, by k.
    levels: Vec<Vec<(u32, u32)>>,
}

impl ChunkOwners {
    /// Returns the order of a round in which every rank is sent one chunk, and each another one.
    pub(super) fn find(instance: &ProgramInstance) -> Option<Arc<Self>> {
        let n = instance.ranks();
        let (mut found, mut all) = (None, Vec::new());
        let done = walk(instance, &mut |round| {
            if round.index >= MOST_ROUNDS {
                return Ok(ControlFlow::Break(()));
            }
            all.clear();
            round.of(0, &mut all)?;
            if all.len() <= 2 && all.iter().all(|t| one(&t.to).is_some()) {
                all.clear();
                round.all(&mut all)?;
                found = Self::of(&all, n);
            }
            Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        done.ok()?;
        found.map(Arc::new)
    }

    fn of(all: &[ChunkTransfer], n: u32) -> Option<Self> {
        let none = vec![u32::MAX; index(n)];
        let (mut rank_of, mut chunk_of) = (none.clone(), none);
        for t in all {
            let chunk = one(&t.to)?;
            let (rank, owned) = (rank_of.get_mut(index(chunk))?, chunk_of.get_mut(index(t.dst))?);
            if *rank != u32::MAX || *owned != u32::MAX {
                return None;
            }
            (*rank, *owned) = (t.dst, chunk);
        }
        let whole = chunk_of.iter().all(|&c| c != u32::MAX);
        whole.then_some(ChunkOwners { rank_of, chunk_of })
    }

    pub(super) fn rank(&self, chunk: u32) -> u32 {
        self.rank_of[index(chunk)]
    }

    pub(super) fn chunk(&self, rank: u32) -> u32 {
        self.chunk_of[index(rank)]
    }

    /// Returns the images of all chunks if their ranks move so.
    pub(super) fn images(&self, moved: impl Fn(u32) -> u32) -> ChunkImages {
        let first = self.rank_of.iter().map(|&rank| self.chunk(moved(rank)));
        let mut levels = vec![first.map(|c| (c, c)).collect::<Vec<_>>()];
        while let Some(last) = levels.last()
            && last.len() > 1 << (levels.len() - 1)
        {
            let half = 1 << (levels.len() - 1);
            let next = last.iter().zip(&last[half..]);
            let next: Vec<_> = next.map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect();
            levels.push(next);
        }
        ChunkImages { levels }
    }
}

impl ChunkImages {
    /// Returns the image of an interval, if it is one: its first chunk.
    pub(super) fn interval(&self, first: u32, len: u32) -> Option<u32> {
        let level = &self.levels[index(len.max(1).ilog2())];
        let wide = 1u32 << len.max(1).ilog2();
        let (a, b) = (level[index(first)], level[index(first + len - wide)]);
        let (least, most) = (a.0.min(b.0), a.1.max(b.1));
        (most - least + 1 == len).then_some(least)
    }
}

/// Returns the chunk of the vector that a region is, if it is one.
fn one(region: &PlanRegion) -> Option<u32> {
    match region.pieces.as_slice() {
        [p] if p.set.total == 1 && p.buf == PlanBuffer::Data => Some(p.set.start),
        _ => None,
    }
}
