//! Defines what each collective takes and must leave, in blocks of `count` elements. Nothing here knows of
//! chunks or plans. Declared ones are read by the oracle.
//!
//! Every rank has a vector, from which its contributions come: one block of it in the collectives whose
//! blocks are one a rank and begin there (`all_gather`, `gather`), all blocks in the others.

use roundelay_tests::oracle::{Asked, DeclaredTask};

/// A block of a buffer, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Index of the block in the buffer.
    pub(crate) at: u32,
    /// The contributions: ranks, and blocks of their vectors.
    pub(crate) of: Vec<(u32, u32)>,
    /// True if they are reduced; a single one is copied otherwise.
    pub(crate) reduced: bool,
}

/// A collective on a number of ranks.
#[derive(Debug, Clone)]
pub(crate) struct Collective {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    pub(crate) root: u32,
    /// Its declaration, if it is declared.
    pub(crate) declared: Option<DeclaredTask>,
}

impl Collective {
    /// Returns true if contributions are reduced.
    pub(crate) fn reduces(&self) -> bool {
        match &self.declared {
            Some(declared) => declared.sums,
            None => {
                ["all_reduce", "reduce", "reduce_scatter", "scan", "exscan"].contains(&self.name)
            }
        }
    }

    /// Returns true if ranks have results of different numbers of ranks.
    pub(crate) fn is_scan(&self) -> bool {
        ["scan", "exscan"].contains(&self.name)
    }

    /// Returns the number of blocks of the buffer of a call in place.
    pub(crate) fn data(&self) -> u32 {
        match self.name {
            _ if self.declared.is_some() => 0,
            "barrier" => 0,
            "all_reduce" | "reduce" | "broadcast" | "sendrecv" | "scan" | "exscan" => 1,
            _ => self.ranks,
        }
    }

    /// Returns the number of blocks of the input; also of a rank's vector.
    pub(crate) fn input(&self) -> u32 {
        match &self.declared {
            Some(declared) => declared.input as u32,
            None if ["all_gather", "gather"].contains(&self.name) => 1,
            None => self.data(),
        }
    }

    /// Returns the number of blocks of the output.
    pub(crate) fn output(&self) -> u32 {
        match &self.declared {
            Some(declared) => declared.output as u32,
            None if ["reduce_scatter", "scatter"].contains(&self.name) => 1,
            None => self.data(),
        }
    }

    /// Returns what the data, or the input, of a rank holds at the start; anything elsewhere.
    pub(crate) fn before(&self, rank: u32, in_place: bool) -> Vec<Block> {
        let own = |at, index| Block { at, of: vec![(rank, index)], reduced: false };
        let all = (0..self.input()).map(|b| own(b, b)).collect();
        match self.name {
            "all_gather" | "gather" if in_place => vec![own(rank, 0)],
            "broadcast" | "scatter" if rank != self.root => vec![],
            "sendrecv" if rank != 0 => vec![],
            _ => all,
        }
    }

    /// Returns what the data, or the output, of a rank holds at the end; anything elsewhere.
    pub(crate) fn after(&self, rank: u32, in_place: bool) -> Vec<Block> {
        if let Some(declared) = &self.declared {
            let asked = (0..).zip(&declared.asked[rank as usize]);
            let block = |(at, of): (u32, &Asked)| {
                let of: Vec<(u32, u32)> =
                    of.as_ref()?.iter().map(|(r, c)| (*r as u32, *c as u32)).collect();
                Some(Block { at, reduced: of.len() > 1, of })
            };
            return asked.filter_map(block).collect();
        }
        let one = |at, from, index| Block { at, of: vec![(from, index)], reduced: false };
        let sum = |at, index| {
            let of = (0..self.ranks).map(|r| (r, index)).collect();
            Block { at, of, reduced: true }
        };
        let before = |end: u32| {
            let of = (0..end).map(|r| (r, 0)).collect();
            Block { at: 0, of, reduced: end > 1 }
        };
        let mine = if in_place { rank } else { 0 };
        let gathered = (0..self.ranks).map(|p| one(p, p, 0)).collect();
        match self.name {
            "all_reduce" => vec![sum(0, 0)],
            "reduce" if rank == self.root => vec![sum(0, 0)],
            "broadcast" => vec![one(0, self.root, 0)],
            "sendrecv" if rank == 1 => vec![one(0, 0, 0)],
            "scan" => vec![before(rank + 1)],
            "exscan" if rank > 0 => vec![before(rank)],
            "exscan" if in_place => vec![before(1)],
            "all_gather" => gathered,
            "gather" if rank == self.root => gathered,
            "reduce_scatter" => vec![sum(mine, rank)],
            "scatter" => vec![one(mine, self.root, rank)],
            "all_to_all" => (0..self.ranks).map(|p| one(p, p, rank)).collect(),
            _ => vec![],
        }
    }
}
