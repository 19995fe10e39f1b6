//! Failed calls of the driver.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys;

use super::device::CudaDevice;
use roundelay_support::error::{Error, ErrorSource};

/// A call of the driver that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} gave {code}: {text}")]
pub struct DriverFault {
    /// The function.
    pub(crate) call: &'static str,
    /// The name of the driver's code.
    pub(crate) code: String,
    /// The driver's text for the code.
    pub(crate) text: String,
}

impl DriverFault {
    /// Returns the error of a rank whose call failed on a GPU.
    pub fn on(&self, rank: u32, device: &CudaDevice) -> Error {
        let source = Some(ErrorSource::new(self.clone()));
        Error::Cuda { rank, device: device.to_string(), what: self.to_string(), source }
    }
}

/// Calls a function of the driver by name, inside `unsafe`; a code other than success becomes a [`DriverFault`].
macro_rules! cuda {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::backend::fault::check(
            stringify!($function),
            cudarc::driver::sys::$function($($argument),*),
        )
    };
}
pub(super) use cuda;

/// Turns the result of a call into a [`DriverFault`], unless it succeeded.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), DriverFault> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        _ => Err(fault(call, result)),
    }
}

#[cold]
fn fault(call: &'static str, result: sys::CUresult) -> DriverFault {
    let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both write a pointer to a text of the driver's own, or nothing.
    unsafe {
        let _ = sys::cuGetErrorName(result, &raw mut name);
        let _ = sys::cuGetErrorString(result, &raw mut text);
    }
    let code = format!("code {}", result as u32);
    DriverFault { call, code: spell(name).unwrap_or(code), text: spell(text).unwrap_or_default() }
}

fn spell(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the driver's texts end with a zero and live for ever.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
