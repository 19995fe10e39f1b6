//! One note through a process manager that speaks PMI-1, as MPICH's Hydra does.
//!
//! Its store shows a note only after a barrier of all ranks, so that it cannot be a store; it
//! passes on where the store is. Then the connection is closed with a farewell, since the process
//! manager takes a process that goes without one for dead. A program that also uses MPI needs the
//! connection itself: there `ROUNDELAY_STORE` keeps this module away from it.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;

use crate::tunables::PMI_LINE_BYTES;
use roundelay_support::error::Error;
use roundelay_support::interrupt;
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;

/// True once the connection was taken: there is one a process, and no way back after the farewell.
static TAKEN: AtomicBool = AtomicBool::new(false);
const KEY: &str = "roundelay-store";

/// The connection to the process manager.
pub(crate) struct PmiClient {
    fd: OwnedFd,
    rank: u32,
    deadline: Instant,
    timeout: Duration,
    input: Vec<u8>,
}

impl PmiClient {
    /// Takes over the connection that the process manager left to this process.
    pub(super) fn take(fd: i32, rank: u32, timeout: Duration) -> Result<PmiClient, Error> {
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(Error::Start(
                "this process has already used its connection to the process manager: keep the \
                 first communicator, or set ROUNDELAY_STORE=host:port for all ranks"
                    .into(),
            ));
        }
        // SAFETY: the process manager passed this number to this process for this purpose, and it
        // is taken once; a number that is not open is refused by the first system call.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        PmiClient::over(fd, rank, timeout)
    }

    /// Speaks over that descriptor.
    fn over(fd: OwnedFd, rank: u32, timeout: Duration) -> Result<PmiClient, Error> {
        let flags = rustix::fs::fcntl_getfl(&fd)
            .and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
        if let Err(e) = flags {
            // Not ours to close.
            std::mem::forget(fd);
            return Err(Error::Start(format!(
                "rank {rank}: PMI_FD leads nowhere: {e}; start the ranks with mpiexec, or set \
                 ROUNDELAY_STORE=host:port for all of them"
            )));
        }
        let deadline = Instant::now() + timeout;
        Ok(PmiClient { fd, rank, deadline, timeout, input: Vec::new() })
    }

    /// Passes rank 0's note to all ranks: a text without spaces, of at most 900 bytes.
    pub(super) fn share(mut self, note: Option<&str>) -> Result<String, Error> {
        self.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let name = self.ask("get_my_kvsname", "my_kvsname")?;
        let name = self.value(&name, "kvsname")?;
        if let Some(note) = note {
            self.ask(&format!("put kvsname={name} key={KEY} value={note}"), "put_result")?;
        }
        self.ask("barrier_in", "barrier_out")?;
        let got = self.ask(&format!("get kvsname={name} key={KEY}"), "get_result")?;
        let got = self.value(&got, "value")?;
        self.ask("finalize", "finalize_ack")?;
        Ok(got)
    }

    /// Sends a command and takes its answer, which must be of that name and without a failure.
    fn ask(&mut self, command: &str, answer: &str) -> Result<String, Error> {
        let line = format!("cmd={command}\n");
        let mut bytes = line.as_bytes();
        while !bytes.is_empty() {
            self.ready(PollFlags::OUT, command)?;
            match rustix::io::write(&self.fd, bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.failed(command, &e.to_string())),
            }
        }
        let line = self.line(command)?;
        let failed = field(&line, "rc").is_some_and(|rc| rc != "0");
        if field(&line, "cmd") != Some(answer) || failed {
            return Err(self.failed(command, &format!("it answers `{}`", line.trim_end())));
        }
        Ok(line)
    }

    fn line(&mut self, command: &str) -> Result<String, Error> {
        loop {
            if let Some(end) = self.input.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.input.len() > PMI_LINE_BYTES {
                return Err(self.failed(command, "its answer has no end"));
            }
            self.ready(PollFlags::IN, command)?;
            let mut buffer = [0; 1 << 10];
            match rustix::io::read(&self.fd, &mut buffer) {
                Ok(0) => return Err(self.failed(command, "it has closed the connection")),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(self.failed(command, &e.to_string())),
            }
        }
    }

    fn ready(&self, flags: PollFlags, command: &str) -> Result<(), Error> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let part = left.min(INTERRUPT_CHECK_INTERVAL);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(part.subsec_nanos()) };
        match rustix::event::poll(&mut [PollFd::new(&self.fd, flags)], Some(&timeout)) {
            Ok(0) if part < left => interrupt::error(self.rank).map_or(Ok(()), Err),
            Ok(0) => {
                let why = format!(
                    "no answer after {:?}: a rank has not come this far; see what the others say",
                    self.timeout
                );
                Err(self.failed(command, &why))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(self.failed(command, &e.to_string())),
        }
    }

    fn value(&self, line: &str, name: &str) -> Result<String, Error> {
        match field(line, name) {
            Some(value) => Ok(value.to_owned()),
            None => Err(self.failed(name, &format!("it answers `{}`", line.trim_end()))),
        }
    }

    fn failed(&self, command: &str, why: &str) -> Error {
        let (rank, word) = (self.rank, command.split(' ').next().unwrap_or(command));
        Error::Start(format!(
            "rank {rank} cannot get `{word}` done by the process manager: {why}; if the program \
             uses MPI too, or its process manager does not speak PMI-1, set \
             ROUNDELAY_STORE=host:port for all ranks"
        ))
    }
}

/// Returns the value of `name=value` among words.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace()
        .find_map(|word| word.split_once('=').filter(|(key, _)| *key == name))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pmi(timeout: Duration) -> (PmiClient, UnixStream) {
        let (own, other) = UnixStream::pair().expect("a pair");
        (PmiClient::over(own.into(), 1, timeout).expect("a connection"), other)
    }

    #[test]
    fn a_process_manager_that_keeps_silent_is_given_up() {
        let (pmi, _other) = pmi(Duration::from_millis(50));
        let error = pmi.share(None).expect_err("no answer comes").to_string();
        assert!(error.contains("rank 1") && error.contains("`init`"), "{error}");
        assert!(error.contains("ROUNDELAY_STORE"), "{error}");
    }

    #[test]
    fn a_process_manager_that_refuses_or_leaves_is_quoted() {
        for (answer, wanted) in [
            ("cmd=response_to_init rc=1\n", "rc=1"),
            ("cmd=something_else rc=0\n", "something_else"),
            ("", "closed"),
        ] {
            let (pmi, mut other) = pmi(Duration::from_secs(30));
            let reply = std::thread::spawn(move || {
                let mut line = String::new();
                let mut reader = BufReader::new(other.try_clone().expect("a copy"));
                reader.read_line(&mut line).expect("a command");
                other.write_all(answer.as_bytes()).expect("an answer");
                line
            });
            let error = pmi.share(None).expect_err("no success").to_string();
            assert!(error.contains(wanted), "{error}");
            let line = reply.join().expect("a line");
            assert_eq!(line, "cmd=init pmi_version=1 pmi_subversion=1\n");
        }
    }
}
