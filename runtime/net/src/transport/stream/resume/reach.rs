//! Where a stream gets new connections to the peer.

use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;

/// The source of new connections to the peer.
pub(crate) trait PeerDialer: Send {
    /// Returns the names of the paths, in order.
    fn paths(&self) -> &[String];
    /// Goes on with an attempt to connect over a path, or begins one.
    fn dial(&mut self, path: usize) -> DialResult;
    /// Gives up all attempts.
    fn rest(&mut self);
    /// Returns a connection that the peer made, and its path.
    fn incoming(&mut self) -> Option<(usize, Carrier)>;
}

/// The result of an attempt.
pub(crate) enum DialResult {
    /// An attempt under way: true if the peer's system is there, and the faults so far.
    Waiting { answers: bool, trouble: Option<ConnectionFault> },
    /// A connection that the peer's listener has let in.
    Made(Carrier),
    /// The peer's listener is closed, or refuses this rank.
    Refused(ConnectionFault),
}
