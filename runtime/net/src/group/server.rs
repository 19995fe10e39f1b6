//! A rank's server does what peers ask of its windows, beside the calls that its program makes.

use std::sync::Arc;

/// Serves peers. A thread of its own does so, but for the time in which a thread of the program waits: where that one
/// polls, to wake another beside it would cost more than most operations take.
pub trait Server: Send + Sync {
    /// Does what peers ask now, if no other thread does.
    fn serve(&self);

    /// Returns how often there was something to do, whoever did it.
    fn served(&self) -> u64;

    /// Adds a thread that waits and serves meanwhile, or takes it off.
    fn count(&self, serves: bool);
}

/// A thread that waits, and serves peers as long as this lives.
pub struct Serving(Arc<dyn Server>);

impl Serving {
    /// Registers a wait with the server.
    pub fn new(server: &Arc<dyn Server>) -> Self {
        server.count(true);
        Serving(server.clone())
    }

    /// Does the server's work that is due.
    pub fn serve(&self) {
        self.0.serve();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.count(false);
    }
}
