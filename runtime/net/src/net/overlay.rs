//! The links between ranks, and the algorithm by which each rank gets the parts of all ranks over them.
//!
//! Rank r is linked with the ranks r ± 2^k (mod n). A pair is linked once, however many offsets join
//! it. [`BruckGather`] is Bruck's algorithm: in step k a rank sends what it has to r - 2^k and receives as
//! much from r + 2^k, so that after `ceil(log2 n)` steps each has all. It does no I/O: the same code
//! runs over sockets and in [`scale`](super::scale).

/// Returns the number of steps until each rank has all parts: `ceil(log2 size)`.
pub(super) fn steps(size: u32) -> u32 {
    u32::BITS - size.saturating_sub(1).leading_zeros()
}

/// Returns the rank `2^step` after this one.
pub(super) fn after(rank: u32, size: u32, step: u32) -> u32 {
    ((u64::from(rank) + (1 << step)) % u64::from(size)) as u32
}

/// Returns the rank `2^step` before this one.
pub(super) fn before(rank: u32, size: u32, step: u32) -> u32 {
    let size = u64::from(size);
    ((u64::from(rank) + size - (1 << step) % size) % size) as u32
}

/// Returns true if, of two linked ranks, `a` is the one that connects: the one with the smaller way to the
/// other, which is the first that needs the link and the first that has the other's address.
pub(super) fn connects(a: u32, b: u32, size: u32) -> bool {
    let way = |from: u32, to: u32| match (to + size - from) % size {
        d if d.is_power_of_two() => d,
        _ => u32::MAX,
    };
    let (there, back) = (way(a, b), way(b, a));
    there < back || (there == back && a < b)
}

/// Returns the ranks linked with `rank`, each once, in ascending order.
pub(super) fn neighbours(rank: u32, size: u32) -> Vec<u32> {
    let both = |step| [after(rank, size, step), before(rank, size, step)];
    let mut all: Vec<u32> = (0..steps(size)).flat_map(both).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Parts of consecutive ranks, in order.
pub(super) trait GatheredParts: Sized {
    /// Returns the number of ranks whose parts these are.
    fn count(&self) -> u32;
    /// Returns `count` of them, from the `from`-th.
    fn part(&self, from: u32, count: u32) -> Self;
    /// Puts more behind them; false if they do not belong there.
    fn join(&mut self, more: Self) -> bool;
}

impl<T: Clone> GatheredParts for Vec<T> {
    fn count(&self) -> u32 {
        self.len() as u32
    }

    fn part(&self, from: u32, count: u32) -> Self {
        self[from as usize..(from + count) as usize].to_vec()
    }

    fn join(&mut self, more: Self) -> bool {
        self.extend(more);
        true
    }
}

/// One rank's side of gathering the parts of all ranks. The pile holds the parts of the ranks from this
/// one on, cyclically.
pub(super) struct BruckGather<P> {
    rank: u32,
    size: u32,
    step: u32,
    is_sent: bool,
    /// Parts beyond its own that a rank has at the beginning.
    ahead: u32,
    pile: P,
}

impl<P: GatheredParts> BruckGather<P> {
    /// Begins with this rank's part, and perhaps those of ranks right after it.
    pub(super) fn new(rank: u32, size: u32, pile: P) -> Self {
        let ahead = pile.count() - 1;
        BruckGather { rank, size, step: 0, is_sent: false, ahead, pile }
    }

    /// Returns the step that is being made.
    pub(super) fn step(&self) -> u32 {
        self.step
    }

    /// Returns true if this rank has the parts of all ranks.
    pub(super) fn is_done(&self) -> bool {
        self.step == steps(self.size)
    }

    /// Returns the rank to which this step sends.
    pub(super) fn target(&self) -> u32 {
        before(self.rank, self.size, self.step)
    }

    /// Returns the rank from which this step receives.
    pub(super) fn source(&self) -> u32 {
        after(self.rank, self.size, self.step)
    }

    /// Returns the number of parts that are sent, and received, in this step.
    fn share(&self) -> u32 {
        let after = |step: u32| ((1_u64 << step) + u64::from(self.ahead)).min(self.size.into());
        (after(self.step + 1) - after(self.step)) as u32
    }

    /// Returns the parts to send in this step, once a step.
    pub(super) fn outgoing(&mut self) -> Option<P> {
        if self.is_done() || self.is_sent {
            return None;
        }
        self.is_sent = true;
        // The target has the first ones already.
        Some(self.pile.part(self.ahead.min(self.size - 1), self.share()))
    }

    /// Takes what the source sent in this step; false if that is not what belongs there.
    pub(super) fn incoming(&mut self, pile: P) -> bool {
        let fits = self.is_sent && !self.is_done() && pile.count() == self.share();
        if !fits || !self.pile.join(pile) {
            return false;
        }
        self.step += 1;
        self.is_sent = false;
        true
    }

    /// Returns the parts that are here.
    pub(super) fn pile(&self) -> &P {
        &self.pile
    }

    /// Returns all parts; the first is this rank's.
    pub(super) fn into_pile(self) -> P {
        self.pile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_linked_from_one_side() {
        for size in 1..70 {
            for rank in 0..size {
                let mine = neighbours(rank, size);
                assert!(!mine.contains(&rank) && mine.len() as u32 <= 2 * steps(size));
                for peer in mine {
                    assert!(neighbours(peer, size).contains(&rank));
                    assert_ne!(connects(rank, peer, size), connects(peer, rank, size));
                }
            }
        }
    }

    #[test]
    fn steps_are_the_logarithm() {
        let all: Vec<u32> = [1, 2, 3, 4, 5, 8, 9, 131_072].map(steps).into();
        assert_eq!(all, [0, 1, 2, 2, 3, 3, 4, 17]);
    }

    /// Lets all ranks gather, one step after the other.
    fn gather(size: u32, ahead: u32) {
        let own = |rank: u32| (0..=ahead.min(size - 1)).map(|i| (rank + i) % size).collect();
        let mut ranks: Vec<BruckGather<Vec<u32>>> =
            (0..size).map(|rank| BruckGather::new(rank, size, own(rank))).collect();
        for _ in 0..steps(size) {
            let sent: Vec<(u32, u32, Vec<u32>)> = ranks
                .iter_mut()
                .map(|r| (r.rank, r.target(), r.outgoing().expect("once a step")))
                .collect();
            for (from, to, pile) in sent {
                let to = &mut ranks[to as usize];
                assert_eq!(to.source(), from);
                assert!(to.incoming(pile));
            }
        }
        for (rank, gather) in ranks.into_iter().enumerate() {
            assert!(gather.is_done());
            let all: Vec<u32> = (0..size).map(|i| (rank as u32 + i) % size).collect();
            assert_eq!(gather.into_pile(), all, "{size} ranks, rank {rank}, {ahead} ahead");
        }
    }

    #[test]
    fn each_rank_gets_all_parts() {
        for size in 1..40 {
            gather(size, 0);
            gather(size, 1);
        }
    }

    #[test]
    fn a_pile_that_does_not_belong_is_refused() {
        let mut gather = BruckGather::new(0, 4, vec![0]);
        assert!(!gather.incoming(vec![1]), "nothing was sent yet");
        assert_eq!(gather.outgoing(), Some(vec![0]));
        assert_eq!(gather.outgoing(), None);
        assert!(!gather.incoming(vec![1, 2]));
        assert!(gather.incoming(vec![1]));
    }
}
