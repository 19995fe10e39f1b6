//! Ends a communicator from any thread, while another one makes its calls.

use std::sync::Arc;

use roundelay_dsl::diag::codes;

use super::communicator::Communicator;
use crate::tunables::ABORT_WAIT_TIMEOUT;
use roundelay_engine::StopHandle;
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;

/// Ends a communicator from any thread ([`Communicator::abort_handle`]).
#[derive(Clone)]
pub struct AbortHandle {
    stop: Arc<StopHandle>,
}

impl AbortHandle {
    /// Makes all ranks stop: calls that are pending, and those that follow, end with
    /// [`Error::Aborted`](crate::Error::Aborted). It may be called from any thread and any number of times; the
    /// first cause is what all ranks report.
    ///
    /// When it returns true, this rank's calls and messages write to no caller's buffer any more, also where no thread
    /// has waited for them yet. That takes well below a millisecond where the thread that makes the calls runs. It
    /// returns false after 8 ms, if the system gave that thread no time to stop: its work has to be waited for
    /// before the buffers are used. Buffers on a GPU are always to be waited for.
    ///
    /// In a process that was forked from the rank's it ends nothing: see [`AbortHandle::try_abort`].
    pub fn abort(&self, why: &str) -> bool {
        // A child has no threads that make calls of the rank.
        self.try_abort(why).unwrap_or(true)
    }

    /// Does what [`AbortHandle::abort`] does, and says so where it may not.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a process that was forked from the rank's: the ranks go on.
    pub fn try_abort(&self, why: &str) -> Result<bool, Error> {
        let rank = self.stop.rank();
        let text = format!("abort was called: {why}");
        self.stop.raise(&AbortRecord { code: codes::ABORTED, rank, text }, ABORT_WAIT_TIMEOUT)
    }

    /// Returns true once any rank has made all ranks stop.
    pub fn is_aborted(&self) -> bool {
        self.stop.is_raised()
    }
}

impl std::fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AbortHandle").field("is_aborted", &self.is_aborted()).finish()
    }
}

impl Communicator {
    /// Returns what ends this communicator from any thread. It does not wait for pending work.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use roundelay::{Communicator, Error};
    /// # fn main() -> Result<(), Error> {
    /// let mut ranks = Communicator::local(2)?;
    /// let abort = ranks[0].abort_handle();
    /// std::thread::scope(|scope| {
    ///     // Rank 1 never comes.
    ///     let waits = scope.spawn(|| ranks[0].barrier());
    ///     abort.abort("the user pressed Ctrl-C");
    ///     assert!(matches!(waits.join().unwrap(), Err(Error::Aborted { .. })));
    /// });
    /// # Ok(())
    /// # }
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle { stop: self.stop.clone() }
    }
}
