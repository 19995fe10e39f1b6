//! A rank at the store.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host_addresses::reachable;
use super::job::GuestTrust;
use super::protocol::{
    CHALLENGE, DamagedFrame, GUEST, HOST_KEY, MAGIC, MODE_REFUSAL, StoreHello, StoreRequest,
    StoreVerdict, VERDICT, digest, failure, failure_body, frame, push_frame,
};
use super::server::StoreServer;
use super::stream::{EncryptionFailure, StoreAddress, StoreStream};
use crate::paths::CertificateIdentity;
use crate::store::Store;
use crate::tunables::{
    STORE_CULPRIT_TIMEOUT, STORE_ENTRY_TIMEOUT, STORE_KEY_BYTES, STORE_VALUE_BYTES,
};
use roundelay_support::abort;
use roundelay_support::abort::AbortRecord;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::{Error, ErrorSource};
use roundelay_support::fork::OwnerProcess;
use roundelay_support::interrupt;
use roundelay_support::secret::{ProofSide, accepts, proof, random};
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;
use roundelay_tls::{SecureError, host_binding};

/// The identity with which a client connects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientIdentity<'a> {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The name of the job.
    pub(crate) job: &'a str,
    pub(crate) secret: &'a [u8],
    pub(crate) encryption: EncryptionMode,
    pub(crate) certificates: Option<&'a CertificateIdentity>,
}

impl<'a> ClientIdentity<'a> {
    /// Returns the same rank of a job with a secret name, which takes the place of the secret if there is none.
    pub(crate) fn of(self, job: &'a str) -> ClientIdentity<'a> {
        let secret = if self.secret.is_empty() { job.as_bytes() } else { self.secret };
        ClientIdentity { job, secret, ..self }
    }
}

/// A connection to a store; with the server itself on the rank that serves it.
pub struct StoreClient {
    /// The process whose connection it is.
    process: OwnerProcess,
    rank: u32,
    at: StoreAddress,
    stream: StoreStream,
    address: IpAddr,
    timeout: Duration,
    input: Vec<u8>,
    number: u32,
    server: Option<StoreServer>,
    /// The first failure of the job, if the server has reported one.
    failure: Option<AbortRecord>,
    /// The time that the server may take to answer from its own state.
    who: Duration,
    /// True once the server did not answer in time.
    is_deaf: bool,
}

/// The reason for which a try to get in failed.
pub(super) enum EntryFailure {
    /// The next try may succeed.
    Again(String, Option<io::Error>),
    /// No further try can succeed.
    Never(String),
}

impl From<io::Error> for EntryFailure {
    fn from(error: io::Error) -> Self {
        let why = match error.kind() {
            ErrorKind::UnexpectedEof => "something there hung up".into(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "nothing there answered".into(),
            _ => error.to_string(),
        };
        EntryFailure::Again(why, Some(error))
    }
}

impl StoreClient {
    /// Connects to the store, trying again until the deadline.
    pub(crate) fn connect(
        at: StoreAddress,
        me: ClientIdentity<'_>,
        timeout: Duration,
    ) -> Result<StoreClient, Error> {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(5);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (why, source) = match enter(&at, me, left.min(STORE_ENTRY_TIMEOUT)) {
                Ok(stream) => {
                    let own = stream.local().unwrap_or(Ipv4Addr::LOCALHOST.into());
                    // The name or the choice of this host, which need not be its address for others.
                    let is_own = own.is_loopback() || matches!(at, StoreAddress::Any(_));
                    let asks = is_own && !at.is_loopback() && stream.is_within_host();
                    let mut client = StoreClient::over(stream, at, me.rank, own, timeout);
                    if asks {
                        let seen = client.get(HOST_KEY, deadline)?;
                        let seen = std::str::from_utf8(&seen).ok().and_then(|ip| ip.parse().ok());
                        client.address = seen.unwrap_or_else(|| reachable(own, &client.at));
                    }
                    return Ok(client);
                }
                Err(EntryFailure::Never(why)) => return Err(refused(me.rank, &at, &why)),
                Err(EntryFailure::Again(why, source)) => (why, source),
            };
            if Instant::now() + pause >= deadline {
                let text = format!(
                    "rank {} waited {timeout:?} to get into the store of rank 0 at {at}: {why}",
                    me.rank
                );
                let remedy =
                    "see whether rank 0 was started, and whether that address leads to its host";
                return Err(match source {
                    Some(source) => Error::system(text, source, remedy),
                    None => Error::Start(format!("{text}; {remedy}")),
                });
            }
            if let Some(error) = interrupt::error(me.rank) {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Makes the client of a connection that was let in.
    fn over(
        stream: StoreStream,
        at: StoreAddress,
        rank: u32,
        address: IpAddr,
        timeout: Duration,
    ) -> StoreClient {
        StoreClient {
            process: OwnerProcess::here(),
            rank,
            at,
            stream,
            address,
            timeout,
            input: Vec::new(),
            number: 0,
            server: None,
            failure: None,
            who: STORE_CULPRIT_TIMEOUT,
            is_deaf: false,
        }
    }

    /// Enters as a guest, by one try.
    pub(super) fn visit(
        at: StoreAddress,
        job: &str,
        GuestTrust { secret, encryption, certificates }: GuestTrust<'_>,
        timeout: Duration,
    ) -> Result<StoreClient, EntryFailure> {
        let me = ClientIdentity { rank: GUEST, size: 0, job, secret, encryption, certificates };
        let stream = enter(&at, me, timeout)?;
        Ok(StoreClient::over(stream, at, GUEST, Ipv4Addr::LOCALHOST.into(), timeout))
    }

    /// Returns the first failure of the job, if the server has reported one.
    pub(super) fn failure(&self) -> Option<&AbortRecord> {
        self.failure.as_ref()
    }

    /// Keeps the server for as long as this client lives.
    pub(crate) fn with(mut self, server: StoreServer) -> StoreClient {
        self.server = Some(server);
        self
    }

    /// Returns the error of a store that is out of reach, or the failure that it reported before.
    fn lost(&mut self, doing: &str, error: io::Error) -> Error {
        let _ = self.drain();
        if let Some(error) = self.failed() {
            return error;
        }
        let (rank, at) = (self.rank, &self.at);
        let why = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                let how = format!(
                    "it ended its store at {at} while rank {rank} was {doing}; see what rank 0 says"
                );
                let source = Some(ErrorSource::new(error));
                return Error::LostRank { rank, lost: 0, how, location: None, source };
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("rank 0 does not answer within {:?}; see what it is doing", self.timeout)
            }
            _ => format!("{error}; see what rank 0 says"),
        };
        Error::Start(format!("rank {rank} lost the store at {at} while {doing}: {why}"))
    }

