//! Memory of a device that network devices read and write by themselves.
//!
//! The driver exports it as a descriptor (dma-buf), which the network's library registers. Kernels see what a
//! network device has written once they are notified, if the device keeps that order; else once writes were flushed.
//!
//! None of this was tried with a network device.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys;

use super::devices::attribute;
use super::fault::cuda;
use super::{CudaDevice, CudaStream, DeviceAllocation, DeviceContext, DriverFault, MappedRange};
use crate::tunables::SLOT_COPY_TIMEOUT;

/// Memory that network devices reach, for kernels of one device.
#[derive(Debug)]
pub(crate) struct NetworkMemory {
    range: MappedRange,
    stream: CudaStream,
    /// True if kernels see what was written only once it was flushed.
    flushes: bool,
}

impl DeviceContext {
    /// Returns whether writes of network devices must be flushed, if they reach the device's memory at all.
    fn flushes(&self) -> Result<Option<bool>, DriverFault> {
        use sys::CUdevice_attribute as Of;
        let of = |which| attribute(self.ordinal(), which);
        if of(Of::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? == 0
            || of(Of::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)? == 0
        {
            return Ok(None);
        }
        let order = of(Of::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?;
        if order
            >= sys::CUGPUDirectRDMAWritesOrdering::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER as u32
        {
            return Ok(Some(false));
        }
        let by_host =
            sys::CUflushGPUDirectRDMAWritesOptions::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST
                as u32;
        let options = of(Of::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)?;
        Ok((options & by_host != 0).then_some(true))
    }
}

impl NetworkMemory {
    /// Allocates `bytes` at least, if network devices can reach memory of the device.
    pub(crate) fn new(
        context: &Arc<DeviceContext>,
        bytes: u64,
    ) -> Result<Option<Self>, DriverFault> {
        let Some(flushes) = context.flushes()? else { return Ok(None) };
        let bytes = bytes.next_multiple_of(DeviceAllocation::granularity(context)?);
        let mut range = MappedRange::reserve(context, bytes)?;
        range.map(DeviceAllocation::for_network(context, bytes)?)?;
        let stream = CudaStream::new(context)?;
        Ok(Some(NetworkMemory { range, stream, flushes }))
    }

    /// Returns its first address, and its bytes.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.range.base(), self.range.filled())
    }

    /// Returns the device that it is of.
    pub(crate) fn device(&self) -> &CudaDevice {
        self.stream.context().device()
    }

    /// Returns a descriptor of it, for the network's library.
    pub(crate) fn export(&self) -> Result<OwnedFd, DriverFault> {
        self.stream.context().enter()?;
        let (base, bytes) = self.place();
        let kind = sys::CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
        let mut fd = -1i32;
        // SAFETY: the range is mapped; for this kind of handle one descriptor is written.
        unsafe {
            cuda!(cuMemGetHandleForAddressRange(
                (&raw mut fd).cast(),
                base,
                bytes as usize,
                kind,
                0
            ))?;
        }
        // SAFETY: the driver gave the descriptor to the caller.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
        Ok(fd)
    }

    /// Makes visible what network devices have written to kernels that are notified from now on.
    pub(crate) fn flush(&self) -> Result<(), DriverFault> {
        if !self.flushes {
            return Ok(());
        }
        self.stream.context().enter()?;
        use sys::{
            CUflushGPUDirectRDMAWritesScope as Scope, CUflushGPUDirectRDMAWritesTarget as Target,
        };
        let target = Target::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
        let scope = Scope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
        // SAFETY: no memory of this process is touched.
        unsafe { cuda!(cuFlushGPUDirectRDMAWrites(target, scope)) }
    }

    /// Copies what lies at an offset, and waits for that.
    pub(crate) fn load(&self, offset: u64, to: &mut [u8]) -> Result<(), DriverFault> {
        let from = self.at(offset, to.len());
        // SAFETY: it lies in the range, and is waited for.
        unsafe { self.stream.read(to, from) }?;
        self.stream.drain(SLOT_COPY_TIMEOUT)
    }

    /// Copies to an offset, and waits for that.
    pub(crate) fn store(&self, offset: u64, from: &[u8]) -> Result<(), DriverFault> {
        let to = self.at(offset, from.len());
        // SAFETY: it lies in the range, and is waited for.
        unsafe { self.stream.write(to, from) }?;
        self.stream.drain(SLOT_COPY_TIMEOUT)
    }

    fn at(&self, offset: u64, bytes: usize) -> u64 {
        let (base, all) = self.place();
        let end = offset.checked_add(bytes as u64);
        assert!(end.is_some_and(|end| end <= all), "{bytes} bytes at {offset} of {all}");
        base + offset
    }
}
