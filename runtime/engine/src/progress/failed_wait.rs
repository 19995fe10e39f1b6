//! A wait that has failed: the one place where errors name the rank, the step, the peer and the source line.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::peer_failure::PeerLoss;
use roundelay_support::error::{Error, ErrorLocation, ErrorSource};

/// The act of a peer that a rank waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedAct {
    /// It sends a message.
    Message,
    /// It sends a message with this tag.
    TaggedMessage(u64),
    /// It receives the message with this tag.
    Receive(u64),
    /// It takes a message out of its slots.
    TakeMessage,
    /// It takes earlier messages, so that there is room for the next one.
    TakeEarlier,
    /// It reads memory of this rank.
    ReadBuffer,
    /// It signals at a window.
    Signal,
    /// It serves its window; the name of the operation.
    ServeWindow(&'static str),
    /// It takes what it gets from this rank's window.
    TakeBytes,
    /// It ends its accumulate, and leaves the lock.
    EndAccumulate,
    /// It makes the same call.
    SameCall,
}

impl AwaitedAct {
    /// Returns the words for the act of a peer: `a message from rank 3`.
    pub fn of(self, peer: u32) -> String {
        self.of_named(&PeerName { peer: Some(peer), channel: 0 })
    }

    /// Returns the words for the act of a peer that is named so.
    pub fn of_named(self, whom: &PeerName) -> String {
        match self {
            AwaitedAct::Message => format!("a message from {whom}"),
            AwaitedAct::TaggedMessage(tag) => format!("a message from {whom} with tag {tag}"),
            AwaitedAct::Receive(tag) => format!("{whom} to receive the message with tag {tag}"),
            AwaitedAct::TakeMessage => format!("{whom} to take a message"),
            AwaitedAct::TakeEarlier => format!("{whom} to take earlier messages"),
            AwaitedAct::ReadBuffer => format!("{whom} to read this rank's buffer"),
            AwaitedAct::Signal => format!("a signal from {whom}"),
            AwaitedAct::ServeWindow(what) => format!("{whom} to serve its window ({what})"),
            AwaitedAct::TakeBytes => format!("{whom} to take what it gets"),
            AwaitedAct::EndAccumulate => format!("{whom} to end its accumulate"),
            AwaitedAct::SameCall => format!("{whom} to make the same call"),
        }
    }
}

/// The name of a peer in errors: none if any rank would do; the channel is named unless it is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerName {
    /// The rank.
    pub peer: Option<u32>,
    /// The channel of its connection.
    pub channel: u16,
}

impl Display for PeerName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.peer {
            None => f.write_str("any rank")?,
            Some(peer) => write!(f, "rank {peer}")?,
        }
        match self.channel {
            0 => Ok(()),
            channel => write!(f, " (channel {channel})"),
        }
    }
}

/// A wait that has failed: where the rank was, and what it waited for.
#[derive(Debug, Clone)]
pub struct FailedWait {
    /// The rank that waited, and its place in the algorithm.
    pub location: ErrorLocation,
    /// The peer, or the rank itself if any other would do.
    pub peer: u32,
    /// The words for what it waited for: see [`AwaitedAct`].
    pub awaited: String,
}

impl FailedWait {
    /// Returns the error of a wait for a peer that is gone.
    #[cold]
    pub fn lost(self, loss: PeerLoss) -> Error {
        let FailedWait { location, peer, awaited } = self;
        let rank = location.rank;
        let how = format!("{loss} while rank {rank} waited for {awaited}");
        let source = match loss {
            PeerLoss::Cut(fault) => Some(ErrorSource::new(fault)),
            _ => None,
        };
        Error::LostRank { rank, lost: peer, how, location: Some(location.into()), source }
    }

    /// Returns the error of a wait in which nothing has moved for too long; the remark says what is known.
    #[cold]
    pub fn timed_out(self, after: Duration, remark: String) -> Error {
        let FailedWait { location, peer, awaited } = self;
        Error::Timeout { location: location.into(), awaited, peer, after, remark }
    }
}

/// Returns the remark on a peer that is silent, where nothing more is known of it.
#[cold]
pub fn remark_on_silence(peer: u32) -> String {
    format!("; does rank {peer} do its part, and is its process not stopped?")
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use roundelay_net::transport::fault::ConnectionFault;
    use rustix::io::Errno;

    use super::*;

    fn failed() -> FailedWait {
        let (name, site, text) = ("all_reduce.ring".into(), String::new(), String::new());
        let location = ErrorLocation { rank: 1, name, step: 2, site, text };
        FailedWait { location, peer: 3, awaited: AwaitedAct::Message.of(3) }
    }

    #[test]
    fn the_fault_of_a_connection_is_the_source_of_a_lost_rank() {
        let here = failed().location;
        let fault = ConnectionFault::Failed(Errno::NETUNREACH);
        let error = failed().lost(PeerLoss::Cut(fault.clone()));
        let wanted = format!(
            "rank 3 is gone: {fault} while rank 1 waited for a message from rank 3; {here}"
        );
        assert_eq!(error.to_string(), wanted);
        let source = error.source().expect("the fault");
        assert_eq!(source.downcast_ref(), Some(&fault));
        assert!(source.source().is_some_and(|source| source.is::<Errno>()));
        assert!(failed().lost(PeerLoss::Left).source().is_none());
    }

    #[test]
    fn a_late_peer_is_named_with_its_step_and_what_it_owes() {
        let late = failed().timed_out(Duration::from_secs(2), remark_on_silence(3));
        let text = late.to_string();
        for part in
            ["rank 1", "all_reduce.ring", "step 2", "2s for a message from rank 3", "stopped"]
        {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let any = PeerName { peer: None, channel: 0 };
        assert_eq!(
            AwaitedAct::TaggedMessage(7).of_named(&any),
            "a message from any rank with tag 7"
        );
        let second = PeerName { peer: Some(4), channel: 2 };
        assert_eq!(
            AwaitedAct::TakeEarlier.of_named(&second),
            "rank 4 (channel 2) to take earlier messages"
        );
    }
}
