//! Ends a communicator from any thread, while another one makes its calls.

use roundelay_dsl::diag::codes;

use super::Communicator;
use crate::abort::AbortRecord;
use crate::error::Error;
use crate::group::Alarm;

/// Ends a communicator from any thread ([`Communicator::abort_handle`]).
#[derive(Clone)]
pub struct AbortHandle {
    alarm: Alarm,
}

impl AbortHandle {
    /// Makes all ranks stop: calls that are pending, and those that follow, end with [`Error::Aborted`]. It returns
    /// at once, never waits for the thread that makes the calls, and may be called any number of times; the first
    /// cause is what all ranks report.
    pub fn abort(&self, why: &str) {
        let rank = self.alarm.rank();
        self.alarm.raise(&AbortRecord {
            code: codes::ABORTED,
            rank,
            text: format!("abort was called: {why}"),
        });
    }

    /// Returns true once any rank has made all ranks stop.
    pub fn is_aborted(&self) -> bool {
        self.alarm.is_raised()
    }
}

impl std::fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AbortHandle").field("is_aborted", &self.is_aborted()).finish()
    }
}

impl Communicator {
    /// Returns what ends this communicator from any thread.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use roundelay::{Communicator, Error};
    /// # fn main() -> Result<(), Error> {
    /// let mut ranks = Communicator::local(2)?;
    /// let abort = ranks[0].abort_handle()?;
    /// std::thread::scope(|scope| {
    ///     // Rank 1 never comes.
    ///     let waits = scope.spawn(|| ranks[0].barrier());
    ///     abort.abort("the user pressed Ctrl-C");
    ///     assert!(matches!(waits.join().unwrap(), Err(Error::Aborted { .. })));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of a call on a communicator whose progress thread is gone.
    pub fn abort_handle(&mut self) -> Result<AbortHandle, Error> {
        Ok(AbortHandle { alarm: self.core()?.group.alarm() })
    }
}
