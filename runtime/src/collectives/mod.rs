//! The collectives by name, as a framework calls them: arguments are checked before anything moves,
//! then a plan is found (`plans`) and played.
//!
//! Outputs stand before inputs, as in torchcomms. Collectives whose vector has a block a rank exist
//! twice: with a buffer a rank (`all_gather`, in `lists`), and with one buffer for all blocks, one
//! after the other (`all_gather_single`); the latter copy nothing. Every rank gives blocks of the same
//! length. Any length is possible, zero too.

mod lists;
mod nonblocking;
mod play;
mod ragged;
mod reduction;

use roundelay_compiler::Plan;
use roundelay_compiler::plan::{Buf, Placement};

pub use reduction::Reduction;

use crate::comm::Communicator;
use crate::dtype::{DType, Element};
use crate::engine::{Args, Call, Core, Named};
use crate::error::Error;
use crate::memory::{bytes, bytes_mut};

impl Communicator {
    /// Sums (or otherwise reduces) the buffers of all ranks; everyone ends with the result.
    ///
    /// # Errors
    ///
    /// For this and the other collectives: [`Error::Usage`] if an argument is wrong; nothing has
    /// moved then, and the communicator stays usable. [`Error::Refused`] if an installed algorithm
    /// does not allow the call. Otherwise the errors of [`Communicator::run`].
    pub fn all_reduce<T: Element>(
        &mut self,
        data: &mut [T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.core()?.in_place("all_reduce", 0, op.into(), T::DTYPE, bytes_mut(data))
    }

    /// Performs [`Communicator::all_reduce`] out of place: both buffers have the same length.
    pub fn all_reduce_into<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        same("all_reduce_into", output.len(), input.len())?;
        let moved = Moved { collective: "all_reduce", root: 0, reduction: op.into(), blocks: 1 };
        self.core()?.out_of_place::<T>(moved, input.len(), output, input)
    }

    /// Reduces the buffers of all ranks and leaves the result on the root; the buffers of the others end with
    /// unspecified contents.
    pub fn reduce<T: Element>(
        &mut self,
        data: &mut [T],
        root: u32,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.rooted("reduce", root)?;
        self.core()?.in_place("reduce", root, op.into(), T::DTYPE, bytes_mut(data))
    }

