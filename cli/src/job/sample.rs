//! Selects what is verified of a result: all of it, a sample, or nothing.

use std::ops::Range;

use crate::args::VerifyScope;

/// Elements of a block of a sample.
const BLOCK: usize = 64;
/// Blocks that the seed draws.
const DRAWN: u64 = 1024;

impl VerifyScope {
    /// Describes in words what is verified.
    pub(crate) fn words(self) -> String {
        match self {
            VerifyScope::Full => "every element is verified".into(),
            VerifyScope::Sample => format!(
                "a sample is verified: the first and last {BLOCK} elements of each chunk, and \
                 {DRAWN} blocks by the seed"
            ),
            VerifyScope::Off => "nothing is verified".into(),
        }
    }

    /// Returns the elements to be verified of a buffer of `len` elements in `chunks` chunks: ascending, none twice.
    pub(super) fn ranges(self, len: usize, chunks: usize, seed: u64) -> Vec<Range<usize>> {
        match self {
            VerifyScope::Off => Vec::new(),
            VerifyScope::Sample if len > 2 * BLOCK * (chunks + DRAWN as usize) => {
                sample(len, chunks, seed)
            }
            _ => std::iter::once(0..len).collect(),
        }
    }
}

fn sample(len: usize, chunks: usize, seed: u64) -> Vec<Range<usize>> {
    let bound = |chunk: usize| (chunk as u128 * len as u128 / chunks.max(1) as u128) as usize;
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for chunk in 0..chunks {
        let (first, end) = (bound(chunk), bound(chunk + 1));
        blocks.push(first..end.min(first + BLOCK));
        blocks.push(first.max(end.saturating_sub(BLOCK))..end);
    }
    for block in 0..DRAWN {
        let x = seed.wrapping_add(block.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let first = ((x ^ (x >> 29)) % (len - BLOCK) as u64) as usize;
        blocks.push(first..first + BLOCK);
    }
    blocks.sort_by_key(|b| b.start);
    blocks.dedup_by(|next, before| {
        let meet = next.start <= before.end;
        if meet {
            before.end = before.end.max(next.end);
        }
        meet
    });
    blocks
}

/// Returns the share of one rank in a buffer that all of them have alike.
pub(super) fn share(len: usize, rank: u32, ranks: u32) -> Range<usize> {
    let bound = |rank: u32| (u128::from(rank) * len as u128 / u128::from(ranks.max(1))) as usize;
    bound(rank)..bound(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_ends_of_chunks_and_are_a_part() {
        let (len, chunks) = (10_000_019, 7);
        let ranges = VerifyScope::Sample.ranges(len, chunks, 3);
        for chunk in 0..chunks {
            let (first, end) = (chunk * len / chunks, (chunk + 1) * len / chunks);
            for element in [first, first + BLOCK - 1, end - BLOCK, end - 1] {
                assert!(ranges.iter().any(|r| r.contains(&element)), "{element} of chunk {chunk}");
            }
        }
        assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
        let elements: usize = ranges.iter().map(Range::len).sum();
        assert!((60_000..80_000).contains(&elements), "{elements}");
        assert_eq!(ranges, VerifyScope::Sample.ranges(len, chunks, 3));
        assert_ne!(ranges, VerifyScope::Sample.ranges(len, chunks, 4));
        // What is small is verified whole.
        assert_eq!(
            VerifyScope::Sample.ranges(5000, chunks, 3),
            VerifyScope::Full.ranges(5000, chunks, 3)
        );
        assert!(VerifyScope::Off.ranges(5000, chunks, 3).is_empty());
    }

    #[test]
    fn shares_make_up_the_whole() {
        let shares: Vec<_> = (0..3).map(|rank| share(10, rank, 3)).collect();
        assert_eq!(shares, [0..3, 3..6, 6..10]);
    }
}