    fn send(&mut self, op: StoreRequest, parts: &[&[u8]]) -> io::Result<u32> {
        self.number = self.number.wrapping_add(1).max(1);
        let mut bytes = Vec::new();
        push_frame(&mut bytes, op as u8, self.number, parts);
        self.stream.set_timeouts(self.timeout)?;
        self.stream.write_all(&bytes)?;
        Ok(self.number)
    }

    /// Takes what has come, the answer to that request if it is there, and does what it asks for.
    fn decode_frames(&mut self, number: u32) -> io::Result<Option<(StoreVerdict, Vec<u8>)>> {
        let damaged = || io::Error::new(ErrorKind::InvalidData, "an answer makes no sense");
        while let Some(frame) = frame(&self.input).map_err(|DamagedFrame| damaged())? {
            let verdict = StoreVerdict::from_byte(frame.head).ok_or_else(damaged)?;
            let (answers, whole, body) = (frame.number, frame.whole, frame.body.to_vec());
            self.input.drain(..whole);
            match verdict {
                StoreVerdict::Failed => {
                    self.failure = self.failure.take().or_else(|| failure(&body));
                }
                StoreVerdict::Ask => drop(self.send(StoreRequest::Here, &[])?),
                _ if answers == number => return Ok(Some((verdict, body))),
                // The answer belongs to a request that was given up.
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads what comes up to a moment from now; `false` if nothing does.
    fn receive(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = if self.stream.has_input() { Duration::ZERO } else { timeout };
        let moment = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let awaited = &mut [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(awaited, Some(&moment)) {
            _ if self.stream.has_input() => {}
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.input.extend_from_slice(&buffer[..n]);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Takes what has come without waiting.
    fn drain(&mut self) -> io::Result<()> {
        let mut news = self.receive(Duration::ZERO);
        while matches!(news, Ok(true)) {
            news = self.receive(Duration::ZERO);
        }
        // Messages from before the end count.
        self.decode_frames(0).and(news).map(drop)
    }

    /// Asks, and waits for the answer: nothing if it does not come until then, or if the job has
    /// failed.
    pub(super) fn ask(
        &mut self,
        op: StoreRequest,
        parts: &[&[u8]],
        deadline: Instant,
    ) -> io::Result<Option<(StoreVerdict, Vec<u8>)>> {
        if self.failure.is_some() {
            return Ok(None);
        }
        let number = self.send(op, parts)?;
        loop {
            let answer = self.decode_frames(number)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if answer.is_some() || left.is_zero() || self.failure.is_some() {
                return Ok(answer);
            }
            self.receive(left.min(INTERRUPT_CHECK_INTERVAL))?;
            if interrupt::is_requested() {
                return Err(io::Error::other("a signal interrupted its wait"));
            }
        }
    }

    /// Names the culprit of a wait in vain, in words.
    fn who(&mut self) -> String {
        match self.ask(StoreRequest::Who, &[], Instant::now() + self.who) {
            Ok(Some((_, words))) => String::from_utf8_lossy(&words).into_owned(),
            _ => {
                self.is_deaf = true;
                "rank 0, which serves the store, does not answer".into()
            }
        }
    }

    /// Returns the error of the job if it has failed.
    fn failed(&self) -> Option<Error> {
        self.failure.clone().map(|failure| abort::consequence(self.rank, failure, None))
    }
}

impl Store for StoreClient {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.process.check("store")?;
        let rank = self.rank;
        if key.is_empty() || key.len() > STORE_KEY_BYTES || value.len() > STORE_VALUE_BYTES {
            return Err(Error::Start(format!(
                "rank {rank} cannot leave {} bytes as `{key:.64}` at the store: keys have 1 to \
                 {STORE_KEY_BYTES} bytes, values at most {STORE_VALUE_BYTES}",
                value.len()
            )));
        }
        let doing = format!("setting `{key}`");
        let length = (key.len() as u16).to_le_bytes();
        let deadline = Instant::now() + self.timeout;
        match self.ask(StoreRequest::Set, &[&length, key.as_bytes(), value], deadline) {
            Ok(Some((StoreVerdict::Ok, _))) => Ok(()),
            Ok(Some(_)) => Err(Error::Start(format!(
                "rank {rank} cannot set `{key}`: the store at {} is full; leave less there",
                self.at
            ))),
            Ok(None) => Err(self.lost(&doing, ErrorKind::TimedOut.into())),
            Err(e) => Err(self.lost(&doing, e)),
        }
    }

    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        self.process.check("store")?;
        let began = Instant::now();
        match self.ask(StoreRequest::Get, &[key.as_bytes()], deadline) {
            Ok(Some((_, value))) => Ok(value),
            Ok(None) => {
                let waited = began.elapsed();
                let who = if self.failure.is_none() { self.who() } else { String::new() };
                let (rank, at) = (self.rank, &self.at);
                let late = || {
                    Error::Start(format!(
                        "rank {rank} waited {waited:?} for `{key}` at the store at {at}: {who}; see \
                         what the others say, or give them more time"
                    ))
                };
                Err(self.failed().unwrap_or_else(late))
            }
            Err(e) => Err(self.lost(&format!("waiting for `{key}`"), e)),
        }
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn look(&mut self) -> Option<Error> {
        let drained = self.drain();
        self.failed().or_else(|| drained.err().map(|e| self.lost("joining", e)))
    }

    fn fail(&mut self, mut error: Error) -> Error {
        // The others are notified of an interrupt, too.
        let _deferred = interrupt::DeferredInterrupt::begin();
        // A failure that was reported before counts.
        let _ = self.look();
        if let Error::Timeout { remark, .. } = &mut error {
            let who = if self.failure.is_none() { self.who() } else { String::new() };
            remark.insert_str(0, &format!("; {who}"));
        }
        if let Some(first) = self.failed() {
            return first;
        }
        let own = abort::record(self.rank, &error);
        if self.is_deaf {
            return error;
        }
        let answer =
            self.ask(StoreRequest::Fail, &[&failure_body(&own)], Instant::now() + self.who);
        let first = answer.ok().flatten().and_then(|(_, body)| failure(&body));
        let is_other = |first: &AbortRecord| (first.rank, first.code) != (own.rank, own.code);
        match first.or_else(|| self.failure.clone()).filter(is_other) {
            Some(first) => abort::consequence(self.rank, first, None),
            None => error,
        }
    }

    fn finish(&mut self, deadline: Instant) -> Result<(), Error> {
        self.process.check("store")?;
        match self.ask(StoreRequest::Finish, &[], deadline) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let who = if self.failure.is_none() { self.who() } else { String::new() };
                let (rank, at) = (self.rank, &self.at);
                let late = || {
                    Error::Start(format!(
                        "rank {rank} waited in vain for the others to join through the store at \
                         {at}: {who}; see what they say"
                    ))
                };
                Err(self.failed().unwrap_or_else(late))
            }
            Err(e) => Err(self.lost("waiting for all to have joined", e)),
        }
    }
}

/// The remedy where one side of a store's connection is encrypted.
const ENCRYPTION_DIFFERS: &str = "one side encrypts and the other does not; give all ranks the same hint `encryption` and the same ROUNDELAY_SECRET";

impl From<EncryptionFailure> for EntryFailure {
    fn from(failure: EncryptionFailure) -> Self {
        match failure {
            EncryptionFailure::Secure(SecureError::Plain(answer)) => match answer == MODE_REFUSAL {
                true => EntryFailure::Never(ENCRYPTION_DIFFERS.into()),
                false => EntryFailure::Again(
                    "what answers there is no store of this version".into(),
                    None,
                ),
            },
            EncryptionFailure::System(error) => error.into(),
            EncryptionFailure::Secure(SecureError::Unproved) => EntryFailure::Never(
                "its secret is another one; give all ranks the same ROUNDELAY_SECRET".into(),
            ),
            EncryptionFailure::Secure(error) if error.is_of_certificates() => {
                EntryFailure::Never(error.to_string())
            }
            EncryptionFailure::Secure(error) => EntryFailure::Again(error.to_string(), None),
        }
    }
}

/// Tries once to get in.
fn enter(
    at: &StoreAddress,
    me: ClientIdentity<'_>,
    timeout: Duration,
) -> Result<StoreStream, EntryFailure> {
    let mut stream = StoreStream::connect(at, timeout)?;
    stream.set_timeouts(timeout)?;
    if me.encryption.covers(stream.is_within_host()) {
        stream.encrypt(me.secret, me.certificates, timeout)?;
    }
    let nonce = random().map_err(|e| EntryFailure::Never(e.to_string()))?;
    let ClientIdentity { rank, size, .. } = me;
    let is_host_bound = me.encryption == EncryptionMode::Auto && !stream.is_encrypted();
    let hello = StoreHello { rank, size, job: digest(me.job), is_host_bound, nonce }.bytes();
    let binding = if is_host_bound { host_binding() } else { &[] };
    stream.write_all(&hello)?;
    let mut challenge = [0; CHALLENGE];
    stream.read_exact(&mut challenge)?;
    if challenge[..8] != MAGIC {
        let why = "what answers there is no store of this version";
        return Err(EntryFailure::Again(why.into(), None));
    }
    if challenge == MODE_REFUSAL {
        return Err(EntryFailure::Never(ENCRYPTION_DIFFERS.into()));
    }
    let transcript: [&[u8]; 3] = [&hello, &challenge, binding];
    stream.write_all(&proof(me.secret, ProofSide::Connecting, &transcript))?;
    let mut verdict = [0; VERDICT];
    stream.read_exact(&mut verdict)?;
    let size = u32::from_le_bytes([verdict[1], verdict[2], verdict[3], verdict[4]]);
    let decided = StoreVerdict::from_byte(verdict[0]);
    if decided == Some(StoreVerdict::Secret)
        || !accepts(me.secret, &verdict[5..], ProofSide::Accepting, &transcript)
    {
        let relayed = match is_host_bound {
            true => {
                ", or `encryption=required` where a relay or a tunnel makes the store of another host look like one of \
                 this host"
            }
            false => "",
        };
        return Err(EntryFailure::Never(format!(
            "its secret is another one; give all ranks the same ROUNDELAY_SECRET{relayed}"
        )));
    }
    let never = |text: String| Err(EntryFailure::Never(text));
    match decided {
        Some(StoreVerdict::Ok) => Ok(stream),
        Some(StoreVerdict::Mode) => never(ENCRYPTION_DIFFERS.into()),
        // It may still be on its way out, or a lost try of this very process.
        Some(StoreVerdict::Job) => {
            Err(EntryFailure::Again("the store of another job is there".into(), None))
        }
        Some(StoreVerdict::Size) => never(format!(
            "it counts {size} ranks and this one is rank {} of {}; give all the same size",
            me.rank, me.size
        )),
        Some(StoreVerdict::Taken) => never(format!(
            "another process is rank {} already; give each process a rank of its own",
            me.rank
        )),
        _ => never("it answers what makes no sense; use one version everywhere".into()),
    }
}

fn refused(rank: u32, at: &StoreAddress, why: &str) -> Error {
    Error::Start(format!("rank {rank} is not let into the store at {at}: {why}"))
}

#[cfg(test)]
impl StoreClient {
    /// Returns this client with a timeout of 60 s for questions, for tests on a busy machine.
    pub(crate) fn patient(self) -> StoreClient {
        StoreClient { who: Duration::from_secs(60), ..self }
    }

    /// Returns the bare connection.
    pub(crate) fn into_stream(self) -> StoreStream {
        self.stream
    }
}
