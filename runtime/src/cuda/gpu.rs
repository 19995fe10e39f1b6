//! What a rank has of its device, and memory that ranks share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use roundelay_compiler::device::{Way, abi};

use super::bound::{Bound, Key};
use super::comm::drain;
use super::journal::Journal;
use super::layout::Layout;
use super::meet::{agree, same, trade};
use super::named::Choices;
use super::program::Lowered;
use super::region::{Region, Regions};
use crate::backend::cuda::kernels::Kernels;
use crate::backend::cuda::{Context, CudaStream, Fault, Foreign, Handle, Pinned};
use crate::comm::Core;
use crate::error::Error;
use crate::transport::nvlink::{Post, Shared, offer};

/// Where the report begins in the mailbox; the abort word is at 0.
const REPORT: usize = 64;

/// See above.
pub(super) struct Gpu {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    /// Of the GPU with the fewest multiprocessors, so that all ranks choose alike.
    pub(super) sms: u32,
    pub(super) granularity: u64,
    pub(super) layout: Layout,
    /// Calls of which the compiler knows: by plan and way.
    pub(super) lowered: BTreeMap<([u8; 16], Way), Result<Arc<Lowered>, String>>,
    /// Calls that were made ready, and where each is among them.
    pub(super) known: BTreeMap<Key, usize>,
    pub(super) bounds: Vec<Option<Box<Bound>>>,
    pub(super) choices: Choices,
    pub(super) regions: Regions,
    /// Regions that were replaced, for calls that may still use them.
    pub(super) retired: Vec<Arc<Region>>,
    pub(super) arena: Shared,
    pub(super) mailbox: Mailbox,
    pub(super) kernels: Kernels,
    pub(super) journal: Journal,
    pub(super) stream: CudaStream,
    /// For copies and looks beside calls.
    pub(super) aside: CudaStream,
    pub(super) post: Post,
    pub(super) tokens: Vec<u64>,
    pub(super) context: Arc<Context>,
}

/// Words of host memory that kernels see.
#[derive(Debug)]
pub(super) struct Mailbox(Pinned);

impl Mailbox {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, Fault> {
        Pinned::new(context, REPORT + size_of::<abi::Report>()).map(Mailbox)
    }

    /// Where kernels find the abort word, and the report.
    pub(super) fn addresses(&self) -> (u64, u64) {
        (self.0.device(), self.0.device() + REPORT as u64)
    }

    /// Makes kernels leave, those that run and those to come.
    pub(super) fn abort(&self) {
        // SAFETY: the first word of the memory, aligned to pages, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.0.host().cast()) }.store(1, Ordering::SeqCst);
    }

    /// What a kernel reported, if one did.
    pub(super) fn report(&self) -> Option<abi::Report> {
        // SAFETY: the report lies behind the abort word, aligned to 64 bytes. `what` is its first word, written last.
        let report = unsafe { self.0.host().add(REPORT) };
        // SAFETY: as above.
        let what = unsafe { AtomicU32::from_ptr(report.cast()) }.load(Ordering::Acquire);
        if what == 0 {
            return None;
        }
        // SAFETY: the kernel has written it whole before `what`, and nobody writes it again; it has no padding.
        Some(unsafe { report.cast::<abi::Report>().read_volatile() })
    }
}

impl Gpu {
    /// The error of a call of the driver.
    pub(super) fn fault(&self, fault: &Fault) -> Error {
        self.failed(fault.to_string())
    }

    /// The error of something on this rank's device.
    pub(super) fn failed(&self, what: String) -> Error {
        Error::Cuda { rank: self.rank, device: self.context.device().to_string(), what }
    }

    fn or_fault<T>(&self, result: Result<T, Fault>) -> Result<T, Error> {
        result.map_err(|fault| self.fault(&fault))
    }

    /// So many bytes of memory on every rank, zeros, mapped by all, behind what `shared` has.
    fn extend(&mut self, core: &mut Core, shared: &mut Shared, bytes: u64) -> Result<(), Error> {
        let begun = shared.bytes();
        let own = self.or_fault(self.begin(shared, bytes));
        let descriptor = agree(core, own)?;
        let content = bytes.to_le_bytes();
        let fds = [std::os::fd::AsFd::as_fd(&descriptor)];
        let letters = trade(core, (&mut self.post, &self.tokens), &content, &fds)?;
        let taken = letters.and_then(|letters| {
            for (peer, letter) in (0u32..).zip(letters) {
                let Some(letter) = letter else { continue };
                let fault = |fault: Fault| {
                    let what = format!("the memory of rank {peer} cannot be mapped: {fault}");
                    self.failed(what)
                };
                let descriptor = letter.descriptors.into_iter().next();
                let (true, Some(descriptor)) = (letter.content == content, descriptor) else {
                    let what = format!("rank {peer} passed other memory than was agreed");
                    return Err(self.failed(what));
                };
                shared.take(peer, descriptor, bytes).map_err(fault)?;
            }
            Ok(())
        });
        debug_assert!(taken.is_err() || shared.bytes() == begun + bytes);
        agree(core, taken)
    }

