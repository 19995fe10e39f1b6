//! Graphs of calls, and points in streams.

use super::CudaStream;
use super::gpu::Gpu;
use super::journal::Journal;
use crate::backend::{Event, Fault, Graph, Recording};
use roundelay_engine::Core;
use roundelay_net::error::Error;

/// Work that was captured, to be played again and again. It is good as long as the communicator whose calls are in it.
#[derive(Debug)]
pub struct CudaGraph {
    graph: Graph,
    journal: Journal,
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
    event: Event,
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

fn failed(rank: u32, stream: &CudaStream, fault: &Fault) -> Error {
    fault.on(rank, stream.context().device())
}

impl Gpu {
    /// Begins to capture a stream.
    pub fn record<'s>(&mut self, stream: &'s CudaStream) -> Result<Recording<'s>, Error> {
        Recording::begin(stream).map_err(|fault| self.fault(&fault))
    }

    /// Ends a capture, of which nothing is kept if it failed.
    pub fn recorded(
        &mut self,
        recording: Recording<'_>,
        is_well: bool,
    ) -> Result<Option<CudaGraph>, Error> {
        if !is_well {
            return Ok(None);
        }
        let graph = recording.end().map_err(|fault| self.fault(&fault))?;
        Ok(Some(CudaGraph { graph, journal: self.journal.clone(), rank: self.rank }))
    }

    /// Returns the point that a stream has been filled up to.
    pub fn work(&self, stream: &CudaStream) -> Result<CudaWork, Error> {
        let event = Event::new(&self.context).and_then(|event| {
            event.record(stream)?;
            Ok(event)
        });
        let event = event.map_err(|fault| self.fault(&fault))?;
        Ok(CudaWork { event, stream: stream.clone(), rank: self.rank })
    }

    /// Waits until the stream has come to a point.
    pub fn wait(&mut self, core: &mut Core, work: &CudaWork) -> Result<(), Error> {
        self.watch(core, || work.event.is_done())
    }
}
