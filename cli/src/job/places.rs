//! Lists what a call reads and must write, by the plain definitions of the collectives: independent of
//! chunks, plans and everything else that the compiler makes of them.
//!
//! Every rank has a vector of its own, from which its contributions come. In `all_gather` and `gather`
//! it has `count` elements, in the other collectives with blocks `count` for each rank.

use roundelay_compiler::postcondition;
use roundelay_compiler::program::CollectiveKind;

/// Elements of a buffer, and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BufferPart {
    /// First element in the buffer.
    pub(crate) at: usize,
    /// Number of elements.
    pub(crate) len: usize,
    /// First element in the vectors that they come from.
    pub(crate) index: u64,
    /// The ranks whose vectors they are.
    pub(crate) from: ContributorSet,
}

/// The ranks whose contributions an element is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ContributorSet {
    /// Those of all ranks, reduced.
    All,
    /// One rank's, as they are.
    One(u32),
    /// Those of these ranks, reduced; each with the first element in its vector.
    Each(Vec<(u32, u64)>),
}

/// A call of one rank.
pub(crate) struct CallPlaces<'a> {
    /// The collective.
    pub(crate) kind: &'a CollectiveKind,
    /// The extents of the axes.
    pub(crate) axes: &'a [u32],
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// The root.
    pub(crate) root: u32,
    /// This rank.
    pub(crate) rank: u32,
    /// Elements, in the unit of the collective.
    pub(crate) count: usize,
}

