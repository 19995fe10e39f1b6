//! Numbered cells of which there may be very many and few are touched.
//!
//! Few cells are a vector. Of many only those that were touched are kept, found by an open table of
//! their numbers; once an eighth of all is touched, a vector again. Nothing depends on the order of
//! the table, so that everything made from it is the same on every machine.

use crate::num::{index, wide};

/// The most cells that are a vector from the start.
const DENSE: usize = 256;
/// Sparse cells become a vector once one cell in this number is touched.
const SHARE: usize = 8;

/// Cells by number; those that were never touched are as `T::default()`.
#[derive(Debug, Clone)]
pub(crate) struct PlaceCells<T> {
    kept: CellStorage<T>,
}

#[derive(Debug, Clone)]
enum CellStorage<T> {
    Dense(Vec<T>),
    Sparse(SparseCells<T>),
}

/// The touched cells, in the order in which they were.
#[derive(Debug, Clone)]
struct SparseCells<T> {
    cells: usize,
    /// Indices into `touched`, plus 1; 0 is free. The length is a power of two.
    table: Vec<u32>,
    touched: Vec<(usize, T)>,
}

impl<T: Clone + Default> PlaceCells<T> {
    /// Creates `cells` cells that hold the default value.
    pub(crate) fn new(cells: usize) -> Self {
        let kept = if cells <= DENSE {
            CellStorage::Dense(vec![T::default(); cells])
        } else {
            CellStorage::Sparse(SparseCells { cells, table: Vec::new(), touched: Vec::new() })
        };
        PlaceCells { kept }
    }

    /// Returns a cell; `None` if it was not touched or does not exist.
    pub(crate) fn get(&self, at: usize) -> Option<&T> {
        match &self.kept {
            CellStorage::Dense(cells) => cells.get(at),
            CellStorage::Sparse(sparse) => sparse.find(at).map(|i| &sparse.touched[i].1),
        }
    }

    /// Returns a cell for a change.
    pub(crate) fn at(&mut self, at: usize) -> &mut T {
        if let CellStorage::Sparse(sparse) = &mut self.kept
            && sparse.touched.len() >= sparse.cells / SHARE
        {
            let mut cells = vec![T::default(); sparse.cells];
            for (i, cell) in sparse.touched.drain(..) {
                cells[i] = cell;
            }
            self.kept = CellStorage::Dense(cells);
        }
        match &mut self.kept {
            CellStorage::Dense(cells) => &mut cells[at],
            CellStorage::Sparse(sparse) => sparse.touch(at),
        }
    }

    /// Returns the cells that may have been touched, in ascending order.
    pub(crate) fn touched(&self) -> Vec<usize> {
        match &self.kept {
            CellStorage::Dense(cells) => (0..cells.len()).collect(),
            CellStorage::Sparse(sparse) => {
                let mut all: Vec<usize> = sparse.touched.iter().map(|t| t.0).collect();
                all.sort_unstable();
                all
            }
        }
    }
}

impl<T> SparseCells<T> {
    /// Returns the position in the table at which the search for a cell begins: its number, well mixed.
    fn start(&self, at: usize) -> usize {
        // 64 bits on every target: an address may have 32.
        let mixed = wide(at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        index((mixed ^ (mixed >> 32)) & wide(self.table.len() - 1))
    }

    fn find(&self, at: usize) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let mut slot = self.start(at);
        loop {
            let i = index(self.table[slot]).checked_sub(1)?;
            if self.touched[i].0 == at {
                return Some(i);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    fn insert(&mut self, at: usize, number: u32) {
        let mut slot = self.start(at);
        while self.table[slot] != 0 {
            slot = (slot + 1) & (self.table.len() - 1);
        }
        self.table[slot] = number;
    }
}

impl<T: Default> SparseCells<T> {
    fn touch(&mut self, at: usize) -> &mut T {
        let found = self.find(at);
        let i = found.unwrap_or(self.touched.len());
        if found.is_none() {
            assert!(at < self.cells, "cell {at} of {}", self.cells);
            self.touched.push((at, T::default()));
            self.register(at);
        }
        &mut self.touched[i].1
    }

    /// Enters the cell that was touched last, in a table that is at most half full.
    fn register(&mut self, at: usize) {
        let number = |i: usize| u32::try_from(i + 1).unwrap_or(u32::MAX);
        if 2 * self.touched.len() <= self.table.len() {
            return self.insert(at, number(self.touched.len() - 1));
        }
        self.table = vec![0; (4 * self.touched.len()).next_power_of_two().max(16)];
        for i in 0..self.touched.len() {
            self.insert(self.touched[i].0, number(i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sparse cells behave as a vector, before and after they become one.
    #[test]
    fn sparse_cells_are_a_vector() {
        for cells in [1, DENSE, DENSE + 1, 5000] {
            let mut plain = vec![0u32; cells];
            let mut sparse: PlaceCells<u32> = PlaceCells::new(cells);
            let mut at = 7usize;
            for step in 0..2000u32 {
                at = (at * 4097 + 31) % cells;
                assert_eq!(sparse.get(at).copied().unwrap_or(0), plain[at]);
                plain[at] += step;
                *sparse.at(at) += step;
            }
            for (at, want) in plain.iter().enumerate() {
                assert_eq!(sparse.get(at).copied().unwrap_or(0), *want, "{at} of {cells}");
            }
            assert!(sparse.touched().is_sorted());
        }
    }

    /// Few cells of very many cost what they are, not what there are.
    #[test]
    fn many_cells_cost_nothing() {
        let mut cells: PlaceCells<u64> = PlaceCells::new(1 << 40);
        for i in 0..1000 {
            *cells.at(i << 30) = 1 + i as u64;
        }
        assert_eq!(cells.touched().len(), 1000);
        assert_eq!(cells.get(5 << 30), Some(&6));
        assert_eq!(cells.get(5), None);
    }
}
