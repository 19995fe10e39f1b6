//! Makes one call on fresh data, wherever its memory lies, and checks everything about it.

use roundelay::Error;

use super::buffers::{CallMemory, digest_of};
use super::many::{fill_all, judge_all, threads};
use super::ready::ReadyAlgorithm;
use super::rule::ElementRule;
use super::sample::share;
use crate::args::VerifyScope;

/// A call on fresh data.
#[derive(Clone, Copy)]
pub(crate) struct CallTrial<'a, A> {
    /// The algorithm.
    pub(crate) ready: &'a ReadyAlgorithm<A>,
    /// The number of calls before it, which says whose turn it is to be the root.
    pub(crate) turn: u64,
    /// Elements, in the unit of the collective.
    pub(crate) count: usize,
    /// The elements.
    pub(crate) rule: ElementRule,
    /// The part of the result that is verified.
    pub(crate) verify: VerifyScope,
}

impl<A> CallTrial<'_, A> {
    /// Writes poison and guards everywhere, and this rank's contributions; returns a digest of the input.
    pub(crate) fn prepare(&self, memory: &mut impl CallMemory) -> Result<u64, Error> {
        let CallTrial { ready, turn, count, rule, .. } = self;
        let (rank, ranks) = memory.rank();
        let before = ready.places(*turn, rank, ranks, *count).before(ready.in_place);
        memory.prepare(|input| fill_all(rule, rank, &before, input, threads(ranks)))?;
        Ok(self.digest(memory.input()))
    }

    fn digest(&self, input: &[u8]) -> u64 {
        let (size, chunks) = (self.rule.dtype.size(), self.ready.chunks()[0] as usize);
        let kept = self.verify.ranges(input.len() / size, chunks, self.rule.seed);
        digest_of(input, &kept, size)
    }

    /// Returns the number of wrong elements here, and what is wrong in words, after the call; `input` is what was
    /// prepared. Where all ranks must have the same bits each compares its share with the reference, and their
    /// digests say the rest; if anything is wrong, each compares all.
    pub(crate) fn verify(
        &self,
        memory: &mut impl CallMemory,
        input: u64,
    ) -> Result<(u64, Vec<String>), Error> {
        let CallTrial { ready, turn, count, rule, verify } = self;
        let intact = memory.fetch()?;
        let ((rank, ranks), size) = (memory.rank(), rule.dtype.size());
        let after = ready.places(*turn, rank, ranks, *count).after(ready.in_place);
        let elements = memory.result().len() / size;
        let ranges = verify.ranges(elements, ready.chunks()[1] as usize, rule.seed);
        let together = ready.bitwise && *verify == VerifyScope::Full;
        let own = match together {
            true => vec![share(elements, rank, ranks)],
            false => ranges.clone(),
        };
        let threads = threads(ranks);
        let (mut wrong, mut first) = judge_all(rule, &after, memory.result(), &own, threads);
        let mut differs = None;
        if ready.bitwise {
            let digest = digest_of(memory.result(), &ranges, size);
            let digests = memory.comm().all_gather_u64(digest)?;
            differs = digests.iter().position(|d| *d != digests[0]);
        }
        if together
            && (memory.comm().all_gather_u64(wrong)?.iter().any(|&wrong| wrong > 0)
                || differs.is_some())
        {
            (wrong, first) = judge_all(rule, &after, memory.result(), &ranges, threads);
        }
        let mut words: Vec<String> = first.into_iter().collect();
        let mut fault = |what: String| {
            wrong += 1;
            words.push(what);
        };
        if !intact {
            fault("guard bytes beside a buffer were overwritten".into());
        }
        if self.digest(memory.input()) != input {
            fault("the input was overwritten".into());
        }
        if let Some(other) = differs.filter(|_| rank == 0) {
            fault(format!("the result differs in bits from that of rank {other}"));
        }
        Ok((wrong, words))
    }
}