impl CallPlaces<'_> {
    fn part(&self, at: u32, blocks: u32, index: u32, from: ContributorSet) -> BufferPart {
        let count = self.count;
        BufferPart {
            at: at as usize * count,
            len: blocks as usize * count,
            index: u64::from(index) * count as u64,
            from,
        }
    }

    /// Returns the number of elements of the buffer of a call in place.
    pub(crate) fn data(&self) -> usize {
        let blocks = if self.kind.blocked() { self.ranks as usize } else { 1 };
        blocks * self.count
    }

    /// Returns the number of elements of the input.
    pub(crate) fn input(&self) -> usize {
        match (self.kind, self.blocks()) {
            (_, Some((input, _))) => input as usize * self.count,
            (CollectiveKind::AllGather | CollectiveKind::Gather, _) => self.count,
            _ => self.data(),
        }
    }

    /// Returns the number of elements of the output.
    pub(crate) fn output(&self) -> usize {
        match (self.kind, self.blocks()) {
            (_, Some((_, output))) => output as usize * self.count,
            (CollectiveKind::ReduceScatter | CollectiveKind::Scatter, _) => self.count,
            _ => self.data(),
        }
    }

    /// Returns the contents of the buffer before a call: of the data, or of the input.
    pub(crate) fn before(&self, in_place: bool) -> Vec<BufferPart> {
        let (n, rank) = (self.ranks, self.rank);
        let own = ContributorSet::One(rank);
        match self.kind {
            CollectiveKind::Barrier => vec![],
            CollectiveKind::AllReduce
            | CollectiveKind::Reduce
            | CollectiveKind::Scan
            | CollectiveKind::ExScan => vec![self.part(0, 1, 0, own)],
            CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
                vec![self.part(0, n, 0, own)]
            }
            CollectiveKind::AllGather | CollectiveKind::Gather if in_place => {
                vec![self.part(rank, 1, 0, own)]
            }
            CollectiveKind::AllGather | CollectiveKind::Gather => vec![self.part(0, 1, 0, own)],
            CollectiveKind::Broadcast if rank == self.root => vec![self.part(0, 1, 0, own)],
            CollectiveKind::Scatter if rank == self.root => vec![self.part(0, n, 0, own)],
            CollectiveKind::SendRecv if rank == 0 => vec![self.part(0, 1, 0, own)],
            CollectiveKind::Broadcast | CollectiveKind::Scatter | CollectiveKind::SendRecv => {
                vec![]
            }
            CollectiveKind::Custom(_) => {
                vec![self.part(0, self.blocks().map_or(0, |b| b.0), 0, own)]
            }
        }
    }

    /// Returns the contents that the buffer must have after a call: of the data, or of the output.
    pub(crate) fn after(&self, in_place: bool) -> Vec<BufferPart> {
        let (n, rank, root) = (self.ranks, self.rank, self.root);
        let own = if in_place { rank } else { 0 };
        match self.kind {
            CollectiveKind::Barrier => vec![],
            CollectiveKind::AllReduce => vec![self.part(0, 1, 0, ContributorSet::All)],
            CollectiveKind::Reduce if rank == root => vec![self.part(0, 1, 0, ContributorSet::All)],
            CollectiveKind::ReduceScatter => vec![self.part(own, 1, rank, ContributorSet::All)],
            CollectiveKind::AllGather => {
                (0..n).map(|b| self.part(b, 1, 0, ContributorSet::One(b))).collect()
            }
            CollectiveKind::Gather if rank == root => {
                (0..n).map(|b| self.part(b, 1, 0, ContributorSet::One(b))).collect()
            }
            CollectiveKind::Broadcast => vec![self.part(0, 1, 0, ContributorSet::One(root))],
            CollectiveKind::Scatter => vec![self.part(own, 1, rank, ContributorSet::One(root))],
            CollectiveKind::AllToAll => {
                (0..n).map(|b| self.part(b, 1, rank, ContributorSet::One(b))).collect()
            }
            CollectiveKind::SendRecv if rank == 1 => {
                vec![self.part(0, 1, 0, ContributorSet::One(0))]
            }
            CollectiveKind::Reduce | CollectiveKind::Gather | CollectiveKind::SendRecv => vec![],
            CollectiveKind::Scan => vec![self.part(0, 1, 0, self.prefix(rank + 1))],
            CollectiveKind::ExScan if rank > 0 => vec![self.part(0, 1, 0, self.prefix(rank))],
            // Before the call it held the rank's own contribution, and nothing of one out of place.
            CollectiveKind::ExScan if in_place => vec![self.part(0, 1, 0, ContributorSet::One(0))],
            CollectiveKind::ExScan => vec![],
            CollectiveKind::Custom(_) => self.declared(),
        }
    }

    /// Returns the contributions of the ranks below `end`, of which there is one at least.
    fn prefix(&self, end: u32) -> ContributorSet {
        match end {
            1 => ContributorSet::One(0),
            _ if end == self.ranks => ContributorSet::All,
            _ => ContributorSet::Each((0..end).map(|rank| (rank, 0)).collect()),
        }
    }

    /// Returns the blocks of input and output of a declared collective.
    fn blocks(&self) -> Option<(u32, u32)> {
        let CollectiveKind::Custom(custom) = self.kind else { return None };
        postcondition::sizes(custom, self.axes).ok()
    }

    /// Returns what a declared collective asks for, a block each, read from its postconditions: not from what
    /// the proofs made of them.
    fn declared(&self) -> Vec<BufferPart> {
        let CollectiveKind::Custom(custom) = self.kind else { return vec![] };
        let first = |chunk: u32| u64::from(chunk) * self.count as u64;
        let part = |asked: postcondition::RequiredContent| match asked.of.as_slice() {
            [(rank, chunk)] => self.part(asked.output, 1, *chunk, ContributorSet::One(*rank)),
            of => {
                let of = of.iter().map(|&(rank, chunk)| (rank, first(chunk))).collect();
                self.part(asked.output, 1, 0, ContributorSet::Each(of))
            }
        };
        // `prove` has evaluated them before any rank began.
        let asked = postcondition::asked(custom, self.axes, self.rank).unwrap_or_default();
        asked.into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use roundelay::{DType, RedOp};
    use roundelay_compiler::{NoLibrary, resolve};
    use roundelay_dsl::span::SourceMap;

    use super::super::data::{fill, judge};
    use super::super::rule::ElementRule;
    use super::*;

    #[test]
    fn blocks_lie_where_the_collectives_say() {
        let places =
            |kind, rank| CallPlaces { kind, axes: &[3], ranks: 3, root: 1, rank, count: 5 };
        let p = places(&CollectiveKind::ReduceScatter, 2);
        assert_eq!((p.data(), p.input(), p.output()), (15, 15, 5));
        assert_eq!(
            p.after(true),
            [BufferPart { at: 10, len: 5, index: 10, from: ContributorSet::All }]
        );
        assert_eq!(
            p.after(false),
            [BufferPart { at: 0, len: 5, index: 10, from: ContributorSet::All }]
        );
        let p = places(&CollectiveKind::AllToAll, 2);
        assert_eq!(
            p.after(false)[1],
            BufferPart { at: 5, len: 5, index: 10, from: ContributorSet::One(1) }
        );
        assert!(places(&CollectiveKind::Gather, 0).after(true).is_empty());
        assert_eq!(places(&CollectiveKind::Gather, 1).after(true).len(), 3);
        assert_eq!(places(&CollectiveKind::Scatter, 1).before(true)[0].len, 15);
        assert!(places(&CollectiveKind::Scatter, 0).before(true).is_empty());
    }

    /// A sum of chunk p of every rank p. What a plan runs for which a wrong table asked, the last chunk
    /// of all ranks, is wrong here: the table is not asked.
    #[test]
    fn sums_of_different_chunks_are_read_from_the_postconditions() {
        let text = "collective own on n ranks { input n output 1
            each r { output[0] = reduce p in 0..n : input[p] at p } }
            algorithm main implements own on n ranks {
                each r { r -> r : copy input[r] -> output[0] }
                each r { for q in 0..n where q != r { r -> q : reduce input[r] -> output[0] } } }";
        let mut sources = SourceMap::new();
        let id = sources.add("own.algo", text);
        let programs = resolve(&mut sources, id, &NoLibrary).expect("it resolves");
        let kind = &programs[0].kind;
        let places = CallPlaces { kind, axes: &[3], ranks: 3, root: 0, rank: 1, count: 5 };
        let after = places.after(false);
        let each = ContributorSet::Each(vec![(0, 0), (1, 5), (2, 10)]);
        assert_eq!(after, [BufferPart { at: 0, len: 5, index: 0, from: each }]);
        let rule = ElementRule {
            seed: 3,
            ranks: 3,
            dtype: DType::I32,
            op: RedOp::Sum,
            wire: 0.0,
            whole: false,
        };
        let sum = |chunks: [u64; 3]| {
            let mut sum = [0i32; 5];
            for (rank, chunk) in (0..).zip(chunks) {
                let mut bytes = [0; 20];
                let part =
                    BufferPart { at: 0, len: 5, index: chunk * 5, from: ContributorSet::One(rank) };
                fill(&rule, rank, &[part], &mut bytes);
                for (sum, x) in sum.iter_mut().zip(bytes.chunks_exact(4)) {
                    *sum = sum.wrapping_add(i32::from_le_bytes(x.try_into().unwrap_or_default()));
                }
            }
            sum.map(i32::to_le_bytes).concat()
        };
        assert_eq!(judge(&rule, &after, &sum([0, 1, 2])), (0, None));
        assert_eq!(judge(&rule, &after, &sum([2, 2, 2])).0, 5);
    }
}
