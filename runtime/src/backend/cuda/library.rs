//! Loads the driver's library, and checks that it has all that is needed.

use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use super::fault::cuda;

/// The library as drivers install it.
const NAME: &str = "libcuda.so.1";
/// The oldest version of CUDA whose driver will do: it brought the newest of the functions below.
const OLDEST: i32 = 12_080;

/// The functions that are called, by the names that the library has for them.
const FUNCTIONS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuFuncGetAttribute",
    "cuFuncLoad",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchKernel",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuPointerGetAttribute",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// Loads the driver, once a process; returns the version of CUDA that it serves.
///
/// # Errors
///
/// A text that says why it cannot be used.
pub(crate) fn load() -> Result<(u32, u32), String> {
    static LOADED: OnceLock<Result<(u32, u32), String>> = OnceLock::new();
    LOADED.get_or_init(look).clone()
}

fn look() -> Result<(u32, u32), String> {
    // SAFETY: the driver's library; what it runs when loaded concerns nobody else.
    let library = unsafe { Library::new(NAME) }.map_err(|error| {
        let why = spell(&error);
        format!(
            "the CUDA driver cannot be loaded: {why}; install NVIDIA's driver, or start the container with its \
             GPUs"
        )
    })?;
    for name in FUNCTIONS {
        // SAFETY: only whether the symbol exists is asked; it is not called through this type.
        if unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err() {
            return Err(format!("the driver is too old: it has no {name}; {REMEDY}"));
        }
    }
    // It stays for good: threads and contexts of the driver live on.
    std::mem::forget(library);
    // SAFETY: cudarc finds the library that was just loaded, by one of the names that it tries.
    if !unsafe { sys::is_culib_present() } {
        return Err(format!("{NAME} was loaded, but not found again"));
    }
    // SAFETY: no arguments but a reserved zero.
    unsafe { cuda!(cuInit(0)) }.map_err(|fault| match fault.code.as_str() {
        "CUDA_ERROR_NO_DEVICE" => NO_GPU.into(),
        _ => fault.to_string(),
    })?;
    let mut version = 0;
    // SAFETY: one number is written.
    unsafe { cuda!(cuDriverGetVersion(&raw mut version)) }.map_err(|fault| fault.to_string())?;
    let spelled = ((version / 1000) as u32, (version % 1000 / 10) as u32);
    match version < OLDEST {
        true => {
            let (major, minor) = spelled;
            Err(format!("the driver is too old: it serves CUDA {major}.{minor}; {REMEDY}"))
        }
        false => Ok(spelled),
    }
}

/// Returns the system's text for a library, or a symbol of it, that cannot be had.
pub(super) fn spell(error: &libloading::Error) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

const REMEDY: &str = "a driver of CUDA 12.8 (570) or newer is needed";
/// The text for a machine where the driver counts no device.
pub(crate) const NO_GPU: &str =
    "no GPU is visible: look at `nvidia-smi` and at the variable CUDA_VISIBLE_DEVICES";

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that is called and not looked for would panic on a driver without it.
    #[test]
    fn every_function_that_is_called_is_looked_for() {
        let texts = [
            include_str!("context.rs"),
            include_str!("device.rs"),
            include_str!("fault.rs"),
            include_str!("graph.rs"),
            include_str!("library.rs"),
            include_str!("memory.rs"),
            include_str!("module.rs"),
            include_str!("stream.rs"),
        ];
        let mut called = Vec::new();
        for text in texts {
            for marker in ["cuda!(", "sys::cu"] {
                for (at, _) in text.match_indices(marker) {
                    let from = at + marker.len() - if marker == "sys::cu" { 2 } else { 0 };
                    let name = text[from..].trim_start();
                    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    called.extend(
                        end.map(|end| &name[..end]).filter(|n| n.starts_with("cu") && n.len() > 2),
                    );
                }
            }
        }
        called.sort_unstable();
        called.dedup();
        assert!(called.contains(&"cuMemCreate") && called.contains(&"cuGetErrorName"));
        assert_eq!(called, FUNCTIONS, "the list, in order, is what is called");
    }

    #[test]
    fn the_driver_is_there_or_it_is_said_why_not() {
        match load() {
            Ok((major, _)) => assert!(major >= 12),
            Err(why) => assert!(why.contains("driver") || why.contains("GPU"), "{why}"),
        }
    }
}