    /// This rank's part: new memory, zeroed, mapped here.
    fn begin(&self, shared: &mut Shared, bytes: u64) -> Result<std::os::fd::OwnedFd, Fault> {
        let (memory, descriptor) = offer(&self.context, bytes)?;
        let at = shared.base(self.rank) + shared.bytes();
        shared.put(memory)?;
        // SAFETY: the memory was just mapped, and nobody else knows of it.
        unsafe { self.aside.set(at, 0, bytes) }?;
        drain(&self.aside, ZEROED)?;
        Ok(descriptor)
    }

    /// Memory for the arena up to `bytes` at least.
    pub(super) fn grow(&mut self, core: &mut Core, bytes: u64) -> Result<(), Error> {
        let Some(missing) = bytes.checked_sub(self.arena.bytes()).filter(|&missing| missing > 0)
        else {
            return Ok(());
        };
        let missing = missing.next_multiple_of(self.granularity);
        let none = Shared::reserve(&self.context, (self.rank, 0), 0);
        let mut arena = std::mem::replace(&mut self.arena, self.or_fault(none)?);
        let done = self.extend(core, &mut arena, missing);
        self.arena = arena;
        done
    }

    /// New memory that all ranks map, for buffers.
    pub(super) fn share(
        &mut self,
        core: &mut Core,
        bytes: u64,
    ) -> Result<(u32, Arc<Region>), Error> {
        let size = bytes.max(1).next_multiple_of(self.granularity);
        if let Some(peer) = same(core, bytes)? {
            return Err(Error::Usage(format!(
                "rank {} allocates {bytes} bytes on its GPU, and rank {peer} another number: all ranks must allocate \
                 the same",
                self.rank
            )));
        }
        let reserved = Shared::reserve(&self.context, (self.rank, self.ranks), size);
        let mut shared = agree(core, self.or_fault(reserved))?;
        self.extend(core, &mut shared, size)?;
        Ok(self.regions.add(Region::Own(shared)))
    }

    /// Maps memory of another allocator on all ranks.
    pub(super) fn register(
        &mut self,
        core: &mut Core,
        address: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        let found = self.or_fault(self.context.find(address));
        let known = found.as_ref().is_ok_and(|found| self.regions.known(found, address, bytes));
        let words = core.words(if known { u64::MAX } else { bytes.min(u64::MAX - 1) })?;
        if words.iter().all(|&word| word == u64::MAX) {
            return Ok(());
        }
        let same = words.iter().all(|&word| word == u64::MAX || word == bytes);
        let own = found.and_then(|found| {
            let fits = address.checked_add(bytes).is_some_and(|end| end <= found.base + found.bytes);
            match (same, fits) {
                (false, _) => Err(Error::Usage(
                    "ranks register memory of different lengths: all must register the same".into(),
                )),
                (_, false) => Err(Error::Usage(format!(
                    "{bytes} bytes at {address:#x} are more than the allocation has"
                ))),
                _ => Ok((found, self.or_fault(self.context.name(found.base))?)),
            }
        });
        let (found, handle) = agree(core, own)?;
        let mut content = handle.to_vec();
        content.extend((address - found.base).to_le_bytes());
        let letters = trade(core, (&mut self.post, &self.tokens), &content, &[])?;
        let mapped = letters.and_then(|letters| {
            let (mut peers, mut offsets) = (Vec::new(), Vec::new());
            for (peer, letter) in (0u32..).zip(letters) {
                let Some(letter) = letter else {
                    peers.push(None);
                    offsets.push(address - found.base);
                    continue;
                };
                let (map, offset) = self.open(peer, &letter.content)?;
                peers.push(Some(map));
                offsets.push(offset);
            }
            Ok((peers, offsets))
        });
        let (peers, offsets) = agree(core, mapped)?;
        self.retired.extend(self.regions.displace(address, bytes));
        let own = self.rank;
        self.regions.add(Region::Foreign { found, own, peers, offsets, bytes });
        Ok(())
    }

    /// Maps what a peer's letter names.
    fn open(&self, peer: u32, content: &[u8]) -> Result<(Foreign, u64), Error> {
        let handle = content.get(..64).and_then(|h| Handle::try_from(h).ok());
        let offset = content.get(64..).and_then(|o| o.try_into().ok()).map(u64::from_le_bytes);
        let (Some(handle), Some(offset)) = (handle, offset) else {
            return Err(self.failed(format!("rank {peer} passed no name of memory")));
        };
        let opened = Foreign::open(&self.context, &handle);
        let opened = opened.map_err(|fault| {
            self.failed(format!("the memory of rank {peer} cannot be mapped: {fault}"))
        });
        Ok((opened?, offset))
    }

    /// Calls that use a region are not known any more.
    pub(super) fn forget(&mut self, region: u32) {
        let bounds = &mut self.bounds;
        self.known.retain(|key, at| {
            if key.uses(region) {
                bounds[*at] = None;
            }
            !key.uses(region)
        });
    }

    /// Waits for calls before the memory goes; makes kernels leave that wait in vain.
    pub(super) fn leave(&mut self, patience: Duration) {
        let Some(stream) = self.journal.lock().latest() else { return };
        if drain(&stream, patience).is_err() {
            self.mailbox.abort();
            let _ = drain(&stream, LEAVE);
        }
    }
}

/// How long zeroing memory may take.
const ZEROED: Duration = Duration::from_secs(60);
/// How long kernels may take to see the abort word.
pub(super) const LEAVE: Duration = Duration::from_secs(10);
