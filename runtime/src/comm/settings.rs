//! The settings of a communicator, and options of single calls.

use std::sync::Arc;
use std::time::Duration;

use crate::tunables::DEFAULT_TIMEOUT;
#[cfg(feature = "cuda")]
use roundelay_cuda::CudaStream;
use roundelay_engine::hints::Hints;

/// The settings in force for the calls that a communicator makes, or starts, now.
#[derive(Debug, Clone)]
pub(super) struct CallSettings {
    pub(super) timeout: Duration,
    pub(super) hints: Option<Arc<Hints>>,
    /// The stream that calls on GPUs are put into, if not the communicator's own.
    #[cfg(feature = "cuda")]
    pub(super) stream: Option<CudaStream>,
    /// True if kernels of others are to run beside calls on GPUs.
    #[cfg(feature = "cuda")]
    pub(super) overlaps: bool,
}

impl Default for CallSettings {
    fn default() -> Self {
        CallSettings {
            timeout: DEFAULT_TIMEOUT,
            hints: None,
            #[cfg(feature = "cuda")]
            stream: None,
            #[cfg(feature = "cuda")]
            overlaps: false,
        }
    }
}

/// Options of single calls, for [`Communicator::with`](super::Communicator::with). An option that is not set stays as
/// the communicator has it.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    timeout: Option<Duration>,
    hints: Option<Arc<Hints>>,
    #[cfg(feature = "cuda")]
    stream: Option<CudaStream>,
    #[cfg(feature = "cuda")]
    overlaps: bool,
}

impl CallOptions {
    /// Returns options that set nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the longest time without progress before the call fails. Zero is refused by the call.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets hints for these calls: they go before those of the communicator.
    pub fn hints(mut self, hints: Hints) -> Self {
        self.hints = (!hints.is_empty()).then(|| Arc::new(hints));
        self
    }

    /// Sets the stream that calls on GPUs are put into; it is the communicator's own
    /// ([`Communicator::stream`](super::Communicator::stream)) otherwise.
    #[cfg(feature = "cuda")]
    pub fn stream(mut self, stream: &CudaStream) -> Self {
        self.stream = Some(stream.clone());
        self
    }

    /// Says that kernels of others are to run beside these calls on GPUs, such as those that compute the next part of
    /// a gradient: a call occupies a quarter of the multiprocessors at most, unless the hint `max_sms` says otherwise.
    #[cfg(feature = "cuda")]
    pub fn overlaps(mut self) -> Self {
        self.overlaps = true;
        self
    }

    pub(super) fn over(self, settings: &CallSettings) -> CallSettings {
        let hinted = self.hints.as_deref().and_then(Hints::timeout);
        CallSettings {
            timeout: self.timeout.or(hinted).unwrap_or(settings.timeout),
            hints: self.hints,
            #[cfg(feature = "cuda")]
            stream: self.stream.or_else(|| settings.stream.clone()),
            #[cfg(feature = "cuda")]
            overlaps: self.overlaps || settings.overlaps,
        }
    }
}
