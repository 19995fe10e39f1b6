//! Talks to the running ranks of a peer: one program that was started, and what is said to its ranks.
//!
//! Every rank holds a socket to this process and ends when it is gone, however this process ends;
//! that, and not the launchers, is why nothing is left behind.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use super::error::PeerError;
use crate::tunables::{PEER_END_TIMEOUT, PEER_POLL_INTERVAL, PEER_START_TIMEOUT};

/// No answer is longer.
const LONGEST: usize = 4096;

/// The outcome of an order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SessionAnswer {
    /// Microseconds a call, and wrong elements on all ranks.
    Measured(f64, u64),
    /// The library has no such call: the reason.
    Lacks(String),
    /// It crashed or did not end: what is known.
    Broken(String),
}

/// A started program.
pub(crate) struct PeerSession {
    /// The launcher, or the ranks themselves.
    started: Vec<Child>,
    /// The ranks, by number.
    ranks: Vec<SessionRank>,
    /// The file to which they write standard error.
    errors: PathBuf,
    /// The version that the library reports.
    pub(crate) version: String,
}

struct SessionRank {
    number: u64,
    stream: UnixStream,
    process: Option<OwnedFd>,
}

impl PeerSession {
    /// Starts a program, and waits until all its ranks are there. `place` is a folder of its own.
    pub(crate) fn start(
        commands: Vec<Command>,
        ranks: u64,
        place: &Path,
    ) -> Result<PeerSession, PeerError> {
        let socket = place.join("socket");
        let listener = UnixListener::bind(&socket)
            .and_then(|l| l.set_nonblocking(true).map(|()| l))
            .map_err(PeerError::at(&socket))?;
        let errors = place.join("errors");
        let file = File::create(&errors).map_err(PeerError::at(&errors))?;
        let mut session =
            PeerSession { started: Vec::new(), ranks: Vec::new(), errors, version: String::new() };
        for mut command in commands {
            let tool = command.get_program().to_string_lossy().into_owned();
            let said = file.try_clone()?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
            let child = command.spawn().map_err(|error| PeerError::At { what: tool, error })?;
            session.started.push(child);
        }
        session.welcome(&listener, ranks)?;
        Ok(session)
    }

