//! A rank at the store.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::protocol::{
    CHALLENGE, Hello, MAGIC, MAX_KEY, MAX_VALUE, NoFrame, Op, Side, VERDICT, Verdict, digest,
    frame, nonce, prove, proved, push_frame,
};
use super::server::Server;
use super::stream::{At, Stream};
use crate::bootstrap::board::Board;
use crate::error::Error;

/// How long one try to get in may take before the next one.
const TRY: Duration = Duration::from_secs(10);
/// How long the server may take to say who has come, after a wait in vain.
const WHO: Duration = Duration::from_millis(500);

/// Who a client is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Me<'a> {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// The name of the job.
    pub(crate) job: &'a str,
    pub(crate) secret: &'a [u8],
}

impl<'a> Me<'a> {
    /// The same rank, of a job whose name nobody else can know.
    pub(crate) fn of(self, job: &'a str) -> Me<'a> {
        let secret = if self.secret.is_empty() { job.as_bytes() } else { self.secret };
        Me { job, secret, ..self }
    }
}

/// A connection to a store; with the server itself on the rank that serves it.
pub(crate) struct Client {
    rank: u32,
    at: At,
    stream: Stream,
    address: IpAddr,
    timeout: Duration,
    input: Vec<u8>,
    number: u32,
    server: Option<Server>,
}

/// Why a try to get in failed.
enum Failed {
    /// It may go better next time.
    Again(String),
    /// It will not.
    Never(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Failed::Again(match error.kind() {
            ErrorKind::UnexpectedEof => "something there hung up".into(),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => "nothing there answered".into(),
            _ => error.to_string(),
        })
    }
}

impl Client {
    /// Connects to the store, trying again until the deadline.
    pub(crate) fn connect(at: At, me: Me<'_>, timeout: Duration) -> Result<Client, Error> {
        let deadline = Instant::now() + timeout;
        let mut pause = Duration::from_millis(5);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let why = match enter(&at, me, left.min(TRY)) {
                Ok(stream) => {
                    let address = stream
                        .local()
                        .map_or(Ipv4Addr::LOCALHOST.into(), |own| reachable(own, &at));
                    return Ok(Client {
                        rank: me.rank,
                        at,
                        stream,
                        address,
                        timeout,
                        input: Vec::new(),
                        number: 0,
                        server: None,
                    });
                }
                Err(Failed::Never(why)) => return Err(refused(me.rank, &at, &why)),
                Err(Failed::Again(why)) => why,
            };
            if Instant::now() + pause >= deadline {
                return Err(Error::Start(format!(
                    "rank {} waited {timeout:?} to get into the store of rank 0 at {at}: {why}; see \
                     whether rank 0 was started, and whether that address leads to its host",
                    me.rank
                )));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Keeps the server for as long as this client lives.
    pub(crate) fn with(mut self, server: Server) -> Client {
        self.server = Some(server);
        self
    }

    fn lost(&self, doing: &str, error: &io::Error) -> Error {
        let why = match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                "rank 0 has ended it; see what rank 0 says".into()
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("rank 0 does not answer within {:?}; see what it is doing", self.timeout)
            }
            _ => format!("{error}; see what rank 0 says"),
        };
        let (rank, at) = (self.rank, &self.at);
        Error::Start(format!("rank {rank} lost the store at {at} while {doing}: {why}"))
    }

    fn send(&mut self, op: Op, parts: &[&[u8]]) -> io::Result<u32> {
        self.number = self.number.wrapping_add(1);
        let mut bytes = Vec::new();
        push_frame(&mut bytes, op as u8, self.number, parts);
        self.stream.set_timeouts(self.timeout)?;
        self.stream.write_all(&bytes)?;
        Ok(self.number)
    }

    /// The answer to that request, or nothing if it does not come until then.
    fn answer(&mut self, number: u32, deadline: Instant) -> io::Result<Option<(Verdict, Vec<u8>)>> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let damaged = || io::Error::new(ErrorKind::InvalidData, "an answer makes no sense");
            while let Some(frame) = frame(&self.input).map_err(|NoFrame| damaged())? {
                let verdict = Verdict::from_byte(frame.head).ok_or_else(damaged)?;
                // Others are of requests that were given up.
                let wanted = (frame.number == number).then(|| frame.body.to_vec());
                let whole = frame.whole;
                self.input.drain(..whole);
                if let Some(body) = wanted {
                    return Ok(Some((verdict, body)));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_timeouts(left)?;
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn ask(
        &mut self,
        op: Op,
        parts: &[&[u8]],
        deadline: Instant,
    ) -> io::Result<Option<(Verdict, Vec<u8>)>> {
        let number = self.send(op, parts)?;
        self.answer(number, deadline)
    }

    /// Who has come, in words, as far as the server can still be asked.
    fn who(&mut self) -> String {
        let answer = self.ask(Op::Who, &[], Instant::now() + WHO);
        match answer {
            Ok(Some((_, words))) => String::from_utf8_lossy(&words).into_owned(),
            _ => "rank 0 does not answer".into(),
        }
    }
}

impl Board for Client {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), Error> {
        let rank = self.rank;
        if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
            return Err(Error::Start(format!(
                "rank {rank} cannot leave {} bytes as `{key:.64}` at the store: keys have 1 to \
                 {MAX_KEY} bytes, values at most {MAX_VALUE}",
                value.len()
            )));
        }
        let doing = format!("setting `{key}`");
        let length = (key.len() as u16).to_le_bytes();
        let deadline = Instant::now() + self.timeout;
        match self.ask(Op::Set, &[&length, key.as_bytes(), value], deadline) {
            Ok(Some((Verdict::Ok, _))) => Ok(()),
            Ok(Some(_)) => Err(Error::Start(format!(
                "rank {rank} cannot set `{key}`: the store at {} is full; leave less there",
                self.at
            ))),
            Ok(None) => Err(self.lost(&doing, &ErrorKind::TimedOut.into())),
            Err(e) => Err(self.lost(&doing, &e)),
        }
    }

