//! Holds the state that a rank has of its device, and the memory that ranks share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundelay_compiler::device::Protocol;

use super::batch::Batches;
use super::beyond::Beyond;
use super::bound::{Bound, Key};
use super::buffer::CudaBuffer;
use super::control::same;
use super::far::Lanes;
use super::journal::Journal;
use super::layout::Layout;
use super::named::Choices;
use super::packed::Staging;
use super::program::Lowered;
use super::region::{Region, Regions};
use super::served::Desk;
use super::share::Sharing;
use super::unplayable::Unplayable;
use crate::backend::kernels::Kernels;
use crate::backend::{Beside, Context, CudaStream, Fault, Kernel, Mailbox, Range};
use crate::nvlink::Shared;
use roundelay_engine::Core;
use roundelay_net::dtype::{DType, Element, RedOp};
use roundelay_net::error::{Error, Source};

/// Plan, protocol, type, operator, and whether memory lies at multiples of 16 bytes.
type Compiled = ([u8; 16], Protocol, DType, RedOp, bool);

/// The agreement of all ranks on calls whose counts lie on the device: the type, the elements of a row, the most rows.
type Agreed = (DType, usize, usize);

/// A rank's GPU: its streams, kernels, and the memory that ranks share.
pub struct Gpu {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    /// The multiprocessors of the GPU with the fewest, so that all ranks choose alike.
    pub(super) sms: u32,
    /// The lanes carry messages between hosts, where there are several.
    pub far: Option<Lanes>,
    pub(super) layout: Layout,
    /// Calls of which the compiler knows: by plan and protocol.
    pub(super) lowered: BTreeMap<([u8; 16], Protocol), Result<Arc<Lowered>, Unplayable>>,
    /// Programs in place that go with those of other buffers: by plan and protocol of these.
    pub(super) insides: BTreeMap<([u8; 16], Protocol), Option<Arc<Lowered>>>,
    /// Programs by their numbers, from 1.
    pub(super) programs: Vec<Arc<Lowered>>,
    /// Calls that were made ready, and where each is among them.
    pub(super) known: BTreeMap<Key, usize>,
    pub(super) bounds: Vec<Option<Box<Bound>>>,
    pub(super) next_bound: usize,
    /// Kernels, whatever the count.
    pub(super) compiled: BTreeMap<Compiled, Arc<Kernel>>,
    /// The kernel of messages between single ranks.
    pub(super) batch: Option<Arc<Kernel>>,
    pub(super) batches: Batches,
    /// The kernel of windows.
    pub(super) window: Option<Arc<Kernel>>,
    /// The desk serves parts of windows to other hosts, once there was one; and the windows that are open there.
    pub(super) desk: Option<Arc<Desk>>,
    pub(super) beyond: Vec<Beyond>,
    /// The kernel of calls whose counts lie on the device, and the sizes that all ranks have agreed on.
    pub(super) counted: Option<(Arc<Kernel>, Vec<Agreed>)>,
    /// Choices of calls by name, and the version of the settings that have made them.
    pub(super) choices: Choices,
    pub(super) chosen_by: u64,
    /// True while a call is made beside which kernels of others are to run.
    pub overlaps: bool,
    pub(super) staging: Staging,
    pub(super) regions: Regions,
    /// Regions as all ranks have them at one address, by number, once `multicast` was asked for.
    pub(super) united: BTreeMap<u32, Range>,
    /// Regions that were replaced, for calls that may still use them.
    pub(super) retired: Vec<Arc<Region>>,
    pub(super) arena: Shared,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) kernels: Kernels,
    pub(super) journal: Journal,
    /// Since when a rank has been gone, as far as somebody looked.
    pub(super) missed: Option<Instant>,
    /// The stream of calls.
    pub stream: CudaStream,
    /// The stream for copies and looks beside calls.
    pub aside: CudaStream,
    /// The stream for what a rank copies in its own memory while it copies from peers.
    pub(super) beside: Beside,
    pub(super) sharing: Sharing,
    /// The context of the device.
    pub context: Arc<Context>,
}

impl Gpu {
    /// Returns the error of a call of the driver.
    pub(crate) fn fault(&self, fault: &Fault) -> Error {
        self.sharing.fault(fault)
    }

    /// Returns the error of something on this rank's device, with the error that underlies it if there is one.
    pub(super) fn failed(&self, what: String, source: Option<Source>) -> Error {
        self.sharing.failed(what, source)
    }

