//! Messages between single ranks.

use super::gpu::Gpu;
use super::{CudaStream, DevicePtr};
use crate::engine::{Core, Message};
use crate::error::Error;

impl Gpu {
    /// Puts a batch of messages into a stream.
    pub(crate) fn exchange(
        &mut self,
        core: &mut Core,
        name: &'static str,
        messages: &[Message<DevicePtr, DevicePtr>],
        is_collective: bool,
        _stream: &CudaStream,
    ) -> Result<(), Error> {
        core.usable()?;
        let _ = (messages, is_collective);
        Err(Error::Unsupported(format!("{name} is not played on GPUs")))
    }
}
