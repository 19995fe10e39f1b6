//! Collectives with a buffer for each rank. The blocks go through one buffer that is kept between
//! calls and that the other ranks can read, so a list costs one copy of the data here.

use super::{Moved, Reduction};
use crate::comm::Communicator;
use crate::dtype::Element;
use crate::engine::Core;
use crate::error::Error;
use crate::memory::{Buffer, bytes, bytes_mut};

impl Core {
    /// Returns a staging buffer of `len` bytes at least for the input, out of what is kept; to be put back.
    pub(super) fn stage_input(&mut self, len: usize) -> Result<Buffer<u8>, Error> {
        let kept = self.staging.input.take();
        self.stage(kept, len)
    }

    /// Returns a staging buffer for the output, like [`Self::stage_input`].
    pub(super) fn stage_output(&mut self, len: usize) -> Result<Buffer<u8>, Error> {
        let kept = self.staging.output.take();
        self.stage(kept, len)
    }

    fn stage(&mut self, kept: Option<Buffer<u8>>, len: usize) -> Result<Buffer<u8>, Error> {
        match kept {
            Some(buffer) if buffer.len() >= len => Ok(buffer),
            other => {
                drop(other);
                // Memory is short on this rank only: the others must not wait for it.
                Buffer::zeroed(&self.arena, len).map_err(|error| self.fail(error))
            }
        }
    }

    /// Performs a call whose input is a list, or its output, or both. An empty list stands for a buffer of no
    /// meaning on this rank.
    fn listed<T: Element>(
        &mut self,
        moved: Moved,
        count: usize,
        outputs: Outputs<'_, '_, T>,
        inputs: Inputs<'_, T>,
    ) -> Result<(), Error> {
        self.usable()?;
        let block = count * size_of::<T>();
        if block == 0 {
            return Ok(());
        }
        let mut staged = (None, None);
        let input = match inputs {
            Inputs::One(input) => bytes(input),
            Inputs::List([]) => &[],
            Inputs::List(list) => {
                let buffer = staged.0.insert(self.stage_input(block.saturating_mul(list.len()))?);
                for (place, input) in buffer.chunks_exact_mut(block).zip(list) {
                    place.copy_from_slice(bytes(input));
                }
                &buffer[..block * list.len()]
            }
        };
        let done = match outputs {
            Outputs::One(output) => {
                self.move_bytes(moved, T::DTYPE, count, bytes_mut(output), input)
            }
            Outputs::List([]) => self.move_bytes(moved, T::DTYPE, count, &mut [], input),
            Outputs::List(list) => {
                let len = block.saturating_mul(list.len());
                let buffer = staged.1.insert(self.stage_output(len)?);
                let done = self.move_bytes(moved, T::DTYPE, count, &mut buffer[..len], input);
                if done.is_ok() {
                    for (output, place) in list.iter_mut().zip(buffer.chunks_exact(block)) {
                        bytes_mut(output).copy_from_slice(place);
                    }
                }
                done
            }
        };
        if let Some(input) = staged.0 {
            self.staging.input = Some(input);
        }
        if let Some(output) = staged.1 {
            self.staging.output = Some(output);
        }
        done
    }
}

enum Inputs<'a, T> {
    One(&'a [T]),
    List(&'a [&'a [T]]),
}

enum Outputs<'a, 'b, T> {
    One(&'a mut [T]),
    List(&'a mut [&'b mut [T]]),
}

impl Communicator {
    /// Gathers the inputs of all ranks on every rank: that of rank r in `outputs[r]`. All have the length of
    /// `input`.
    pub fn all_gather<T: Element>(
        &mut self,
        outputs: &mut [&mut [T]],
        input: &[T],
    ) -> Result<(), Error> {
        let lens = outputs.iter().map(|o| o.len());
        self.list("all_gather", "outputs", outputs.len(), lens, input.len())?;
        let (count, moved) = (input.len(), Moved::blocks("all_gather", 0));
        self.core()?.listed(moved, count, Outputs::List(outputs), Inputs::One(input))
    }

    /// Reduces the `inputs[r]` of all ranks and leaves the result on rank r. All have the length of `output`.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        output: &mut [T],
        inputs: &[&[T]],
        op: impl Into<Reduction>,
    ) -> Result<(), Error> {
        let lens = inputs.iter().map(|i| i.len());
        self.list("reduce_scatter", "inputs", inputs.len(), lens, output.len())?;
        let moved = Moved { reduction: op.into(), ..Moved::blocks("reduce_scatter", 0) };
        self.core()?.listed(moved, output.len(), Outputs::One(output), Inputs::List(inputs))
    }

    /// Sends `inputs[b]` of rank a to `outputs[a]` of rank b. All have one length.
    pub fn all_to_all<T: Element>(
        &mut self,
        outputs: &mut [&mut [T]],
        inputs: &[&[T]],
    ) -> Result<(), Error> {
        let count = inputs.first().map_or(0, |input| input.len());
        self.list("all_to_all", "inputs", inputs.len(), inputs.iter().map(|i| i.len()), count)?;
        let lens = outputs.iter().map(|o| o.len());
        self.list("all_to_all", "outputs", outputs.len(), lens, count)?;
        let moved = Moved::blocks("all_to_all", 0);
        self.core()?.listed(moved, count, Outputs::List(outputs), Inputs::List(inputs))
    }

    /// Gathers the inputs of all ranks on the root: that of rank r in `outputs[r]`. All have the length of
    /// `input`. Elsewhere `outputs` has no meaning and may be empty.
    pub fn gather<T: Element>(
        &mut self,
        outputs: &mut [&mut [T]],
        input: &[T],
        root: u32,
    ) -> Result<(), Error> {
        self.rooted("gather", root)?;
        let outputs = if self.rank() == root { outputs } else { &mut [] };
        if self.rank() == root {
            let lens = outputs.iter().map(|o| o.len());
            self.list("gather", "outputs", outputs.len(), lens, input.len())?;
        }
        let (count, moved) = (input.len(), Moved::blocks("gather", root));
        self.core()?.listed(moved, count, Outputs::List(outputs), Inputs::One(input))
    }

    /// Sends `inputs[r]` of the root to rank r. All have the length of `output`. Elsewhere `inputs` has no
    /// meaning and may be empty.
    pub fn scatter<T: Element>(
        &mut self,
        output: &mut [T],
        inputs: &[&[T]],
        root: u32,
    ) -> Result<(), Error> {
        self.rooted("scatter", root)?;
        let inputs = if self.rank() == root { inputs } else { &[] };
        if self.rank() == root {
            let lens = inputs.iter().map(|i| i.len());
            self.list("scatter", "inputs", inputs.len(), lens, output.len())?;
        }
        let (count, moved) = (output.len(), Moved::blocks("scatter", root));
        self.core()?.listed(moved, count, Outputs::One(output), Inputs::List(inputs))
    }

    /// Fails unless a list has a buffer of the wanted length for every rank.
    fn list(
        &self,
        call: &str,
        what: &str,
        buffers: usize,
        mut lens: impl Iterator<Item = usize>,
        wanted: usize,
    ) -> Result<(), Error> {
        if buffers != self.size() as usize {
            return Err(Error::Usage(format!(
                "{call}: there are {buffers} {what}, and {} ranks: one is needed for each",
                self.size()
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
}
