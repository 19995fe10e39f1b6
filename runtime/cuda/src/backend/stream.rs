//! Streams and events.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::fault::cuda;
use super::{DeviceContext, DriverFault};

/// A queue of work on a device. Cloned handles are handles on one queue.
#[derive(Debug, Clone)]
pub struct CudaStream(Arc<StreamHandle>);

#[derive(Debug)]
struct StreamHandle {
    context: Arc<DeviceContext>,
    raw: sys::CUstream,
    /// True if it goes with the last handle.
    owned: bool,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above; the driver locks what needs it.
unsafe impl Sync for StreamHandle {}

impl CudaStream {
    /// Makes a stream that runs beside all others.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        context.enter()?;
        let (mut raw, context) = (std::ptr::null_mut(), context.clone());
        let beside = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: one handle is written; it is destroyed with the last reference.
        unsafe { cuda!(cuStreamCreate(&raw mut raw, beside)) }?;
        Ok(CudaStream(Arc::new(StreamHandle { context, raw, owned: true })))
    }

    /// Makes a stream that runs beside all others, and before them where the device has to choose. It shares no queue
    /// of the device with streams of another priority, whose kernels may wait for what is done in it.
    pub(crate) fn urgent(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        context.enter()?;
        let (mut raw, context) = (std::ptr::null_mut(), context.clone());
        let beside = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: two numbers and one handle are written; it is destroyed with the last reference.
        unsafe {
            cuda!(cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
            cuda!(cuStreamCreateWithPriority(&raw mut raw, beside, greatest))?;
        }
        Ok(CudaStream(Arc::new(StreamHandle { context, raw, owned: true })))
    }

    /// Wraps a stream that another library owns.
    ///
    /// # Safety
    ///
    /// It is a stream of this context and lives as long as all handles.
    pub unsafe fn borrowed(context: &Arc<DeviceContext>, raw: *mut c_void) -> Self {
        CudaStream(Arc::new(StreamHandle {
            context: context.clone(),
            raw: raw.cast(),
            owned: false,
        }))
    }

    /// Returns the driver's handle (`CUstream`), for other libraries. It is good as long as this lives.
    pub fn raw(&self) -> *mut c_void {
        self.0.raw.cast()
    }

    /// Returns the context that it belongs to.
    pub fn context(&self) -> &Arc<DeviceContext> {
        &self.0.context
    }

    pub(super) fn handle(&self) -> sys::CUstream {
        self.0.raw
    }

    /// Makes what is put into it from now on wait until the event has happened.
    pub(crate) fn follow(&self, event: &StreamEvent) -> Result<(), DriverFault> {
        self.0.context.enter()?;
        // SAFETY: both handles are good.
        unsafe { cuda!(cuStreamWaitEvent(self.0.raw, event.raw, 0)) }
    }

    /// Writes a word at an address that the GPU maps, when the stream comes to it: a reader that sees it sees all that
    /// is before it in the stream. It takes no multiprocessor.
    ///
    /// # Safety
    ///
    /// The word is good until the stream has come past, and lies at a multiple of 8.
    pub(crate) unsafe fn write_word(&self, at: u64, value: u64) -> Result<(), DriverFault> {
        self.0.context.enter()?;
        let fenced = sys::CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT as u32;
        // SAFETY: the handle is good, and the word as the caller promises.
        unsafe { cuda!(cuStreamWriteValue64_v2(self.0.raw, at, value, fenced)) }
    }

    /// Returns true if everything in it is done.
    pub fn is_done(&self) -> Result<bool, DriverFault> {
        // SAFETY: the handle is good.
        is_done(unsafe { cuda!(cuStreamQuery(self.0.raw)) })
    }

    /// Waits until everything in it is done.
    ///
    /// # Errors
    ///
    /// The driver's; also if it takes longer than that.
    pub fn drain(&self, timeout: Duration) -> Result<(), DriverFault> {
        let began = Instant::now();
        while !self.is_done()? {
            if began.elapsed() > timeout {
                return Err(DriverFault {
                    call: "cuStreamQuery",
                    code: "CUDA_ERROR_NOT_READY".into(),
                    text: format!("the GPU did not come to it within {timeout:?}"),
                });
            }
            rustix::thread::sched_yield();
        }
        Ok(())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.owned && self.context.enter().is_ok() {
            // SAFETY: the last handle. Work in it still runs to its end.
            let _ = unsafe { cuda!(cuStreamDestroy_v2(self.raw)) };
        }
    }
}

/// Decodes the answer of a query.
fn is_done(answer: Result<(), DriverFault>) -> Result<bool, DriverFault> {
    match answer {
        Ok(()) => Ok(true),
        Err(fault) if fault.code == "CUDA_ERROR_NOT_READY" => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// A point in a stream.
#[derive(Debug)]
pub(crate) struct StreamEvent {
    context: Arc<DeviceContext>,
    raw: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for StreamEvent {}
// SAFETY: as above; the driver locks what needs it.
unsafe impl Sync for StreamEvent {}

impl StreamEvent {
    /// Makes an event that notes the time when the stream comes to it.
    pub(crate) fn new(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        context.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: one handle is written; it is destroyed in `drop`.
        unsafe { cuda!(cuEventCreate(&raw mut raw, 0)) }?;
        Ok(StreamEvent { context: context.clone(), raw })
    }

    /// Moves it to the end of a stream.
    pub(crate) fn record(&self, stream: &CudaStream) -> Result<(), DriverFault> {
        self.context.enter()?;
        // SAFETY: both handles are good.
        unsafe { cuda!(cuEventRecord(self.raw, stream.handle())) }
    }

    /// Returns true if the stream has come past it.
    pub(crate) fn is_done(&self) -> Result<bool, DriverFault> {
        // SAFETY: the handle is good.
        is_done(unsafe { cuda!(cuEventQuery(self.raw)) })
    }

    /// Returns the milliseconds from an earlier event; both are done.
    pub(crate) fn since(&self, earlier: &StreamEvent) -> Result<f32, DriverFault> {
        let mut time = 0.0;
        // SAFETY: one number is written; both handles are good.
        unsafe { cuda!(cuEventElapsedTime_v2(&raw mut time, earlier.raw, self.raw)) }?;
        Ok(time)
    }
}

/// A stream beside others, for a share of the work of one of them.
#[derive(Debug)]
pub(crate) struct SideStream {
    stream: CudaStream,
    forked: StreamEvent,
    joined: StreamEvent,
}

impl SideStream {
    pub(crate) fn new(context: &Arc<DeviceContext>) -> Result<Self, DriverFault> {
        let stream = CudaStream::new(context)?;
        Ok(SideStream {
            stream,
            forked: StreamEvent::new(context)?,
            joined: StreamEvent::new(context)?,
        })
    }

    /// Returns a stream in which work comes after what is in `main`, and beside what is put there later.
    pub(crate) fn fork(&self, main: &CudaStream) -> Result<&CudaStream, DriverFault> {
        self.forked.record(main)?;
        self.stream.follow(&self.forked)?;
        Ok(&self.stream)
    }

    /// Orders what is put into `main` from now on after both.
    pub(crate) fn join(&self, main: &CudaStream) -> Result<(), DriverFault> {
        self.joined.record(&self.stream)?;
        main.follow(&self.joined)
    }
}

impl Drop for StreamEvent {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: this is the only owner of the handle.
            let _ = unsafe { cuda!(cuEventDestroy_v2(self.raw)) };
        }
    }
}
