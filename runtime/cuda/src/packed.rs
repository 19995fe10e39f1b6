//! Calls whose blocks do not lie one after the other, or are not of one length: they are copied to and from memory
//! where they are, by the stream that the call is put into.

use super::gpu::Gpu;
use super::named::DeviceCall;
use super::{CudaStream, DevicePtr};
use crate::backend::{Aside, Fault};
use crate::nvlink::{Shared, offer};
use roundelay_engine::{Args, Blocks, Call, Collective, Core};
use roundelay_net::error::Error;

/// Memory of this rank alone for the blocks of calls. What is too small for a call is kept until the communicator
/// is dropped: calls before it, and graphs, may use it.
#[derive(Debug, Default)]
pub(super) struct Staging {
    pieces: Vec<Shared>,
}

/// A copy that a stream makes: to, from, bytes.
type Copy = (u64, u64, u64);

impl Gpu {
    /// Returns memory of so many bytes at least, which the next call that asks for some uses too.
    pub(super) fn stage(&mut self, core: &mut Core, bytes: u64) -> Result<DevicePtr, Error> {
        let latest = self.staging.pieces.last();
        if let Some(piece) = latest.filter(|piece| piece.bytes() >= bytes) {
            return Ok(DevicePtr(piece.base(0)));
        }
        let twice = latest.map_or(0, |piece| 2 * piece.bytes());
        match self.piece(bytes.max(twice)) {
            Ok(piece) => {
                let at = DevicePtr(piece.base(0));
                self.staging.pieces.push(piece);
                Ok(at)
            }
            // Memory is short on this rank only: the others must not wait for it.
            Err(fault) => {
                let error = self.fault(&fault);
                Err(self.end(core, error))
            }
        }
    }

    fn piece(&self, bytes: u64) -> Result<Shared, Fault> {
        // A stream that is being captured would not let this thread map memory.
        let _aside = Aside::step()?;
        let bytes = bytes.next_multiple_of(self.sharing.granularity);
        let mut piece = Shared::reserve(&self.context, (0, &[true]), bytes)?;
        piece.put(offer(&self.context, bytes)?.0)?;
        Ok(piece)
    }

    /// Puts copies into a stream, after all calls before.
    pub(super) fn copy_in(
        &mut self,
        core: &mut Core,
        stream: &CudaStream,
        copies: impl IntoIterator<Item = Copy>,
    ) -> Result<(), Error> {
        // SAFETY: the staging memory has as much as was asked for, and lives as long as `self`; the caller's buffers are
        // good as whoever made their addresses promised.
        let copied = self.journal.put(stream, || unsafe { copy_all(stream, copies) });
        copied.map_err(|fault| {
            let error = self.fault(&fault);
            self.end(core, error)
        })
    }

    /// Performs a call whose input is a list, or its output, or both. An empty list stands for a buffer of no
    /// meaning on this rank.
    pub fn perform_listed(
        &mut self,
        core: &mut Core,
        collective: &Collective,
        root: u32,
        call: Call<
            Blocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
            Blocks<DevicePtr, impl ExactSizeIterator<Item = DevicePtr>>,
        >,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        let Call { count, dtype, op, factor, args } = call;
        let Args::OutOfPlace { input, output } = args else { return Ok(()) };
        let block = count.saturating_mul(dtype.size() as u64);
        if block == 0 {
            let args = Args::OutOfPlace { input: DevicePtr::NULL, output: DevicePtr::NULL };
            return self.perform(
                core,
                collective,
                root,
                Call { count, dtype, op, factor, args },
                stream,
            );
        }
        let bytes = |list: u64| list.saturating_mul(block).next_multiple_of(ALIGN);
        let (inputs, outputs) = (input.listed(), output.listed());
        // The latest piece is the whole call's: `perform` asks for no more than that again.
        let base = match inputs + outputs {
            0 => DevicePtr::NULL,
            _ => self.stage(core, bytes(inputs).saturating_add(bytes(outputs)))?,
        };
        let (first, second) = (base.0, base.0 + bytes(inputs));
        let at = |base: u64, k: u64| base + k * block;
        let input = match input {
            Blocks::One(input) => input,
            Blocks::Each(list) if list.len() == 0 => DevicePtr::NULL,
            Blocks::Each(list) => {
                let copies = (0..).zip(list).map(|(k, from)| (at(first, k), from.0, block));
                self.copy_in(core, stream, copies)?;
                DevicePtr(first)
            }
        };
        let call = |output| {
            let args = Args::OutOfPlace { input, output };
            Call { count, dtype, op, factor, args }
        };
        match output {
            Blocks::One(output) => self.perform(core, collective, root, call(output), stream),
            Blocks::Each(list) if list.len() == 0 => {
                self.perform(core, collective, root, call(DevicePtr::NULL), stream)
            }
            Blocks::Each(list) => {
                self.perform(core, collective, root, call(DevicePtr(second)), stream)?;
                let copies = (0..).zip(list).map(|(k, to)| (to.0, at(second, k), block));
                self.copy_in(core, stream, copies)
            }
        }
    }

    /// Performs a call whose blocks have lengths of their own, in elements: as one of blocks that are as long as
    /// the longest.
    pub fn perform_cut(
        &mut self,
        core: &mut Core,
        collective: &Collective,
        call: DeviceCall,
        counts: &[usize],
        stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        let Call { args: Args::OutOfPlace { input, output }, dtype, .. } = call else {
            return Ok(());
        };
        let count = counts.iter().copied().max().unwrap_or(0) as u64;
        let equal = counts.iter().all(|&c| c as u64 == count);
        if equal || count == 0 {
            return self.perform(core, collective, 0, Call { count, ..call }, stream);
        }
        let size = dtype.size() as u64;
        let block = count.saturating_mul(size);
        let whole = block.saturating_mul(counts.len() as u64).next_multiple_of(ALIGN);
        let base = self.stage(core, whole.saturating_add(block))?.0;
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
        let own = counts.get(self.rank as usize).map_or(0, |&count| count as u64 * size);
        let equal = |input, output| {
            let args = Args::OutOfPlace { input: DevicePtr(input), output: DevicePtr(output) };
            Call { count, args, ..call }
        };
        match collective.name {
            "all_gather" => {
                self.copy_in(core, stream, [(one, input.0, own)])?;
                self.perform(core, collective, 0, equal(one, blocks), stream)?;
                self.copy_in(core, stream, cut(output.0))
            }
            _ => {
                let copies = cut(input.0).map(|(from, to, bytes)| (to, from, bytes));
                self.copy_in(core, stream, copies)?;
                self.perform(core, collective, 0, equal(blocks, one), stream)?;
                self.copy_in(core, stream, [(output.0, one, own)])
            }
        }
    }

    /// Leaves the staging memory until the process ends.
    pub(super) fn abandon_staging(&mut self) {
        self.staging.pieces.iter_mut().for_each(Shared::abandon);
    }
}

/// The alignment of kernels' addresses at its best, in bytes.
const ALIGN: u64 = 256;

/// Puts copies into a stream, but for those that change nothing.
///
/// # Safety
///
/// Both sides of each have as many bytes until the stream has come past.
pub(super) unsafe fn copy_all(
    stream: &CudaStream,
    copies: impl IntoIterator<Item = Copy>,
) -> Result<(), Fault> {
    let mut copies = copies.into_iter().filter(|(to, from, bytes)| to != from && *bytes > 0);
    // SAFETY: the caller's promise.
    copies.try_for_each(|(to, from, bytes)| unsafe { stream.copy(to, from, bytes) })
}