    /// Waits for all ranks.
    fn welcome(&mut self, listener: &UnixListener, ranks: u64) -> Result<(), PeerError> {
        let deadline = Instant::now() + PEER_START_TIMEOUT;
        while (self.ranks.len() as u64) < ranks {
            match listener.accept() {
                Ok((stream, _)) => self.greet(stream, ranks, deadline)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.alive()?;
                    if Instant::now() > deadline {
                        let here = self.ranks.len();
                        return Err(self.failure(&format!(
                            "{here} of {ranks} ranks have started in {PEER_START_TIMEOUT:?}"
                        )));
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.ranks.sort_by_key(|r| r.number);
        let each_once = self.ranks.iter().zip(0..).all(|(rank, number)| rank.number == number);
        match each_once {
            true => Ok(()),
            false => Err(PeerError::Ranks("its ranks are not numbered 0, 1, …".into())),
        }
    }

    fn greet(
        &mut self,
        stream: UnixStream,
        ranks: u64,
        deadline: Instant,
    ) -> Result<(), PeerError> {
        let line = self.line(&stream, deadline)?;
        let mut words = line.splitn(4, ' ');
        let mut number = || words.next().and_then(|w| w.parse::<u64>().ok());
        let (Some(number), Some(size), Some(pid)) = (number(), number(), number()) else {
            return Err(PeerError::Ranks(format!("a rank introduces itself with `{line}`")));
        };
        if size != ranks {
            let why = format!("it runs on {size} ranks where {ranks} were asked for");
            return Err(PeerError::Ranks(why));
        }
        self.version = words.next().unwrap_or("").trim().into();
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        self.ranks.push(SessionRank { number, stream, process });
        Ok(())
    }

    /// Has one size measured. After an error the session is of no use any more.
    pub(crate) fn ask(
        &mut self,
        order: &str,
        timeout: Duration,
    ) -> Result<SessionAnswer, PeerError> {
        let deadline = Instant::now() + timeout;
        for rank in &mut self.ranks {
            if rank.stream.write_all(order.as_bytes()).is_err() {
                let gone = format!("rank {} is gone", rank.number);
                return Err(self.failure(&gone));
            }
        }
        let Some(first) = self.ranks.first() else {
            return Err(PeerError::Ranks("it has no ranks".into()));
        };
        let stream = first.stream.try_clone()?;
        let line = self.line(&stream, deadline).map_err(|why| match Instant::now() > deadline {
            true => self.failure(&format!("no result in {:.0} s", timeout.as_secs_f64())),
            false => why,
        })?;
        let numbers = |text: &str| {
            let (time, wrong) = text.split_once(' ')?;
            Some(SessionAnswer::Measured(time.parse().ok()?, wrong.parse().ok()?))
        };
        let answer = match line.split_once(' ') {
            Some(("no", why)) => Some(SessionAnswer::Lacks(why.into())),
            Some(("ok", text)) => numbers(text),
            _ => None,
        };
        answer.ok_or_else(|| PeerError::Ranks(format!("it answers `{line}`")))
    }

    /// Reads a line, asleep until it comes.
    fn line(&mut self, mut stream: &UnixStream, deadline: Instant) -> Result<String, PeerError> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PEER_POLL_INTERVAL))?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            match stream.read(&mut byte) {
                Ok(0) => return Err(self.failure("a rank has ended")),
                Ok(_) if byte[0] == b'\n' => return Ok(String::from_utf8_lossy(&line).into()),
                Ok(_) if line.len() < LONGEST => line.push(byte[0]),
                Ok(_) => return Err(PeerError::Ranks("it answers without end".into())),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.alive()?;
                    if Instant::now() > deadline {
                        return Err(self.failure("no answer"));
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Fails if one of the started processes has ended.
    fn alive(&mut self) -> Result<(), PeerError> {
        let ended = |child: &mut Child| child.try_wait().ok().flatten();
        match self.started.iter_mut().find_map(ended) {
            Some(status) => Err(self.failure(&format!("it ended with {status}"))),
            None => Ok(()),
        }
    }

    /// Describes what happened, with the last line on standard error that has words.
    fn failure(&mut self, what: &str) -> PeerError {
        // Processes that have just failed may still be writing why.
        self.wait(Duration::from_millis(300));
        let text = std::fs::read(&self.errors).unwrap_or_default();
        match cause(&String::from_utf8_lossy(&text)) {
            "" => PeerError::Ranks(what.into()),
            line => PeerError::Ranks(format!("{what}: {line}")),
        }
    }

    /// Waits for the end of what was started; whether it came.
    fn wait(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = |c: &mut Child| matches!(c.try_wait(), Ok(Some(_)) | Err(_));
            if self.started.iter_mut().all(ended) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for PeerSession {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.stream.write_all(b"end\n");
        }
        // Without all its ranks a program was stuck before it could receive an order.
        if self.ranks.is_empty() || !self.wait(PEER_END_TIMEOUT) {
            let processes: Vec<OwnedFd> =
                self.ranks.drain(..).filter_map(|rank| rank.process).collect();
            for child in &self.started {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
            if !self.wait(PEER_END_TIMEOUT) {
                for process in &processes {
                    let _ = pidfd_send_signal(process, Signal::KILL);
                }
                self.started.iter_mut().for_each(|child| drop(child.kill()));
            }
        }
        self.started.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// Returns the last line of a text that says something.
pub(crate) fn cause(text: &str) -> &str {
    text.lines().rev().find(|l| l.contains(char::is_alphanumeric)).map_or("", str::trim)
}
