//! What a call reads and must write, by the plain definitions of the collectives: independent of
//! chunks, plans and everything else that the compiler makes of them.
//!
//! Every rank has a vector of its own, from which its contributions come. In `all_gather` and `gather`
//! it has `count` elements, in the other collectives with blocks `count` for each rank.

use roundelay_compiler::collective::{CustomSpec, Kind};

/// Elements of a buffer, and what they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// First element in the buffer.
    pub(crate) at: usize,
    /// Number of elements.
    pub(crate) len: usize,
    /// First element in the vectors that they come from.
    pub(crate) index: u64,
    /// Whose vectors.
    pub(crate) from: Ranks,
}

/// Whose contributions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// Those of all ranks, reduced.
    All,
    /// One rank's, as they are.
    One(u32),
    /// Those of these ranks, reduced.
    These(Vec<u32>),
}

/// A call of one rank.
pub(crate) struct Places<'a> {
    /// The collective.
    pub(crate) kind: &'a Kind,
    /// What a declared collective asks for.
    pub(crate) custom: Option<&'a CustomSpec>,
    /// Number of ranks.
    pub(crate) ranks: u32,
    /// The root.
    pub(crate) root: u32,
    /// This rank.
    pub(crate) rank: u32,
    /// Elements, in the unit of the collective.
    pub(crate) count: usize,
}

impl Places<'_> {
    fn part(&self, at: u32, blocks: u32, index: u32, from: Ranks) -> Part {
        let count = self.count;
        Part {
            at: at as usize * count,
            len: blocks as usize * count,
            index: u64::from(index) * count as u64,
            from,
        }
    }

    /// Elements of the buffer of a call in place.
    pub(crate) fn data(&self) -> usize {
        let blocks = if self.kind.blocked() { self.ranks as usize } else { 1 };
        blocks * self.count
    }

    /// Elements of the input.
    pub(crate) fn input(&self) -> usize {
        match (self.kind, self.custom) {
            (_, Some(c)) => c.input as usize * self.count,
            (Kind::AllGather | Kind::Gather, _) => self.count,
            _ => self.data(),
        }
    }

    /// Elements of the output.
    pub(crate) fn output(&self) -> usize {
        match (self.kind, self.custom) {
            (_, Some(c)) => c.output as usize * self.count,
            (Kind::ReduceScatter | Kind::Scatter, _) => self.count,
            _ => self.data(),
        }
    }

    /// What the buffer holds before: the data, or the input.
    pub(crate) fn before(&self, in_place: bool) -> Vec<Part> {
        let (n, rank) = (self.ranks, self.rank);
        let own = Ranks::One(rank);
        match self.kind {
            Kind::Barrier => vec![],
            Kind::AllReduce | Kind::Reduce => vec![self.part(0, 1, 0, own)],
            Kind::ReduceScatter | Kind::AllToAll => vec![self.part(0, n, 0, own)],
            Kind::AllGather | Kind::Gather if in_place => vec![self.part(rank, 1, 0, own)],
            Kind::AllGather | Kind::Gather => vec![self.part(0, 1, 0, own)],
            Kind::Broadcast if rank == self.root => vec![self.part(0, 1, 0, own)],
            Kind::Scatter if rank == self.root => vec![self.part(0, n, 0, own)],
            Kind::SendRecv if rank == 0 => vec![self.part(0, 1, 0, own)],
            Kind::Broadcast | Kind::Scatter | Kind::SendRecv => vec![],
            Kind::Custom(_) => vec![self.part(0, self.custom.map_or(0, |c| c.input), 0, own)],
        }
    }

    /// What the buffer must hold after: the data, or the output.
    pub(crate) fn after(&self, in_place: bool) -> Vec<Part> {
        let (n, rank, root) = (self.ranks, self.rank, self.root);
        let own = if in_place { rank } else { 0 };
        match self.kind {
            Kind::Barrier => vec![],
            Kind::AllReduce => vec![self.part(0, 1, 0, Ranks::All)],
            Kind::Reduce if rank == root => vec![self.part(0, 1, 0, Ranks::All)],
            Kind::ReduceScatter => vec![self.part(own, 1, rank, Ranks::All)],
            Kind::AllGather => (0..n).map(|b| self.part(b, 1, 0, Ranks::One(b))).collect(),
            Kind::Gather if rank == root => {
                (0..n).map(|b| self.part(b, 1, 0, Ranks::One(b))).collect()
            }
            Kind::Broadcast => vec![self.part(0, 1, 0, Ranks::One(root))],
            Kind::Scatter => vec![self.part(own, 1, rank, Ranks::One(root))],
            Kind::AllToAll => (0..n).map(|b| self.part(b, 1, rank, Ranks::One(b))).collect(),
            Kind::SendRecv if rank == 1 => vec![self.part(0, 1, 0, Ranks::One(0))],
            Kind::Reduce | Kind::Gather | Kind::SendRecv => vec![],
            Kind::Custom(_) => self.declared(),
        }
    }

    /// What a declared collective asks for: a block each.
    fn declared(&self) -> Vec<Part> {
        let Some(custom) = self.custom else { return vec![] };
        let first = self.rank as usize * custom.output as usize;
        let asked = |c: u32| custom.expected.get(first + c as usize).cloned().flatten();
        let part = |c: u32| {
            let (index, ranks) = asked(c)?;
            let from = match ranks[..] {
                [one] => Ranks::One(one),
                _ => Ranks::These(ranks),
            };
            Some(self.part(c, 1, index, from))
        };
        (0..custom.output).filter_map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_where_the_collectives_say() {
        let places = |kind, rank| Places { kind, custom: None, ranks: 3, root: 1, rank, count: 5 };
        let p = places(&Kind::ReduceScatter, 2);
        assert_eq!((p.data(), p.input(), p.output()), (15, 15, 5));
        assert_eq!(p.after(true), [Part { at: 10, len: 5, index: 10, from: Ranks::All }]);
        assert_eq!(p.after(false), [Part { at: 0, len: 5, index: 10, from: Ranks::All }]);
        let p = places(&Kind::AllToAll, 2);
        assert_eq!(p.after(false)[1], Part { at: 5, len: 5, index: 10, from: Ranks::One(1) });
        assert!(places(&Kind::Gather, 0).after(true).is_empty());
        assert_eq!(places(&Kind::Gather, 1).after(true).len(), 3);
        assert_eq!(places(&Kind::Scatter, 1).before(true)[0].len, 15);
        assert!(places(&Kind::Scatter, 0).before(true).is_empty());
    }
}
