//! How a stream between two ranks is made again when its connection is lost: over any of their paths,
//! through the same doors, with the same proof of who is there.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::dial::{Dial, Turn, Way};
use super::door::Door;
use super::hello::{Name, again};
use crate::transport::tcp::{Dialed, Reach, Resumable};

/// After attempts that failed for good.
const PAUSE: Duration = Duration::from_millis(200);

/// The ways to a peer, by path. Links are made before all cards are known.
pub(super) type Ways = Arc<OnceLock<Vec<Way>>>;

/// See above.
pub(super) struct Redial {
    door: Arc<Door>,
    /// What this rank is called where it dials.
    name: Name,
    /// By path, once the peer's card is known.
    ways: Ways,
    dials: Vec<Option<Dial>>,
    /// Since when no attempt is made, why, and whether the door refused.
    failed: Vec<Option<(Instant, String, bool)>>,
}

impl Redial {
    pub(super) fn new(door: &Arc<Door>, name: Name, ways: Ways) -> Self {
        let paths = door.options().paths.len();
        let (dials, failed) = ((0..paths).map(|_| None).collect(), vec![None; paths]);
        Redial { door: door.clone(), name, ways, dials, failed }
    }

    /// A stream that is at home on that path. It begins on this connection, wherever that is.
    pub(super) fn stream(self, fd: OwnedFd, home: usize) -> Resumable {
        let own = rustix::net::getsockname(&fd).ok();
        let own = own.and_then(|own| SocketAddr::try_from(own).ok()).map(|own| own.ip());
        let all = self.door.addresses();
        let path = own.and_then(|own| all.iter().position(|at| at.ip() == own.to_canonical()));
        let chooses = self.name.from < self.name.to;
        let patience = self.door.options().timeout / 2;
        Resumable::new(fd, (home, path.unwrap_or(home)), chooses, patience, Box::new(self))
    }
}

fn failed(why: String, is_shut: bool) -> Dialed {
    match is_shut {
        true => Dialed::Refused(why),
        false => Dialed::Waiting { answers: false, trouble: why },
    }
}

impl Reach for Redial {
    fn paths(&self) -> &[String] {
        &self.door.options().paths
    }

    fn dial(&mut self, path: usize) -> Dialed {
        let way = self.ways.get().and_then(|ways| ways.get(path));
        let (Some(way), Some(dial)) = (way, self.dials.get_mut(path)) else {
            let trouble = "nothing is known of it on this path".into();
            return Dialed::Waiting { answers: false, trouble };
        };
        match &self.failed[path] {
            Some((when, why, is_shut)) if when.elapsed() < PAUSE => {
                return failed(why.clone(), *is_shut);
            }
            _ => {}
        }
        let name = Name { lane: again(self.name.lane, path), ..self.name };
        let turned = dial.get_or_insert_with(|| Dial::again(name, *way));
        let turn = turned.turn(self.door.options());
        let (answers, trouble) = (turned.is_answered(), turned.trouble().to_owned());
        // Nobody listens where it said that it listens: its process is gone.
        let is_shut = turned.is_refused();
        match turn {
            Turn::Connected(stream) => {
                (*dial, self.failed[path]) = (None, None);
                Dialed::Made(stream.into())
            }
            Turn::Failed(why) => {
                *dial = None;
                let is_shut = is_shut || why.starts_with(Dial::REFUSED);
                self.failed[path] = Some((Instant::now(), why.clone(), is_shut));
                failed(why, is_shut)
            }
            Turn::Waiting if is_shut => Dialed::Refused(trouble),
            Turn::Waiting => Dialed::Waiting { answers, trouble },
        }
    }

    fn rest(&mut self) {
        self.dials.iter_mut().for_each(|dial| *dial = None);
    }

    fn incoming(&mut self) -> Option<(usize, OwnedFd)> {
        if !self.door.is_again() {
            return None;
        }
        let (from, to) = (self.name.to, self.name.from);
        (0..self.dials.len()).find_map(|path| {
            let name = Name { from, to, lane: again(self.name.lane, path), ..self.name };
            Some((path, self.door.take(&name)?.into()))
        })
    }
}