    /// Performs [`Communicator::reduce`] out of place: the root's output has the length of the input; that of
    /// the others may be empty, or ends with unspecified contents.
    pub fn reduce_into<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        root: u32,
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.rooted("reduce_into", root)?;
        if self.rank() == root || !output.is_empty() {
            same("reduce_into", output.len(), input.len())?;
        }
        let moved = Moved { collective: "reduce", root, reduction: op.into(), blocks: 1 };
        self.core()?.out_of_place::<T>(moved, input.len(), output, input)
    }

    /// Copies the root's buffer to all ranks.
    pub fn broadcast<T: Element>(&mut self, data: &mut [T], root: u32) -> Result<(), Error> {
        self.rooted("broadcast", root)?;
        self.core()?.in_place("broadcast", root, Reduction::NONE, T::DTYPE, bytes_mut(data))
    }

    /// Gathers the inputs of all ranks on every rank, by rank: `output` is `size()` times as long as `input`.
    pub fn all_gather_single<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
    ) -> Result<(), Error> {
        self.blocks("all_gather_single", "output", output.len(), input.len())?;
        self.core()?.out_of_place::<T>(Moved::blocks("all_gather", 0), input.len(), output, input)
    }

    /// Reduces the inputs and leaves block r of the result on rank r: `input` is `size()` times as long as
    /// `output`.
    pub fn reduce_scatter_single<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        self.blocks("reduce_scatter_single", "input", input.len(), output.len())?;
        let moved = Moved { reduction: op.into(), ..Moved::blocks("reduce_scatter", 0) };
        self.core()?.out_of_place::<T>(moved, output.len(), output, input)
    }

    /// Sends block b of rank a's input to block a of rank b's output; both have `size()` equal blocks.
    pub fn all_to_all_single<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
    ) -> Result<(), Error> {
        same("all_to_all_single", output.len(), input.len())?;
        let ranks = self.size() as usize;
        if !input.len().is_multiple_of(ranks) {
            return Err(Error::Usage(format!(
                "all_to_all_single: the input has {} elements, which are not {ranks} equal blocks",
                input.len()
            )));
        }
        let count = input.len() / ranks;
        self.core()?.out_of_place::<T>(Moved::blocks("all_to_all", 0), count, output, input)
    }

    /// Gathers the inputs of all ranks on the root, by rank: there, `output` is `size()` times as long as
    /// `input`; elsewhere it may be empty, or ends with unspecified contents.
    pub fn gather_single<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        root: u32,
    ) -> Result<(), Error> {
        self.rooted("gather_single", root)?;
        if self.rank() == root || !output.is_empty() {
            self.blocks("gather_single", "output", output.len(), input.len())?;
        }
        self.core()?.out_of_place::<T>(Moved::blocks("gather", root), input.len(), output, input)
    }

    /// Sends block r of the root's input to rank r: there, `input` is `size()` times as long as `output`;
    /// elsewhere it is not read and may be empty.
    pub fn scatter_single<T: Element>(
        &mut self,
        output: &mut [T],
        input: &[T],
        root: u32,
    ) -> Result<(), Error> {
        self.rooted("scatter_single", root)?;
        if self.rank() == root || !input.is_empty() {
            self.blocks("scatter_single", "input", input.len(), output.len())?;
        }
        let count = output.len();
        self.core()?.out_of_place::<T>(Moved::blocks("scatter", root), count, output, input)
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        let core = self.core()?;
        match core.is_installed("barrier") {
            true => core.in_place("barrier", 0, Reduction::NONE, DType::U8, &mut []),
            false => core.control_all_gather(0, |_, _| {}),
        }
    }

    fn rooted(&self, call: &str, root: u32) -> Result<(), Error> {
        let ranks = self.size();
        match root < ranks {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{call}: root {root} is not one of {ranks} ranks; roots go from 0 to {}",
                ranks - 1
            ))),
        }
    }

    /// Fails unless a buffer has a block of that length for every rank.
    fn blocks(&self, call: &str, what: &str, len: usize, block: usize) -> Result<(), Error> {
        let ranks = self.size() as usize;
        match block.checked_mul(ranks) {
            Some(wanted) if wanted == len => Ok(()),
            _ => Err(Error::Usage(format!(
                "{call}: the {what} has {len} elements, which are not {ranks} blocks of {block}"
            ))),
        }
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

/// The description of a call out of place, apart from its buffers.
#[derive(Debug, Clone, Copy)]
struct Moved {
    collective: &'static str,
    root: u32,
    reduction: Reduction,
    /// Blocks of the whole vector; 0 stands for one a rank.
    blocks: u32,
}

impl Moved {
    /// Describes a collective that copies blocks, one a rank.
    fn blocks(collective: &'static str, root: u32) -> Self {
        Moved { collective, root, reduction: Reduction::NONE, blocks: 0 }
    }
}

impl Core {
    /// Performs a call in place by name, of a collective whose vector is one block.
    fn in_place(
        &mut self,
        collective: &'static str,
        root: u32,
        reduction: Reduction,
        dtype: DType,
        data: &mut [u8],
    ) -> Result<(), Error> {
        self.usable()?;
        if data.is_empty() && collective != "barrier" {
            return Ok(());
        }
        let Reduction { op, factor } = reduction;
        let (bytes, placement) = (data.len() as u64, Placement::InPlace);
        let named = Named { collective, bytes, dtype, op, root, placement };
        let count = (data.len() / dtype.size()) as u64;
        self.with_plan(named, |core, plan| {
            if plan.header.placement == Placement::InPlace {
                let args = Args::InPlace { data };
                return core.run(plan, Call { count, dtype, op, factor, args }).map(drop);
            }
            let mut input = core.stage_input(data.len())?;
            input[..data.len()].copy_from_slice(data);
            let args = Args::OutOfPlace { input: &input[..data.len()], output: data };
            let done = core.run(plan, Call { count, dtype, op, factor, args });
            core.staging.input = Some(input);
            done.map(drop)
        })
    }

    /// Performs a call out of place by name, with `count` elements a block.
    fn out_of_place<T: Element>(
        &mut self,
        moved: Moved,
        count: usize,
        output: &mut [T],
        input: &[T],
    ) -> Result<(), Error> {
        self.move_bytes(moved, T::DTYPE, count, bytes_mut(output), bytes(input))
    }

    /// Performs the call for all element types alike. A buffer that has no meaning on this rank, and so is
    /// empty, is replaced by memory that is kept if the plan needs it.
    fn move_bytes(
        &mut self,
        moved: Moved,
        dtype: DType,
        count: usize,
        output: &mut [u8],
        input: &[u8],
    ) -> Result<(), Error> {
        self.usable()?;
        if count == 0 {
            return Ok(());
        }
        let Moved { collective, root, reduction: Reduction { op, factor }, blocks } = moved;
        let blocks = if blocks == 0 { self.size() } else { blocks } as usize;
        let wanted = blocks.saturating_mul(count).saturating_mul(dtype.size());
        let (bytes, placement) = (wanted as u64, Placement::OutOfPlace);
        let named = Named { collective, bytes, dtype, op, root, placement };
        let count = count as u64;
        self.with_plan(named, |core, plan| {
            if !output.is_empty() || !writes_output(plan) {
                let args = Args::OutOfPlace { input, output };
                return core.run(plan, Call { count, dtype, op, factor, args }).map(drop);
            }
            let mut spare = core.stage_output(wanted)?;
            let args = Args::OutOfPlace { input, output: &mut spare[..wanted] };
            let done = core.run(plan, Call { count, dtype, op, factor, args });
            core.staging.output = Some(spare);
            done.map(drop)
        })
    }
}

/// Returns true if this rank's part of a plan writes to its output.
fn writes_output(plan: &Plan) -> bool {
    let stores =
        plan.part.lanes.iter().flat_map(|lane| &lane.ops).filter_map(|op| op.store.as_ref());
    stores.into_iter().any(|s| s.region.pieces.iter().any(|piece| piece.buf == Buf::Output))
}
