//! Calls by name on the host: the plan of the call is found (`plans`) and played.

use roundelay_compiler::Plan;
use roundelay_compiler::plan::{Buf, Placement};

use super::call::{Args, Call, HostCall};
use super::table::Collective;
use super::{Blocks, Core};
use roundelay_net::error::Error;
use roundelay_net::memory::Buffer;

/// The bytes of a caller's memory that are written before it is looked whether the job has been aborted.
pub(super) const PART: usize = 1 << 20;

/// A call whose input and output are each a buffer or a list.
type Listed<'a, I, O> = Call<Blocks<&'a [u8], I>, Blocks<&'a mut [u8], O>>;

impl Core {
    /// Performs a call. A buffer that has no meaning on this rank, and so is empty, is replaced by memory that
    /// is kept if the plan needs it.
    pub fn perform(
        &mut self,
        collective: &Collective,
        root: u32,
        call: HostCall<'_>,
    ) -> Result<(), Error> {
        self.usable()?;
        if call.count == 0 && collective.name != "barrier" {
            return self.perform_empty(collective.named(self.size(), root, &call));
        }
        let named = collective.named(self.size(), root, &call);
        let Call { count, dtype, op, factor, args } = call;
        self.with_plan(named, |core, plan| match args {
            Args::InPlace { data } if plan.header.placement == Placement::InPlace => {
                let args = Args::InPlace { data };
                core.run(plan, Call { count, dtype, op, factor, args }).map(drop)
            }
            Args::InPlace { data } => {
                let mut input = core.stage_input(data.len())?;
                input[..data.len()].copy_from_slice(data);
                let args = Args::OutOfPlace { input: &input[..data.len()], output: data };
                let done = core.run(plan, Call { count, dtype, op, factor, args });
                core.staging.input = Some(input);
                done.map(drop)
            }
            Args::OutOfPlace { input, output } if !output.is_empty() || !writes_output(plan) => {
                let args = Args::OutOfPlace { input, output };
                core.run(plan, Call { count, dtype, op, factor, args }).map(drop)
            }
            Args::OutOfPlace { input, .. } => {
                let wanted = named.bytes as usize;
                let mut spare = core.stage_output(wanted)?;
                let args = Args::OutOfPlace { input, output: &mut spare[..wanted] };
                let done = core.run(plan, Call { count, dtype, op, factor, args });
                core.staging.output = Some(spare);
                done.map(drop)
            }
        })
    }

    /// Performs a call whose blocks have lengths of their own; its `count` is their sum.
    pub fn perform_cut(
        &mut self,
        collective: &Collective,
        call: HostCall<'_>,
        counts: &[usize],
    ) -> Result<(), Error> {
        let named = collective.named(1, 0, &call);
        self.with_plan(named, |core, plan| core.run_cut(plan, call, counts).map(drop))
    }

    /// Performs a call whose input is a list, or its output, or both. The blocks go through one buffer that is
    /// kept between calls and that the other ranks can read, so a list costs one copy of the data here. An
    /// empty list stands for a buffer of no meaning on this rank.
    pub fn perform_listed<'a>(
        &mut self,
        collective: &Collective,
        root: u32,
        call: Listed<
            'a,
            impl ExactSizeIterator<Item = &'a [u8]>,
            impl ExactSizeIterator<Item = &'a mut [u8]>,
        >,
    ) -> Result<(), Error> {
        self.usable()?;
        let Call { count, dtype, op, factor, args } = call;
        let block = count as usize * dtype.size();
        let Args::OutOfPlace { input, output } = args else { return Ok(()) };
        if block == 0 {
            let args = Args::OutOfPlace { input: &[][..], output: &mut [][..] };
            return self.perform(collective, root, Call { count, dtype, op, factor, args });
        }
        let mut staged = (None, None);
        let input = match input {
            Blocks::One(input) => input,
            Blocks::Each(list) if list.len() == 0 => &[],
            Blocks::Each(list) => {
                let len = block.saturating_mul(list.len());
                let buffer = staged.0.insert(self.stage_input(len)?);
                for (place, input) in buffer.chunks_exact_mut(block).zip(list) {
                    place.copy_from_slice(input);
                }
                &buffer[..len]
            }
        };
        let call = |output| {
            let args = Args::OutOfPlace { input, output };
            Call { count, dtype, op, factor, args }
        };
        let done = match output {
            Blocks::One(output) => self.perform(collective, root, call(output)),
            Blocks::Each(list) if list.len() == 0 => self.perform(collective, root, call(&mut [])),
            Blocks::Each(list) => {
                let len = block.saturating_mul(list.len());
                let buffer = staged.1.insert(self.stage_output(len)?);
                let done = self.perform(collective, root, call(&mut buffer[..len]));
                done.and_then(|()| {
                    let mut pairs = list.zip(buffer.chunks_exact(block));
                    pairs.try_for_each(|(output, place)| self.deliver(output, place))
                })
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

    /// Copies a result to memory of the caller, in parts: not after an abort.
    fn deliver(&mut self, output: &mut [u8], result: &[u8]) -> Result<(), Error> {
        for (output, result) in output.chunks_mut(PART).zip(result.chunks(PART)) {
            self.not_stopped().map_err(|error| self.fail(error))?;
            output.copy_from_slice(result);
        }
        Ok(())
    }

    /// Returns a staging buffer of `len` bytes at least for the input, out of what is kept; to be put back.
    fn stage_input(&mut self, len: usize) -> Result<Buffer<u8>, Error> {
        let kept = self.staging.input.take();
        self.stage(kept, len)
    }

    /// Returns a staging buffer for the output, like [`Self::stage_input`].
    fn stage_output(&mut self, len: usize) -> Result<Buffer<u8>, Error> {
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
}

/// Returns true if this rank's part of a plan writes to its output.
pub fn writes_output(plan: &Plan) -> bool {
    let stores =
        plan.part.lanes.iter().flat_map(|lane| &lane.ops).filter_map(|op| op.store.as_ref());
    stores.into_iter().any(|s| s.region.pieces.iter().any(|piece| piece.buf == Buf::Output))
}
