//! Reports of a communicator about itself: its flight recorder, and traces.

use super::{Communicator, Core};
use crate::error::Error;
use crate::executor::watchdog;
use crate::trace::{Flight, Trace, Tracer, now};

impl Core {
    fn flight(&self) -> Flight {
        let (recorded, events) = self.recorder.entries(self.calls, self.failed.is_some());
        let sites = self.current.map(|at| &self.bounds[at].sites[..]).unwrap_or_default();
        Flight {
            rank: self.rank(),
            ranks: self.size(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            calls: self.calls,
            waiting: self.recorder.waiting().map(|w| w.spell(sites)),
            error: self.failed.clone(),
            recorded,
            events,
            seen: self.seen.clone(),
        }
        .bounded()
    }

    /// Records the state of the others before they learn of an error and leave.
    pub(super) fn look_around(&mut self, error: &Error) {
        // A rank that only follows another one has nothing to add.
        if !matches!(error, Error::Aborted { .. }) {
            let sites = self.current.map(|at| &self.bounds[at].sites[..]).unwrap_or_default();
            self.seen = watchdog::standings(&self.group, sites);
        }
    }
}

impl Communicator {
    /// Returns the record of this rank: its latest calls, its long waits, and after a failure, the wait that
    /// failed and the observed state of the other ranks. Dumps of several ranks are put together by
    /// [`trace::merge`](crate::trace::merge).
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn flight(&mut self) -> Result<Flight, Error> {
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
        let tracer = Tracer::new(self.rank(), spans, stamp, stamp - before);
        self.core()?.recorder.tracer = Some(Box::new(tracer));
        Ok(())
    }

    /// Ends what [`Communicator::start_trace`] began, and hands out the spans of this rank;
    /// [`trace::write`](crate::trace::write) makes a file of those of all ranks.
    pub fn take_trace(&mut self) -> Option<Trace> {
        let tracer = self.core().ok()?.recorder.tracer.take();
        tracer.map(|tracer| tracer.finish())
    }
}
