//! The bounds that strangers meet at a store and at a reporter: each is reached, and one beyond is turned away.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::job::ServedJob;
use super::protocol::{
    GUEST, HELLO, StoreHello, StoreRequest, StoreVerdict, VERDICT, digest, push_frame,
};
use super::{ClientIdentity, StoreAddress, StoreClient, StoreListener, StoreServer};
use crate::limits::{PortLimits, REPORTER, STORE};
use crate::store::Store;
use crate::tunables::{STORE_VALUE_BYTES, WRONG_PROOF_DELAY, WRONG_PROOFS_MAX};
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::{ProofSide, proof};

const FOREVER: Duration = Duration::from_secs(60);
/// The time for which a server reports a failure to ranks that are late.
const SHORT: Duration = Duration::from_millis(150);
/// The time that a busy machine may need beyond a bound.
const SLACK: Duration = Duration::from_secs(5);

/// A port that is served, with a secret and without.
struct Port {
    limits: PortLimits,
    secret: &'static [u8],
    at: StoreAddress,
    _server: StoreServer,
}

impl Port {
    fn serve(limits: PortLimits, secret: &'static [u8]) -> Port {
        let report: Option<fn() -> Vec<u8>> = (limits == REPORTER).then_some(|| vec![1; 100]);
        let size = if limits == REPORTER { 0 } else { 2 };
        let (digest, secret_bytes) = (digest("job"), secret.to_vec());
        let encryption = EncryptionMode::Off;
        let job = ServedJob {
            size,
            digest,
            secret: secret_bytes,
            encryption,
            certificates: None,
            timeout: SHORT,
            report,
        };
        let listener = StoreListener::loopback().expect("loopback");
        let server = StoreServer::start(listener, job).expect("a server");
        let at = StoreAddress::Any(server.address().into_iter().collect());
        Port { limits, secret, at, _server: server }
    }

    fn all() -> Vec<Port> {
        let all =
            [(STORE, &b""[..]), (STORE, b"a secret"), (REPORTER, b""), (REPORTER, b"a secret")];
        all.map(|(limits, secret)| Port::serve(limits, secret)).into()
    }

    fn stranger(&self) -> TcpStream {
        let at = self.at.addresses().expect("addresses")[0];
        let stream = TcpStream::connect(at).expect("a connection");
        stream.set_read_timeout(Some(FOREVER)).expect("a timeout");
        stream
    }

    /// Proves a secret, and returns the verdict.
    fn prove(&self, secret: &[u8]) -> (TcpStream, Option<StoreVerdict>) {
        let mut stream = self.stranger();
        let job = digest("job");
        let hello =
            StoreHello { rank: GUEST, size: 0, job, is_host_bound: false, nonce: [7; 32] }.bytes();
        stream.write_all(&hello).expect("room");
        let mut challenge = [0; super::protocol::CHALLENGE];
        stream.read_exact(&mut challenge).expect("a challenge");
        let own = proof(secret, ProofSide::Connecting, &[&hello, &challenge]);
        stream.write_all(&own).expect("room");
        let mut verdict = [0; VERDICT];
        stream.read_exact(&mut verdict).expect("a verdict");
        (stream, StoreVerdict::from_byte(verdict[0]))
    }

    fn guest(&self) -> TcpStream {
        let (stream, verdict) = self.prove(self.secret);
        assert_eq!(verdict, Some(StoreVerdict::Ok));
        stream
    }

    /// Fails unless those who belong there are served.
    fn serves(&self) {
        if self.limits == REPORTER {
            let mut guest = self.guest();
            guest.write_all(&framed(StoreRequest::Report, 9, b"")).expect("room");
            let mut answer = [0; 109];
            guest.read_exact(&mut answer).expect("a report");
            return;
        }
        let encryption = EncryptionMode::Off;
        let me = |rank| ClientIdentity {
            rank,
            size: 2,
            job: "job",
            secret: self.secret,
            encryption,
            certificates: None,
        };
        let rank = |rank| StoreClient::connect(self.at.clone(), me(rank), FOREVER).expect("let in");
        let (mut zero, mut one) = (rank(0), rank(1));
        zero.set("key", b"value").expect("room");
        let value = one.get("key", Instant::now() + FOREVER).expect("a value");
        assert_eq!(value, b"value");
    }
}

fn framed(op: StoreRequest, number: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_frame(&mut bytes, op as u8, number, &[body]);
    bytes
}

/// Returns true if the other end holds the connection, and has sent all that it will.
fn is_held(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let read = stream.read(&mut [0; 256]);
    stream.set_nonblocking(false).expect("a socket");
    matches!(read, Err(e) if e.kind() == ErrorKind::WouldBlock)
}

/// Waits until the other end hangs up, and returns when.
fn ended(stream: &mut TcpStream) -> Instant {
    let mut buffer = [0; 256];
    while matches!(stream.read(&mut buffer), Ok(n) if n > 0) {}
    Instant::now()
}

