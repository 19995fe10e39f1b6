//! Making many connections at once.

use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rustix::event::Timespec;
use rustix::event::{PollFd, PollFlags};

use super::dial::{Dial, Turn};
use super::door::Door;
use super::hello::Name;
use crate::error::{Error, Place};

/// A connection that is wanted.
pub(super) struct Wanted<'a> {
    pub(super) name: Name,
    /// Where the peer listens, if this rank connects; nothing if the peer does.
    pub(super) dial: Option<&'a [SocketAddr]>,
}

/// What a wait is about.
pub(super) struct Errand<'a> {
    pub(super) door: &'a Door,
    pub(super) rank: u32,
    /// What the ranks are doing: `join`, `split`, `connect`.
    pub(super) what: &'a str,
    pub(super) since: Instant,
    pub(super) deadline: Instant,
}

impl Errand<'_> {
    /// The error of a wait for a peer that took too long.
    pub(super) fn expired(&self, peer: u32, awaited: String, remark: &str) -> Error {
        let name = self.what.into();
        let (site, text) = (String::new(), String::new());
        let place = Place { rank: self.rank, name, step: 0, site, text };
        let remark = format!(
            "{remark}{}; make sure that rank {peer} runs and makes the same call; if it is only \
             slow, allow more time (`--timeout`)",
            self.door.remark()
        );
        Error::Timeout {
            place: place.into(),
            awaited,
            peer,
            after: self.deadline.saturating_duration_since(self.since),
            remark,
        }
    }
}

/// Waits for one of these, or a moment, whichever is first.
pub(super) fn pause(fds: &mut [PollFd<'_>], moment: std::time::Duration) {
    let moment = Timespec {
        tv_sec: moment.as_secs().min(3600) as i64,
        tv_nsec: moment.subsec_nanos().into(),
    };
    // Whatever happens here, the caller looks again.
    let _ = rustix::event::poll(fds, Some(&moment));
}

/// Between two looks at what is not a socket of this wait.
const TICK: std::time::Duration = std::time::Duration::from_millis(5);

/// What came about since the last look.
pub(super) struct News<'a> {
    /// Connections that were made, by their place among the wanted.
    pub(super) made: Vec<(usize, TcpStream)>,
    /// Peers with connections that are still missing.
    pub(super) missing: &'a [u32],
}

/// Makes all of these connections. All progress at once, so no order of calls among the ranks can
/// block them. `look` gets them as they are made, is called again and again, and says whether to
/// give up.
pub(super) fn connect(
    errand: &Errand<'_>,
    wanted: &[Wanted<'_>],
    look: &mut dyn FnMut(News<'_>) -> Option<Error>,
) -> Result<(), Error> {
    let door = errand.door;
    let open = |(at, w): (usize, &Wanted<'_>)| {
        let dial = w.dial.map(|addresses| Dial::new(w.name, addresses.to_vec()));
        Open { at, name: w.name, dial }
    };
    let mut missing: Vec<Open> = wanted.iter().enumerate().map(open).collect();
    loop {
        door.progress();
        let mut made = Vec::new();
        let mut waiting = Vec::with_capacity(missing.len());
        for mut open in missing {
            match open.turn(errand)? {
                Some(stream) => made.push((open.at, stream)),
                None => waiting.push(open),
            }
        }
        missing = waiting;
        let peers: Vec<u32> = missing.iter().map(Open::peer).collect();
        if let Some(error) = look(News { made, missing: &peers }) {
            return Err(error);
        }
        let Some(first) = missing.first() else { return Ok(()) };
        if Instant::now() >= errand.deadline {
            return Err(first.late(errand));
        }
        let mut fds = vec![PollFd::from_borrowed_fd(door.events(), PollFlags::IN)];
        let awaited = missing.iter().filter_map(|open| open.dial.as_ref()?.awaits());
        fds.extend(awaited.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        pause(&mut fds, TICK);
    }
}

/// A connection that is still missing.
struct Open {
    at: usize,
    name: Name,
    dial: Option<Dial>,
}

impl Open {
    fn peer(&self) -> u32 {
        if self.dial.is_some() { self.name.to } else { self.name.from }
    }

    fn turn(&mut self, errand: &Errand<'_>) -> Result<Option<TcpStream>, Error> {
        let Some(dial) = &mut self.dial else { return Ok(errand.door.take(&self.name)) };
        match dial.turn(errand.door.options()) {
            Turn::Waiting => Ok(None),
            Turn::Connected(stream) => Ok(Some(stream)),
            Turn::Failed(why) => Err(Error::Start(format!(
                "rank {} cannot connect to rank {}{}: {why}",
                errand.rank,
                self.name.to,
                at(dial.address())
            ))),
        }
    }

    /// The error if it did not come about in time.
    fn late(&self, errand: &Errand<'_>) -> Error {
        let peer = self.peer();
        let Some(dial) = &self.dial else {
            let here = errand.door.address();
            return errand.expired(peer, format!("a connection from rank {peer} to {here}"), "");
        };
        let trouble = match dial.trouble() {
            "" => String::new(),
            text => format!("; the last attempt: {text}"),
        };
        errand.expired(peer, format!("rank {peer}{} to answer", at(dial.address())), &trouble)
    }
}

fn at(address: Option<SocketAddr>) -> String {
    address.map(|a| format!(" at {a}")).unwrap_or_default()
}
