//! Which algorithm is played where only a collective was named: the choice table of the book.

use std::collections::BTreeMap;

use roundelay_algorithms::{CHOICE, Entry};
use serde::Deserialize;

/// A row: the algorithm for calls of that many ranks and bytes, both ends included.
#[derive(Debug, Deserialize)]
struct Row {
    ranks: Option<[u64; 2]>,
    bytes: Option<[u64; 2]>,
    algorithm: String,
}

impl Row {
    fn fits(&self, ranks: u64, bytes: u64) -> bool {
        let within = |range: &Option<[u64; 2]>, x| range.is_none_or(|[a, b]| (a..=b).contains(&x));
        within(&self.ranks, ranks) && within(&self.bytes, bytes)
    }
}

/// The algorithm of the book for a collective on `ranks` ranks whose whole vector has `bytes` bytes:
/// the first row that fits. Without one, the first of the book; `None` if the book has none.
pub fn choose(collective: &str, ranks: u64, bytes: u64) -> Option<&'static Entry> {
    let table: BTreeMap<String, Vec<Row>> = toml::from_str(CHOICE).unwrap_or_default();
    let row = table.get(collective).and_then(|rows| rows.iter().find(|r| r.fits(ranks, bytes)));
    match row {
        Some(row) => roundelay_algorithms::find(collective, &row.algorithm),
        None => roundelay_algorithms::of(collective).next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_has_a_last_row_and_every_row_an_algorithm() {
        let table: BTreeMap<String, Vec<Row>> = toml::from_str(CHOICE).expect("the book's table");
        assert!(table.len() >= 10, "{:?}", table.keys());
        for (collective, rows) in &table {
            assert!(rows.last().is_some_and(|r| r.fits(1 << 20, 1 << 40)), "{collective}");
            for row in rows {
                let found = roundelay_algorithms::find(collective, &row.algorithm);
                assert!(found.is_some(), "{collective}.{}", row.algorithm);
            }
        }
    }

    #[test]
    fn size_and_ranks_decide() {
        let name = |n, bytes| choose("all_reduce", n, bytes).map(|e| e.name);
        assert_eq!(name(4, 8), Some("one_shot"));
        assert_ne!(name(4, 1 << 20), Some("one_shot"));
        assert_eq!(choose("no_such", 4, 8), None);
    }
}
