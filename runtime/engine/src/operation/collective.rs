//! The table of collectives that are called by name: the blocks that their operands hold, and what follows from that.

use std::fmt::Display;

use roundelay_compiler::plan::BufferPlacement;

use super::call::PlanCall;
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::error::Error;

/// The blocks of a call that a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockExtent {
    /// One block.
    One,
    /// One block of each rank.
    Each,
    /// As [`BlockExtent::One`]; beside the root the buffer has no meaning.
    RootOne,
    /// As [`BlockExtent::Each`]; beside the root the buffer has no meaning.
    RootEach,
}

impl BlockExtent {
    fn is_one(self) -> bool {
        matches!(self, BlockExtent::One | BlockExtent::RootOne)
    }

    /// Returns true if the buffer has a meaning on all ranks.
    fn is_everywhere(self) -> bool {
        matches!(self, BlockExtent::One | BlockExtent::Each)
    }
}

/// A collective that is called by name.
#[derive(Debug)]
pub struct Collective {
    /// Its name in the language.
    pub name: &'static str,
    input: BlockExtent,
    output: BlockExtent,
    /// False if its calls have no operands, and so no elements.
    has_operands: bool,
}

/// All reduce.
pub static ALL_REDUCE: Collective = collective("all_reduce", BlockExtent::One, BlockExtent::One);
/// Reduce.
pub static REDUCE: Collective = collective("reduce", BlockExtent::One, BlockExtent::RootOne);
/// Broadcast.
pub static BROADCAST: Collective = collective("broadcast", BlockExtent::RootOne, BlockExtent::One);
/// All gather.
pub static ALL_GATHER: Collective = collective("all_gather", BlockExtent::One, BlockExtent::Each);
/// Reduce scatter.
pub static REDUCE_SCATTER: Collective =
    collective("reduce_scatter", BlockExtent::Each, BlockExtent::One);
/// All to all.
pub static ALL_TO_ALL: Collective = collective("all_to_all", BlockExtent::Each, BlockExtent::Each);
/// Gather.
pub static GATHER: Collective = collective("gather", BlockExtent::One, BlockExtent::RootEach);
/// Scatter.
pub static SCATTER: Collective = collective("scatter", BlockExtent::RootEach, BlockExtent::One);
/// Inclusive scan.
pub static SCAN: Collective = collective("scan", BlockExtent::One, BlockExtent::One);
/// Exclusive scan.
pub static EXSCAN: Collective = collective("exscan", BlockExtent::One, BlockExtent::One);
/// Barrier.
pub static BARRIER: Collective =
    Collective { has_operands: false, ..collective("barrier", BlockExtent::One, BlockExtent::One) };

/// The collectives for which an algorithm can be installed.
pub static SERVED: [&Collective; 11] = [
    &ALL_REDUCE,
    &REDUCE,
    &BROADCAST,
    &ALL_GATHER,
    &REDUCE_SCATTER,
    &ALL_TO_ALL,
    &GATHER,
    &SCATTER,
    &SCAN,
    &EXSCAN,
    &BARRIER,
];

const fn collective(name: &'static str, input: BlockExtent, output: BlockExtent) -> Collective {
    Collective { name, input, output, has_operands: true }
}

/// Returns the collective of that name.
pub fn served(name: &str) -> Option<&'static Collective> {
    SERVED.into_iter().find(|collective| collective.name == name)
}

/// The part of a call by name that decides the algorithm: the same on all ranks. Calls are compared in this
/// order, and mostly differ in the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedCall {
    /// The length of the whole vector.
    pub bytes: u64,
    /// The root; 0 if the collective has none.
    pub root: u32,
    /// The type of elements.
    pub dtype: DType,
    /// The operator.
    pub op: RedOp,
    /// The placement of input and output.
    pub placement: BufferPlacement,
    /// The name of the collective.
    pub collective: &'static str,
    /// True if the blocks have lengths of their own.
    pub is_cut: bool,
}

/// The rank that makes a call, among all that do.
#[derive(Debug, Clone, Copy)]
pub struct CallerRank {
    /// The rank.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The root.
    pub root: u32,
}

impl CallerRank {
    /// Fails unless the root exists; `call` is the method.
    #[inline]
    pub fn check(self, call: &dyn Display) -> Result<(), Error> {
        match self.root < self.ranks {
            true => Ok(()),
            false => Err(self.rootless(call)),
        }
    }

    #[cold]
    fn rootless(self, call: &dyn Display) -> Error {
        let CallerRank { ranks, root, .. } = self;
        Error::Usage(format!(
            "{call}: root {root} is not one of {ranks} ranks; roots go from 0 to {}",
            ranks - 1
        ))
    }

    fn is_root(self) -> bool {
        self.rank == self.root
    }
}

impl Collective {
    /// Returns the blocks of the whole vector.
    fn blocks(&self, ranks: u32) -> u32 {
        if self.input.is_one() && self.output.is_one() { 1 } else { ranks }
    }

    /// Returns true if calls have operands, and so elements: all but those of a barrier.
    #[inline]
    pub fn has_operands(&self) -> bool {
        self.has_operands
    }

    /// Returns true if one buffer can be both operands: they hold the same blocks.
    #[inline]
    pub(super) fn has_form_in_place(&self) -> bool {
        self.has_operands && self.input.is_one() == self.output.is_one()
    }

    /// Returns true if the output holds one block of each rank.
    #[inline]
    pub(super) fn gathers(&self) -> bool {
        !self.output.is_one()
    }

    /// Returns true if the input holds one block of each rank.
    #[inline]
    pub(super) fn scatters(&self) -> bool {
        !self.input.is_one()
    }

