//! What each collective takes and must leave, by its plain definition, in blocks of `count` elements.
//! Nothing here knows of chunks or plans.
//!
//! Every rank has a vector, from which its contributions come: one block of it in the collectives whose
//! blocks are one a rank and begin there (`all_gather`, `gather`), all blocks in the others.

/// Whose contributions a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Those of all ranks, reduced.
    All,
    /// One rank's.
    One(u32),
}

/// A block of a buffer, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Which block of the buffer.
    pub(crate) at: u32,
    /// Whose contributions.
    pub(crate) from: From,
    /// Which block of the contributors' vectors.
    pub(crate) index: u32,
}

/// A collective on so many ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collective {
    pub(crate) name: &'static str,
    pub(crate) ranks: u32,
    pub(crate) root: u32,
}

impl Collective {
    /// Whether contributions are reduced.
    pub(crate) fn reduces(&self) -> bool {
        ["all_reduce", "reduce", "reduce_scatter"].contains(&self.name)
    }

    /// Blocks of the buffer of a call in place.
    pub(crate) fn data(&self) -> u32 {
        match self.name {
            "barrier" => 0,
            "all_reduce" | "reduce" | "broadcast" | "sendrecv" => 1,
            _ => self.ranks,
        }
    }

    /// Blocks of the input; also of a rank's vector.
    pub(crate) fn input(&self) -> u32 {
        if ["all_gather", "gather"].contains(&self.name) { 1 } else { self.data() }
    }

    /// Blocks of the output.
    pub(crate) fn output(&self) -> u32 {
        if ["reduce_scatter", "scatter"].contains(&self.name) { 1 } else { self.data() }
    }

    /// What the data, or the input, of a rank holds at the start; anything elsewhere.
    pub(crate) fn before(&self, rank: u32, in_place: bool) -> Vec<Block> {
        let own = |at, index| Block { at, from: From::One(rank), index };
        let all = (0..self.input()).map(|b| own(b, b)).collect();
        match self.name {
            "all_gather" | "gather" if in_place => vec![own(rank, 0)],
            "broadcast" | "scatter" if rank != self.root => vec![],
            "sendrecv" if rank != 0 => vec![],
            _ => all,
        }
    }

    /// What the data, or the output, of a rank holds at the end; anything elsewhere.
    pub(crate) fn after(&self, rank: u32, in_place: bool) -> Vec<Block> {
        let block = |at, from, index| Block { at, from, index };
        let mine = if in_place { rank } else { 0 };
        let gathered = (0..self.ranks).map(|p| block(p, From::One(p), 0)).collect();
        match self.name {
            "all_reduce" => vec![block(0, From::All, 0)],
            "reduce" if rank == self.root => vec![block(0, From::All, 0)],
            "broadcast" => vec![block(0, From::One(self.root), 0)],
            "sendrecv" if rank == 1 => vec![block(0, From::One(0), 0)],
            "all_gather" => gathered,
            "gather" if rank == self.root => gathered,
            "reduce_scatter" => vec![block(mine, From::All, rank)],
            "scatter" => vec![block(mine, From::One(self.root), rank)],
            "all_to_all" => (0..self.ranks).map(|p| block(p, From::One(p), rank)).collect(),
            _ => vec![],
        }
    }
}
