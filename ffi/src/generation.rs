//! The facts of a communicator's generation, for threads that do not hold it.

use roundelay::message::TaggedMessages;
use roundelay::{AbortHandle, Communicator, Error};

/// The facts of a generation that are known while another thread uses the communicator.
#[derive(Clone)]
pub(crate) struct GenerationFacts {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// None once it was shut down: what they hold is let go of then.
    pub(crate) ends: Option<SharedParts>,
    /// True if it had been aborted when it was shut down.
    pub(crate) was_aborted: bool,
}

/// The parts of a communicator that are used while another thread uses the rest.
#[derive(Clone)]
pub(crate) struct SharedParts {
    pub(crate) abort: AbortHandle,
    pub(crate) messages: TaggedMessages,
}

impl GenerationFacts {
    pub(crate) fn is_aborted(&self) -> bool {
        self.ends.as_ref().map_or(self.was_aborted, |ends| ends.abort.is_aborted())
    }

    /// Lets go of what the communicator holds.
    pub(crate) fn end(&mut self) {
        self.was_aborted = self.is_aborted();
        self.ends = None;
    }

    pub(crate) fn of(comm: &mut Communicator) -> Result<Self, Error> {
        let (rank, size, abort) = (comm.rank(), comm.size(), comm.abort_handle());
        let ends = Some(SharedParts { abort, messages: comm.messages()? });
        Ok(GenerationFacts { rank, size, ends, was_aborted: false })
    }
}
