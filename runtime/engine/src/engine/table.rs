//! The table of collectives that have a method of their own: it checks their arguments, and makes the [`Call`]
//! that engines bind and play, whatever memory the buffers are in.

use roundelay_compiler::plan::Placement;

use super::call::{Args, Call};
use roundelay_net::dtype::{DType, RedOp};
use roundelay_net::error::Error;

/// The blocks of a call that a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// One block.
    One,
    /// One block of each rank.
    Each,
    /// As [`Extent::One`]; beside the root the buffer has no meaning.
    RootOne,
    /// As [`Extent::Each`]; beside the root the buffer has no meaning.
    RootEach,
}

impl Extent {
    fn is_one(self) -> bool {
        matches!(self, Extent::One | Extent::RootOne)
    }

    /// Returns true if the buffer has a meaning on all ranks.
    fn is_everywhere(self) -> bool {
        matches!(self, Extent::One | Extent::Each)
    }
}

/// A collective that is called by name.
#[derive(Debug)]
pub struct Collective {
    /// Its name in the language.
    pub name: &'static str,
    input: Extent,
    output: Extent,
}

/// All reduce.
pub static ALL_REDUCE: Collective = collective("all_reduce", Extent::One, Extent::One);
/// Reduce.
pub static REDUCE: Collective = collective("reduce", Extent::One, Extent::RootOne);
/// Broadcast.
pub static BROADCAST: Collective = collective("broadcast", Extent::RootOne, Extent::One);
/// All gather.
pub static ALL_GATHER: Collective = collective("all_gather", Extent::One, Extent::Each);
/// Reduce scatter.
pub static REDUCE_SCATTER: Collective = collective("reduce_scatter", Extent::Each, Extent::One);
/// All to all.
pub static ALL_TO_ALL: Collective = collective("all_to_all", Extent::Each, Extent::Each);
/// Gather.
pub static GATHER: Collective = collective("gather", Extent::One, Extent::RootEach);
/// Scatter.
pub static SCATTER: Collective = collective("scatter", Extent::RootEach, Extent::One);
/// Barrier.
pub static BARRIER: Collective = collective("barrier", Extent::One, Extent::One);

/// The collectives for which an algorithm can be installed.
pub static SERVED: [&Collective; 9] = [
    &ALL_REDUCE,
    &REDUCE,
    &BROADCAST,
    &ALL_GATHER,
    &REDUCE_SCATTER,
    &ALL_TO_ALL,
    &GATHER,
    &SCATTER,
    &BARRIER,
];

const fn collective(name: &'static str, input: Extent, output: Extent) -> Collective {
    Collective { name, input, output }
}

/// Returns the collective of that name.
pub fn served(name: &str) -> Option<&'static Collective> {
    SERVED.into_iter().find(|collective| collective.name == name)
}

/// The part of a call by name that decides the algorithm: the same on all ranks. Calls are compared in this
/// order, and mostly differ in the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// The length of the whole vector.
    pub bytes: u64,
    /// The root; 0 if the collective has none.
    pub root: u32,
    /// The type of elements.
    pub dtype: DType,
    /// The operator.
    pub op: RedOp,
    /// The placement of input and output.
    pub placement: Placement,
    /// The name of the collective.
    pub collective: &'static str,
}

/// A rank among all of a call.
#[derive(Debug, Clone, Copy)]
pub struct Seat {
    /// The rank.
    pub rank: u32,
    /// The number of ranks.
    pub ranks: u32,
    /// The root.
    pub root: u32,
}

impl Seat {
    /// Fails unless the root exists; `call` is the method.
    #[inline]
    pub fn check(self, call: &str) -> Result<(), Error> {
        match self.root < self.ranks {
            true => Ok(()),
            false => Err(self.rootless(call)),
        }
    }

