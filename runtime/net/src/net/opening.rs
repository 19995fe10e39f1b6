//! Makes one connection for data without waiting for it.

use std::net::TcpStream;
use std::os::fd::OwnedFd;

use roundelay_dsl::diag::codes;

use super::connect::at;
use super::dial::{Dial, Turn};
use super::hello::{Name, lane};
use super::{ConnectionId, Net};
use crate::error::{Error, Source};

/// A connection that is being made. The lower rank connects, the higher one accepts, as soon as each of them
/// wishes for it.
pub(crate) struct Opening {
    name: Name,
    dial: Option<Dial>,
}

impl Net {
    /// Begins to make a connection.
    pub(crate) fn begin_open(&self, ConnectionId { peer, channel, path }: ConnectionId) -> Opening {
        let (job, comm, rank) = (self.job, self.id, self.rank);
        let (from, to) = (rank.min(peer), rank.max(peer));
        let name = Name { job, comm, to, from, lane: lane(channel, path) };
        let dial = (rank < peer).then(|| Dial::new(name, self.targets_over(peer, path)));
        Opening { name, dial }
    }

    /// Goes as far as possible; returns the socket once it is connected.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if there is no way to the peer.
    pub(crate) fn go_on(&mut self, opening: &mut Opening) -> Result<Option<OwnedFd>, Error> {
        self.listener.progress();
        let Opening { name, dial } = opening;
        let Some(dial) = dial else {
            let taken = self.listener.take(name);
            self.counts.accepted += u64::from(taken.is_some());
            return Ok(taken.map(TcpStream::into));
        };
        match dial.turn(self.listener.options()) {
            Turn::Waiting => Ok(None),
            Turn::Connected(stream) => {
                self.counts.made += 1;
                Ok(Some(stream.into()))
            }
            Turn::Failed(error) => {
                let place = at(dial.address());
                let text = format!(
                    "rank {} cannot connect to rank {}{place}: {error}",
                    self.rank, name.to
                );
                Err(Error::System { code: codes::START, text, source: Source::new(error) })
            }
        }
    }
}
