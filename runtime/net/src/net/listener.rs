//! Listens for the connections of all communicators of a process, on one socket.
//!
//! No thread waits here. Every wait of [`net`](super) calls [`RankListener::progress`], which accepts new
//! connections, reads their hellos, and keeps those that proved to be of ranks of this job until a rank takes
//! them. Strangers cost a bounded number of descriptors, of bytes and of seconds, and never a rank's place.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::address;
use super::address::DialTarget;
use super::hello::{ConnectionName, HelloRefusal, HelloReply};
use super::incoming::{HelloOutcome, PendingHello};
use super::socket::{listen, send_at_once, tune};
use crate::guesses::WrongGuesses;
use crate::limits::LISTENER;
use crate::paths::{PathMedium, PathOptions};
use crate::transport::rdma;
use crate::tunables::{ACCEPT_BATCH_MAX, ENDED_COMMUNICATORS_MAX, HANDSHAKE_GRACE};
use roundelay_support::error::Error;
use roundelay_support::fabric::system;
use roundelay_support::fork::give_up_in_children;
use roundelay_tls::PeerSocket;

/// The token of the clock among the events.
const CLOCK: u64 = u64::MAX;

/// The listening sockets of a process, one for each path, shared by its communicators.
pub struct RankListener {
    /// The addresses at which it listens, by path.
    addresses: Vec<SocketAddr>,
    options: PathOptions,
    listeners: Vec<TcpListener>,
    events: OwnedFd,
    /// A clock that is among the events: it rings when a stranger's time is over, and for good once the guard of
    /// this listener is dismissed.
    clock: OwnedFd,
    inner: Mutex<ListenerState>,
    /// Connections that carry on a stream and were not taken yet.
    again: AtomicU64,
    pending: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

#[derive(Default)]
struct ListenerState {
    /// Jobs whose ranks may come in, and how many communicators each has here.
    jobs: BTreeMap<u128, usize>,
    pending: BTreeMap<u64, PendingHello>,
    /// Those that are not answered before a time, in its order.
    held: VecDeque<(Instant, u64)>,
    next: u64,
    kept: BTreeMap<ConnectionName, PeerSocket>,
    ended: VecDeque<(u128, u64, u32)>,
    last_refused: Option<String>,
    shortage: Option<(Instant, Errno)>,
    guesses: WrongGuesses,
    /// The time for which the clock is set.
    rings: Option<Instant>,
    is_dismissed: bool,
}

impl RankListener {
    /// Returns the number of descriptors of a listener: those that listen, the one for their
    /// events, and its clock.
    pub(crate) fn descriptors(&self) -> u64 {
        self.listeners.len() as u64 + 2
    }

