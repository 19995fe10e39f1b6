//! Memory of several devices at one address, by the switch between them.
//!
//! One process makes an object for a number of devices. Each joins it with its device; when all have, each binds memory
//! of its own, and maps the object: what is read and written there is read and written on all.
//!
//! None of this was tried on hardware.

use std::sync::Arc;

use cudarc::driver::sys;

use super::fault::cuda;
use super::memory::DESCRIPTOR;
use super::{DeviceAllocation, DeviceContext, DriverFault};

fn properties(devices: u32, bytes: u64) -> sys::CUmulticastObjectProp {
    sys::CUmulticastObjectProp {
        numDevices: devices,
        size: bytes as usize,
        handleTypes: DESCRIPTOR.0.into(),
        flags: 0,
    }
}

/// Returns the number of bytes of which memory that is bound for `devices` is a multiple.
pub(crate) fn granularity(devices: u32, bytes: u64) -> Result<u64, DriverFault> {
    let (mut least, wanted) = (0, properties(devices, bytes));
    let of = sys::CUmulticastGranularity_flags::CU_MULTICAST_GRANULARITY_MINIMUM;
    // SAFETY: one number is written, the properties are whole.
    unsafe { cuda!(cuMulticastGetGranularity(&raw mut least, &raw const wanted, of)) }?;
    Ok((least as u64).max(1))
}

impl DeviceAllocation {
    /// Makes an object for `bytes` of that number of devices.
    pub(crate) fn of_all(
        context: &Arc<DeviceContext>,
        devices: u32,
        bytes: u64,
    ) -> Result<Self, DriverFault> {
        context.enter()?;
        let (mut raw, wanted) = (0, properties(devices, bytes));
        // SAFETY: one handle is written, the properties are whole; it is released in `drop`.
        unsafe { cuda!(cuMulticastCreate(&raw mut raw, &raw const wanted)) }?;
        Ok(DeviceAllocation::new(context, raw, bytes))
    }

    /// Adds this context's device to such an object.
    pub(crate) fn join(&self) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: the handle is that of an object, as the caller sees to.
        unsafe { cuda!(cuMulticastAddDevice(self.raw(), self.context().ordinal())) }
    }

    /// Binds memory of a device that has joined, as many bytes as the object has; all have joined.
    pub(crate) fn bind(&self, memory: &DeviceAllocation) -> Result<(), DriverFault> {
        self.context().enter()?;
        // SAFETY: both handles are good, and lie within the bytes of each.
        unsafe {
            cuda!(cuMulticastBindMem(self.raw(), 0, memory.raw(), 0, self.bytes() as usize, 0))
        }
    }
}