    #[cold]
    fn rootless(self, call: &str) -> Error {
        let Seat { ranks, root, .. } = self;
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
    pub fn has_output(&self, seat: Seat) -> bool {
        self.output.is_everywhere() || seat.is_root()
    }

    /// Returns true if this rank's input has a meaning.
    pub fn has_input(&self, seat: Seat) -> bool {
        self.input.is_everywhere() || seat.is_root()
    }

    /// Returns the elements of this rank's input and output, none of what has no meaning here. `count` is that of the
    /// call; blocks that have lengths of their own have `lens`.
    pub fn elements(&self, seat: Seat, count: u64, lens: Option<&[usize]>) -> [u64; 2] {
        let (block, whole) = match lens {
            None => (count, count.saturating_mul(seat.ranks.into())),
            Some(lens) => (lens.get(seat.rank as usize).map_or(0, |&len| len as u64), count),
        };
        [(self.input, self.has_input(seat)), (self.output, self.has_output(seat))].map(
            |(extent, is_there)| match extent.is_one() {
                _ if !is_there => 0,
                true => block,
                false => whole,
            },
        )
    }

    /// Returns what decides the algorithm of a call.
    #[inline]
    pub fn named<I, O>(&self, ranks: u32, root: u32, call: &Call<I, O>) -> Named {
        let Call { dtype, op, .. } = *call;
        let elements = u64::from(self.blocks(ranks)).saturating_mul(call.count);
        Named {
            bytes: elements.saturating_mul(dtype.size() as u64),
            root,
            dtype,
            op,
            placement: call.args.placement(),
            collective: self.name,
        }
    }

    /// Returns the elements of a block, from those of both buffers of the method `call`.
    pub fn count(
        &self,
        call: &str,
        seat: Seat,
        output: usize,
        input: usize,
    ) -> Result<usize, Error> {
        seat.check(call)?;
        let ranks = seat.ranks as usize;
        let (has_output, has_input) =
            (self.has_output(seat) || output > 0, self.has_input(seat) || input > 0);
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
fn blocks(call: &str, what: &str, ranks: usize, len: usize, block: usize) -> Result<usize, Error> {
    match block.checked_mul(ranks) {
        Some(wanted) if wanted == len => Ok(block),
        _ => Err(Error::Usage(format!(
            "{call}: the {what} has {len} elements, which are not {ranks} blocks of {block}"
        ))),
    }
}

fn same(call: &str, output: usize, input: usize) -> Result<(), Error> {
    match output == input {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "{call}: the output has {output} elements and the input {input}; both must have the \
             same number"
        ))),
    }
}

/// Fails unless a list has a buffer of the wanted length for every rank.
pub fn each(
    call: &str,
    what: &str,
    ranks: u32,
    mut lens: impl ExactSizeIterator<Item = usize>,
    wanted: usize,
) -> Result<(), Error> {
    let buffers = lens.len();
    if buffers != ranks as usize {
        return Err(Error::Usage(format!(
            "{call}: there are {buffers} {what}, and {ranks} ranks: one is needed for each"
        )));
    }
    match lens.by_ref().enumerate().find(|&(_, len)| len != wanted) {
        None => Ok(()),
        Some((r, len)) => Err(Error::Usage(format!(
            "{call}: {what}[{r}] has {len} elements, and needs {wanted}: all buffers of the \
             call have one length"
        ))),
    }
}

/// Fails unless all buffers of a call have one type; that of most is known to the compiler.
#[inline]
pub fn alike(
    call: &str,
    dtype: DType,
    others: impl IntoIterator<Item = DType>,
) -> Result<(), Error> {
    match others.into_iter().find(|&other| other != dtype) {
        None => Ok(()),
        Some(other) => Err(Error::Usage(format!(
            "{call}: buffers of {dtype} and of {other} were given; all buffers of a call have one type"
        ))),
    }
}

/// Returns the sum of one count a rank.
pub fn total(ranks: u32, counts: &[usize]) -> Result<usize, Error> {
    if counts.len() != ranks as usize {
        return Err(Error::Usage(format!(
            "{} counts were given to {ranks} ranks: one for each is needed",
            counts.len()
        )));
    }
    let total = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
    total.ok_or_else(|| Error::Usage("the sum of the counts exceeds the address space".into()))
}

/// Fails unless a buffer has the elements that counts ask for.
pub fn fits(what: &str, has: usize, wanted: usize) -> Result<(), Error> {
    match has == wanted {
        true => Ok(()),
        false => Err(Error::Usage(format!(
            "the {what} has {has} elements, and the counts ask for {wanted}"
        ))),
    }
}

impl<I, O> Args<I, O> {
    /// Returns the placement of a plan that takes these buffers.
    #[inline]
    pub fn placement(&self) -> Placement {
        match self {
            Args::InPlace { .. } => Placement::InPlace,
            Args::OutOfPlace { .. } => Placement::OutOfPlace,
        }
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
        let seat = |rank, root| Seat { rank, ranks: 3, root };
        let count = |collective: &Collective, seat, output, input| {
            collective.count("call", seat, output, input).ok()
        };
        let root = seat(1, 1);
        let other = seat(0, 1);
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
        assert_eq!(count(&BROADCAST, seat(0, 3), 1, 1), None, "there is no such root");
    }
}
