//! The device of a rank: its context, its streams, its kernels, and the mailbox through which they report.

use std::sync::Arc;

use roundelay_compiler::device::abi;
use roundelay_emit::cuda::KERNEL;

use super::journal::StreamJournal;
use crate::backend::kernels::KernelStore;
use crate::backend::{
    CompileMode, CudaStream, DeviceContext, DriverFault, KernelMailbox, LoadedKernel, SideStream,
};
use roundelay_support::error::{Error, ErrorSource};

/// A rank's device: what is this rank's alone, and needs no agreement.
pub(crate) struct RankDevice {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// The multiprocessors of the GPU with the fewest, so that all ranks choose alike.
    pub(crate) sms: u32,
    pub(crate) mailbox: Arc<KernelMailbox>,
    pub(crate) kernels: KernelStore,
    pub(crate) journal: StreamJournal,
    /// The stream of calls.
    pub(crate) stream: CudaStream,
    /// The stream for copies and queries beside calls.
    pub(crate) aside: CudaStream,
    /// The stream for what a rank copies in its own memory while it copies from peers.
    pub(crate) beside: SideStream,
    pub(crate) context: Arc<DeviceContext>,
}

impl RankDevice {
    /// Returns the error of a call of the driver.
    pub(crate) fn fault(&self, fault: &DriverFault) -> Error {
        fault.on(self.rank, self.context.device())
    }

    /// Returns the error of something on this device, with the error that underlies it if there is one.
    pub(crate) fn failed(&self, what: String, source: Option<ErrorSource>) -> Error {
        let device = self.context.device().to_string();
        Error::Cuda { rank: self.rank, device, what, source }
    }

    /// Returns the stream into which the latest call was put.
    pub(crate) fn latest(&self) -> Option<CudaStream> {
        self.journal.lock().latest()
    }

    /// Returns a kernel of the library's own from its text, loaded; `what` names it in errors.
    pub(crate) fn load(&mut self, text: &str, what: &str) -> Result<Arc<LoadedKernel>, Error> {
        let kernel = self.kernels.get(text, KERNEL, abi::THREADS, CompileMode::Exact);
        kernel.map_err(|error| {
            self.failed(format!("the kernel of {what}: {error}"), Some(ErrorSource::new(error)))
        })
    }
}
