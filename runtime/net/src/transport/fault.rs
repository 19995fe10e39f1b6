//! The reasons for which a connection moves nothing any more.

use std::fmt;
use std::io;
use std::time::Duration;

use rustix::io::Errno;

use roundelay_support::error::ErrorSource;

/// The reason for which a connection moves nothing any more, said of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionFault {
    /// The peer closed the connection.
    Closed,
    /// The peer reset the connection.
    Reset,
    /// The peer's system does not answer.
    Mute,
    /// A system call failed.
    Failed(Errno),
    /// The connection could not be made fit for messages.
    SetUp(Errno),
    /// Nothing was `acknowledged`, or `delivered`, for that time though bytes were under way.
    Silent(&'static str, Duration),
    /// The two ends of a handshake did not meet in time.
    Late,
    /// The peer did what the protocol excludes, or this process did.
    Protocol(&'static str),
    /// This number of bytes was acknowledged and has not arrived.
    Missing(u64),
    /// A device failed, or the attempt to make a connection did, with an error of its own.
    Other(ErrorSource),
    /// No path is left: the names of all, and what was found on each.
    NoPath(Vec<(String, Option<ConnectionFault>)>),
}

impl ConnectionFault {
    /// Makes the fault of an error that this module does not know.
    pub(crate) fn other(error: impl std::error::Error + Send + Sync + 'static) -> ConnectionFault {
        ConnectionFault::Other(ErrorSource::new(error))
    }

    /// Returns the fault that an error of a socket shows; `None` if nothing has ended.
    #[cold]
    pub(crate) fn of_io(error: io::Error) -> Option<ConnectionFault> {
        match Errno::from_io_error(&error) {
            Some(errno) => ConnectionFault::of(errno),
            None if error.kind() == io::ErrorKind::WouldBlock => None,
            None => Some(ConnectionFault::other(error)),
        }
    }

    /// Returns the fault that an error of the system shows; `None` if nothing has ended.
    #[cold]
    pub(crate) fn of(error: Errno) -> Option<ConnectionFault> {
        match error {
            // No news: the next poll tries again.
            Errno::AGAIN | Errno::INTR => None,
            Errno::PIPE => Some(ConnectionFault::Closed),
            Errno::CONNRESET => Some(ConnectionFault::Reset),
            Errno::TIMEDOUT => Some(ConnectionFault::Mute),
            error => Some(ConnectionFault::Failed(error)),
        }
    }
}

impl fmt::Display for ConnectionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionFault::Closed => f.write_str("it closed the connection"),
            ConnectionFault::Reset => f.write_str("it reset the connection"),
            ConnectionFault::Mute => f.write_str("it does not answer on the connection"),
            ConnectionFault::Failed(error) => write!(f, "the connection to it failed: {error}"),
            ConnectionFault::SetUp(error) => {
                write!(f, "its connection could not be set up: {error}")
            }
            ConnectionFault::Silent(what, time) => {
                write!(f, "nothing was {what} for {} ms", time.as_millis())
            }
            ConnectionFault::Late => f.write_str("it did not answer in time"),
            ConnectionFault::Protocol(what) => f.write_str(what),
            ConnectionFault::Missing(bytes) => {
                write!(
                    f,
                    "{bytes} bytes were acknowledged and never came: is there a proxy between?"
                )
            }
            ConnectionFault::Other(error) => error.fmt(f),
            ConnectionFault::NoPath(paths) => {
                f.write_str("no path to it is left (")?;
                for (at, (name, fault)) in paths.iter().enumerate() {
                    f.write_str(if at == 0 { "" } else { "; " })?;
                    match fault {
                        None => write!(f, "{name}: no answer")?,
                        Some(fault) => write!(f, "{name}: {fault}")?,
                    }
                }
                f.write_str(")")
            }
        }
    }
}

impl std::error::Error for ConnectionFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConnectionFault::Failed(error) | ConnectionFault::SetUp(error) => Some(error),
            ConnectionFault::Other(error) => Some(&**error),
            _ => None,
        }
    }
}
