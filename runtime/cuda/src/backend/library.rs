//! Loads the driver's library, and checks that it has all that is needed.

use std::sync::OnceLock;

use cudarc::driver::sys;
use libloading::Library;

use super::fault::{DriverFault, cuda};
use roundelay_support::error::ErrorSource;

/// The library as drivers install it.
const NAME: &str = "libcuda.so.1";
/// The oldest version of CUDA whose driver will do: it brought the newest of the functions below.
const OLDEST: i32 = 12_080;

/// The functions that are called, by the names that the library has for them.
const FUNCTIONS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxGetStreamPriorityRange",
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
    "cuFlushGPUDirectRDMAWrites",
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
    "cuLaunchCooperativeKernel",
    "cuLaunchKernel",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetHandleForAddressRange",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
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
    "cuMulticastAddDevice",
    "cuMulticastBindMem",
    "cuMulticastCreate",
    "cuMulticastGetGranularity",
    "cuPointerGetAttribute",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamWriteValue64_v2",
    "cuThreadExchangeStreamCaptureMode",
];

/// The reason why the CUDA driver cannot be used, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// Its library cannot be loaded.
    #[error(
        "the CUDA driver cannot be loaded: {}; install NVIDIA's driver, or start the container with its GPUs",
        spell(.source)
    )]
    NotLoaded {
        /// The error of the loader.
        source: ErrorSource,
    },
    /// Its library was loaded under another name than the one by which it is called.
    #[error("{NAME} was loaded, but not found again")]
    NotFound,
    /// Its library lacks a function.
    #[error("the driver is too old: it has no {0}; {REMEDY}")]
    Lacks(&'static str),
    /// It serves no newer CUDA than this.
    #[error("the driver is too old: it serves CUDA {0}.{1}; {REMEDY}")]
    Old(u32, u32),
    /// It shows no GPU to this process.
    #[error("no GPU is visible: look at `nvidia-smi` and at the variable CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// One of its calls failed.
    #[error("{source}")]
    Call {
        /// The call, and the driver's code.
        source: ErrorSource,
    },
}

impl From<DriverFault> for DriverError {
    fn from(fault: DriverFault) -> Self {
        DriverError::Call { source: ErrorSource::new(fault) }
    }
}

/// Loads the driver, once a process; returns the version of CUDA that it serves.
pub(crate) fn load() -> Result<(u32, u32), DriverError> {
    static LOADED: OnceLock<Result<(u32, u32), DriverError>> = OnceLock::new();
    LOADED.get_or_init(look).clone()
}

fn look() -> Result<(u32, u32), DriverError> {
    // SAFETY: the driver's library; what it runs when loaded affects no other code.
    let library = unsafe { Library::new(NAME) };
    let library =
        library.map_err(|error| DriverError::NotLoaded { source: ErrorSource::new(error) })?;
    for name in FUNCTIONS {
        // SAFETY: only whether the symbol exists is asked; it is not called through this type.
        if unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err() {
            return Err(DriverError::Lacks(name));
        }
    }
    // It stays for good: threads and contexts of the driver live on.
    std::mem::forget(library);
    // SAFETY: cudarc finds the library that was just loaded, by one of the names that it tries.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::NotFound);
    }
    // SAFETY: no arguments but a reserved zero.
    unsafe { cuda!(cuInit(0)) }.map_err(|fault| match fault.code.as_str() {
        "CUDA_ERROR_NO_DEVICE" => DriverError::NoDevice,
        _ => fault.into(),
    })?;
    let mut version = 0;
    // SAFETY: one number is written.
    unsafe { cuda!(cuDriverGetVersion(&raw mut version)) }?;
    let (major, minor) = ((version / 1000) as u32, (version % 1000 / 10) as u32);
    match version < OLDEST {
        true => Err(DriverError::Old(major, minor)),
        false => Ok((major, minor)),
    }
}

/// Returns the system's text for a library, or a symbol of it, that cannot be had.
pub(super) fn spell(error: &ErrorSource) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

const REMEDY: &str = "a driver of CUDA 12.8 (570) or newer is needed";

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that is called and not looked for would panic on a driver without it.
    #[test]
    fn every_function_that_is_called_is_looked_for() {
        let texts = [
            include_str!("context.rs"),
            include_str!("devices.rs"),
            include_str!("fault.rs"),
            include_str!("graph.rs"),
            include_str!("library.rs"),
            include_str!("memory.rs"),
            include_str!("module.rs"),
            include_str!("multicast.rs"),
            include_str!("network.rs"),
            include_str!("pinned.rs"),
            include_str!("raw_memory.rs"),
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
    fn the_loaders_error_is_the_source() {
        use std::error::Error;
        // SAFETY: there is no such library.
        let loader = unsafe { Library::new("/nowhere/libcuda.so.1") }.expect_err("none there");
        let error = DriverError::NotLoaded { source: ErrorSource::new(loader) };
        assert!(error.source().is_some_and(|source| source.is::<libloading::Error>()));
        let text = error.to_string();
        assert!(
            text.starts_with("the CUDA driver cannot be loaded: /nowhere/libcuda.so.1"),
            "{text}"
        );
    }

    #[test]
    fn the_driver_is_there_or_it_is_said_why_not() {
        match load() {
            Ok((major, _)) => assert!(major >= 12),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("driver") || text.contains("GPU"), "{text}");
            }
        }
    }
}
