//! Reports of a communicator about itself: its flight recorder, and traces.

use super::communicator::Communicator;
use roundelay_engine::trace::{FlightDump, RankTrace, SpanTracer, now};
use roundelay_support::error::Error;

impl Communicator {
    /// Returns the record of this rank: its latest calls, its long waits, and after a failure, the wait that
    /// failed and the observed state of the other ranks. Dumps of several ranks are put together by
    /// [`trace::merge`](roundelay_engine::trace::merge).
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn flight(&mut self) -> Result<FlightDump, Error> {
        Ok(self.core()?.flight())
    }

    /// Begins to record a span for every step and wait, at most `spans` of them. All ranks begin together.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::run`].
    pub fn start_trace(&mut self, spans: usize) -> Result<(), Error> {
        // Those who were late for the first barrier are there for the second.
        self.barrier()?;
        let before = now();
        self.barrier()?;
        let stamp = now();
        let tracer = SpanTracer::new(self.rank(), spans, stamp, stamp - before);
        self.core()?.recorder.tracer = Some(Box::new(tracer));
        Ok(())
    }

    /// Ends what [`Communicator::start_trace`] began, and hands out the spans of this rank;
    /// [`trace::write`](roundelay_engine::trace::write) makes a file of those of all ranks.
    pub fn take_trace(&mut self) -> Option<RankTrace> {
        let tracer = self.core().ok()?.recorder.tracer.take();
        tracer.map(|tracer| tracer.finish())
    }
}
