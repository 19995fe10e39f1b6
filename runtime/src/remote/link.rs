//! The connection of two endpoints.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::key::RegionKey;
use super::link_state::LinkState;
use super::target::{OpenRegions, RemoteRegion};
use roundelay_net::transport::TransportSet;
use roundelay_support::error::Error;

/// The connection of two endpoints ([`Endpoint::connect`](crate::endpoint::Endpoint::connect)). Clones are the same;
/// any thread may use it. It is closed when the last of them and of its [`RemoteRegion`]s is dropped: keep one until
/// work has ended.
///
/// In errors the two ends are ranks 0 and 1, as in [`EndpointLink::side`]. An operation that fails by anything but
/// [`Error::Window`] ends the link, at both ends: in time or not at all, so that no memory is written later.
#[derive(Clone)]
pub struct EndpointLink {
    state: Arc<LinkState>,
    /// The regions of the peer that are open.
    open: Arc<OpenRegions>,
}

impl EndpointLink {
    pub(super) fn new(state: Arc<LinkState>) -> Self {
        EndpointLink { open: Arc::new(OpenRegions::new(state.clone())), state }
    }

    /// Returns the number by which errors name this end of the link: 0 or 1, the other one's is 1 or 0.
    pub fn side(&self) -> u32 {
        self.state.side()
    }

    /// Returns the transport that carries the link.
    pub fn transports(&self) -> TransportSet {
        self.state.transports()
    }

    /// Returns true unless the link was closed, has failed, or the peer is known to be lost.
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Sets the longest time without progress of a wait on this link: by default that of the endpoint's settings, 30 s.
    pub fn set_timeout(&self, timeout: Duration) {
        self.state.messenger().set_timeout(timeout);
    }

    /// Returns the peer's region of that key. Nothing is sent: whether the key is good shows when it is used.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the bytes are no key, or that of a region of another endpoint; [`Error::Window`] and
    /// [`Error::Aborted`] once the link has ended.
    pub fn region(&self, key: &[u8]) -> Result<RemoteRegion, Error> {
        let key = RegionKey::decode(key)?;
        if key.endpoint != self.state.endpoint() {
            let text =
                "this is the key of a region of another endpoint: use it on a link to that one";
            return Err(Error::Usage(text.into()));
        }
        self.state.check_usable(|| format!("open a region of rank {}", self.state.peer()))?;
        Ok(RemoteRegion::new(self.open.open(key)?))
    }

    /// Notifies the peer by a value, after everything that this thread has done on the link before. Returns at once,
    /// unless the peer has left 64 notifications untaken: then when it takes them.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] once the link was closed; otherwise those that end it: [`Error::Timeout`],
    /// [`Error::LostRank`], [`Error::Aborted`].
    pub fn signal(&self, value: u64) -> Result<(), Error> {
        self.state.check_usable(|| format!("notify rank {}", self.state.peer()))?;
        // SAFETY: it is waited for before the value goes.
        let operation = unsafe { self.state.start_notification(&value) }?;
        self.state.finish(&operation)
    }

    /// Waits for a notification of the peer, and takes it: the thread that has it sees what the peer wrote before.
    /// Returns `None` if none comes in time; the link is then as before. Notifications are taken in their order.
    ///
    /// # Errors
    ///
    /// [`Error::Window`] if the link is closed here; otherwise those that end it: [`Error::LostRank`] and
    /// [`Error::Aborted`].
    pub fn wait_signal(&self, timeout: Duration) -> Result<Option<u64>, Error> {
        self.state.wait_notification(timeout)
    }

    /// Fails in a process that was forked from the one that made the link.
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<(), Error> {
        self.state.check_process()
    }

    /// Closes the link: what was written has come to the peer's system, waits of other threads end by
    /// [`Error::Window`], and the peer's operations fail from then on. It waits 2 s at most for what the peer has not
    /// taken. Not to be called by a callback of [`Work`](crate::Work).
    pub fn close(&self) {
        self.state.close();
    }

    /// Ends the link at both ends, from any thread and without a wait: operations that are pending, and those that
    /// follow, fail by [`Error::Aborted`] with this cause.
    pub fn abort(&self, why: &str) {
        self.state.abort(why);
    }
}

impl std::fmt::Debug for EndpointLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("side", &self.side())
            .field("transports", &self.transports().to_string())
            .field("closed", &self.state.closed().load(Ordering::Relaxed))
            .finish()
    }
}
