//! Chunk sets: periodic intervals modulo a chunk count.
//!
//! One type serves every log-step algorithm: a block of chunks, repeated at a stride, cyclic. A set
//! costs the same few words whether it holds one chunk or half of 131,072.

use serde::{Deserialize, Serialize};

/// `total` chunks: blocks of `block` chunks whose starts lie `stride` apart, from `start`, modulo
/// `modulus`; the last block may be shorter. The order is part of the meaning: the k-th chunk of the
/// source of a transfer goes to the k-th chunk of its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkSet {
    /// First chunk.
    pub start: u32,
    /// Chunks a block; equal to `total` if the set is one interval.
    pub block: u32,
    /// Distance between the starts of blocks; equal to `block` if the set is one interval.
    pub stride: u32,
    /// How many chunks in all.
    pub total: u32,
    /// Chunks in the buffer; indices are modulo this.
    pub modulus: u32,
}

impl ChunkSet {
    /// The interval of `total` chunks from `start`, cyclic.
    pub fn interval(start: u32, total: u32, modulus: u32) -> Self {
        ChunkSet { start, block: total, stride: total, total, modulus }
    }

    /// Blocks at a stride; written as an interval where it is one.
    pub fn periodic(start: u32, block: u32, stride: u32, total: u32, modulus: u32) -> Self {
        if total <= block || stride == block {
            return Self::interval(start, total, modulus);
        }
        ChunkSet { start, block, stride, total, modulus }
    }

    /// All chunks of a buffer.
    pub fn all(modulus: u32) -> Self {
        Self::interval(0, modulus, modulus)
    }

    /// Whether the set is one (cyclic) interval.
    pub fn is_interval(&self) -> bool {
        self.total <= self.block
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        if self.total == 0 { 0 } else { self.total.div_ceil(self.block) }
    }

    /// The k-th chunk, for `k < total`.
    pub fn nth(&self, k: u32) -> u32 {
        if self.is_interval() {
            return ((self.start as u64 + k as u64) % self.modulus as u64) as u32;
        }
        let at = self.start as u64
            + (k / self.block) as u64 * self.stride as u64
            + (k % self.block) as u64;
        (at % self.modulus as u64) as u32
    }

    /// The chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.total).map(|k| self.nth(k))
    }

    /// Maximal pieces `(first, length)` that are contiguous and do not wrap, in order.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut k = 0;
        std::iter::from_fn(move || {
            if k >= self.total {
                return None;
            }
            let first = self.nth(k);
            let in_block =
                if self.is_interval() { self.total - k } else { self.block - k % self.block };
            let len = in_block.min(self.total - k).min(self.modulus - first);
            k += len;
            Some((first, len))
        })
    }

    /// Whether no chunk occurs twice.
    pub fn is_simple(&self) -> bool {
        if self.total > self.modulus {
            return false;
        }
        if self.is_interval() {
            return true;
        }
        if self.stride < self.block {
            return false;
        }
        let blocks = self.blocks() as u64;
        let last = self.total as u64 - (blocks - 1) * self.block as u64;
        if (blocks - 1) * self.stride as u64 + last <= self.modulus as u64 {
            return true;
        }
        let mut seen = vec![false; self.modulus as usize];
        self.iter().all(|c| !std::mem::replace(&mut seen[c as usize], true))
    }

    /// Whether both hold a common chunk.
    pub fn overlaps(&self, other: &ChunkSet) -> bool {
        if self.total == 0 || other.total == 0 {
            return false;
        }
        if self == other {
            return true;
        }
        let mut runs: Vec<(u32, u32)> = self.runs().collect();
        runs.sort_unstable();
        other.runs().any(|(first, len)| {
            let at = runs.partition_point(|&(f, l)| f + l <= first);
            runs.get(at).is_some_and(|&(f, _)| f < first + len)
        })
    }

    /// The same set with every chunk cut into `factor` finer ones.
    pub fn refined(&self, factor: u32) -> Self {
        ChunkSet {
            start: self.start * factor,
            block: self.block * factor,
            stride: self.stride * factor,
            total: self.total * factor,
            modulus: self.modulus * factor,
        }
    }
}

impl std::fmt::Display for ChunkSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.total, self.is_interval()) {
            (1, _) => write!(f, "{}", self.start),
            (total, true) if self.start as u64 + total as u64 <= self.modulus as u64 => {
                write!(f, "{}..{}", self.start, self.start + total)
            }
            (total, true) => write!(f, "{} ..+ {total}", self.start),
            (total, false) if self.block == 1 => {
                write!(f, "{} ..+ {total} by {}", self.start, self.stride)
            }
            (total, false) => {
                write!(f, "{} ..+ {total} by {} take {}", self.start, self.stride, self.block)
            }
        }
    }
}
