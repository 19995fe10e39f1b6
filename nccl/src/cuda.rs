//! The calls that this package itself makes of the CUDA driver: the caller's device and context, memory, the order of
//! streams.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;
use roundelay::cuda::{DriverError, allocate_bytes, free_bytes, probe};

use crate::failure::{CallFailure, Outcome, ResultCode};

/// True once the driver was loaded.
static LOADED: AtomicBool = AtomicBool::new(false);

/// Loads the driver, once a process.
///
/// # Errors
///
/// The reason for which GPUs cannot be used here.
pub(crate) fn load() -> Outcome {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    let done = DONE.get_or_init(|| match probe() {
        Ok(_) => {
            LOADED.store(true, Ordering::Release);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    });
    done.clone().map_err(|text| CallFailure { code: ResultCode::UnhandledCudaError, text })
}

fn is_loaded() -> bool {
    LOADED.load(Ordering::Acquire)
}

/// Turns the result of a function of the driver into an outcome.
fn check(call: &str, result: sys::CUresult) -> Outcome {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(CallFailure {
            code: ResultCode::UnhandledCudaError,
            text: format!("{call} failed: {result:?}"),
        }),
    }
}

macro_rules! cuda {
    ($function:ident($($argument:expr),* $(,)?)) => {
        check(stringify!($function), sys::$function($($argument),*))
    };
}

/// Makes the caller's CUDA context current again when it is dropped: the runtime enters that of each rank's device.
pub(crate) struct KeptEvents(Option<sys::CUcontext>);

impl KeptEvents {
    /// Remembers the calling thread's context.
    pub(crate) fn new() -> Self {
        KeptEvents(current())
    }
}

fn current() -> Option<sys::CUcontext> {
    if !is_loaded() {
        return None;
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: one handle is written.
    unsafe { cuda!(cuCtxGetCurrent(&raw mut context)) }.ok()?;
    Some(context)
}

impl Drop for KeptEvents {
    fn drop(&mut self) {
        // Where the driver was loaded meanwhile, nothing was current before that this thread could miss.
        let Some(before) = self.0 else { return };
        if current() != Some(before) {
            // SAFETY: the context was current on this thread before.
            let _ = unsafe { cuda!(cuCtxSetCurrent(before)) };
        }
    }
}

/// Returns the device that is current on this thread: that of its context, else the first one, as in the CUDA
/// runtime.
pub(crate) fn device() -> Outcome<u32> {
    load()?;
    if current().is_none_or(|context| context.is_null()) {
        return Ok(0);
    }
    let mut device = 0;
    // SAFETY: one number is written.
    unsafe { cuda!(cuCtxGetDevice(&raw mut device)) }?;
    u32::try_from(device)
        .map_err(|_| CallFailure::system(format!("the driver names device {device}")))
}

/// Makes the primary context of a device current on this thread.
pub(crate) fn enter(device: u32) -> Outcome {
    load()?;
    let (mut handle, mut context) = (0, std::ptr::null_mut());
    // SAFETY: one handle is written by each; the reference is kept, as what lies in the context is the caller's.
    unsafe {
        cuda!(cuDeviceGet(&raw mut handle, device.cast_signed()))?;
        cuda!(cuDevicePrimaryCtxRetain(&raw mut context, handle))?;
        cuda!(cuCtxSetCurrent(context))
    }
}

/// Allocates memory of the current device.
pub(crate) fn alloc(bytes: usize) -> Outcome<u64> {
    allocate_bytes(device()?, bytes).map_err(driver_failure)
}

/// Frees memory of [`alloc`].
pub(crate) fn free(address: u64) -> Outcome {
    // SAFETY: the caller gives back what it was given, once.
    unsafe { free_bytes(device()?, address) }.map_err(driver_failure)
}

fn driver_failure(error: DriverError) -> CallFailure {
    CallFailure { code: ResultCode::UnhandledCudaError, text: error.to_string() }
}

/// A stream by the handle that callers have.
fn stream(raw: u64) -> sys::CUstream {
    std::ptr::with_exposed_provenance_mut(raw as usize)
}

/// Returns true if a stream is being captured.
pub(crate) fn is_captured(raw: u64) -> Outcome<bool> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: one word is written; the caller promises of a stream that it lives.
    unsafe { cuda!(cuStreamIsCapturing(stream(raw), &raw mut status)) }?;
    Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Returns true if everything in a stream is done; of one that is captured nothing is known.
pub(crate) fn is_done(raw: u64) -> Outcome<bool> {
    if is_captured(raw)? {
        return Ok(false);
    }
    // SAFETY: the caller promises of a stream that it lives.
    Ok(unsafe { sys::cuStreamQuery(stream(raw)) } == sys::CUresult::CUDA_SUCCESS)
}

/// Waits for a stream.
pub(crate) fn synchronize(raw: u64) -> Outcome {
    // SAFETY: the caller promises of a stream that it lives.
    unsafe { cuda!(cuStreamSynchronize(stream(raw))) }
}

/// Copies from memory of a device, or of the host, once a stream has come so far.
pub(crate) fn read(from: u64, to: &mut [u8], raw: u64) -> Outcome {
    // SAFETY: that many bytes are written; the copy is waited for.
    unsafe { cuda!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream(raw))) }?;
    synchronize(raw)
}

/// Orders what is put into one stream from now on after all that is in another one.
pub(crate) fn order(first: u64, then: u64) -> Outcome {
    if first == then {
        return Ok(());
    }
    let mut event = std::ptr::null_mut();
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
    // SAFETY: one handle is written; both streams live, as their owners promise. The driver keeps an event until the
    // waits for it are over.
    unsafe {
        cuda!(cuEventCreate(&raw mut event, flags))?;
        let recorded = cuda!(cuEventRecord(event, stream(first)));
        let ordered = recorded.and_then(|()| cuda!(cuStreamWaitEvent(stream(then), event, 0)));
        let _ = cuda!(cuEventDestroy_v2(event));
        ordered
    }
}
