//! Memory of a device by its address alone, for allocators of other libraries, which know neither owner nor lifetime.

use super::devices::handle;
use super::fault::{DriverFault, cuda};
use super::graph::RelaxedCapture;
use super::library::{self, DriverError};

/// Allocates bytes of a device's memory, of any contents, as `cudaMalloc` does: other processes can map it, also where
/// the memory of torch's allocator is of segments that grow. The primary context of the device is current on this
/// thread afterwards. A stream that this thread captures is not disturbed.
///
/// # Errors
///
/// [`DriverError`], if there is no driver, no such device, or no room on it.
pub fn allocate_bytes(device: u32, bytes: usize) -> Result<u64, DriverError> {
    library::load()?;
    enter(device)?;
    let _relaxed = RelaxedCapture::begin()?;
    let mut address = 0;
    // SAFETY: one address is written.
    unsafe { cuda!(cuMemAlloc_v2(&raw mut address, bytes)) }?;
    Ok(address)
}

/// Frees memory of [`allocate_bytes`], once what runs on its device has ended.
///
/// # Errors
///
/// [`DriverError`], if the address is not of such memory.
///
/// # Safety
///
/// Nothing uses the memory any more.
pub unsafe fn free_bytes(device: u32, address: u64) -> Result<(), DriverError> {
    library::load()?;
    enter(device)?;
    let _relaxed = RelaxedCapture::begin()?;
    // SAFETY: what the caller promises.
    Ok(unsafe { cuda!(cuMemFree_v2(address)) }?)
}

/// Makes the primary context of a device current on this thread.
fn enter(device: u32) -> Result<(), DriverFault> {
    let (handle, mut context) = (handle(device)?, std::ptr::null_mut());
    // SAFETY: one handle is written. The reference is kept, as what lies in the context is the caller's.
    unsafe {
        cuda!(cuDevicePrimaryCtxRetain(&raw mut context, handle))?;
        cuda!(cuCtxSetCurrent(context))
    }
}
