//! Orders the calls that are put into different streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::cuda::{CudaStream, Event, Fault};

/// Shared by a communicator and its graphs.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Mutex<Entries>>);

#[derive(Debug)]
pub(super) struct Entries {
    /// The stream of the latest call.
    latest: Option<CudaStream>,
    order: Event,
}

impl Journal {
    pub(super) fn new(order: Event) -> Self {
        Journal(Arc::new(Mutex::new(Entries { latest: None, order })))
    }

    /// Puts a call into a stream, after the calls before it, in whatever stream they are; in a stream that is captured it
    /// has no such order. One after the other, so that all streams have them in one order.
    pub(super) fn put(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let captured = stream.is_captured()?;
        let mut entries = self.lock();
        if !captured {
            entries.follow(stream)?;
        }
        launch()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Returns the stream that the latest call was put into.
    pub(super) fn latest(&self) -> Option<CudaStream> {
        self.latest.clone()
    }

    /// Orders what is put into a stream now after the calls before it, in whatever stream they are.
    fn follow(&mut self, stream: &CudaStream) -> Result<(), Fault> {
        match &self.latest {
            Some(latest) if latest.raw() == stream.raw() => return Ok(()),
            Some(latest) => {
                self.order.record(latest)?;
                stream.follow(&self.order)?;
            }
            None => {}
        }
        self.latest = Some(stream.clone());
        Ok(())
    }
}