    /// Opens the listener at the addresses that the options choose, one for each path, else at `seen`, the
    /// address of this rank in the eyes of the rendezvous store.
    pub fn open(options: PathOptions, seen: IpAddr) -> Result<RankListener, Error> {
        let failed = |e: rustix::io::Errno| {
            let text = format!("the listener of a rank cannot wait for connections: {e}");
            Error::system(text, e, "")
        };
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for (at, wanted) in (0..).zip(address::all(&options, seen)?) {
            let listener = listen(wanted, options.ports)?;
            let (data, flags) = (epoll::EventData::new_u64(at), epoll::EventFlags::IN);
            epoll::add(&events, &listener, data, flags).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(|e| {
                Error::system(format!("the listening socket has no address: {e}"), e, "")
            })?);
            listeners.push(listener);
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let clock = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let (data, flags) = (epoll::EventData::new_u64(CLOCK), epoll::EventFlags::IN);
        epoll::add(&events, &clock, data, flags).map_err(failed)?;
        let next = listeners.len() as u64;
        Ok(RankListener {
            addresses,
            options,
            listeners,
            events,
            clock,
            inner: Mutex::new(ListenerState { next, ..ListenerState::default() }),
            again: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Returns the addresses at which it listens, by path; that of path 0 first.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the targets for the addresses of a peer, by path; `is_far` if it is known to be on another host.
    pub(super) fn targets_to(&self, addresses: &[SocketAddr], is_far: bool) -> Vec<DialTarget> {
        let target = |(&own, &to): (&SocketAddr, &SocketAddr)| {
            let from = (self.addresses.len() > 1).then(|| own.ip());
            DialTarget { from, to: address::reachable(to, own), is_far }
        };
        self.addresses.iter().zip(addresses).map(target).collect()
    }

    /// Returns the address at which it listens on path 0.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the speed of each path according to the system, in Mbit/s; 0 if that is not known.
    pub(crate) fn speeds(&self) -> Vec<u32> {
        let speed = |(at, medium): (&SocketAddr, &PathMedium)| match medium {
            PathMedium::Interface(_) => address::speed(at.ip()),
            PathMedium::Device(choice) => {
                choice.devices.first().map_or(0, |name| system::mbit(name))
            }
        };
        self.addresses.iter().zip(&self.options.media).map(speed).collect()
    }

    /// Returns the device that carries data on a path, if one does and there are several paths.
    pub(crate) fn device(&self, path: usize) -> Option<&rdma::DeviceChoice> {
        self.options.media.get(path).filter(|_| self.options.paths.len() > 1)?.device()
    }

    /// Returns the options with which it was opened.
    pub fn options(&self) -> &PathOptions {
        &self.options
    }

    /// Returns the number of connections that proved to belong to the job, so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were turned away, so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns a descriptor that is readable when [`RankListener::progress`] has work to do.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Returns true if a connection has not sent its whole hello, and its time may run out.
    pub(super) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// Lets the ranks of a job in. Ends with [`RankListener::close`].
    pub(crate) fn expect(&self, job: u128) {
        *self.lock().jobs.entry(job).or_default() += 1;
    }

    /// Forgets a communicator: its connections are closed, and new ones refused.
    pub(crate) fn close(&self, job: u128, comm: u64, rank: u32) {
        let mut inner = self.lock();
        let left = inner.jobs.get_mut(&job).map(|count| {
            *count -= 1;
            *count
        });
        if left == Some(0) {
            inner.jobs.remove(&job);
        }
        inner.kept.retain(|name, _| (name.job, name.comm, name.to) != (job, comm, rank));
        self.count(&inner);
        if inner.ended.len() == ENDED_COMMUNICATORS_MAX {
            inner.ended.pop_front();
        }
        inner.ended.push_back((job, comm, rank));
    }

    /// Returns the connection of this name, if it has come.
    pub(super) fn take(&self, name: &ConnectionName) -> Option<PeerSocket> {
        let mut inner = self.lock();
        let taken = inner.kept.remove(name);
        self.count(&inner);
        taken
    }

    /// Closes the connections for data to a rank of a communicator that came and were not taken.
    pub(super) fn forget_data(&self, job: u128, comm: u64, rank: u32) {
        self.progress();
        let mut inner = self.lock();
        let is_of = |name: &ConnectionName| (name.job, name.comm, name.to) == (job, comm, rank);
        inner.kept.retain(|name, _| !is_of(name) || name.is_control());
        self.count(&inner);
    }

    /// Returns true if a connection has come that carries on a stream. Costs nothing to ask.
    pub(super) fn is_again(&self) -> bool {
        self.again.load(Ordering::Relaxed) > 0
    }

    fn count(&self, inner: &ListenerState) {
        let again = inner.kept.keys().filter(|name| name.is_again()).count();
        self.again.store(again as u64, Ordering::Relaxed);
    }

    /// Describes the connections that were refused, for the messages of waits; begins with its own punctuation.
    pub(super) fn remark(&self) -> String {
        let inner = self.lock();
        let refused = inner.last_refused.iter().map(|last| {
            let (refused, accepted) = (self.refused(), self.accepted());
            format!(
                "; {refused} connections were refused here, the last {last}, and {accepted} let in"
            )
        });
        refused.collect()
    }

    /// Returns the reason for which a connection that waits cannot be taken in, and since when that is so: this
    /// process has too many descriptors.
    pub(super) fn shortage(&self) -> Option<(Instant, Errno)> {
        self.lock().shortage
    }

    /// Accepts new connections and reads hellos, without waiting.
    pub(super) fn progress(&self) {
        let mut inner = self.lock();
        let mut events = Vec::with_capacity(ACCEPT_BATCH_MAX);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.events, buffer, Some(&now)).is_err() {
            return;
        }
        for event in events {
            let token = event.data.u64();
            if token == CLOCK {
                continue;
            }
            match self.listeners.get(token as usize) {
                Some(listener) => self.accept_from(&mut inner, listener),
                None => self.read_hello(&mut inner, token),
            }
        }
        let now = Instant::now();
        while let Some(&(_, token)) = inner.held.front().filter(|(until, _)| *until <= now) {
            inner.held.pop_front();
            if let Some(pending) = inner.pending.get(&token) {
                self.listen_to(pending, token, epoll::EventFlags::IN);
                self.read_hello(&mut inner, token);
            }
        }
        let late = |p: &PendingHello| p.since.elapsed() > self.options.hearing;
        while let Some((&token, _)) = inner.pending.first_key_value().filter(|(_, p)| late(p)) {
            self.turn_away(&mut inner, token, "did not say who it is");
        }
        self.pending.store(inner.pending.len() as u64, Ordering::Relaxed);
        let first = inner.pending.first_key_value();
        let late = first.map(|(_, pending)| pending.since + self.options.hearing);
        let rings = inner.held.front().map(|&(until, _)| until).into_iter().chain(late).min();
        if rings != inner.rings && !inner.is_dismissed {
            inner.rings = rings;
            self.set_clock(rings);
        }
    }

    /// Has the clock ring a moment after a time, or not at all.
    fn set_clock(&self, rings: Option<Instant>) {
        let zero = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let left = rings.map(|at| at.saturating_duration_since(Instant::now()));
        // A time of zero would stop it.
        let left = left.map_or(Duration::ZERO, |left| left + Duration::from_millis(1));
        let it_value = rustix::time::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let time = Itimerspec { it_interval: zero, it_value };
        let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &time);
    }

    /// Ends the thread that guards this listener.
    pub(super) fn dismiss(&self) {
        let mut inner = self.lock();
        inner.is_dismissed = true;
        self.set_clock(Some(Instant::now()));
    }

    /// Returns true if the thread that guards this listener is to end, at once or within that time.
    pub(super) fn is_dismissed_within(&self, time: Duration) -> bool {
        let timeout =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let is_dismissed = || self.lock().is_dismissed;
        // A clock that rings for a stranger is reason enough to go on at once.
        is_dismissed()
            || poll(&mut [PollFd::new(&self.clock, PollFlags::IN)], Some(&timeout)).is_ok()
                && is_dismissed()
    }

    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_from(&self, inner: &mut ListenerState, listener: &TcpListener) {
        for _ in 0..ACCEPT_BATCH_MAX {
            let (stream, from) = match listener.accept() {
                Ok(new) => new,
                Err(e) => {
                    // Too many descriptors, or no memory: a rank that waits for a connection reports it.
                    let is_usual = matches!(
                        e.kind(),
                        ErrorKind::WouldBlock
                            | ErrorKind::Interrupted
                            | ErrorKind::ConnectionAborted
                    );
                    // A stranger's descriptor may be what is missing; one that came just now may be a rank.
                    let oldest = inner.pending.first_key_value().filter(|_| !is_usual);
                    let oldest =
                        oldest.filter(|(_, pending)| pending.since.elapsed() >= HANDSHAKE_GRACE);
                    if let Some(token) = oldest.map(|(&token, _)| token) {
                        self.turn_away(inner, token, "was one of too many");
                        continue;
                    }
                    if !is_usual {
                        let errno = Errno::from_io_error(&e).unwrap_or(Errno::MFILE);
                        let since = inner.shortage.map_or_else(Instant::now, |(since, _)| since);
                        inner.shortage = Some((since, errno));
                        // The connection stays, and so does the reason to look again at once.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    return;
                }
            };
            give_up_in_children(&stream);
            inner.shortage = None;
            let (since, from) = (Instant::now(), from.ip().to_canonical());
            if inner.pending.len() >= LISTENER.places() {
                let oldest = inner.pending.keys().next().copied();
                oldest.inspect(|&token| self.turn_away(inner, token, "was one of too many"));
            }
            let token = inner.next;
            inner.next += 1;
            let data = epoll::EventData::new_u64(token);
            let is_ready = stream.set_nonblocking(true).is_ok()
                && send_at_once(&stream).is_ok()
                && epoll::add(&self.events, &stream, data, epoll::EventFlags::IN).is_ok();
            if is_ready {
                let pending = PendingHello::new(stream.into(), from, since);
                inner.pending.insert(token, pending);
                self.read_hello(inner, token);
            }
        }
    }

    /// Reads on in the hello of a connection.
    fn read_hello(&self, inner: &mut ListenerState, token: u64) {
        let Some(pending) = inner.pending.get_mut(&token) else { return };
        let may_come = |name: &ConnectionName| {
            if inner.ended.contains(&(name.job, name.comm, name.to)) {
                return Err(HelloRefusal::Ended);
            }
            if inner.jobs.contains_key(&name.job) { Ok(()) } else { Err(HelloRefusal::Job) }
        };
        // A connection that names a job of this process does not guess.
        let held = |name: Option<&ConnectionName>, from: IpAddr| {
            let is_known = name.is_some_and(|name| inner.jobs.contains_key(&name.job));
            if is_known { None } else { inner.guesses.held_until(from, Instant::now()) }
        };
        match pending.progress(&self.options, &may_come, &held) {
            HelloOutcome::NotAll => {}
            HelloOutcome::Held(until) => {
                self.listen_to(pending, token, epoll::EventFlags::empty());
                // The strangers that came first are turned away first.
                let more = (inner.held.len() + 1).saturating_sub(2 * LISTENER.strangers);
                inner.held.drain(..more);
                inner.held.push_back((until, token));
            }
            HelloOutcome::Closed => self.turn_away(inner, token, "closed before it said who it is"),
            HelloOutcome::Refused(why) => {
                if why != HelloRefusal::Stranger {
                    // It may have gone already.
                    let _ = pending.stream.write(&HelloReply::Refused(why).encode());
                }
                if why.is_wrong_proof() {
                    let from = pending.from;
                    inner.guesses.count(from, Instant::now(), LISTENER.port);
                }
                self.turn_away(inner, token, why.text());
            }
            HelloOutcome::Rank(name) => {
                let Some(PendingHello { stream, .. }) = inner.pending.remove(&token) else {
                    return;
                };
                let _ = epoll::delete(&self.events, &stream);
                if tune(&stream, self.options.timeout, name.is_control()).is_ok() {
                    self.accepted.fetch_add(1, Ordering::Relaxed);
                    inner.kept.insert(name, stream);
                    self.count(inner);
                }
            }
        }
    }

    fn listen_to(&self, pending: &PendingHello, token: u64, flags: epoll::EventFlags) {
        let data = epoll::EventData::new_u64(token);
        let _ = epoll::modify(&self.events, &pending.stream, data, flags);
    }

    fn turn_away(&self, inner: &mut ListenerState, token: u64, why: &str) {
        if let Some(pending) = inner.pending.remove(&token) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            inner.last_refused = Some(format!("from {}: {why}", pending.from));
        }
    }
}
