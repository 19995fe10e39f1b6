//! Device memory that can be shared, and the addresses at which it is mapped.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys;

use super::fault::cuda;
use super::{CudaStream, DeviceContext, DriverFault};

/// The handle by which memory is passed on: a descriptor.
pub(super) const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a device, of this process or of another one, without an address.
#[derive(Debug)]
pub(crate) struct DeviceAllocation {
    context: Arc<DeviceContext>,
    raw: sys::CUmemGenericAllocationHandle,
    bytes: u64,
}

fn properties(context: &DeviceContext, by_network: bool) -> sys::CUmemAllocationProp {
    sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: DESCRIPTOR,
        location: here(context),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: by_network.into(),
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn here(context: &DeviceContext) -> sys::CUmemLocation {
    let type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    sys::CUmemLocation { type_, id: context.ordinal() }
}

impl DeviceAllocation {
    /// Takes a handle over, to be released in `drop`.
    pub(super) fn new(
        context: &Arc<DeviceContext>,
        raw: sys::CUmemGenericAllocationHandle,
        bytes: u64,
    ) -> Self {
        DeviceAllocation { context: context.clone(), raw, bytes }
    }

    pub(super) fn raw(&self) -> sys::CUmemGenericAllocationHandle {
        self.raw
    }

    pub(super) fn context(&self) -> &DeviceContext {
        &self.context
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes of which shared memory is a multiple.
    pub(crate) fn granularity(context: &DeviceContext) -> Result<u64, DriverFault> {
        let (mut bytes, wanted) = (0, properties(context, false));
        use sys::CUmemAllocationGranularity_flags as Of;
        let best = Of::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: one number is written, the properties are whole.
        unsafe { cuda!(cuMemGetAllocationGranularity(&raw mut bytes, &raw const wanted, best)) }?;
        Ok((bytes as u64).max(1))
    }

    /// Allocates memory. `bytes` is a multiple of the granularity, and not 0.
    pub(crate) fn create(context: &Arc<DeviceContext>, bytes: u64) -> Result<Self, DriverFault> {
        Self::created(context, bytes, properties(context, false))
    }

    /// Allocates memory that network devices reach too.
    pub(super) fn for_network(
        context: &Arc<DeviceContext>,
        bytes: u64,
    ) -> Result<Self, DriverFault> {
        Self::created(context, bytes, properties(context, true))
    }

    fn created(
        context: &Arc<DeviceContext>,
        bytes: u64,
        wanted: sys::CUmemAllocationProp,
    ) -> Result<Self, DriverFault> {
        context.enter()?;
        let mut raw = 0;
        // SAFETY: one handle is written, the properties are whole; it is released in `drop`.
        unsafe { cuda!(cuMemCreate(&raw mut raw, bytes as usize, &raw const wanted, 0)) }?;
        Ok(DeviceAllocation { context: context.clone(), raw, bytes })
    }

    /// Returns a descriptor of it, for another process.
    pub(crate) fn export(&self) -> Result<OwnedFd, DriverFault> {
        let mut fd = -1i32;
        // SAFETY: for this kind of handle one descriptor is written.
        unsafe {
            cuda!(cuMemExportToShareableHandle((&raw mut fd).cast(), self.raw, DESCRIPTOR, 0))?;
        }
        // SAFETY: the driver gave the descriptor to the caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
        Ok(fd)
    }

    /// Returns the memory that a descriptor stands for; `bytes` as its maker says.
    pub(crate) fn import(
        context: &Arc<DeviceContext>,
        fd: OwnedFd,
        bytes: u64,
    ) -> Result<Self, DriverFault> {
        context.enter()?;
        let mut raw = 0;
        let handle = fd.as_raw_fd() as usize as *mut std::ffi::c_void;
        // SAFETY: for this kind of handle the pointer is the descriptor itself, which is open during the call.
        unsafe { cuda!(cuMemImportFromShareableHandle(&raw mut raw, handle, DESCRIPTOR)) }?;
        Ok(DeviceAllocation { context: context.clone(), raw, bytes })
    }
}

impl Drop for DeviceAllocation {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: this is the only owner of the handle; where it is mapped, the memory stays.
            let _ = unsafe { cuda!(cuMemRelease(self.raw)) };
        }
    }
}

