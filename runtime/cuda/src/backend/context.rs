//! A device's context: what the driver keeps for this process there.

use std::sync::Arc;

use cudarc::driver::sys;

use super::devices::{attribute, handle, reaches};
use super::fault::cuda;
use super::{CudaDevice, DriverFault};

/// The primary context of a device: the one that other libraries of the process use too, so that their memory,
/// streams and events serve here.
#[derive(Debug)]
pub struct DeviceContext {
    raw: sys::CUcontext,
    handle: sys::CUdevice,
    device: CudaDevice,
}

// SAFETY: the driver's handles may be used from any thread; `enter` makes the context current in each.
unsafe impl Send for DeviceContext {}
// SAFETY: as above; the driver locks what needs it.
unsafe impl Sync for DeviceContext {}

impl DeviceContext {
    /// Returns the context of a device, made if it is not there yet.
    pub(crate) fn new(device: CudaDevice) -> Result<Arc<Self>, DriverFault> {
        let handle = handle(device.index)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one handle is written; it is released in `drop`.
        unsafe { cuda!(cuDevicePrimaryCtxRetain(&raw mut raw, handle)) }?;
        let context = Arc::new(DeviceContext { raw, handle, device });
        context.enter()?;
        Ok(context)
    }

    /// Returns the device it is on.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Returns the number of its device, as memory's properties name it.
    pub(super) fn ordinal(&self) -> i32 {
        self.handle
    }

    /// Makes it the current one of this thread.
    pub(crate) fn enter(&self) -> Result<(), DriverFault> {
        let mut current = std::ptr::null_mut();
        // SAFETY: one handle is written.
        unsafe { cuda!(cuCtxGetCurrent(&raw mut current)) }?;
        if current == self.raw {
            return Ok(());
        }
        // SAFETY: the context lives as long as `self`.
        unsafe { cuda!(cuCtxSetCurrent(self.raw)) }
    }

    /// Returns true if kernels here can load and store in the memory of another device of this process.
    pub(crate) fn reaches(&self, other: &CudaDevice) -> Result<bool, DriverFault> {
        reaches(self.device.index, other.index)
    }

    /// Returns true if memory of it can be passed to other processes as descriptors.
    pub(crate) fn shares(&self) -> Result<bool, DriverFault> {
        use sys::CUdevice_attribute as Of;
        let posix = Of::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        let managed = Of::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        Ok(attribute(self.handle, posix)? != 0 && attribute(self.handle, managed)? != 0)
    }

    /// Returns true if kernels know memory that is registered by its addresses on the host.
    pub(super) fn registers_in_place(&self) -> Result<bool, DriverFault> {
        use sys::CUdevice_attribute as Of;
        let in_place = Of::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
        Ok(attribute(self.handle, in_place)? != 0)
    }

    /// Returns true if a switch joins the device to others that can read and write all of them at once.
    pub(crate) fn multicasts(&self) -> Result<bool, DriverFault> {
        use sys::CUdevice_attribute as Of;
        Ok(attribute(self.handle, Of::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED)? != 0)
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // SAFETY: it was retained once. What lies in it holds a reference, and is gone.
        let _ = unsafe { cuda!(cuDevicePrimaryCtxRelease_v2(self.handle)) };
    }
}
