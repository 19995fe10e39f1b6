//! The store in which ranks leave notes for each other before they are connected. `bootstrap::store`
//! implements it.

use std::net::IpAddr;
use std::time::Instant;

use roundelay_support::error::Error;

/// A store that all ranks of a job write to and read from while they come together.
///
/// Notes stay until the store is gone; a note that is set twice has the last value. Nothing that
/// is fast goes over it: a rank sets a few notes and reads those of O(log n) others. A store also
/// detects ranks that are gone and notifies all others, since ranks that are not connected yet cannot.
pub trait Store {
    /// Leaves a note of at most 1 MiB. When this returns, others can read it.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the store cannot be reached any more, or has no room.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Reads a note, waiting until a rank leaves it. After a wait in vain the store is as good as
    /// before, so that a caller may wait in slices and look at other things between them.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes or the store cannot be reached any more; the text
    /// names the ranks that have not come, where that is known.
    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error>;

    /// Returns the address of this host that the other ranks can reach: the one that it reaches the store
    /// from.
    fn address(&self) -> IpAddr;

    /// Returns the reason to give up, if another rank has failed or is gone. Never waits. A rank that
    /// joins calls it every few milliseconds of any other wait, which also shows that it is alive.
    fn look(&mut self) -> Option<Error>;

    /// Notifies all ranks that this one gives up, and why; after a wait in vain, asks for the culprit.
    /// The first failure of a job is kept, and all ranks report it: it is returned.
    fn fail(&mut self, error: Error) -> Error;

    /// Reports that this rank has joined, and waits until all ranks have.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes; [`Error::LostRank`] or [`Error::Aborted`] if a rank is
    /// gone or has failed.
    fn finish(&mut self, deadline: Instant) -> Result<(), Error>;
}
