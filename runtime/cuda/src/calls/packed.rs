//! Calls whose blocks do not lie one after the other, or are not of one length: they are copied to and from memory
//! where they are, by the stream that the call is put into.

use super::launch::DeviceCall;
use super::named::CallTable;
use crate::backend::CudaStream;
use crate::buffer::DevicePtr;
use crate::rank::GpuRank;
use roundelay_engine::{CallArgs, CallBlocks, Collective, EngineCore, PlanCall};
use roundelay_support::error::Error;

/// The alignment of kernels' addresses at its best, in bytes.
const ALIGN: u64 = 256;

/// Performs a call whose input is a list, or its output, or both. An empty list stands for a buffer of no
/// meaning on this rank.
pub(crate) fn perform_listed(
    (calls, rank): (&mut CallTable, &mut GpuRank),
    core: &mut EngineCore,
    collective: &Collective,
    root: u32,
    call: PlanCall<
        CallBlocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
        CallBlocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
    >,
    stream: &CudaStream,
) -> Result<(), Error> {
    core.usable()?;
    let PlanCall { count, dtype, op, factor, args } = call;
    let CallArgs::OutOfPlace { input, output } = args else { return Ok(()) };
    let block = count.saturating_mul(dtype.size() as u64);
    if block == 0 {
        let args = CallArgs::OutOfPlace { input: DevicePtr::NULL, output: DevicePtr::NULL };
        return calls.perform(
            rank,
            core,
            collective,
            root,
            PlanCall { count, dtype, op, factor, args },
            stream,
        );
    }
    let bytes = |list: u64| list.saturating_mul(block).next_multiple_of(ALIGN);
    let (inputs, outputs) = (input.listed(), output.listed());
    // The latest piece is the whole call's: `perform` asks for no more than that again.
    let base = match inputs + outputs {
        0 => DevicePtr::NULL,
        _ => rank.stage(core, bytes(inputs).saturating_add(bytes(outputs)))?,
    };
    let (first, second) = (base.0, base.0 + bytes(inputs));
    let at = |base: u64, k: u64| base + k * block;
    let input = match input {
        CallBlocks::One(input) => input,
        CallBlocks::Each(list) if list.len() == 0 => DevicePtr::NULL,
        CallBlocks::Each(list) => {
            let copies = (0..).zip(list).map(|(k, from)| (at(first, k), from.0, block));
            rank.copy_in(core, stream, copies)?;
            DevicePtr(first)
        }
    };
    let call = |output| {
        let args = CallArgs::OutOfPlace { input, output };
        PlanCall { count, dtype, op, factor, args }
    };
    match output {
        CallBlocks::One(output) => {
            calls.perform(rank, core, collective, root, call(output), stream)
        }
        CallBlocks::Each(list) if list.len() == 0 => {
            calls.perform(rank, core, collective, root, call(DevicePtr::NULL), stream)
        }
        CallBlocks::Each(list) => {
            calls.perform(rank, core, collective, root, call(DevicePtr(second)), stream)?;
            let copies = (0..).zip(list).map(|(k, to)| (to.0, at(second, k), block));
            rank.copy_in(core, stream, copies)
        }
    }
}

/// Performs a call whose blocks have lengths of their own, in elements: as one of blocks that are as long as
/// the longest.
pub(crate) fn perform_cut(
    (calls, rank): (&mut CallTable, &mut GpuRank),
    core: &mut EngineCore,
    collective: &Collective,
    call: DeviceCall,
    counts: &[usize],
    stream: &CudaStream,
) -> Result<(), Error> {
    core.usable()?;
    let PlanCall { args: CallArgs::OutOfPlace { input, output }, dtype, .. } = call else {
        return Ok(());
    };
    let count = counts.iter().copied().max().unwrap_or(0) as u64;
    let equal = counts.iter().all(|&c| c as u64 == count);
    if equal || count == 0 {
        return calls.perform(rank, core, collective, 0, PlanCall { count, ..call }, stream);
    }
    let size = dtype.size() as u64;
    let block = count.saturating_mul(size);
    let whole = block.saturating_mul(counts.len() as u64).next_multiple_of(ALIGN);
    let base = rank.stage(core, whole.saturating_add(block))?.0;
    let (blocks, one) = (base, base + whole);
    // The blocks as the caller has them, one after the other, and where each lies among equal ones.
    let cut = |ragged: u64| {
        let begins = counts.iter().scan(ragged, |at, &count| {
            let begin = *at;
            *at += count as u64 * size;
            Some((begin, count as u64 * size))
        });
        begins.zip(0..).map(move |((begin, bytes), k)| (begin, blocks + k * block, bytes))
    };
    let own = counts.get(rank.device.rank as usize).map_or(0, |&count| count as u64 * size);
    let equal = |input, output| {
        let args = CallArgs::OutOfPlace { input: DevicePtr(input), output: DevicePtr(output) };
        PlanCall { count, args, ..call }
    };
    match collective.name {
        "all_gather" => {
            rank.copy_in(core, stream, [(one, input.0, own)])?;
            calls.perform(rank, core, collective, 0, equal(one, blocks), stream)?;
            rank.copy_in(core, stream, cut(output.0))
        }
        _ => {
            let copies = cut(input.0).map(|(from, to, bytes)| (to, from, bytes));
            rank.copy_in(core, stream, copies)?;
            calls.perform(rank, core, collective, 0, equal(blocks, one), stream)?;
            rank.copy_in(core, stream, [(output.0, one, own)])
        }
    }
}
