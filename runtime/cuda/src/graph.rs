//! Graphs of calls, and points in streams.

use super::device::RankDevice;
use super::journal::StreamJournal;
use crate::backend::{CudaStream, DriverFault, ExecutableGraph, StreamCapture, StreamEvent};
use roundelay_support::error::Error;

/// Work that was captured, to be launched repeatedly. It is good as long as the communicator whose calls are in it.
#[derive(Debug)]
pub struct CudaGraph {
    graph: ExecutableGraph,
    journal: StreamJournal,
    rank: u32,
}

impl CudaGraph {
    /// Puts all of it into a stream. All ranks launch the same graphs in the same order among their other calls.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn launch(&self, stream: &CudaStream) -> Result<(), Error> {
        let launched = self.journal.put(stream, || self.graph.launch(stream));
        launched.map_err(|fault| failed(self.rank, stream, &fault))
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct CudaWork {
    event: StreamEvent,
    stream: CudaStream,
    rank: u32,
}

impl CudaWork {
    /// Returns true if the stream has come there. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn is_done(&self) -> Result<bool, Error> {
        self.event.is_done().map_err(|fault| failed(self.rank, &self.stream, &fault))
    }

    /// Returns the microseconds from an earlier point to this one, by the GPU's clock. The streams have come
    /// to both.
    ///
    /// # Errors
    ///
    /// [`Error::Cuda`] if the driver refuses.
    pub fn since_us(&self, earlier: &CudaWork) -> Result<f64, Error> {
        let time = self.event.since(&earlier.event);
        let time = time.map_err(|fault| failed(self.rank, &self.stream, &fault))?;
        Ok(f64::from(time) * 1000.0)
    }
}

fn failed(rank: u32, stream: &CudaStream, fault: &DriverFault) -> Error {
    fault.on(rank, stream.context().device())
}

impl CudaGraph {
    /// Ends a capture.
    pub(super) fn new(device: &RankDevice, recording: StreamCapture<'_>) -> Result<Self, Error> {
        let graph = recording.end().map_err(|fault| device.fault(&fault))?;
        Ok(CudaGraph { graph, journal: device.journal.clone(), rank: device.rank })
    }
}

impl CudaWork {
    /// Returns the point that a stream has been filled up to.
    pub(super) fn new(device: &RankDevice, stream: &CudaStream) -> Result<Self, Error> {
        let event = StreamEvent::new(&device.context).and_then(|event| {
            event.record(stream)?;
            Ok(event)
        });
        let event = event.map_err(|fault| device.fault(&fault))?;
        Ok(CudaWork { event, stream: stream.clone(), rank: device.rank })
    }

    /// Returns true if the stream has come there, with the driver's own error.
    pub(super) fn has_passed(&self) -> Result<bool, DriverFault> {
        self.event.is_done()
    }
}
