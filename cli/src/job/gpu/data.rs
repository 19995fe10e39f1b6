//! Contributions and references, made by all cores: buffers of GPUs are large.

use super::super::data::{Rule, fill, judge};
use super::super::places::Part;

/// Fewer elements are not worth a thread.
const LEAST: usize = 1 << 16;

/// The parts of a buffer that lie in some of its elements, as parts of those alone.
fn clip(parts: &[Part], from: usize, to: usize) -> Vec<Part> {
    let inside = |part: &Part| {
        let (first, end) = (part.at.max(from), (part.at + part.len).min(to));
        (first < end).then(|| Part {
            at: first - from,
            len: end - first,
            index: part.index + (first - part.at) as u64,
            from: part.from.clone(),
        })
    };
    parts.iter().filter_map(inside).collect()
}

/// Elements for each of so many threads.
fn share(elements: usize, threads: usize) -> usize {
    elements.div_ceil(threads.max(1)).max(LEAST)
}

/// As [`fill`], by several threads.
pub(super) fn fill_all(rule: &Rule, rank: u32, parts: &[Part], buffer: &mut [u8], threads: usize) {
    let size = rule.dtype.size();
    let share = share(buffer.len() / size, threads);
    std::thread::scope(|scope| {
        for (i, piece) in buffer.chunks_mut(share * size).enumerate() {
            let from = i * share;
            let parts = clip(parts, from, from + piece.len() / size);
            scope.spawn(move || fill(rule, rank, &parts, piece));
        }
    });
}

/// As [`judge`], by several threads.
pub(super) fn judge_all(
    rule: &Rule,
    parts: &[Part],
    buffer: &[u8],
    threads: usize,
) -> (u64, Option<String>) {
    let size = rule.dtype.size();
    let share = share(buffer.len() / size, threads);
    let verdicts: Vec<(u64, Option<String>)> = std::thread::scope(|scope| {
        let begun: Vec<_> = buffer
            .chunks(share * size)
            .enumerate()
            .map(|(i, piece)| {
                let from = i * share;
                let parts = clip(parts, from, from + piece.len() / size);
                let said = move |(wrong, first): (u64, Option<String>)| match from {
                    0 => (wrong, first),
                    _ => (wrong, first.map(|f| format!("from element {from}, {f}"))),
                };
                scope.spawn(move || said(judge(rule, &parts, piece)))
            })
            .collect();
        let lost = || (1, Some("the comparison failed".to_string()));
        begun.into_iter().map(|t| t.join().unwrap_or_else(|_| lost())).collect()
    });
    let wrong = verdicts.iter().map(|v| v.0).sum();
    (wrong, verdicts.into_iter().find_map(|v| v.1))
}

#[cfg(test)]
mod tests {
    use roundelay::{DType, RedOp};

    use super::super::super::places::Ranks;
    use super::*;

    #[test]
    fn many_threads_fill_and_judge_as_one_does() {
        let rule =
            Rule { seed: 5, ranks: 2, dtype: DType::I32, op: RedOp::Sum, wire: 0.0, whole: true };
        let part = |at, len, index, from| Part { at, len, index, from: Ranks::One(from) };
        let parts = [part(3, LEAST, 7, 0), part(LEAST + 3, 2 * LEAST, 1, 1)];
        let bytes = (3 * LEAST + 9) * 4;
        let (mut one, mut many) = (vec![0; bytes], vec![0; bytes]);
        for rank in 0..2 {
            let own: Vec<Part> =
                parts.iter().filter(|p| p.from == Ranks::One(rank)).cloned().collect();
            fill(&rule, rank, &own, &mut one);
            fill_all(&rule, rank, &own, &mut many, 3);
        }
        assert!(one == many);
        assert_eq!(judge_all(&rule, &parts, &many, 3), (0, None));
        many[(2 * LEAST + 5) * 4] ^= 1;
        many[8] ^= 1;
        let (wrong, first) = judge_all(&rule, &parts, &many, 3);
        assert_eq!(wrong, 1, "what is in no part does not count");
        assert!(first.is_some_and(|f| f.starts_with(&format!("from element {}", LEAST + 3))));
    }
}