#[test]
fn one_stranger_too_many_turns_the_oldest_away() {
    let kinds: [fn(&Port) -> TcpStream; 2] = [Port::stranger, Port::guest];
    for (connect, port) in
        kinds.into_iter().flat_map(|kind| Port::all().into_iter().map(move |p| (kind, p)))
    {
        let began = Instant::now();
        let mut all: Vec<TcpStream> = (1..port.limits.places()).map(|_| connect(&port)).collect();
        // One that fills the last place, whose verdict shows that all before it were accepted.
        all.push(port.guest());
        assert!(all.iter_mut().all(is_held), "{}: all are held", port.limits.port);
        let one_more = port.guest();
        assert!(ended(&mut all[0]) - began < port.limits.patience / 2);
        assert!(all[1..].iter_mut().all(is_held), "{}: the oldest alone", port.limits.port);
        drop((all, one_more));
        port.serves();
    }
}

#[test]
fn strangers_are_turned_away_in_time_whatever_they_send() {
    let ports = Port::all();
    std::thread::scope(|scope| {
        for port in &ports {
            let within = |connected: Instant, ended: Instant, what: &str| {
                let took = ended - connected;
                let PortLimits { patience, port, .. } = port.limits;
                assert!(took < patience + SLACK, "{port}: {what} was held for {took:?}");
                assert!(took > patience / 2, "{port}: {what} was held for {took:?}");
            };
            scope.spawn(move || {
                let mut silent = port.stranger();
                within(Instant::now(), ended(&mut silent), "a silent stranger");
            });
            scope.spawn(move || {
                let mut silent = port.guest();
                within(Instant::now(), ended(&mut silent), "a silent guest");
            });
            // A byte now and then does not buy time, nor does a request of a guest.
            let hello =
                StoreHello { rank: 1, size: 2, job: [0; 32], is_host_bound: false, nonce: [0; 32] };
            let hello = hello.bytes();
            let slow: Vec<Vec<u8>> = hello[..HELLO - 1].iter().map(|&byte| vec![byte]).collect();
            let talks = vec![framed(StoreRequest::Here, 1, b""); 100];
            for (mut stream, parts, what) in [
                (port.stranger(), slow, "a slow stranger"),
                (port.guest(), talks, "a guest that talks"),
            ] {
                scope.spawn(move || {
                    let connected = Instant::now();
                    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
                    for part in parts {
                        let _ = stream.write_all(&part);
                        match stream.read(&mut [0; 256]) {
                            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                            _ => break,
                        }
                    }
                    within(connected, Instant::now(), what);
                });
            }
        }
    });
    ports.iter().for_each(Port::serves);
}

#[test]
fn a_guest_has_the_room_of_a_question_and_the_note_that_is_meant_for_it() {
    for port in Port::all() {
        let whole = framed(StoreRequest::Set, 1, &vec![0; STORE_VALUE_BYTES]);
        for bytes in [&whole[..port.limits.bytes], &framed(StoreRequest::Get, 1, b"net/0/job")] {
            let (mut guest, began) = (port.guest(), Instant::now());
            guest.write_all(bytes).expect("room");
            assert!(ended(&mut guest) - began < port.limits.patience / 2, "it was read on");
        }
        // One byte less waits for more.
        let mut guest = port.guest();
        guest.write_all(&whole[..port.limits.bytes - 1]).expect("room");
        drop(port.guest());
        assert!(is_held(&mut guest));
        port.serves();
    }
}

#[test]
fn questions_of_a_few_bytes_cost_what_they_have() {
    let port = Port::serve(STORE, b"");
    let encryption = EncryptionMode::Off;
    let me = ClientIdentity {
        rank: 1,
        size: 2,
        job: "job",
        secret: b"",
        encryption,
        certificates: None,
    };
    let mut one = StoreClient::connect(port.at.clone(), me, FOREVER).expect("let in").into_stream();
    let (small, began) = (framed(StoreRequest::Here, 1, b"").repeat(100_000), Instant::now());
    for _ in 0..8 {
        one.write_all(&small).expect("room");
    }
    one.write_all(&framed(StoreRequest::Set, 5, b"\x03\0keyvalue")).expect("room");
    one.set_timeouts(FOREVER).expect("a timeout");
    one.read_exact(&mut [0; 9]).expect("the answer to the last");
    // Quadratic, it took a minute.
    assert!(began.elapsed() < FOREVER / 3, "{:?}", began.elapsed());
}

#[test]
fn wrong_secrets_are_slowed_and_told_and_the_right_one_gets_in() {
    for limits in [STORE, REPORTER] {
        let port = Port::serve(limits, b"a secret");
        let began = Instant::now();
        for _ in 0..WRONG_PROOFS_MAX {
            assert_eq!(port.prove(b"another").1, Some(StoreVerdict::Secret));
        }
        let slowed = Instant::now();
        assert_eq!(port.prove(b"another").1, Some(StoreVerdict::Secret));
        assert!(
            slowed.elapsed() >= WRONG_PROOF_DELAY,
            "{:?} of {:?}",
            slowed.elapsed(),
            began.elapsed()
        );
        port.serves();
        if limits == STORE {
            let mut guest = port.guest();
            guest.write_all(&framed(StoreRequest::Who, 3, b"")).expect("room");
            let mut answer = [0; 1024];
            let n = guest.read(&mut answer).expect("an answer");
            let words = String::from_utf8_lossy(&answer[..n]);
            let wanted = format!("has refused {} connections", WRONG_PROOFS_MAX + 1);
            assert!(words.contains(&wanted) && words.contains("127.0.0.1"), "{words}");
        }
    }
}
