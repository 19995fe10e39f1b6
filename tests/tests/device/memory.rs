//! Models a weak memory: every cell keeps the values that it had, and every agent knows from which on it must read.
//!
//! A write is a new value at the end of a cell's history. An agent may read any value that is not older than the one it
//! must have seen: its *view* says, for each cell, which that is. Views grow by the agent's own accesses, and by
//! acquiring what another agent released: so a fence that is missing shows as an old value.

use std::rc::Rc;

use roundelay_compiler::device::abi::reached;
use roundelay_tests::SeededRandom;

/// Number of a cell.
pub(crate) type At = u32;

/// The oldest value that may be read, for each cell.
pub(crate) type View = Vec<u32>;

/// Number of old values that are kept.
const KEPT: usize = 6;

#[derive(Clone)]
struct Value {
    bits: u64,
    /// The view that a release before the write makes visible to a reader that acquires it.
    released: Option<Rc<View>>,
}

/// The history of a cell: the first value kept is number `first`.
#[derive(Clone)]
struct Cell {
    first: u32,
    values: Vec<Value>,
}

/// All memory of all ranks.
pub(crate) struct Memory {
    cells: Vec<Cell>,
}

/// The rule by which a read chooses among the values that it may see.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eye {
    /// Any; the oldest often.
    Any,
    /// The newest.
    Newest,
}

impl Memory {
    pub(crate) fn new(cells: usize) -> Self {
        let zero = Cell { first: 0, values: vec![Value { bits: 0, released: None }] };
        Memory { cells: vec![zero; cells] }
    }

    pub(crate) fn view(&self) -> View {
        vec![0; self.cells.len()]
    }

    fn read(&self, at: At, view: &mut View, dice: &mut SeededRandom, eye: Eye) -> &Value {
        let cell = &self.cells[at as usize];
        let newest = cell.first + cell.values.len() as u32 - 1;
        let oldest = view[at as usize].max(cell.first);
        let number = match (eye, dice.below(4)) {
            (Eye::Newest, _) | (_, 0) => newest,
            (_, 1) => oldest + dice.below((newest - oldest) as usize + 1) as u32,
            _ => oldest,
        };
        view[at as usize] = number;
        &cell.values[(number - cell.first) as usize]
    }

    /// Reads plainly.
    pub(crate) fn load(&self, at: At, view: &mut View, dice: &mut SeededRandom, eye: Eye) -> u64 {
        self.read(at, view, dice, eye).bits
    }

    /// Reads, and acquires what was released with the value if the value is at least `wanted`.
    pub(crate) fn acquire(
        &self,
        at: At,
        wanted: u64,
        view: &mut View,
        dice: &mut SeededRandom,
        eye: Eye,
    ) -> u64 {
        let Value { bits, released } = self.read(at, view, dice, eye);
        if let (true, Some(released)) = (reached(*bits, wanted), released) {
            join(view, released);
        }
        *bits
    }

    /// Writes. Between writers that do not know of each other, either may come last.
    pub(crate) fn store(&mut self, at: At, bits: u64, view: &mut View, dice: &mut SeededRandom) {
        let cell = &self.cells[at as usize];
        let newest = cell.first + cell.values.len() as u32 - 1;
        if view[at as usize] >= newest || dice.below(2) == 0 {
            self.tell(at, bits, view, None);
        }
    }

    /// Writes a word that has no other writer, and releases what came before.
    pub(crate) fn tell(&mut self, at: At, bits: u64, view: &mut View, released: Option<Rc<View>>) {
        let cell = &mut self.cells[at as usize];
        cell.values.push(Value { bits, released });
        if cell.values.len() > KEPT {
            cell.values.remove(0);
            cell.first += 1;
        }
        view[at as usize] = cell.first + cell.values.len() as u32 - 1;
    }

    /// Returns the only value that may be read, or `None` if there are several different ones.
    pub(crate) fn certain(&self, at: At, view: &View) -> Option<u64> {
        let cell = &self.cells[at as usize];
        let from = view[at as usize].saturating_sub(cell.first) as usize;
        let last = cell.values.last()?.bits;
        cell.values[from..].iter().all(|v| v.bits == last).then_some(last)
    }
}

/// Adds what another view has seen.
pub(crate) fn join(view: &mut View, other: &View) {
    for (a, b) in view.iter_mut().zip(other) {
        *a = (*a).max(*b);
    }
}
