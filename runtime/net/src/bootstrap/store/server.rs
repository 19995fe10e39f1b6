//! The thread that serves a store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;
use rustix::event::{Timespec, epoll};

use super::accept::ResourceShortage;
use super::failure::Inquiry;
use super::protocol::{
    CHALLENGE, FRAME_HEAD, Frame, GUEST, HELLO, HOST_KEY, Hello, MAX_FRAME, NoFrame, Op, ROOM,
    ROOM_A_RANK, ROSTER, Verdict, failure, failure_body, frame, key, key_and_value, push_frame,
};
use super::session::{Broken, Session, Stage};
use super::stream::StoreListener;
use crate::abort::AbortRecord;
use crate::fork::{OwnerProcess, give_up_in_children};
use crate::guesses::WrongGuesses;
use crate::interrupt;
use crate::limits::{PortLimits, REPORTER, STORE};
use crate::secret::{PROOF, Side, accepts, proof};

/// Connections that may wait to be accepted: all ranks come at once. The system has its own limit.
const BACKLOG: i32 = 4096;
/// Descriptors that the rest of the process may need.
const RESERVE: u64 = 512;
pub(super) const LISTENER: u64 = 0;
const WAKE: u64 = 1;
/// The byte by which a server is to end although not all ranks know why.
const HURRY: u8 = 1;

/// A store that is being served. Ends when dropped, whoever is still connected.
pub struct Server {
    /// The process whose thread serves it.
    process: OwnerProcess,
    thread: Option<JoinHandle<()>>,
    wake: UnixStream,
    address: Option<SocketAddr>,
}

/// The job that a server serves.
#[derive(Debug, Clone)]
pub struct Job {
    /// The number of ranks.
    pub size: u32,
    /// The digest of the job's name.
    pub digest: [u8; 32],
    /// The secret of the job; empty if it has none.
    pub secret: Vec<u8>,
    /// The time that ranks may take to come: so long a failure is told to those who are late.
    pub timeout: Duration,
    /// Makes the answer to [`Op::Report`], if this server gives one. Whoever else is connected waits meanwhile.
    pub report: Option<fn() -> Vec<u8>>,
}

impl Job {
    /// Returns the bounds of the port.
    fn limits(&self) -> PortLimits {
        if self.report.is_some() { REPORTER } else { STORE }
    }

    /// Returns the number of strangers that may be connected at one time.
    pub(super) fn strangers(&self) -> usize {
        let limits = self.limits();
        let ranks = if limits.or_ranks { self.size as usize } else { 0 };
        limits.places().max(ranks)
    }
}

impl Server {
    /// Serves that job from now on.
    pub fn start(listener: StoreListener, job: Job) -> io::Result<Server> {
        let (address, timeout) = (listener.address(), job.timeout);
        give_up_in_children(&listener);
        listener.set_nonblocking()?;
        rustix::net::listen(&listener, BACKLOG)?;
        make_room(u64::from(job.size) + job.strangers() as u64 + RESERVE);
        let (wake, woken) = UnixStream::pair()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&poll, &woken, epoll::EventData::new_u64(WAKE), flags)?;
        let core = Core {
            poll,
            listener,
            job,
            sessions: BTreeMap::new(),
            strangers: BTreeSet::new(),
            held: VecDeque::new(),
            next: WAKE + 1,
            shortage: None,
            guesses: WrongGuesses::default(),
            values: BTreeMap::new(),
            kept: 0,
            waiting: BTreeMap::new(),
            ranks: BTreeMap::new(),
            done: 0,
            failure: None,
            inquiry: None,
            woken,
            until: Instant::now() + timeout,
            is_closing: false,
        };
        let run = move || core.run();
        let thread = std::thread::Builder::new().name("roundelay store".into()).spawn(run)?;
        Ok(Server { process: OwnerProcess::here(), thread: Some(thread), wake, address })
    }

    /// Returns the address at which it listens, if that is not a name of this host.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

