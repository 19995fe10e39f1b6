//! Makes contributions and references by several threads, and judges them all over or in places.

use std::ops::Range;

use roundelay::internal::run_shared;

use super::data::{fill, judge};
use super::places::BufferPart;
use super::rule::ElementRule;

/// Fewer elements are not worth a thread.
const LEAST: usize = 1 << 16;

/// Returns the parts of a buffer that lie in some of its elements, as parts of those alone.
fn clip(parts: &[BufferPart], from: usize, to: usize) -> Vec<BufferPart> {
    let inside = |part: &BufferPart| {
        let (first, end) = (part.at.max(from), (part.at + part.len).min(to));
        (first < end).then(|| BufferPart {
            at: first - from,
            len: end - first,
            index: part.index + (first - part.at) as u64,
            from: part.from.clone(),
        })
    };
    parts.iter().filter_map(inside).collect()
}

/// Returns the number of elements of each of `threads` threads.
fn share(elements: usize, threads: usize) -> usize {
    elements.div_ceil(threads.max(1)).max(LEAST)
}

/// Threads for a rank of a job, if the others need as many.
pub(super) fn threads(ranks: u32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / ranks.max(1) as usize).max(1)
}

/// Writes a rank's contributions like [`fill`], by several threads.
pub(super) fn fill_all(
    rule: &ElementRule,
    rank: u32,
    parts: &[BufferPart],
    buffer: &mut [u8],
    threads: usize,
) {
    let size = rule.dtype.size();
    let share = share(buffer.len() / size, threads);
    run_shared(buffer.chunks_mut(share * size).enumerate(), threads, |(i, bytes)| {
        let from = i * share;
        fill(rule, rank, &clip(parts, from, from + bytes.len() / size), bytes);
    });
}

/// Judges results like [`judge`], by several threads, and only in these ranges of elements.
pub(super) fn judge_all(
    rule: &ElementRule,
    parts: &[BufferPart],
    buffer: &[u8],
    ranges: &[Range<usize>],
    threads: usize,
) -> (u64, Option<String>) {
    let size = rule.dtype.size();
    let one = |range: &Range<usize>| {
        let Range { start, end } = *range;
        let (wrong, first) =
            judge(rule, &clip(parts, start, end), &buffer[start * size..end * size]);
        let said = first.map(|first| match start {
            0 => first,
            _ => format!("from element {start}, {first}"),
        });
        (wrong, said)
    };
    let elements = ranges.iter().map(Range::len).sum();
    let shares = shares(ranges, share(elements, threads));
    let verdicts: Vec<(u64, Option<String>)> = run_shared(&shares, threads, |ranges| {
        let add =
            |(wrong, first): (u64, Option<String>), (more, said)| (wrong + more, first.or(said));
        ranges.iter().map(one).fold((0, None), add)
    });
    let wrong = verdicts.iter().map(|v| v.0).sum();
    (wrong, verdicts.into_iter().find_map(|v| v.1))
}

/// Ranges in groups of about `most` elements.
fn shares(ranges: &[Range<usize>], most: usize) -> Vec<Vec<Range<usize>>> {
    let (mut shares, mut room) = (Vec::new(), 0);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            if room == 0 {
                shares.push(Vec::new());
                room = most.max(1);
            }
            let end = range.end.min(start + room);
            if let Some(share) = shares.last_mut() {
                share.push(start..end);
            }
            (room, start) = (room - (end - start), end);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use roundelay::{DType, RedOp};

    use super::super::places::ContributorSet;
    use super::*;

    #[test]
    fn many_threads_fill_and_judge_as_one_does() {
        let rule = ElementRule {
            seed: 5,
            ranks: 2,
            dtype: DType::I32,
            op: RedOp::Sum,
            wire: 0.0,
            whole: true,
        };
        let part =
            |at, len, index, from| BufferPart { at, len, index, from: ContributorSet::One(from) };
        let parts = [part(3, LEAST, 7, 0), part(LEAST + 3, 2 * LEAST, 1, 1)];
        let bytes = (3 * LEAST + 9) * 4;
        let (mut one, mut many) = (vec![0; bytes], vec![0; bytes]);
        for rank in 0..2 {
            let own: Vec<BufferPart> =
                parts.iter().filter(|p| p.from == ContributorSet::One(rank)).cloned().collect();
            fill(&rule, rank, &own, &mut one);
            fill_all(&rule, rank, &own, &mut many, 3);
        }
        assert!(one == many);
        let all = std::slice::from_ref(&(0..3 * LEAST + 9)).to_vec();
        assert_eq!(judge_all(&rule, &parts, &many, &all, 3), (0, None));
        many[(2 * LEAST + 5) * 4] ^= 1;
        many[8] ^= 1;
        let (wrong, first) = judge_all(&rule, &parts, &many, &all, 3);
        assert_eq!(wrong, 1, "what is in no part does not count");
        assert!(first.is_some_and(|f| f.starts_with(&format!("from element {}", LEAST + 3))));
        let beside = [0..2 * LEAST, 2 * LEAST + 9..3 * LEAST];
        assert_eq!(judge_all(&rule, &parts, &many, &beside, 3).0, 0);
        let around = [7..9, 2 * LEAST + 5..2 * LEAST + 6];
        assert_eq!(judge_all(&rule, &parts, &many, &around, 3).0, 1);
    }
}