/// A range of addresses, mapped from its beginning as far as memory was put there.
#[derive(Debug)]
pub(crate) struct MappedRange {
    context: Arc<DeviceContext>,
    base: u64,
    reserved: u64,
    mapped: Vec<DeviceAllocation>,
    filled: u64,
}

impl MappedRange {
    /// Reserves addresses without memory. `bytes` is a multiple of the granularity.
    pub(crate) fn reserve(context: &Arc<DeviceContext>, bytes: u64) -> Result<Self, DriverFault> {
        context.enter()?;
        let (mut base, context) = (0, context.clone());
        // SAFETY: one address is written; it is freed in `drop`.
        unsafe { cuda!(cuMemAddressReserve(&raw mut base, bytes as usize, 0, 0, 0)) }?;
        Ok(MappedRange { context, base, reserved: bytes, mapped: Vec::new(), filled: 0 })
    }

    /// Puts memory behind what is mapped so far, for kernels of this context to load and store.
    pub(crate) fn map(&mut self, memory: DeviceAllocation) -> Result<(), DriverFault> {
        self.context.enter()?;
        if memory.bytes > self.reserved - self.filled {
            return Err(DriverFault {
                call: "cuMemMap",
                code: "no addresses".into(),
                text: format!("{} bytes are reserved", self.reserved),
            });
        }
        let (at, bytes) = (self.base + self.filled, memory.bytes as usize);
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: here(&self.context), flags };
        // SAFETY: the addresses are reserved, long enough, and not mapped; the memory has that many bytes.
        unsafe {
            cuda!(cuMemMap(at, bytes, 0, memory.raw, 0))?;
            if let Err(fault) = cuda!(cuMemSetAccess(at, bytes, &raw const access, 1)) {
                let _ = cuda!(cuMemUnmap(at, bytes));
                return Err(fault);
            }
        }
        self.filled += memory.bytes;
        self.mapped.push(memory);
        Ok(())
    }

    /// Returns the first address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Gives the memory back and keeps the addresses; returns the bytes of each piece that was there, in order. Nothing
    /// uses it any more.
    pub(crate) fn unmap(&mut self) -> Result<Vec<u64>, DriverFault> {
        self.context.enter()?;
        let pieces = self.mapped.iter().map(DeviceAllocation::bytes).collect();
        while let Some(last) = self.mapped.last() {
            let at = self.base + self.filled - last.bytes;
            // SAFETY: mapped so by `map`; the caller promises that nothing uses it.
            unsafe { cuda!(cuMemUnmap(at, last.bytes as usize)) }?;
            self.filled -= last.bytes;
            self.mapped.pop();
        }
        Ok(pieces)
    }

    /// Returns what is mapped, if it is one piece.
    pub(crate) fn whole(&self) -> Option<&DeviceAllocation> {
        match &self.mapped[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Returns the bytes that are memory.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// Leaves all as it is until the process ends: a kernel that does not end uses it.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.mapped));
        self.reserved = 0;
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        if self.reserved == 0 || self.context.enter().is_err() {
            return;
        }
        let mut at = self.base;
        for memory in &self.mapped {
            // SAFETY: mapped so; the owner has waited for the kernels that use it.
            let _ = unsafe { cuda!(cuMemUnmap(at, memory.bytes as usize)) };
            at += memory.bytes;
        }
        // SAFETY: reserved so, and nothing is mapped any more.
        let _ = unsafe { cuda!(cuMemAddressFree(self.base, self.reserved as usize)) };
    }
}

/// Memory that another process allocated with `cuMemAlloc`, as it is mapped here.
#[derive(Debug)]
pub(crate) struct IpcMapping {
    context: Arc<DeviceContext>,
    base: u64,
}

