//! Defines what the collectives of the table in docs/language.md begin and end with.

use std::collections::BTreeMap;

use super::declared::DeclaredTask;

/// One of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OracleKind {
    AllReduce,
    Reduce,
    Broadcast,
    SendRecv,
    AllGather,
    Gather,
    ReduceScatter,
    Scatter,
    AllToAll,
    Barrier,
    Scan,
    ExScan,
    /// Declared in a file.
    Declared,
}

impl OracleKind {
    pub(super) fn of(name: &str) -> OracleKind {
        match name {
            "all_reduce" => OracleKind::AllReduce,
            "reduce" => OracleKind::Reduce,
            "broadcast" => OracleKind::Broadcast,
            "sendrecv" => OracleKind::SendRecv,
            "all_gather" => OracleKind::AllGather,
            "gather" => OracleKind::Gather,
            "reduce_scatter" => OracleKind::ReduceScatter,
            "scatter" => OracleKind::Scatter,
            "all_to_all" => OracleKind::AllToAll,
            "barrier" => OracleKind::Barrier,
            "scan" => OracleKind::Scan,
            "exscan" => OracleKind::ExScan,
            _ => OracleKind::Declared,
        }
    }

    pub(super) fn blocked(self) -> bool {
        matches!(
            self,
            OracleKind::AllGather
                | OracleKind::Gather
                | OracleKind::ReduceScatter
                | OracleKind::Scatter
                | OracleKind::AllToAll
        )
    }

    pub(super) fn rooted(self) -> bool {
        matches!(
            self,
            OracleKind::Broadcast | OracleKind::Reduce | OracleKind::Gather | OracleKind::Scatter
        )
    }

    /// Returns the number of blocks of the whole vector; of a declared collective, chunks of the declaration.
    pub(super) fn blocks(self, n: usize, declared: Option<&DeclaredTask>) -> usize {
        match declared {
            Some(declared) => declared.blocks(),
            None if self.blocked() => n,
            None => 1,
        }
    }
}

/// A contribution: a rank, and a piece of its vector.
pub(super) type Leaf = (usize, usize);

/// A collective on a number of ranks, of a number of pieces.
pub(super) struct CollectiveTask {
    pub(super) kind: OracleKind,
    pub(super) n: usize,
    pub(super) root: usize,
    pub(super) pieces: usize,
    /// Blocks of the whole vector.
    pub(super) blocks: usize,
    /// True if the algorithm uses `data`.
    pub(super) data: bool,
    /// Its declaration, if it is declared.
    pub(super) declared: Option<DeclaredTask>,
}

impl CollectiveTask {
    /// Returns the number of pieces of a block.
    pub(super) fn block(&self) -> usize {
        (self.pieces / self.blocks).max(1)
    }

    /// Returns true if contributions are summed.
    pub(super) fn sums(&self) -> bool {
        match &self.declared {
            Some(declared) => declared.sums,
            None => matches!(
                self.kind,
                OracleKind::AllReduce
                    | OracleKind::Reduce
                    | OracleKind::ReduceScatter
                    | OracleKind::Scan
                    | OracleKind::ExScan
            ),
        }
    }

    /// Returns true if contributions must be summed in ascending order of ranks.
    pub(super) fn ordered(&self) -> bool {
        matches!(self.kind, OracleKind::Scan | OracleKind::ExScan)
    }

    /// Returns the places that rank 0 must leave as they are.
    pub(super) fn left(&self) -> std::ops::Range<usize> {
        match self.kind {
            OracleKind::ExScan if self.data => 0..self.size(),
            OracleKind::ExScan => self.input()..self.size(),
            _ => 0..0,
        }
    }

    /// Returns the number of pieces of what it begins with: in `data`, or in `input`.
    fn input(&self) -> usize {
        if let Some(declared) = &self.declared {
            return declared.input * self.block();
        }
        match self.kind {
            OracleKind::AllGather | OracleKind::Gather if !self.data => self.block(),
            _ => self.pieces,
        }
    }

    fn output(&self) -> usize {
        if let Some(declared) = &self.declared {
            return declared.output * self.block();
        }
        match self.kind {
            _ if self.data => 0,
            OracleKind::ReduceScatter | OracleKind::Scatter => self.block(),
            _ => self.pieces,
        }
    }

    /// Places of a rank.
    pub(super) fn size(&self) -> usize {
        self.input() + self.output()
    }

    pub(super) fn views(&self) -> BTreeMap<String, Vec<usize>> {
        let input = (0..self.input()).collect();
        let output = (self.input()..self.size()).collect();
        match self.data {
            true => BTreeMap::from([("data".to_string(), input)]),
            false => BTreeMap::from([("input".to_string(), input), ("output".to_string(), output)]),
        }
    }

    /// Returns the contribution that a place begins with.
    pub(super) fn begins(&self, rank: usize, place: usize) -> Option<Leaf> {
        if place >= self.input() {
            return None;
        }
        match self.kind {
            OracleKind::Broadcast | OracleKind::Scatter => {
                (rank == self.root).then_some((rank, place))
            }
            OracleKind::SendRecv => (rank == 0).then_some((rank, place)),
            OracleKind::AllGather | OracleKind::Gather if self.data => {
                (place / self.block() == rank).then_some((rank, place))
            }
            OracleKind::AllGather | OracleKind::Gather => Some((rank, rank * self.block() + place)),
            _ => Some((rank, place)),
        }
    }

    /// Returns the contributions that a place must end with, each once. `None` asks for nothing.
    pub(super) fn ends(&self, rank: usize, place: usize) -> Option<Vec<Leaf>> {
        let at = if self.data { place } else { place.checked_sub(self.input())? };
        if let Some(declared) = &self.declared {
            let asked = declared.asked[rank][at / self.block()].as_ref()?;
            let cut = |(r, c): &(usize, usize)| (*r, c * self.block() + at % self.block());
            return Some(asked.iter().map(cut).collect());
        }
        let all = |piece| (0..self.n).map(|r| (r, piece)).collect();
        // The piece of the vector whose block is this rank's, where only that is asked for.
        let own = match self.data {
            true => (at / self.block() == rank).then_some(at),
            false => Some(rank * self.block() + at),
        };
        match self.kind {
            OracleKind::AllReduce => Some(all(at)),
            OracleKind::Reduce => (rank == self.root).then(|| all(at)),
            OracleKind::Broadcast => Some(vec![(self.root, at)]),
            OracleKind::SendRecv => (rank == 1).then(|| vec![(0, at)]),
            OracleKind::AllGather => Some(vec![(at / self.block(), at)]),
            OracleKind::Gather => (rank == self.root).then(|| vec![(at / self.block(), at)]),
            OracleKind::ReduceScatter => own.map(all),
            OracleKind::Scatter => own.map(|piece| vec![(self.root, piece)]),
            OracleKind::AllToAll => {
                Some(vec![(at / self.block(), rank * self.block() + at % self.block())])
            }
            OracleKind::Scan => Some((0..=rank).map(|r| (r, at)).collect()),
            OracleKind::ExScan => (rank > 0).then(|| (0..rank).map(|r| (r, at)).collect()),
            OracleKind::Barrier | OracleKind::Declared => None,
        }
    }
}
