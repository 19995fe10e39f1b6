//! Orders the calls that are put into different streams.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::{CudaStream, DriverFault, StreamEvent};

/// Shared by a communicator and its graphs.
#[derive(Debug, Clone)]
pub(super) struct StreamJournal(Arc<Mutex<JournalEntries>>);

#[derive(Debug)]
pub(super) struct JournalEntries {
    /// The stream of the latest call that is run.
    latest: Option<CudaStream>,
    order: StreamEvent,
    /// The capture and the stream of the latest call that was captured, and the point behind it.
    captured: Option<(u64, usize)>,
    after: StreamEvent,
}

impl StreamJournal {
    /// Makes an empty one; the events are its own.
    pub(super) fn new(order: StreamEvent, after: StreamEvent) -> Self {
        let entries = JournalEntries { latest: None, order, captured: None, after };
        StreamJournal(Arc::new(Mutex::new(entries)))
    }

    /// Puts a call into a stream, after the calls before it, in whatever stream they are. Calls that are captured come
    /// after the calls before them in the same capture; a graph is ordered when it is launched. One after the other,
    /// so that all streams have them in one order.
    pub(super) fn put(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<(), DriverFault>,
    ) -> Result<(), DriverFault> {
        let capture = stream.capture()?;
        let mut entries = self.lock();
        let Some(capture) = capture else {
            entries.follow(stream)?;
            return launch();
        };
        let own = (capture, stream.raw() as usize);
        if entries.captured.is_some_and(|(id, raw)| id == capture && raw != own.1) {
            stream.follow(&entries.after)?;
        }
        launch()?;
        // In a capture an event costs nothing at replay. The next call's stream is not known yet.
        entries.after.record(stream)?;
        entries.captured = Some(own);
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, JournalEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JournalEntries {
    /// Returns the stream that the latest call was put into.
    pub(super) fn latest(&self) -> Option<CudaStream> {
        self.latest.clone()
    }

    /// Orders what is put into a stream now after the calls before it, in whatever stream they are.
    fn follow(&mut self, stream: &CudaStream) -> Result<(), DriverFault> {
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
