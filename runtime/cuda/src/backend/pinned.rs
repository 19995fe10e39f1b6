//! Host memory that does not move, which kernels load and store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::fault::cuda;
use super::{DeviceContext, DriverFault};

/// The multiple of bytes at which the part of memory begins that can be released: the largest page of any host.
pub(crate) const RELEASE_ALIGN: u64 = 64 << 10;

/// The part of memory whose pages go back to the system, and come back at the same address.
#[derive(Debug)]
struct ReleasablePart {
    /// Bytes before it.
    kept: usize,
    is_there: AtomicBool,
}

impl ReleasablePart {
    fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }
}

/// Host memory that does not move, zero at first, which kernels load and store.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    context: Arc<DeviceContext>,
    host: *mut u8,
    device: u64,
    bytes: u64,
    /// None if the driver allocated the memory.
    part: Option<ReleasablePart>,
}

// SAFETY: plain memory, which is read and written with atomics.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates that many bytes, filled with zeros.
    pub(crate) fn new(context: &Arc<DeviceContext>, bytes: usize) -> Result<Self, DriverFault> {
        context.enter()?;
        let mut host = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: one address is written; it is freed in `drop`.
        unsafe { cuda!(cuMemHostAlloc(&raw mut host, bytes, flags)) }?;
        let (context, host_bytes) = (context.clone(), bytes as u64);
        let host = host.cast::<u8>();
        let mut pinned = PinnedMemory { context, host, device: 0, bytes: host_bytes, part: None };
        // SAFETY: the memory has `bytes` bytes and is this function's own; one address is written.
        unsafe {
            pinned.host.write_bytes(0, bytes);
            cuda!(cuMemHostGetDevicePointer_v2(&raw mut pinned.device, host.cast(), 0))?;
        }
        Ok(pinned)
    }

    /// Allocates that many bytes, of which those from `kept` on, a multiple of [`RELEASE_ALIGN`], can be released. Where
    /// addresses of kernels are not those of the host, nothing can be: such memory is that of [`PinnedMemory::new`].
    pub(crate) fn releasable(
        context: &Arc<DeviceContext>,
        kept: usize,
        bytes: usize,
    ) -> Result<Self, DriverFault> {
        debug_assert!(kept.is_multiple_of(RELEASE_ALIGN as usize) && kept < bytes);
        if !context.registers_in_place()? {
            return PinnedMemory::new(context, bytes);
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, which is this function's own; it is unmapped in `drop`.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let Ok(host) = mapped else { return PinnedMemory::new(context, bytes) };
        let (part, host) =
            (ReleasablePart { kept, is_there: AtomicBool::new(false) }, host.cast::<u8>());
        let mut pinned = PinnedMemory {
            context: context.clone(),
            host,
            device: host as u64,
            bytes: bytes as u64,
            part: Some(part),
        };
        // A child of this process has no use for it, and must not make the pages copies.
        // SAFETY: the mapping is this function's own.
        let _ = unsafe { madvise(host.cast(), bytes, Advice::LinuxDontFork) };
        if kept > 0
            && let Err(fault) = pinned.register(0, kept)
        {
            pinned.unmap();
            return Err(fault);
        }
        pinned.restore()?;
        Ok(pinned)
    }

    /// Has the driver keep some of the mapping in place.
    fn register(&self, from: usize, bytes: usize) -> Result<(), DriverFault> {
        self.context.enter()?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: it lies in the mapping, which lives as long as `self`.
        unsafe { cuda!(cuMemHostRegister_v2(self.host.add(from).cast(), bytes, flags)) }
    }

    /// Gives the part back to the system that can be released, whose content is lost: no kernel and no thread uses it.
    pub(crate) fn release(&self) -> Result<(), DriverFault> {
        let Some(part) = self.part.as_ref().filter(|part| part.is_there()) else { return Ok(()) };
        self.context.enter()?;
        // SAFETY: registered so, and in use by nothing, as the caller says.
        unsafe {
            let start = self.host.add(part.kept).cast();
            cuda!(cuMemHostUnregister(start))?;
            part.is_there.store(false, Ordering::Release);
            // What the system does not take now it takes when the mapping goes.
            let _ = madvise(start, self.bytes as usize - part.kept, Advice::LinuxDontNeed);
        }
        Ok(())
    }

    /// Makes the part again that was released, filled with zeros, at the same address.
    pub(crate) fn restore(&self) -> Result<(), DriverFault> {
        let Some(part) = self.part.as_ref().filter(|part| !part.is_there()) else { return Ok(()) };
        self.register(part.kept, self.bytes as usize - part.kept)?;
        part.is_there.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns its bytes, without those that are released.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.part {
            Some(part) if !part.is_there() => part.kept as u64,
            _ => self.bytes,
        }
    }

    /// Returns its address on the host.
    pub(crate) fn host(&self) -> *mut u8 {
        self.host
    }

    /// Returns its address for kernels.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    fn unmap(&mut self) {
        // SAFETY: mapped so, and no longer registered.
        let _ = unsafe { munmap(self.host.cast(), self.bytes as usize) };
        self.part = None;
        self.host = std::ptr::null_mut();
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.host.is_null() || self.context.enter().is_err() {
            return;
        }
        let released = self.release().is_ok();
        let Some(part) = &self.part else {
            // SAFETY: this is the only owner of the address, and has waited for the kernels that use it.
            let _ = unsafe { cuda!(cuMemFreeHost(self.host.cast())) };
            return;
        };
        // SAFETY: registered so; as above.
        let kept =
            part.kept == 0 || unsafe { cuda!(cuMemHostUnregister(self.host.cast())) }.is_ok();
        // Memory that the driver still has stays mapped.
        if released && kept {
            self.unmap();
        }
    }
}