/// A name for memory of `cuMemAlloc`, good in other processes.
pub(crate) type IpcHandle = [u8; 64];

impl IpcMapping {
    /// Maps the memory that a handle of another process names.
    pub(crate) fn open(
        context: &Arc<DeviceContext>,
        handle: &IpcHandle,
    ) -> Result<Self, DriverFault> {
        context.enter()?;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte as std::ffi::c_char) };
        let lazily = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut base = 0;
        // SAFETY: one address is written; it is closed in `drop`.
        unsafe { cuda!(cuIpcOpenMemHandle_v2(&raw mut base, handle, lazily)) }?;
        Ok(IpcMapping { context: context.clone(), base })
    }

    /// Returns the first address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for IpcMapping {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: opened so; the owner has waited for the kernels that use it.
            let _ = unsafe { cuda!(cuIpcCloseMemHandle(self.base)) };
        }
    }
}

/// The allocation that an address belongs to, whichever allocator made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForeignAllocation {
    /// The address at which the allocation begins, and its bytes.
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    /// A number that tells allocations at the same address apart.
    pub(crate) id: u64,
}

impl DeviceContext {
    /// Returns the allocation that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Result<ForeignAllocation, DriverFault> {
        self.enter()?;
        let (mut base, mut bytes, mut id) = (0, 0, 0u64);
        let which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID;
        // SAFETY: the driver checks the address; for this attribute one word of 64 bits is written.
        unsafe {
            cuda!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, address))?;
            cuda!(cuPointerGetAttribute((&raw mut id).cast(), which, address))?;
        }
        Ok(ForeignAllocation { base, bytes: bytes as u64, id })
    }

    /// Returns a name of the allocation that begins there, for other processes.
    pub(crate) fn name(&self, base: u64) -> Result<IpcHandle, DriverFault> {
        self.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        // SAFETY: the driver checks the address; one handle is written.
        unsafe { cuda!(cuIpcGetMemHandle(&raw mut handle, base)) }?;
        Ok(handle.reserved.map(|c| c as u8))
    }
}

impl CudaStream {
    /// Copies host memory to an address, when the stream comes to it.
    ///
    /// # Safety
    ///
    /// Both are good for the length until the stream has come past.
    pub unsafe fn write(&self, to: u64, from: &[u8]) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: the caller's promise.
        unsafe { cuda!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.handle())) }
    }

    /// Copies from an address to host memory, as [`CudaStream::write`].
    ///
    /// # Safety
    ///
    /// The requirements of [`CudaStream::write`].
    pub unsafe fn read(&self, to: &mut [u8], from: u64) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: the caller's promise.
        unsafe {
            cuda!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.handle()))
        }
    }

    /// Copies between addresses of this or other devices, by a copy engine where the driver takes one.
    ///
    /// # Safety
    ///
    /// The requirements of [`CudaStream::write`].
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: the caller's promise.
        unsafe { cuda!(cuMemcpyDtoDAsync_v2(to, from, bytes as usize, self.handle())) }
    }

    /// Puts copies (to, from, bytes) into the stream, but for those that change nothing.
    ///
    /// # Safety
    ///
    /// Both sides of each have as many bytes until the stream has come past.
    pub(crate) unsafe fn copy_all(
        &self,
        copies: impl IntoIterator<Item = (u64, u64, u64)>,
    ) -> Result<(), DriverFault> {
        let mut copies = copies.into_iter().filter(|(to, from, bytes)| to != from && *bytes > 0);
        // SAFETY: the caller's promise.
        copies.try_for_each(|(to, from, bytes)| unsafe { self.copy(to, from, bytes) })
    }

    /// Sets bytes from an address on.
    ///
    /// # Safety
    ///
    /// The requirements of [`CudaStream::write`].
    pub unsafe fn set(&self, to: u64, byte: u8, bytes: u64) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: the caller's promise.
        unsafe { cuda!(cuMemsetD8Async(to, byte, bytes as usize, self.handle())) }
    }
}
