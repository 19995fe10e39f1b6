//! Words of host memory between the host and its kernels: the abort word and the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use roundelay_compiler::device::abi;

use super::{DeviceContext, DriverFault, PinnedMemory};

/// The offset of the report; the abort word is at 0.
const REPORT: usize = 64;

/// Words of host memory that kernels see.
#[derive(Debug)]
pub(crate) struct KernelMailbox(PinnedMemory);

impl KernelMailbox {
    pub(crate) fn new(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        PinnedMemory::new(context, REPORT + size_of::<abi::WaitReport>()).map(KernelMailbox)
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns the addresses at which kernels find the abort word, and the report.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.0.device(), self.0.device() + REPORT as u64)
    }

    /// Makes kernels leave, those that run and those to come.
    pub(crate) fn abort(&self) {
        // SAFETY: the first word of the memory, aligned to pages, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.0.host().cast()) }.store(1, Ordering::SeqCst);
    }

    /// Returns the report of a kernel, if one reported.
    pub(crate) fn report(&self) -> Option<abi::WaitReport> {
        // SAFETY: the report lies behind the abort word, aligned to 64 bytes. `what` is its first word, written last.
        let report = unsafe { self.0.host().add(REPORT) };
        // SAFETY: as above.
        let what = unsafe { AtomicU32::from_ptr(report.cast()) }.load(Ordering::Acquire);
        if what == 0 {
            return None;
        }
        // SAFETY: the kernel has written it whole before `what`, and it is not written again; it has no padding.
        Some(unsafe { report.cast::<abi::WaitReport>().read_volatile() })
    }
}