/// Raises this process's own limit of descriptors, as far as the system lets it. Without success
/// some ranks have to try again, which they do.
fn make_room(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < wanted) {
        let current = Some(maximum.map_or(wanted, |maximum| maximum.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.process.is_here() {
            std::mem::forget(self.thread.take());
            return;
        }
        if interrupt::is_requested() {
            // A rank that comes only now gets no reason.
            let _ = (&self.wake).write(&[HURRY]);
        }
        let _ = self.wake.shutdown(std::net::Shutdown::Write);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of a rank.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// Connected.
    Here(u64),
    /// Connected, and it has joined.
    Done(u64),
    /// Its connection ended.
    Gone,
}

pub(super) struct Core {
    pub(super) poll: OwnedFd,
    pub(super) listener: StoreListener,
    pub(super) job: Job,
    pub(super) sessions: BTreeMap<u64, Session>,
    /// The sessions that are no rank, the oldest first.
    pub(super) strangers: BTreeSet<u64>,
    /// The strangers that are not answered before a time, in its order.
    pub(super) held: VecDeque<(Instant, u64)>,
    pub(super) next: u64,
    /// The reason for which no connection is accepted for a while.
    pub(super) shortage: Option<ResourceShortage>,
    pub(super) guesses: WrongGuesses,
    values: BTreeMap<String, Vec<u8>>,
    /// Bytes of keys and values.
    kept: usize,
    /// The sessions that wait for a key, by key.
    waiting: BTreeMap<String, Vec<u64>>,
    pub(super) ranks: BTreeMap<u32, At>,
    /// The number of ranks that have joined.
    pub(super) done: usize,
    /// The reason for which nobody joins any more: the first that was told or seen.
    pub(super) failure: Option<AbortRecord>,
    pub(super) inquiry: Option<Inquiry>,
    /// A socket whose end says that this store is to be closed.
    pub(super) woken: UnixStream,
    /// The time until which a failure is told to those who are late.
    pub(super) until: Instant,
    pub(super) is_closing: bool,
}

impl Core {
    fn run(mut self) {
        let mut events = [MaybeUninit::uninit(); 64];
        loop {
            let timeout = self.timeout();
            let happened = match epoll::wait(&self.poll, &mut events, timeout.as_ref()) {
                Ok((happened, _)) => happened,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            let tokens: Vec<u64> = happened.iter().map(|event| event.data.u64()).collect();
            for token in tokens {
                match token {
                    WAKE => self.close(),
                    LISTENER => self.accept(),
                    session => {
                        if self.serve(session).is_err() {
                            self.remove(session);
                        }
                    }
                }
            }
            self.tidy();
            if self.is_closing && self.is_over() {
                return;
            }
        }
    }

    /// Returns the time until the next deadline; `None` if there is none.
    fn timeout(&self) -> Option<Timespec> {
        let patience = self.job.limits().patience;
        let strangers = self.oldest().map(|(_, since)| since + patience);
        let inquiry = self.inquiry.as_ref().map(|inquiry| inquiry.until);
        let closing = self.is_closing.then_some(self.until);
        let held = self.held.front().map(|&(until, _)| until);
        let paused = self.shortage.as_ref().and_then(|shortage| shortage.paused);
        let next = [strangers, held, paused, inquiry, closing].into_iter().flatten().min()?;
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Returns the stranger that came first, and the time at which it came.
    pub(super) fn oldest(&self) -> Option<(u64, Instant)> {
        let &token = self.strangers.first()?;
        self.sessions.get(&token).map(|session| (token, session.since))
    }

    /// Ends strangers that take too long and inquiries, and listens again after a pause.
    fn tidy(&mut self) {
        let (now, patience) = (Instant::now(), self.job.limits().patience);
        if self.inquiry.as_ref().is_some_and(|i| i.until <= now || i.silent.is_empty()) {
            self.report();
        }
        while let Some((token, _)) = self.oldest().filter(|&(_, since)| since + patience <= now) {
            self.remove(token);
        }
        while let Some(&(_, token)) = self.held.front().filter(|(until, _)| *until <= now) {
            self.held.pop_front();
            self.listen_to(token, epoll::EventFlags::IN);
        }
        self.go_on_accepting(now);
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, token: u64) {
        self.strangers.remove(&token);
        let Some(session) = self.sessions.remove(&token) else { return };
        let _ = epoll::delete(&self.poll, &session.stream);
        if let Some((_, key)) = session.get {
            self.stop_waiting(token, &key);
        }
        let Stage::Rank(rank) = session.stage else { return };
        let is_here = |at: &&At| matches!(at, At::Here(at) | At::Done(at) if *at == token);
        if self.all_done() || self.ranks.get(&rank).filter(is_here).is_none() {
            return;
        }
        self.location(rank, At::Gone);
        // One that has said nothing may be started again: nobody knows of it. Rank 0 goes with its store.
        if session.spoke && rank > 0 {
            let text = "its connection to the store ended before all had joined".into();
            self.fail(AbortRecord { code: codes::LOST_RANK, rank, text });
        }
    }

    /// Keeps the address of this host for its own ranks, once it is known or there are no others.
    fn note_host(&mut self, token: u64) {
        let elsewhere = |session: &&Session| !session.stream.is_within_host();
        let session = self.sessions.get(&token).filter(elsewhere);
        let address = session.and_then(|session| session.stream.local());
        let all_came = self.ranks.len() == self.job.size as usize;
        if (address.is_some() || all_came) && !self.values.contains_key(HOST_KEY) {
            let text = address.map_or(String::new(), |address| address.to_string());
            self.set(HOST_KEY.into(), text.as_bytes());
        }
    }

    /// Notes where a rank is.
    fn location(&mut self, rank: u32, at: At) {
        let before = self.ranks.insert(rank, at);
        self.done += usize::from(matches!(at, At::Done(_)));
        self.done -= usize::from(matches!(before, Some(At::Done(_))));
    }

    pub(super) fn all_done(&self) -> bool {
        self.done == self.job.size as usize
    }

    fn stop_waiting(&mut self, token: u64, key: &str) {
        if let Some(tokens) = self.waiting.get_mut(key) {
            tokens.retain(|&other| other != token);
            if tokens.is_empty() {
                self.waiting.remove(key);
            }
        }
    }

    /// Reads from and writes to a connection as long as that gets on.
    fn serve(&mut self, token: u64) -> Result<(), Broken> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
        let open = if session.output.is_empty() { session.receive()? } else { true };
        self.answer(token)?;
        if open { Ok(()) } else { Err(Broken) }
    }

    /// Takes what has come in full, as long as the answers find their way out.
    fn answer(&mut self, token: u64) -> Result<(), Broken> {
        loop {
            let Some(session) = self.sessions.get_mut(&token) else { return Ok(()) };
            let flushed = session.flush()?;
            let flags = if flushed { epoll::EventFlags::IN } else { epoll::EventFlags::OUT };
            epoll::modify(&self.poll, &session.stream, epoll::EventData::new_u64(token), flags)
                .map_err(|_| Broken)?;
            if flushed && session.last {
                return Err(Broken);
            }
            if !flushed || !self.step(token)? {
                return Ok(());
            }
        }
    }

    /// Takes one message. `false` if none is complete.
    fn step(&mut self, token: u64) -> Result<bool, Broken> {
        let Some(session) = self.sessions.get_mut(&token) else { return Ok(false) };
        match session.stage {
            Stage::Hello => session.hello(),
            Stage::Proof { hello, challenge } => {
                let Some(proof) = session.take::<PROOF>() else { return Ok(false) };
                self.admit(token, &hello, &challenge, &proof).map(|()| true)
            }
            Stage::Rank(rank) => {
                let is_full = session.is_full();
                let input = std::mem::take(&mut session.input);
                let (taken, result) = match frame(&input[session.taken..]) {
                    // A guest's has no room.
                    Ok(None) if is_full => (0, Err(Broken)),
                    Err(NoFrame) => (0, Err(Broken)),
                    Ok(None) => (0, Ok(false)),
                    Ok(Some(Frame { head, number, body, whole })) => {
                        let op = Op::from_byte(head).ok_or(Broken)?;
                        (whole, self.request(token, rank, op, number, body).map(|()| true))
                    }
                };
                if let Some(session) = self.sessions.get_mut(&token) {
                    session.input = input;
                    session.taken += taken;
                }
                result
            }
        }
    }

    /// Lets a client in that answered the challenge, or refuses it.
    fn admit(
        &mut self,
        token: u64,
        hello: &[u8; HELLO],
        challenge: &[u8; CHALLENGE],
        theirs: &[u8],
    ) -> Result<(), Broken> {
        let Hello { rank, size, job, .. } = Hello::read(hello).ok_or(Broken)?;
        let verdict = if !accepts(&self.job.secret, theirs, Side::Connecting, &[hello, challenge]) {
            Verdict::Secret
        } else if job != self.job.digest {
            Verdict::Job
        } else if rank == GUEST {
            Verdict::Ok
        } else if size != self.job.size || rank >= size {
            Verdict::Size
        } else if !matches!(self.ranks.get(&rank), None | Some(At::Gone)) {
            Verdict::Taken
        } else {
            Verdict::Ok
        };
        if verdict == Verdict::Secret
            && let Some(from) = self.sessions.get(&token).and_then(|session| session.from)
        {
            self.guesses.count(from, Instant::now(), self.job.limits().port);
        }
        let own = match verdict {
            // Nothing that could be tried out against the secret.
            Verdict::Secret => [0; PROOF],
            _ => proof(&self.job.secret, Side::Accepting, &[hello, challenge]),
        };
        let session = self.sessions.get_mut(&token).ok_or(Broken)?;
        session.output.push(verdict as u8);
        session.output.extend_from_slice(&self.job.size.to_le_bytes());
        session.output.extend_from_slice(&own);
        if verdict == Verdict::Ok {
            session.stage = Stage::Rank(rank);
            // A guest stays a stranger: without a secret anyone can be one.
            if rank != GUEST {
                self.strangers.remove(&token);
                self.location(rank, At::Here(token));
                self.note_host(token);
            }
            if let Some(failure) = &self.failure {
                let body = failure_body(failure);
                self.tell(token, Verdict::Failed, 0, &body);
            }
        } else {
            session.last = true;
        }
        Ok(())
    }

    fn request(
        &mut self,
        token: u64,
        rank: u32,
        op: Op,
        number: u32,
        body: &[u8],
    ) -> Result<(), Broken> {
        // A guest looks on: it leaves nothing, counts for nobody, and ends nothing.
        // Of the notes it may read the one that is meant for guests: others let their reader connect to ranks.
        let is_for_guests = match op {
            Op::Get => body == ROSTER.as_bytes(),
            Op::Who | Op::Here | Op::Report => true,
            Op::Set | Op::Finish | Op::Fail => false,
        };
        if rank == GUEST && !is_for_guests {
            return Err(Broken);
        }
        match op {
            Op::Set => {
                let (key, value) = key_and_value(body).ok_or(Broken)?;
                self.sessions.get_mut(&token).ok_or(Broken)?.spoke = true;
                let verdict = self.set(key, value);
                self.tell(token, verdict, number, b"");
            }
            Op::Get => {
                let key = key(body).ok_or(Broken)?;
                if let Some(value) = self.values.get(&key) {
                    let session = self.sessions.get_mut(&token).ok_or(Broken)?;
                    push_frame(&mut session.output, Verdict::Ok as u8, number, &[value]);
                } else {
                    self.wait(token, number, key)?;
                }
            }
            Op::Finish => {
                let session = self.sessions.get_mut(&token).ok_or(Broken)?;
                (session.finish, session.spoke) = (Some(number), true);
                self.location(rank, At::Done(token));
                if self.all_done() {
                    self.end_wait();
                }
            }
            Op::Fail => {
                self.fail(failure(body).filter(|f| f.rank < self.job.size).ok_or(Broken)?);
                let first = self.failure.as_ref().map(failure_body).unwrap_or_default();
                self.tell(token, Verdict::Ok, number, &first);
            }
            Op::Who => self.inquire(token, rank, number),
            Op::Report => {
                let report = self.job.report.filter(|_| rank == GUEST).ok_or(Broken)?();
                // To make it takes time, of which a guest has one report's.
                self.sessions.get_mut(&token).ok_or(Broken)?.last = true;
                match report.len() <= MAX_FRAME - FRAME_HEAD {
                    true => self.tell(token, Verdict::Ok, number, &report),
                    false => self.tell(token, Verdict::Full, number, b""),
                }
            }
            Op::Here => {
                if let Some(inquiry) = &mut self.inquiry {
                    inquiry.silent.remove(&rank);
                }
            }
        }
        Ok(())
    }

    pub(super) fn tell(&mut self, token: u64, verdict: Verdict, number: u32, body: &[u8]) {
        if let Some(session) = self.sessions.get_mut(&token) {
            push_frame(&mut session.output, verdict as u8, number, &[body]);
        }
    }

    fn wait(&mut self, token: u64, number: u32, key: String) -> Result<(), Broken> {
        let session = self.sessions.get_mut(&token).ok_or(Broken)?;
        let before = session.get.replace((number, key.clone()));
        if let Some((_, before)) = before {
            self.stop_waiting(token, &before);
        }
        self.waiting.entry(key).or_default().push(token);
        Ok(())
    }

    fn set(&mut self, key: String, value: &[u8]) -> Verdict {
        let before = self.values.get(&key).map_or(0, |old| key.len() + old.len());
        let kept = self.kept - before + key.len() + value.len();
        if kept > ROOM + ROOM_A_RANK * self.job.size as usize {
            return Verdict::Full;
        }
        self.kept = kept;
        for token in self.waiting.remove(&key).unwrap_or_default() {
            let Some(session) = self.sessions.get_mut(&token) else { continue };
            let Some((number, _)) = session.get.take() else { continue };
            push_frame(&mut session.output, Verdict::Ok as u8, number, &[value]);
            self.send_later(token);
        }
        self.values.insert(key, value.to_vec());
        Verdict::Ok
    }

    /// Has the output of a connection that nothing came from sent in its own turn.
    pub(super) fn send_later(&self, token: u64) {
        self.listen_to(token, epoll::EventFlags::OUT);
    }

    fn listen_to(&self, token: u64, flags: epoll::EventFlags) {
        if let Some(session) = self.sessions.get(&token) {
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::modify(&self.poll, &session.stream, data, flags);
        }
    }

    /// Tells all that all have joined.
    fn end_wait(&mut self) {
        let waiting: Vec<(u64, u32)> = self
            .sessions
            .iter_mut()
            .filter_map(|(&token, session)| session.finish.take().map(|number| (token, number)))
            .collect();
        for (token, number) in waiting {
            self.tell(token, Verdict::Ok, number, b"");
            self.send_later(token);
        }
    }
}
