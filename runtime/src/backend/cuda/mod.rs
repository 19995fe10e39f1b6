//! The CUDA backend: the driver, kernels, memory, launches.

/// A queue of work on a device. Handles on one queue can be cloned.
#[derive(Debug, Clone)]
pub struct CudaStream {}