    /// Extends the memory of the arena to `bytes` at least.
    pub(super) fn grow(&mut self, core: &mut Core, bytes: u64) -> Result<(), Error> {
        match bytes.checked_sub(self.arena.bytes()) {
            None | Some(0) => Ok(()),
            Some(missing) => self.sharing.extend(core, &mut self.arena, missing),
        }
    }

    /// Makes a buffer of so many elements on every rank, mapped by all.
    pub fn alloc<T: Element>(
        &mut self,
        core: &mut Core,
        count: usize,
    ) -> Result<CudaBuffer<T>, Error> {
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
        let bytes = bytes.filter(|bytes| *bytes < 1 << 46).ok_or_else(|| {
            Error::Usage(format!("{count} elements of {} exceed any GPU", T::DTYPE))
        })?;
        core.usable()?;
        if let Some(peer) = same(core, bytes)? {
            return Err(Error::Usage(format!(
                "rank {} allocates {bytes} bytes on its GPU, and rank {peer} another number: all ranks must allocate \
                 the same",
                self.rank
            )));
        }
        let shared = self.sharing.whole(core, bytes)?;
        let (number, region) = self.regions.add(Region::Own(shared));
        Ok(CudaBuffer::new(number, region, count, self.aside.clone(), self.rank))
    }

    /// Maps memory of another allocator on all ranks.
    pub fn register(&mut self, core: &mut Core, address: u64, bytes: u64) -> Result<(), Error> {
        core.usable()?;
        let found = self.context.find(address).map_err(|fault| self.fault(&fault));
        let known = found.as_ref().is_ok_and(|found| self.regions.known(found, address, bytes));
        let words = core.words(if known { u64::MAX } else { bytes.min(u64::MAX - 1) })?;
        if words.iter().all(|&word| word == u64::MAX) {
            return Ok(());
        }
        let alike = words.iter().all(|&word| word == u64::MAX || word == bytes);
        let region = self.sharing.import(core, found, (address, bytes), alike)?;
        self.retired.extend(self.regions.displace(address, bytes));
        self.regions.add(region);
        Ok(())
    }

    /// Frees a buffer, after all calls.
    pub fn free<T: Element>(
        &mut self,
        core: &mut Core,
        buffer: &CudaBuffer<T>,
    ) -> Result<(), Error> {
        let latest = self.journal.lock().latest();
        if let Some(stream) = latest {
            self.watch(core, || stream.is_done())?;
        }
        self.united.remove(&buffer.number());
        self.regions.remove(buffer.number());
        self.forget(buffer.number());
        Ok(())
    }

    /// Forgets the calls that use a region.
    fn forget(&mut self, region: u32) {
        let bounds = &mut self.bounds;
        self.known.retain(|key, at| {
            if key.uses(region) {
                bounds[*at] = None;
            }
            !key.uses(region)
        });
    }

    /// Waits for calls before the memory goes; makes kernels leave that wait in vain.
    pub fn leave(&mut self, timeout: Duration) {
        let latest = self.journal.lock().latest();
        if latest.as_ref().is_some_and(|stream| stream.drain(timeout).is_err()) {
            self.mailbox.abort();
            self.far.iter().for_each(Lanes::stop);
            if latest.is_some_and(|stream| stream.drain(LEAVE).is_err()) {
                self.abandon();
            }
        }
        self.beyond.iter().for_each(|window| window.end(false));
        // Before the memory that they use.
        self.far = None;
    }

    /// Returns an error if this communicator is over several hosts: `what` goes as far as one.
    pub(super) fn on_one_host(&self, what: &str) -> Result<(), Error> {
        match &self.far {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported(format!(
                "{what} reaches as far as one host, and the ranks of this communicator are on several: use a \
                 communicator of the ranks of each host"
            ))),
        }
    }

    /// Leaves what kernels use until the process ends: a kernel does not end, or the context is broken.
    fn abandon(&mut self) {
        self.arena.abandon();
        std::mem::forget(self.mailbox.clone());
        self.far.iter().for_each(Lanes::abandon);
        self.abandon_staging();
        let regions = self.regions.all().chain(&self.retired);
        regions.cloned().for_each(std::mem::forget);
        self.united.values_mut().for_each(Range::abandon);
        let counted = self.counted.as_ref().map(|(kernel, _)| kernel);
        self.compiled
            .values()
            .chain(&self.batch)
            .chain(&self.window)
            .chain(counted)
            .cloned()
            .for_each(std::mem::forget);
    }
}

/// The time that kernels may take to see the abort word.
pub(super) const LEAVE: Duration = Duration::from_secs(10);