    fn get(&mut self, key: &str, deadline: Instant) -> Result<Vec<u8>, Error> {
        let began = Instant::now();
        match self.ask(Op::Get, &[key.as_bytes()], deadline) {
            Ok(Some((_, value))) => Ok(value),
            Ok(None) => {
                let (waited, who) = (began.elapsed(), self.who());
                Err(Error::Start(format!(
                    "rank {} waited {waited:?} for `{key}` at the store at {}: {who}; see what the \
                     others say, or give them more time",
                    self.rank, self.at
                )))
            }
            Err(e) => Err(self.lost(&format!("waiting for `{key}`"), &e)),
        }
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn finish(&mut self, deadline: Instant) -> Result<(), Error> {
        let op = if self.server.is_some() { Op::FinishAll } else { Op::Finish };
        match self.ask(op, &[], deadline) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                let who = self.who();
                Err(Error::Start(format!(
                    "rank {} waited in vain for the others to be done with the store at {}: {who}; \
                     see what they say",
                    self.rank, self.at
                )))
            }
            Err(e) => Err(self.lost("taking leave", &e)),
        }
    }
}

/// One try to get in.
fn enter(at: &At, me: Me<'_>, patience: Duration) -> Result<Stream, Failed> {
    let mut stream = Stream::connect(at, patience)?;
    stream.set_timeouts(patience)?;
    let hello =
        Hello { rank: me.rank, size: me.size, job: digest(me.job), nonce: nonce()? }.bytes();
    stream.write_all(&hello)?;
    let mut challenge = [0; CHALLENGE];
    stream.read_exact(&mut challenge)?;
    if challenge[..8] != MAGIC {
        return Err(Failed::Again("what answers there is no store of this version".into()));
    }
    stream.write_all(&prove(me.secret, Side::Client, &hello, &challenge))?;
    let mut verdict = [0; VERDICT];
    stream.read_exact(&mut verdict)?;
    let size = u32::from_le_bytes([verdict[1], verdict[2], verdict[3], verdict[4]]);
    let decided = Verdict::from_byte(verdict[0]);
    if decided == Some(Verdict::Secret)
        || !proved(me.secret, Side::Server, &hello, &challenge, &verdict[5..])
    {
        return Err(Failed::Never(
            "its secret is another one; give all ranks the same ROUNDELAY_SECRET".into(),
        ));
    }
    let never = |text: String| Err(Failed::Never(text));
    match decided {
        Some(Verdict::Ok) => Ok(stream),
        // It may still be on its way out, or a lost try of this very process.
        Some(Verdict::Job) => Err(Failed::Again("the store of another job is there".into())),
        Some(Verdict::Size) => never(format!(
            "it counts {size} ranks and this one is rank {} of {}; give all the same size",
            me.rank, me.size
        )),
        Some(Verdict::Taken) => never(format!(
            "another process is rank {} already; give each process a rank of its own",
            me.rank
        )),
        _ => never("it answers what makes no sense; use one version everywhere".into()),
    }
}

fn refused(rank: u32, at: &At, why: &str) -> Error {
    Error::Start(format!("rank {rank} is not let into the store at {at}: {why}"))
}

/// The address of this host for others: the one that it reaches the store from. If that is a
/// loopback address although the store's is not (a host that calls its own name so), it is the one
/// that it would reach the rest of the world from.
pub(crate) fn reachable(own: IpAddr, at: &At) -> IpAddr {
    if own.is_loopback() && !at.is_loopback() { outward().unwrap_or(own) } else { own }
}

/// The address that this host would reach the rest of the world from, if there is a way.
pub(crate) fn outward() -> Option<IpAddr> {
    // Connecting such a socket sends nothing; it only looks the way up. The addresses are those
    // that are reserved for documentation.
    let ways: [(&str, &str); 2] = [("0.0.0.0:0", "198.51.100.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    ways.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to.parse::<SocketAddr>().ok()?).ok()?;
        let own = socket.local_addr().ok()?.ip();
        (!own.is_loopback() && !own.is_unspecified()).then_some(own)
    })
}

#[cfg(test)]
impl Client {
    /// The bare connection.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }
}
