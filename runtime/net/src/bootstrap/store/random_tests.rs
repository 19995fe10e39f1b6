//! Bytes at random, of strangers, of ranks and of guests: a store serves on, or ends in time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::job::ServedJob;
use super::protocol::{GUEST, ROSTER, digest};
use super::stream::StoreStream;
use super::{
    ClientIdentity, GuestTrust, StoreAddress, StoreClient, StoreGuest, StoreListener, StoreServer,
};
use crate::store::Store;
use crate::wire::WireMessage;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::JobSecret;
use roundelay_tests::SeededRandom;
use roundelay_tests::fuzz::mutated;
use roundelay_tls::{PeerSocket, SecureProgress};

/// No trial comes near it unless something hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the first bytes of a connection that is to be encrypted.
pub(crate) fn first_flight() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
    near.set_nonblocking(true).expect("non-blocking");
    let (mut far, _) = listener.accept().expect("accepted");
    let mut near = PeerSocket::from(near);
    near.connect_encryption(None).expect("begun");
    let begun = near.secure(&JobSecret::from(b"s3cret".to_vec()));
    assert!(matches!(begun, Ok(SecureProgress::Waiting)), "{begun:?}");
    let mut flight = vec![0; 4096];
    let length = far.read(&mut flight).expect("a flight");
    flight.truncate(length);
    flight
}

/// Serves a store for two ranks, or a reporter.
fn serve(size: u32, secret: &[u8], encryption: EncryptionMode) -> (StoreServer, StoreAddress) {
    let report: Option<fn() -> Vec<u8>> = (size == 0).then_some(|| vec![1; 100]);
    let timeout = Duration::from_millis(50);
    let (digest, secret) = (digest("job"), secret.to_vec());
    let job = ServedJob { size, digest, secret, encryption, certificates: None, timeout, report };
    let listener = StoreListener::loopback().expect("loopback");
    let server = StoreServer::start(listener, job).expect("a server");
    let at = StoreAddress::Any(server.address().into_iter().collect());
    (server, at)
}

/// Sends all of that, and receives until the other end hangs up or sends no more.
fn say(mut stream: StoreStream, bytes: &[u8]) {
    stream.set_timeouts(Duration::from_millis(20)).expect("a timeout");
    let _ = stream.write_all(bytes);
    if let Some(socket) = stream.socket() {
        socket.shut();
    }
    let mut buffer = [0; 4096];
    while matches!(stream.read(&mut buffer), Ok(1..)) {}
}

/// Returns some messages of these kinds, one after the other, changed or not.
fn messages(wires: &[WireMessage], dice: &mut SeededRandom) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..1 + dice.below(6) {
        let samples = &wires[dice.below(wires.len())].samples;
        all.extend(mutated(&samples[dice.below(samples.len())], dice));
    }
    all
}

/// `ROUNDS=100` tries a hundred times as many, `SEED=7` others.
#[test]
fn bytes_at_random_disturb_no_store() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let mut wires = crate::bootstrap::wires();
    wires.retain(|wire| ["store: hello", "store: frame"].contains(&wire.name));
    let flight = first_flight();
    for trial in 0..60 * number("ROUNDS", 1) {
        let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
        let (secret, encryption): (&[u8], EncryptionMode) = match dice.below(4) {
            0 => (b"", EncryptionMode::Off),
            1 => (b"a secret", EncryptionMode::Off),
            2 => (b"a secret", EncryptionMode::Auto),
            _ => (b"a secret", EncryptionMode::Required),
        };
        let size = if dice.below(3) == 0 { 0 } else { 2 };
        let (server, at) = serve(size, secret, encryption);
        let bytes = match dice.below(3) {
            0 => mutated(&flight, &mut dice),
            _ => messages(&wires, &mut dice),
        };
        let me = |rank| ClientIdentity {
            rank,
            size,
            job: "job",
            secret,
            encryption,
            certificates: None,
        };
        let is_rank = size > 0 && dice.below(2) == 0;
        let stream = match (is_rank, dice.below(3)) {
            (true, _) => {
                StoreClient::connect(at.clone(), me(1), LIMIT).expect("let in").into_stream()
            }
            (false, 0) => StoreStream::connect(&at, LIMIT).expect("a connection"),
            (false, _) => {
                let guest = StoreClient::connect(at.clone(), me(GUEST), LIMIT);
                guest.expect("let in").into_stream()
            }
        };
        say(stream, &bytes);
        // Only a rank may end the joining of all.
        if !is_rank {
            let until = Instant::now() + LIMIT;
            let trust = GuestTrust { secret, encryption, certificates: None };
            let mut guest = StoreGuest::enter(at.clone(), "job", trust, LIMIT).expect("let in");
            if size == 0 {
                let report = guest.report(until).expect("an answer");
                assert_eq!(report, Some(vec![1; 100]), "trial {trial}");
            } else {
                let mut rank = StoreClient::connect(at, me(0), LIMIT).expect("let in");
                rank.set(ROSTER, b"value").expect("room");
                let value = guest.note(ROSTER, until).expect("an answer");
                assert_eq!(value.as_deref(), Some(&b"value"[..]), "trial {trial}");
            }
        }
        let began = Instant::now();
        drop(server);
        assert!(began.elapsed() < LIMIT, "trial {trial}");
    }
}
