//! The GPUs that the driver shows to this process.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::fault::{DriverFault, cuda};
use super::library::DriverError;

/// Lists the GPUs of this process. The driver has been loaded.
pub(crate) fn devices() -> Result<Vec<CudaDevice>, DriverError> {
    let mut count = 0;
    // SAFETY: one number is written.
    unsafe { cuda!(cuDeviceGetCount(&raw mut count)) }?;
    if count == 0 {
        return Err(DriverError::NoDevice);
    }
    Ok((0..count).map(|index| look(index as u32)).collect::<Result<_, DriverFault>>()?)
}

fn look(index: u32) -> Result<CudaDevice, DriverFault> {
    let device = handle(index)?;
    let mut name: [c_char; 128] = [0; 128];
    let mut bus: [c_char; 32] = [0; 32];
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    let mut memory = 0;
    // SAFETY: each writes to the variable given, not beyond the length given; the arrays keep a zero at the end.
    unsafe {
        cuda!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32 - 1, device))?;
        cuda!(cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32 - 1, device))?;
        cuda!(cuDeviceGetUuid_v2(&raw mut uuid, device))?;
        cuda!(cuDeviceTotalMem_v2(&raw mut memory, device))?;
    }
    use sys::CUdevice_attribute as Of;
    let major = attribute(device, Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(device, Of::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(CudaDevice {
        index,
        name: spell(&name),
        uuid: uuid.bytes.map(|byte| byte as u8),
        bus: spell(&bus).to_lowercase(),
        memory: memory as u64,
        capability: (major, minor),
        sms: attribute(device, Of::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

/// Returns true at `[a][b]` if device a can load and store in the memory of device b.
pub(crate) fn reach(devices: &[CudaDevice]) -> Result<Vec<Vec<bool>>, DriverFault> {
    let from = |a: &CudaDevice| devices.iter().map(|b| reaches(a.index, b.index)).collect();
    devices.iter().map(from).collect()
}

/// Returns true if kernels on one device can load and store in the memory of another.
pub(super) fn reaches(from: u32, to: u32) -> Result<bool, DriverFault> {
    if from == to {
        return Ok(true);
    }
    let (from, to, mut can) = (handle(from)?, handle(to)?, 0);
    // SAFETY: one number is written.
    unsafe { cuda!(cuDeviceCanAccessPeer(&raw mut can, from, to)) }?;
    Ok(can != 0)
}

/// Returns the driver's handle of a device.
pub(super) fn handle(index: u32) -> Result<sys::CUdevice, DriverFault> {
    let mut device = 0;
    // SAFETY: one handle is written.
    unsafe { cuda!(cuDeviceGet(&raw mut device, index as i32)) }?;
    Ok(device)
}

/// Returns an attribute of a device.
pub(super) fn attribute(
    device: sys::CUdevice,
    which: sys::CUdevice_attribute,
) -> Result<u32, DriverFault> {
    let mut value = 0;
    // SAFETY: one number is written.
    unsafe { cuda!(cuDeviceGetAttribute(&raw mut value, which, device)) }?;
    Ok(value as u32)
}

fn spell(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|&c| c as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
    text.map(|text| text.into_owned()).unwrap_or_default()
}
