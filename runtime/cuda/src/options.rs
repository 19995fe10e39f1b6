//! The options with which ranks open their GPUs.

use std::path::PathBuf;

/// The options of `Communicator::cuda`.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// The GPU, as the driver counts for this process. By default it is the one of this rank's number, modulo
    /// the number of GPUs.
    pub device: Option<u32>,
    /// Bytes of each half of the staging memory for messages that are copied whole, a multiple of 1 MiB; 32 MiB by
    /// default. The same on all ranks.
    pub staging_bytes: Option<u64>,
    /// Bytes of each half of the staging memory for packets; 16 MiB by default. The same on all ranks.
    pub packet_bytes: Option<u64>,
    /// The folder for compiled kernels: `$XDG_CACHE_HOME/roundelay/cuda` by default, or
    /// `$HOME/.cache/roundelay/cuda`. An empty path keeps none.
    pub cache_dir: Option<PathBuf>,
    /// The number of calls taken to have been made before: for tests of what comes after 2^32 of them. The
    /// same on all ranks.
    pub calls_before: u32,
    /// The compiler's library, in place of the one that [`probe`](fn@super::probe) finds.
    pub nvrtc: Option<PathBuf>,
    /// True if the slots for other hosts lie on the GPU, though no device of the network reaches them there.
    #[cfg(test)]
    pub(crate) slots_on_gpu: bool,
}

impl CudaOptions {
    /// Returns true if a test asks for slots on the GPU that no device of the network reaches.
    pub(super) fn has_slots_on_gpu(&self) -> bool {
        #[cfg(test)]
        return self.slots_on_gpu;
        #[cfg(not(test))]
        false
    }
}
