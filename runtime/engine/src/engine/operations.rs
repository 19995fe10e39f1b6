//! Operations on the host: the plan of the call is found (`lookup`) and executed.

use roundelay_compiler::Plan;
use roundelay_compiler::plan::{BufferPlacement, PlanBuffer};

use super::core::EngineCore;
use crate::operation::{
    CallArgs, CallForm, CallOperand, CallerRank, Collective, NamedCall, Operation, OperationShape,
    PlanCall,
};
use crate::tunables::ABORT_CHECK_BYTES;
use roundelay_net::memory::Buffer;
use roundelay_support::digest::mix;
use roundelay_support::error::Error;

/// The number that tells `all_to_all_v` from other exchanges where calls are compared.
const ALL_TO_ALL_V: u64 = 2;

impl EngineCore {
    /// Performs an operation on memory of this host, whose check has found that shape. A buffer that has no meaning on
    /// this rank, and so is empty, is replaced by memory that is kept if the plan needs it.
    pub fn perform(
        &mut self,
        operation: &mut Operation<'_>,
        shape: OperationShape,
    ) -> Result<(), Error> {
        let Operation { collective, output, input, reduction, root } = operation;
        let OperationShape { form, count, dtype, .. } = shape;
        let call =
            |args| PlanCall { count, dtype, op: reduction.op, factor: reduction.factor, args };
        match form {
            CallForm::InPlace
                if !collective.has_operands() && !self.is_installed(collective.name) =>
            {
                self.barrier()
            }
            CallForm::InPlace => {
                let data = output.only_mut();
                self.perform_whole(collective, *root, call(CallArgs::InPlace { data }))
            }
            CallForm::OutOfPlace => {
                let args = CallArgs::OutOfPlace { input: input.only(), output: output.only_mut() };
                self.perform_whole(collective, *root, call(args))
            }
            CallForm::Listed => self.perform_listed(operation, shape),
            CallForm::Cut => {
                let counts = match (&*output, &*input) {
                    (CallOperand::Cut(_, counts), _) | (_, CallOperand::Cut(_, counts)) => {
                        counts.to_vec()
                    }
                    _ => Vec::new(),
                };
                let args = CallArgs::OutOfPlace { input: input.only(), output: output.only_mut() };
                let call = call(args);
                let named = NamedCall { is_cut: true, ..collective.named(1, 0, &call) };
                self.with_plan(named, |core, plan| core.run_cut(plan, call, &counts).map(drop))
            }
            CallForm::Exchange => {
                let word = mix(ALL_TO_ALL_V, dtype as u64);
                self.exchange("all_to_all_v", &mut operation.messages(), Some(word)).map(drop)
            }
        }
    }

    /// Performs a call of one buffer an operand.
    fn perform_whole(
        &mut self,
        collective: &Collective,
        root: u32,
        call: PlanCall<&[u8], &mut [u8]>,
    ) -> Result<(), Error> {
        self.usable()?;
        if call.count == 0 && collective.has_operands() {
            return self.perform_empty(collective.named(self.size(), root, &call));
        }
        let named = collective.named(self.size(), root, &call);
        let PlanCall { count, dtype, op, factor, args } = call;
        self.with_plan(named, |core, plan| match args {
            CallArgs::InPlace { data } if plan.header.placement == BufferPlacement::InPlace => {
                let args = CallArgs::InPlace { data };
                core.run(plan, PlanCall { count, dtype, op, factor, args }).map(drop)
            }
            CallArgs::InPlace { data } => {
                let mut input = core.stage_input(data.len())?;
                input[..data.len()].copy_from_slice(data);
                let args = CallArgs::OutOfPlace { input: &input[..data.len()], output: data };
                let done = core.run(plan, PlanCall { count, dtype, op, factor, args });
                core.staging.input = Some(input);
                done.map(drop)
            }
            CallArgs::OutOfPlace { input, output }
                if !output.is_empty() || !writes_output(plan) =>
            {
                let args = CallArgs::OutOfPlace { input, output };
                core.run(plan, PlanCall { count, dtype, op, factor, args }).map(drop)
            }
            CallArgs::OutOfPlace { input, .. } => {
                let wanted = named.bytes as usize;
                let mut spare = core.stage_output(wanted)?;
                let args = CallArgs::OutOfPlace { input, output: &mut spare[..wanted] };
                let done = core.run(plan, PlanCall { count, dtype, op, factor, args });
                core.staging.output = Some(spare);
                done.map(drop)
            }
        })
    }

    /// Performs a call whose input is a list, or its output, or both. The blocks go through one buffer that is
    /// kept between calls and that the other ranks can read, so a list costs one copy of the data here.
    fn perform_listed(
        &mut self,
        operation: &mut Operation<'_>,
        shape: OperationShape,
    ) -> Result<(), Error> {
        self.usable()?;
        let Operation { collective, output, input, reduction, root } = operation;
        let OperationShape { count, dtype, .. } = shape;
        let caller = CallerRank { rank: self.rank(), ranks: self.size(), root: *root };
        let call =
            |args| PlanCall { count, dtype, op: reduction.op, factor: reduction.factor, args };
        let block = count as usize * dtype.size();
        if block == 0 {
            let args = CallArgs::OutOfPlace { input: &[][..], output: &mut [][..] };
            return self.perform_whole(collective, *root, call(args));
        }
        let mut staged = (None, None);
        let input = match input {
            CallOperand::List(list) if collective.has_input(caller) => {
                let len = block.saturating_mul(list.len());
                let buffer = staged.0.insert(self.stage_input(len)?);
                for (place, input) in buffer.chunks_exact_mut(block).zip(list) {
                    place.copy_from_slice(input.bytes());
                }
                &buffer[..len]
            }
            CallOperand::One(input) => input.bytes(),
            _ => &[],
        };
        let call = |output| call(CallArgs::OutOfPlace { input, output });
        let done = match output {
            CallOperand::List(list) if collective.has_output(caller) => {
                let len = block.saturating_mul(list.len());
                let buffer = staged.1.insert(self.stage_output(len)?);
                let done = self.perform_whole(collective, *root, call(&mut buffer[..len]));
                done.and_then(|()| {
                    let mut pairs = list.iter_mut().zip(buffer.chunks_exact(block));
                    pairs.try_for_each(|(output, place)| self.deliver(output.bytes_mut(), place))
                })
            }
            CallOperand::One(output) => {
                self.perform_whole(collective, *root, call(output.bytes_mut()))
            }
            _ => self.perform_whole(collective, *root, call(&mut [])),
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
        for (output, result) in
            output.chunks_mut(ABORT_CHECK_BYTES).zip(result.chunks(ABORT_CHECK_BYTES))
        {
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
    stores.into_iter().any(|s| s.region.pieces.iter().any(|piece| piece.buf == PlanBuffer::Output))
}
