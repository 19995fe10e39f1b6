//! Capturing a stream, and launching what was captured.

use std::sync::Arc;

use cudarc::driver::sys;

use super::fault::cuda;
use super::{CudaStream, DeviceContext, DriverFault};

/// Captured work, ready to be put into streams.
#[derive(Debug)]
pub(crate) struct ExecutableGraph {
    context: Arc<DeviceContext>,
    raw: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for ExecutableGraph {}
// SAFETY: as above; nothing here changes the graph.
unsafe impl Sync for ExecutableGraph {}

/// A stream that is being captured; ends the capture when dropped.
pub struct StreamCapture<'s> {
    stream: &'s CudaStream,
    ended: bool,
}

impl<'s> StreamCapture<'s> {
    /// Begins a capture, which other threads do not affect.
    pub(crate) fn begin(stream: &'s CudaStream) -> Result<Self, DriverFault> {
        stream.context().enter()?;
        let own = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the handle is good.
        unsafe { cuda!(cuStreamBeginCapture_v2(stream.handle(), own)) }?;
        Ok(StreamCapture { stream, ended: false })
    }

    /// Ends the recording, and makes a graph of it, which lies on the device when this returns.
    pub(crate) fn end(mut self) -> Result<ExecutableGraph, DriverFault> {
        let captured = self.stop()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the captured graph is good, and is destroyed whether or not it could be instantiated.
        let made = unsafe {
            let made = cuda!(cuGraphInstantiateWithFlags(&raw mut raw, captured, 0));
            let _ = cuda!(cuGraphDestroy(captured));
            made
        };
        made?;
        let graph = ExecutableGraph { context: self.stream.context().clone(), raw };
        // SAFETY: both handles are good.
        unsafe { cuda!(cuGraphUpload(graph.raw, self.stream.handle())) }?;
        Ok(graph)
    }

    fn stop(&mut self) -> Result<sys::CUgraph, DriverFault> {
        self.ended = true;
        let mut captured = std::ptr::null_mut();
        // SAFETY: one handle is written; the stream is being captured by this thread.
        unsafe { cuda!(cuStreamEndCapture(self.stream.handle(), &raw mut captured)) }?;
        Ok(captured)
    }
}

impl Drop for StreamCapture<'_> {
    fn drop(&mut self) {
        if !self.ended
            && let Ok(captured) = self.stop()
            && !captured.is_null()
        {
            // SAFETY: this is the only owner of the handle.
            let _ = unsafe { cuda!(cuGraphDestroy(captured)) };
        }
    }
}

impl ExecutableGraph {
    /// Puts all of it into a stream.
    pub(crate) fn launch(&self, stream: &CudaStream) -> Result<(), DriverFault> {
        self.context.enter()?;
        // SAFETY: both handles are good.
        unsafe { cuda!(cuGraphLaunch(self.raw, stream.handle())) }
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: this is the only owner of the handle. Launched work runs to its end.
            let _ = unsafe { cuda!(cuGraphExecDestroy(self.raw)) };
        }
    }
}

impl CudaStream {
    /// Returns true if it is being captured, so that what is put into it is not run.
    pub(crate) fn is_captured(&self) -> Result<bool, DriverFault> {
        Ok(self.capture()?.is_some())
    }

    /// Returns the number of the capture that it takes part in, which no other capture of this process has; 0 if that
    /// has failed.
    pub fn capture(&self) -> Result<Option<u64>, DriverFault> {
        let (mut status, mut id) = (sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, 0);
        // SAFETY: two words are written; the handle is good, and what may be null is.
        unsafe {
            cuda!(cuStreamGetCaptureInfo_v3(
                self.handle(),
                &raw mut status,
                &raw mut id,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            ))
        }?;
        let none = status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        Ok((!none).then_some(id))
    }
}

/// While it lives, this thread may load kernels and map memory although it captures a stream.
pub(crate) struct RelaxedCapture(sys::CUstreamCaptureMode);

impl RelaxedCapture {
    /// Relaxes the capture mode of this thread until this is dropped.
    pub(crate) fn begin() -> Result<Self, DriverFault> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the thread's mode is written to the variable.
        unsafe { cuda!(cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        Ok(RelaxedCapture(mode))
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: as above, with the mode from before.
        let _ = unsafe { cuda!(cuThreadExchangeStreamCaptureMode(&raw mut self.0)) };
    }
}
