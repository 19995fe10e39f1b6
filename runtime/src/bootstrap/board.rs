//! Where ranks leave notes for each other before they are connected.

use std::net::IpAddr;
use std::time::Instant;

use crate::error::Error;

/// A board that all ranks of a job write to and read from while they come together.
///
/// Notes stay until the board is gone; a note that is set twice has the last value. Nothing that
/// is fast goes over it: a rank sets a few notes and reads those of O(log n) others.
pub trait Board {
    /// Leaves a note of at most 1 MiB. When this returns, others can read it.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the board cannot be reached any more, or has no room.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error>;

    /// Reads a note, waiting until somebody leaves it. After a wait in vain the board is as good as
    /// before, so that a caller may wait in slices and look at other things between them.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes or the board cannot be reached any more; the text
    /// says which ranks have not come, where that is known.
    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error>;

    /// The address of this host that the other ranks can reach: the one that it reaches the board
    /// from.
    fn address(&self) -> IpAddr;

    /// Says that this rank has read all that it needs. On the rank that serves the board it waits
    /// until every rank has said so or is gone; a rank that fails drops the board without this, and
    /// the others notice at once.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if the deadline passes or the board cannot be reached any more.
    fn finish(&mut self, deadline: Instant) -> Result<(), Error>;
}
