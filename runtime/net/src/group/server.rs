//! The server of a rank: it executes the operations of peers on its windows, beside the calls of its program.

use std::sync::Arc;

/// Serves peers. A thread of its own does so, but for the time in which a thread of the program waits: where that one
/// polls, to wake another beside it would cost more than most operations take.
pub trait WindowServer: Send + Sync {
    /// Executes the operations that peers ask for now, if no other thread does.
    fn serve(&self);

    /// Returns the number of times that there was work, done by any thread.
    fn served(&self) -> u64;

    /// Adds a thread that waits and serves meanwhile, or takes it off.
    fn count(&self, serves: bool);
}

/// A thread that waits, and serves peers as long as this lives.
pub struct ServingWait(Arc<dyn WindowServer>);

impl ServingWait {
    /// Registers a wait with the server.
    pub fn new(server: &Arc<dyn WindowServer>) -> Self {
        server.count(true);
        ServingWait(server.clone())
    }

    /// Does the server's work that is due.
    pub fn serve(&self) {
        self.0.serve();
    }
}

impl Drop for ServingWait {
    fn drop(&mut self) {
        self.0.count(false);
    }
}
