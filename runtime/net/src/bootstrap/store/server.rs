//! The thread that serves a store.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use super::job::ServedJob;
use super::state::{LISTENER, StoreState};
use super::stream::StoreListener;
use crate::guesses::WrongGuesses;
use crate::tunables::{RESERVED_DESCRIPTORS, STORE_BACKLOG};
use roundelay_support::fork::{OwnerProcess, give_up_in_children};
use roundelay_support::interrupt;

const WAKE: u64 = 1;
/// The byte by which a server ends before all ranks are notified of a failure.
const HURRY: u8 = 1;

/// A store that is being served. Ends when dropped, whatever ranks are still connected.
pub struct StoreServer {
    /// The process whose thread serves it.
    process: OwnerProcess,
    thread: Option<JoinHandle<()>>,
    wake: UnixStream,
    address: Option<SocketAddr>,
}

impl StoreServer {
    /// Serves that job from now on.
    pub fn start(listener: StoreListener, job: ServedJob) -> io::Result<StoreServer> {
        let (address, timeout) = (listener.address(), job.timeout);
        give_up_in_children(&listener);
        listener.set_nonblocking()?;
        rustix::net::listen(&listener, STORE_BACKLOG)?;
        make_room(u64::from(job.size) + job.strangers() as u64 + RESERVED_DESCRIPTORS);
        let (wake, woken) = UnixStream::pair()?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), flags)?;
        epoll::add(&poll, &woken, epoll::EventData::new_u64(WAKE), flags)?;
        let core = StoreState {
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
        Ok(StoreServer { process: OwnerProcess::here(), thread: Some(thread), wake, address })
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

impl Drop for StoreServer {
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

impl StoreState {
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
}
