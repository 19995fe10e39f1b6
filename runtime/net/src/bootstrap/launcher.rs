//! Starts the ranks of a job as processes of this machine, and watches them.
//!
//! One thread does everything, asleep in `poll` while nothing happens, so that it takes no time from
//! the ranks. Children get the signal to end when this thread does: the job must be run from a
//! thread that lives as long as it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use roundelay_dsl::diag::codes;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::ending::ProcessEnding;
use super::lines::LineReader;
use super::{HINTS, HOST, RANK, SECRET, SECRET_FILE, SHM_FD, SIZE, STORE, TIMEOUT_MS};
use crate::transport::shm::{RankPresence, SegmentLayout, ShmSegment, cores};
use crate::tunables::{DEATH_REPORT_GRACE, PROCESS_POLL_INTERVAL};
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_support::fork::OwnerProcess;
use roundelay_support::process::ChildStatuses;
use roundelay_support::secret::random;
use roundelay_support::variables;

/// A job to be started: how many ranks, and which program each of them runs. Its ranks share a random secret unless
/// `ROUNDELAY_SECRET` or `ROUNDELAY_SECRET_FILE` gives one.
#[derive(Debug, Clone)]
pub struct RankLauncher {
    layout: SegmentLayout,
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    timeout: Option<Duration>,
    grace: Duration,
    pin: bool,
    hints: Option<String>,
    hosts: u32,
}

/// The result of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOutcome {
    /// The way in which each rank's process ended, by rank.
    pub endings: Vec<ProcessEnding>,
    /// The first failure that was noticed, in words, if any.
    pub cause: Option<String>,
}

impl JobOutcome {
    /// Returns true if all ranks ended with status 0.
    pub fn success(&self) -> bool {
        self.endings.iter().all(|&ending| ending == ProcessEnding::Exited(0))
    }
}

impl RankLauncher {
    /// Describes a job of that many ranks, each running this same program without arguments.
    pub fn new(ranks: u32) -> Self {
        let program = std::env::current_exe().map(Into::into).unwrap_or_default();
        RankLauncher {
            layout: SegmentLayout::new(ranks),
            program,
            args: Vec::new(),
            envs: Vec::new(),
            timeout: None,
            grace: DEATH_REPORT_GRACE,
            pin: false,
            hints: None,
            hosts: 1,
        }
    }

    /// Sets the program that each rank runs.
    #[must_use]
    pub fn program(mut self, program: impl AsRef<OsStr>) -> Self {
        self.program = program.as_ref().into();
        self
    }

