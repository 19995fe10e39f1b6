//! The memory of a rank that its next group may keep.

use std::sync::Arc;

use super::rank_group::RankGroup;
use crate::net::MemoryPeers;
use crate::transport::shm::ShmSegment;

/// The memory of a rank that its next group may keep, and over which it may be linked with the others of that.
pub struct KeptMemory {
    /// A heap, and the number of its arena there.
    heap: Arc<ShmSegment>,
    number: u32,
    /// Control pages, its number there, and those of all ranks of its group that share them.
    control: Arc<ShmSegment>,
    own: u32,
    locals: Vec<Option<u32>>,
}

impl KeptMemory {
    /// Returns the word that identifies the memory to the others; 0 if it has no identity.
    pub(super) fn word(&self) -> u64 {
        match self.heap.identity() {
            0 => 0,
            identity => identity << 16 | u64::from(self.number & 0xffff),
        }
    }

    /// Returns those of the next group that share control pages with this rank, given which ranks of its own group
    /// they are, where they are of it.
    pub fn near(&self, known: impl Iterator<Item = Option<u32>>) -> MemoryPeers {
        let number = |rank: u32| self.locals.get(rank as usize).copied().flatten();
        let numbers = known.map(|rank| number(rank?).filter(|&number| number != self.own));
        MemoryPeers { memory: self.control.clone(), own: self.own, numbers: numbers.collect() }
    }

    /// Returns the heap and the numbers of the arenas of these ranks, which all showed their words, if all have
    /// their arenas in it.
    pub(super) fn common(self, near: &[u32], words: &[u64]) -> Option<(Arc<ShmSegment>, Vec<u32>)> {
        let own = self.word();
        let word = |&rank: &u32| words.get(rank as usize).copied().unwrap_or(0);
        let is_common = own != 0 && near.iter().map(word).all(|word| word >> 16 == own >> 16);
        let numbers = near.iter().map(|rank| (word(rank) & 0xffff) as u32).collect();
        is_common.then_some((self.heap, numbers))
    }
}

impl RankGroup {
    /// Returns the memory of this rank that its next group may keep.
    pub fn kept(&self) -> KeptMemory {
        let number = self.local(self.rank).map_or(0, |local| local.heap);
        let locals = self.locals.iter().map(|local| local.map(|local| local.control)).collect();
        let (heap, control) = (self.heap.clone(), self.control.clone());
        KeptMemory { heap, number, control, own: self.own(), locals }
    }
}
