//! A GPU, as the driver describes it.

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its number, as the driver counts for this process.
    pub index: u32,
    /// Its model.
    pub name: String,
    /// Its identity on this machine and any other.
    pub uuid: [u8; 16],
    /// Its address on the bus, such as `0000:1b:00.0`.
    pub bus: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
}

impl std::fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.index, self.name)
    }
}