    /// Adds arguments of the program.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().into()));
        self
    }

    /// Adds a variable to the environment of each rank, beside those of this process.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.as_ref().into(), value.as_ref().into()));
        self
    }

    /// Sets the longest time that ranks wait for each other, see
    /// `Communicator::set_timeout`.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time that the others may go on after one rank has failed, 2 s by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets whether each rank is bound to a core, in turn; by default none is.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Sets hints for all ranks, in the form of [`HINTS`]. Ranks with a
    /// hint for their transports do not inherit memory; they meet as ranks of other launchers do.
    #[must_use]
    pub fn hints(mut self, hints: impl Into<String>) -> Self {
        self.hints = Some(hints.into());
        self
    }

    /// Sets the number of machines over which the ranks shall believe to be spread, in blocks: ranks of one
    /// share memory, others use sockets. 1 by default.
    #[must_use]
    pub fn hosts(mut self, hosts: u32) -> Self {
        self.hosts = hosts.max(1);
        self
    }

    /// Sets the parameters of the shared memory; the number of ranks is taken from here too.
    #[must_use]
    pub fn layout(mut self, layout: SegmentLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Runs the job to its end. `line` is given every line that a rank writes to its standard
    /// output; standard error is shared with this process.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if shared memory cannot be had, [`Error::Start`] if a process cannot be
    /// started. How the ranks fared is not an error but the [`JobOutcome`].
    pub fn run(&self, line: impl FnMut(u32, &str)) -> Result<JobOutcome, Error> {
        self.layout.check()?;
        let _statuses = ChildStatuses::keep();
        let segment = match self.uses_store() {
            true => None,
            false => Some(ShmSegment::create(self.layout)?),
        };
        let number = || Ok::<_, Error>(format!("{:032x}", u128::from_le_bytes(random()?)));
        let store = format!("local:{}", number()?);
        let secret = if self.has_secret() { None } else { Some(number()?) };
        let process = OwnerProcess::here();
        let mut job =
            LaunchedJob { process, segment, ranks: Vec::new(), cause: None, deadline: None };
        for rank in 0..self.layout.ranks {
            let started = self
                .start(job.segment.as_ref(), rank, &store, secret.as_deref())
                .map(RankProcess::new);
            match started {
                Ok(rank) => job.ranks.push(rank),
                Err(e) => {
                    let program = self.program.to_string_lossy().into_owned();
                    let is_full = e.kind() == std::io::ErrorKind::WouldBlock;
                    let remedy = if is_full { PROCESS_LIMIT_REMEDY } else { "" };
                    return Err(Error::system(format!("cannot start `{program}`: {e}"), e, remedy));
                }
            }
        }
        job.watch(self.grace, line);
        Ok(job.outcome())
    }

    /// Returns true if the ranks are given a secret already.
    fn has_secret(&self) -> bool {
        let is_given = |name: &str| self.envs.iter().any(|(given, _)| given == name);
        [SECRET, SECRET_FILE].into_iter().any(|name| is_given(name) || variables::is_set(name))
    }

    /// Returns true if the ranks meet at a store instead of inheriting memory.
    fn uses_store(&self) -> bool {
        self.hosts > 1 || self.hints.as_ref().is_some_and(|h| h.contains("transport"))
    }

    fn start(
        &self,
        segment: Option<&Arc<ShmSegment>>,
        rank: u32,
        store: &str,
        secret: Option<&str>,
    ) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.envs.iter().map(|(k, v)| (k, v)));
        match segment {
            Some(segment) => command.env(SHM_FD, segment.number().to_string()),
            None => command.env(STORE, store),
        };
        if let Some(secret) = secret {
            command.env(SECRET, secret);
        }
        command.envs(variables::of_ranks());
        let given = || self.envs.iter().rfind(|(name, _)| name == HINTS).map(|(_, v)| v.clone());
        let hints = self.hints.clone().map(OsString::from).or_else(given);
        let hints = hints.or_else(|| variables::raw(HINTS));
        match hints {
            // Hosts that ranks of this one pretend to be are no reason to encrypt: the secret is of this launcher's making.
            hints
                if secret.is_some()
                    && segment.is_none()
                    && !decides_encryption(hints.as_deref()) =>
            {
                let mut all = hints.unwrap_or_default();
                all.push(if all.is_empty() { PLAIN } else { PLAIN_TOO });
                command.env(HINTS, all);
            }
            Some(hints) => drop(command.env(HINTS, hints)),
            None => {}
        }
        if self.hosts > 1 {
            let host = u64::from(rank) * u64::from(self.hosts) / u64::from(self.layout.ranks);
            command.env(HOST, format!("host {host}"));
        }
        command.env(RANK, rank.to_string()).env(SIZE, self.layout.ranks.to_string());
        if let Some(timeout) = self.timeout {
            command.env(TIMEOUT_MS, timeout.as_millis().to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let cores = cores();
        let core = self.pin.then(|| cores[rank as usize % cores.len()]);
        let (inherited, parent) = (segment.cloned(), rustix::process::getpid());
        let prepare = move || {
            if let Some(segment) = &inherited {
                rustix::io::fcntl_setfd(segment.fd(), rustix::io::FdFlags::empty())?;
            }
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the line above.
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            if let Some(core) = core {
                let mut set = rustix::thread::CpuSet::new();
                set.set(core);
                rustix::thread::sched_setaffinity(None, &set)?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec the closure only makes system calls; it neither allocates
        // nor locks.
        unsafe { command.pre_exec(prepare) };
        command.spawn()
    }
}

/// The hint that turns encryption off, alone and after others.
const PLAIN: &str = "encryption=off";
const PLAIN_TOO: &str = ",encryption=off";

/// Returns true if hints say whether connections are encrypted: by that name, or by certificates.
fn decides_encryption(hints: Option<&OsStr>) -> bool {
    let text = hints.map(OsStr::to_string_lossy).unwrap_or_default();
    let names = text.split(',').filter_map(|hint| hint.split_once('='));
    names.map(|(name, _)| name.trim()).any(|name| name == "encryption" || name.starts_with("tls_"))
}

/// A started process.
struct RankProcess {
    child: Child,
    /// A descriptor that becomes readable when the process ends; none where the system has no such (before
    /// Linux 5.3, and in some sandboxes): then it is asked again and again whether it has.
    pidfd: Option<OwnedFd>,
    stdout: Option<ChildStdout>,
    lines: LineReader,
    ending: Option<ProcessEnding>,
}

impl RankProcess {
    fn new(mut child: Child) -> Self {
        let stdout = child.stdout.take();
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
        RankProcess { child, pidfd, stdout, lines: LineReader::default(), ending: None }
    }

    /// Reads what the process wrote.
    fn read(&mut self, mut each: impl FnMut(&str)) {
        let mut buffer = [0; 16 << 10];
        let read = self.stdout.as_mut().map_or(Ok(0), |out| out.read(&mut buffer));
        match read {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                self.stdout = None;
                self.lines.end(each);
            }
            Ok(n) => self.lines.add(&buffer[..n], &mut each),
        }
    }
}

/// A job that runs. When it is dropped, its remaining processes are ended.
struct LaunchedJob {
    /// The process that has started the ranks.
    process: OwnerProcess,
    /// The memory of the ranks, if they inherit it. Others notice by themselves which ranks are gone.
    segment: Option<Arc<ShmSegment>>,
    ranks: Vec<RankProcess>,
    cause: Option<String>,
    /// The time at which the remaining ranks are ended.
    deadline: Option<Instant>,
}

impl LaunchedJob {
    fn watch(&mut self, grace: Duration, mut line: impl FnMut(u32, &str)) {
        while self.ranks.iter().any(|r| r.ending.is_none() || r.stdout.is_some()) {
            let now = Instant::now();
            if self.deadline.is_some_and(|at| at <= now) {
                return self.end();
            }
            let mut have_ended = false;
            for (rank, what) in self.poll(self.deadline.map(|at| at - now)) {
                match what {
                    ReadinessKind::Output => self.ranks[rank].read(|text| line(rank as u32, text)),
                    ReadinessKind::Ended => have_ended = true,
                }
            }
            // Who has ended by an error may have noticed who was killed: all are asked, and those come first.
            let all = 0..if have_ended { self.ranks.len() } else { 0 };
            let mut ended: Vec<(usize, ProcessEnding)> =
                all.filter_map(|rank| Some((rank, self.ending(rank)?))).collect();
            ended.sort_by_key(|(_, ending)| matches!(ending, ProcessEnding::Exited(_)));
            ended.into_iter().for_each(|(rank, ending)| self.ended(rank, ending, grace));
        }
    }

    /// Returns how a rank's process has ended, if that is news.
    fn ending(&mut self, rank: usize) -> Option<ProcessEnding> {
        let rank = &mut self.ranks[rank];
        if rank.ending.is_some() {
            return None;
        }
        match rank.child.try_wait() {
            Ok(status) => status.map(ending),
            Err(_) => Some(ProcessEnding::Unknown),
        }
    }

    /// Waits for events and returns them; returns none if none comes within `timeout`.
    fn poll(&self, timeout: Option<Duration>) -> Vec<(usize, ReadinessKind)> {
        let mut events = Vec::new();
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        let mut unseen = Vec::new();
        for (rank, r) in self.ranks.iter().enumerate() {
            if let Some(out) = &r.stdout {
                events.push((rank, ReadinessKind::Output));
                fds.push(PollFd::new(out, PollFlags::IN));
            }
            match &r.pidfd {
                _ if r.ending.is_some() => {}
                Some(pidfd) => {
                    events.push((rank, ReadinessKind::Ended));
                    fds.push(PollFd::new(pidfd, PollFlags::IN));
                }
                None => unseen.push((rank, ReadinessKind::Ended)),
            }
        }
        let timeout = match unseen.is_empty() {
            true => timeout,
            false => Some(
                timeout.map_or(PROCESS_POLL_INTERVAL, |timeout| timeout.min(PROCESS_POLL_INTERVAL)),
            ),
        };
        let timeout = timeout
            .map(|p| Timespec { tv_sec: p.as_secs() as i64, tv_nsec: i64::from(p.subsec_nanos()) });
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            return Vec::new();
        }
        let happened = fds.iter().map(|fd| !fd.revents().is_empty());
        let seen = events.into_iter().zip(happened).filter_map(|(e, h)| h.then_some(e));
        seen.chain(unseen).collect()
    }

    fn ended(&mut self, rank: usize, ending: ProcessEnding, grace: Duration) {
        self.ranks[rank].ending = Some(ending);
        if ending != ProcessEnding::Exited(0) {
            let text = ending.to_string();
            self.cause.get_or_insert_with(|| format!("rank {rank}: {text}"));
            self.deadline.get_or_insert_with(|| Instant::now() + grace);
            let rank = rank as u32;
            if let Some(segment) = &self.segment {
                segment.abort(&AbortRecord { code: codes::LOST_RANK, rank, text });
            }
        }
        // Also for a process that ended without saying so.
        if let Some(segment) = &self.segment {
            let state = if ending == ProcessEnding::Exited(0) {
                RankPresence::Left
            } else {
                RankPresence::Died
            };
            segment.set_state(rank as u32, state);
        }
    }

    /// Ends the processes that are left, all of them children of this one.
    fn end(&mut self) {
        for rank in &mut self.ranks {
            if rank.ending.is_none() {
                // The number of a child stays its own until it is waited for: no other process is hit.
                let _ = rank.child.kill();
                let _ = rank.child.wait();
                rank.ending = Some(ProcessEnding::Killed);
            }
        }
    }

    fn outcome(&mut self) -> JobOutcome {
        let endings =
            self.ranks.iter().map(|r| r.ending.unwrap_or(ProcessEnding::Killed)).collect();
        JobOutcome { endings, cause: self.cause.take() }
    }
}

impl Drop for LaunchedJob {
    fn drop(&mut self) {
        // A process that was forked from the launcher's ends none of its ranks.
        if self.process.is_here() {
            self.end();
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum ReadinessKind {
    Output,
    Ended,
}

fn ending(status: ExitStatus) -> ProcessEnding {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnding::Exited(code),
        (None, Some(signal)) => ProcessEnding::Signalled(signal),
        (None, None) => ProcessEnding::Exited(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_decide_on_encryption_by_name_or_by_certificates() {
        for (hints, decides) in [
            ("encryption=required", true),
            ("transport=tcp, encryption=off", true),
            ("tls_cert=a.pem,tls_key=k.pem,tls_ca=ca.pem", true),
            ("", false),
            ("transport=tcp,doctor=true", false),
            ("topology=encryption.toml", false),
        ] {
            assert_eq!(decides_encryption(Some(OsStr::new(hints))), decides, "{hints}");
        }
        assert!(!decides_encryption(None));
    }
}
