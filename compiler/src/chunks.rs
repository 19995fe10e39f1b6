//! Chunk sets: periodic intervals modulo a chunk count.
//!
//! One type serves every log-step algorithm: a block of chunks, repeated at a stride, cyclic. A set
//! costs the same few words whether it holds one chunk or half of 131,072.

use serde::{Deserialize, Serialize};

use crate::num::count;

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
    /// Number of chunks in all.
    pub total: u32,
    /// Chunks in the buffer; indices are modulo this.
    pub modulus: u32,
}

impl ChunkSet {
    /// Creates the interval of `total` chunks from `start`, cyclic.
    pub fn interval(start: u32, total: u32, modulus: u32) -> Self {
        ChunkSet { start, block: total, stride: total, total, modulus }
    }

    /// Creates blocks at a stride, which counts modulo the buffer; written as an interval where it is one. So
    /// the same chunks in the same order are always written alike.
    pub fn periodic(start: u32, block: u32, stride: u32, total: u32, modulus: u32) -> Self {
        let stride =
            if stride < modulus { stride } else { stride.checked_rem(modulus).unwrap_or(stride) };
        if total <= block || stride == block {
            return Self::interval(start, total, modulus);
        }
        ChunkSet { start, block, stride, total, modulus }
    }

    /// Creates the set of all chunks of a buffer.
    pub fn all(modulus: u32) -> Self {
        Self::interval(0, modulus, modulus)
    }

    /// Returns true if the set is one (cyclic) interval.
    pub fn is_interval(&self) -> bool {
        self.total <= self.block
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u32 {
        if self.total == 0 { 0 } else { self.total.div_ceil(self.block.max(1)) }
    }

    /// Returns the k-th chunk, for `k < total`.
    pub fn nth(&self, k: u32) -> u32 {
        let wide = u64::from;
        let at = if self.is_interval() {
            wide(self.start) + wide(k)
        } else {
            let block = self.block.max(1);
            wide(self.start) + wide(k / block) * wide(self.stride) + wide(k % block)
        };
        count(at % wide(self.modulus.max(1)))
    }

    /// Returns the chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.total).map(|k| self.nth(k))
    }

    /// Returns the maximal pieces `(first, length)` that are contiguous and do not wrap, in order.
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

    /// Returns true if no chunk occurs twice.
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
        let (blocks, block) = (u64::from(self.blocks()), u64::from(self.block));
        let (stride, modulus) = (u64::from(self.stride), u64::from(self.modulus));
        let last = u64::from(self.total) - (blocks - 1) * block;
        if (blocks - 1) * stride + last <= modulus {
            return true;
        }
        // Blocks whose numbers differ by k begin `k * stride` apart, modulo the buffer. The last one may be
        // shorter, and is compared with the first by itself.
        let apart = (blocks - 1) * stride % modulus;
        if apart < block || modulus - apart < last {
            return false;
        }
        let step = stride % modulus;
        let meet = [
            Some(modulus / gcd(step, modulus)),
            first_within(step, modulus, 1, block - 1),
            first_within(step, modulus, modulus - (block - 1), modulus - 1),
        ];
        meet.into_iter().flatten().all(|k| k + 2 > blocks)
    }

    /// Returns true if both sets hold a common chunk.
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

    /// Returns the set with every chunk cut into `factor` finer ones; `None` if these are more than can be
    /// numbered.
    pub fn refined(&self, factor: u32) -> Option<Self> {
        Some(ChunkSet {
            start: self.start.checked_mul(factor)?,
            block: self.block.checked_mul(factor)?,
            stride: self.stride.checked_mul(factor)?,
            total: self.total.checked_mul(factor)?,
            modulus: self.modulus.checked_mul(factor)?,
        })
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Returns the least k with `from <= k * step % modulus <= to`, for `1 <= from` and `to < modulus`, in as
/// many steps as Euclid's algorithm takes. All are below 2^32.
fn first_within(step: u64, modulus: u64, from: u64, to: u64) -> Option<u64> {
    if from > to || step == 0 {
        return None;
    }
    if 2 * step > modulus {
        return first_within(modulus - step, modulus, modulus - to, modulus - from);
    }
    let k = from.div_ceil(step);
    if k * step <= to {
        return Some(k);
    }
    // No multiple of the step lies in the range as it is: how often must the buffer be gone round first?
    let turn = (step - modulus % step) % step;
    let turns = first_within(turn, step, from % step, to % step)?;
    Some((from + modulus * turns).div_ceil(step))
}

impl std::fmt::Display for ChunkSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.total, self.is_interval()) {
            (1, _) => write!(f, "{}", self.start),
            (total, true) if u64::from(self.start) + u64::from(total) <= self.modulus.into() => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_wrap_are_simple_where_no_chunk_occurs_twice() {
        let mut wrapped = 0;
        for modulus in 1..=17u32 {
            for (start, block) in [(0, 1), (3, 1), (1, 2), (2, 3), (0, 4)] {
                for stride in block..2 * modulus + 2 {
                    for total in 0..=modulus + 1 {
                        let set =
                            ChunkSet { start: start % modulus, block, stride, total, modulus };
                        let mut chunks: Vec<u32> = set.iter().collect();
                        chunks.sort_unstable();
                        chunks.dedup();
                        let once = chunks.len() == set.iter().count();
                        assert_eq!(set.is_simple(), once, "{set:?}");
                        wrapped += u32::from(stride > modulus && once);
                    }
                }
            }
        }
        assert!(wrapped > 1000, "{wrapped}");
    }

    #[test]
    fn large_sets_are_judged_without_listing_them() {
        let set =
            |block, stride, total| ChunkSet { start: 5, block, stride, total, modulus: u32::MAX };
        assert!(set(1, 2, u32::MAX).is_simple());
        assert!(!set(1, 3, u32::MAX).is_simple());
        assert!(!set(2, 3, u32::MAX).is_simple());
    }

    #[test]
    fn refining_does_not_overflow() {
        let set = ChunkSet { start: 1, block: 1, stride: 1 << 20, total: 2, modulus: 1 << 21 };
        assert_eq!(set.refined(2).map(|s| (s.start, s.stride)), Some((2, 1 << 21)));
        assert_eq!(set.refined(1 << 13), None);
    }
}