    /// Returns true if both operands have a meaning on every rank.
    pub(super) fn is_everywhere(&self) -> bool {
        self.output.is_everywhere() && self.input.is_everywhere()
    }

    /// Returns true if some rank may give no output.
    pub fn is_output_optional(&self) -> bool {
        !self.output.is_everywhere()
    }

    /// Returns true if some rank may give no input.
    pub fn is_input_optional(&self) -> bool {
        !self.input.is_everywhere()
    }

    /// Returns true if an input that is the output asks for a call in place: its blocks lie where those of the output
    /// do. The root of a reduce writes each element after it has read it, whatever the placement.
    pub fn is_inside(&self) -> bool {
        self.input.is_one() == self.output.is_one() && self.output.is_everywhere()
    }

    /// Returns true if this rank's output has a meaning.
    pub fn has_output(&self, caller: CallerRank) -> bool {
        self.output.is_everywhere() || caller.is_root()
    }

    /// Returns true if this rank's input has a meaning.
    pub fn has_input(&self, caller: CallerRank) -> bool {
        self.input.is_everywhere() || caller.is_root()
    }

    /// Returns what decides the algorithm of a call.
    #[inline]
    pub fn named<I, O>(&self, ranks: u32, root: u32, call: &PlanCall<I, O>) -> NamedCall {
        let PlanCall { dtype, op, .. } = *call;
        let elements = u64::from(self.blocks(ranks)).saturating_mul(call.count);
        NamedCall {
            bytes: elements.saturating_mul(dtype.size() as u64),
            root,
            dtype,
            op,
            placement: call.args.placement(),
            collective: self.name,
            is_cut: false,
        }
    }

    /// Returns the elements of a block, from those of both buffers of the method `call`.
    pub fn count(
        &self,
        call: &dyn Display,
        caller: CallerRank,
        output: usize,
        input: usize,
    ) -> Result<usize, Error> {
        caller.check(call)?;
        let ranks = caller.ranks as usize;
        let (has_output, has_input) =
            (self.has_output(caller) || output > 0, self.has_input(caller) || input > 0);
        match (self.output.is_one(), self.input.is_one()) {
            (true, true) if has_output && has_input => same(call, output, input).map(|()| input),
            (true, true) => Ok(if has_output { output } else { input }),
            (false, true) if has_output => blocks(call, "output", ranks, output, input),
            (false, true) => Ok(input),
            (true, false) if has_input => blocks(call, "input", ranks, input, output),
            (true, false) => Ok(output),
            (false, false) => {
                same(call, output, input)?;
                match input.is_multiple_of(ranks) {
                    true => Ok(input / ranks),
                    false => Err(Error::Usage(format!(
                        "{call}: the input has {input} elements, which are not {ranks} equal blocks"
                    ))),
                }
            }
        }
    }
}

/// Fails unless a buffer has a block of that length for every rank.
fn blocks(
    call: &dyn Display,
    what: &str,
    ranks: usize,
    len: usize,
    block: usize,
) -> Result<usize, Error> {
    match block.checked_mul(ranks) {
        Some(wanted) if wanted == len => Ok(block),
        _ => Err(Error::Usage(format!(
            "{call}: the {what} has {len} elements, which are not {ranks} blocks of {block}"
        ))),
    }
}

fn same(call: &dyn Display, output: usize, input: usize) -> Result<(), Error> {
    match output == input {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "{call}: the output has {output} elements and the input {input}; both must have the \
             same number"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_algorithms::CATALOGUE;

    #[test]
    fn every_collective_has_algorithms() {
        for collective in SERVED {
            assert!(CATALOGUE.iter().any(|e| e.collective == collective.name), "{collective:?}");
            assert!(std::ptr::eq(served(collective.name).expect("served"), collective));
        }
        assert!(served("halo").is_none());
    }

    #[test]
    fn counts_come_from_both_buffers() {
        let caller = |rank, root| CallerRank { rank, ranks: 3, root };
        let count = |collective: &Collective, caller, output, input| {
            collective.count(&"call", caller, output, input).ok()
        };
        let root = caller(1, 1);
        let other = caller(0, 1);
        for (collective, output, input, at_root, elsewhere) in [
            (&ALL_REDUCE, 5, 5, Some(5), Some(5)),
            (&ALL_REDUCE, 0, 5, None, None),
            (&REDUCE, 0, 5, None, Some(5)),
            (&REDUCE, 4, 5, None, None),
            (&ALL_GATHER, 15, 5, Some(5), Some(5)),
            (&ALL_GATHER, 0, 5, None, None),
            (&REDUCE_SCATTER, 5, 15, Some(5), Some(5)),
            (&ALL_TO_ALL, 15, 15, Some(5), Some(5)),
            (&ALL_TO_ALL, 16, 16, None, None),
            (&GATHER, 15, 5, Some(5), Some(5)),
            (&GATHER, 0, 5, None, Some(5)),
            (&SCAN, 5, 5, Some(5), Some(5)),
            (&EXSCAN, 0, 5, None, None),
            (&BROADCAST, 5, 5, Some(5), Some(5)),
            (&BROADCAST, 5, 0, None, Some(5)),
            (&BROADCAST, 5, 4, None, None),
            (&SCATTER, 5, 0, None, Some(5)),
            (&SCATTER, 5, 14, None, None),
        ] {
            assert_eq!(count(collective, root, output, input), at_root, "{collective:?} {output}");
            assert_eq!(
                count(collective, other, output, input),
                elsewhere,
                "{collective:?} {output}"
            );
        }
        assert_eq!(count(&BROADCAST, caller(0, 3), 1, 1), None, "there is no such root");
    }
}
