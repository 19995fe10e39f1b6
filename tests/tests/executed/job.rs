//! Starts ranks as threads, kept from call to call.

use std::collections::BTreeMap;

use roundelay::Communicator;
use roundelay::transport::SegmentLayout;
use roundelay_tests::SeededRandom;

use crate::executed::case::{Case, Manner};

/// Makes new ranks, with slots of `slot` bytes, or the usual ones for 0. Memory that they cut scratch buffers from
/// holds no zeros.
pub(crate) fn ranks(n: u32, slot_bytes: u64) -> Vec<Communicator> {
    let mut layout = SegmentLayout::new(n);
    if slot_bytes > 0 {
        layout.slot_bytes = slot_bytes;
    }
    let mut ranks = roundelay::internal::local_with(layout).expect("shared memory");
    for comm in &mut ranks {
        comm.alloc::<u8>(1 << 20).expect("memory").fill(0xff);
    }
    ranks
}

/// Does something on every rank at once.
pub(crate) fn together<T: Send>(
    ranks: &mut [Communicator],
    what: impl Fn(&mut Communicator) -> T + Sync,
) -> Vec<T> {
    let what = &what;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ranks.iter_mut().map(|comm| scope.spawn(move || what(comm))).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    })
}

/// Ranks by their number and the bytes of a slot, and what they did.
#[derive(Default)]
pub(crate) struct Jobs {
    ranks: BTreeMap<(u32, u64), Vec<Communicator>>,
    pub(crate) messages: u64,
    pub(crate) pulled: u64,
    pub(crate) in_passes: u64,
    pub(crate) most_passes: u32,
}

impl Jobs {
    /// Runs a call twice on all ranks, one right after the other, and judges it; gives the results by
    /// rank.
    pub(crate) fn run(
        &mut self,
        case: &Case<'_>,
        manner: Manner,
        vectors: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>, String> {
        let n = case.plans.collective.ranks;
        let slot_bytes = match manner.slot_bytes {
            0 => 0,
            least => case.plans.least_slot(case.dtype).next_power_of_two().max(least),
        };
        let key = (n, slot_bytes);
        let ranks = self.ranks.entry(key).or_insert_with(|| self::ranks(n, slot_bytes));
        let outcomes = together(ranks, |comm| {
            let rank = comm.rank();
            let mut dice = SeededRandom(case.seed ^ u64::from(rank));
            let mut run = || {
                if dice.below(4) == 0 {
                    (0..dice.below(100)).for_each(|_| std::thread::yield_now());
                }
                case.run(comm, manner, vectors).map_err(|e| e.to_string())
            };
            let (a, b) = (run()?, run()?);
            case.judge(rank, vectors, &a)?;
            match case.result(rank, &a) {
                result if result == case.result(rank, &b) => Ok((result, a.stats)),
                _ => Err(format!("rank {rank}: the same call has another result")),
            }
        });
        let outcomes: Result<Vec<_>, String> = outcomes.into_iter().collect();
        let outcomes = outcomes.inspect_err(|_| {
            // They may have been spoilt.
            self.ranks.remove(&key);
        });
        let outcomes = outcomes.map_err(|e| format!("{manner:?}: {e}"))?;
        let (results, stats): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
        for s in &stats {
            self.messages += 2 * s.messages;
            self.pulled += 2 * s.pulled;
            self.most_passes = self.most_passes.max(s.passes);
        }
        self.in_passes += 2 * u64::from(stats.iter().any(|s| s.passes > 1));
        let same = case.plans.collective.name == "all_reduce" && case.plans.bitwise;
        match same && results.iter().any(|r| *r != results[0]) {
            true => Err(format!("{manner:?}: proved bitwise equal, but ranks differ")),
            false => Ok(results),
        }
    }
}
