//! Tests encrypted connections to a store.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::client::{ClientIdentity, StoreClient};
use super::guest::{GuestRefusal, StoreGuest};
use super::job::{GuestTrust, ServedJob};
use super::protocol::{CHALLENGE, ROSTER, StoreHello, StoreVerdict, VERDICT, digest};
use super::server::StoreServer;
use super::stream::{StoreAddress, StoreListener, StoreStream};
use crate::store::Store;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::Error;
use roundelay_support::secret::{ProofSide, accepts, proof};
use roundelay_tls::host_binding;

const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which a client tries again that may succeed later.
const BRIEF: Duration = Duration::from_secs(2);

fn serve(encryption: EncryptionMode) -> (StoreServer, StoreAddress) {
    let (digest, secret) = (digest("job"), b"swordfish".to_vec());
    let job = ServedJob {
        size: 2,
        digest,
        secret,
        encryption,
        certificates: None,
        timeout: PATIENCE,
        report: None,
    };
    let listener = StoreListener::bind_to((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let server = StoreServer::start(listener, job).expect("a server");
    let at = StoreAddress::Any(server.address().into_iter().collect());
    (server, at)
}

fn guest<'a>((secret, encryption): (&'a [u8], EncryptionMode)) -> GuestTrust<'a> {
    GuestTrust { secret, encryption, certificates: None }
}

fn enter(
    at: &StoreAddress,
    rank: u32,
    (secret, encryption): (&[u8], EncryptionMode),
    timeout: Duration,
) -> Result<StoreClient, Error> {
    let me = ClientIdentity { rank, size: 2, job: "job", secret, encryption, certificates: None };
    StoreClient::connect(at.clone(), me, timeout)
}

#[test]
fn notes_of_any_length_go_through() {
    let (_server, at) = serve(EncryptionMode::Required);
    let key = (&b"swordfish"[..], EncryptionMode::Required);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let at = &at;
            scope.spawn(move || {
                let mut store = enter(at, rank, key, PATIENCE).expect("let in");
                let until = Instant::now() + PATIENCE;
                for bytes in [0usize, 1, 1000, 16_383, 70_000, 1 << 20] {
                    let note = |rank: u32| vec![rank as u8 + 3; bytes];
                    store.set(&format!("{rank} {bytes}"), &note(rank)).expect("room");
                    let other = store.get(&format!("{} {bytes}", 1 - rank), until).expect("a note");
                    assert!(other == note(1 - rank), "rank {rank}, {bytes} bytes");
                }
                store.set(ROSTER, b"for guests").expect("room");
                store.finish(until).expect("all have joined");
            });
        }
    });
    let mut guest = StoreGuest::enter(at, "job", guest(key), PATIENCE).expect("let in");
    let note = guest.note(ROSTER, Instant::now() + PATIENCE).expect("an answer");
    assert_eq!(note.as_deref(), Some(&b"for guests"[..]));
}

/// Which of a store and a client of one host go on, by their hints. A refusal comes at once, and names the hint.
#[test]
fn neither_side_goes_on_against_its_hint() {
    use EncryptionMode::{Auto, Off, Required};
    for (served, own, is_let_in) in [
        (Off, Off, true),
        (Off, Auto, false),
        (Off, Required, false),
        (Auto, Off, false),
        (Auto, Auto, true),
        (Auto, Required, true),
        (Required, Off, false),
        (Required, Auto, false),
        (Required, Required, true),
    ] {
        let (_server, at) = serve(served);
        let started = Instant::now();
        let entered = enter(&at, 1, (b"swordfish", own), PATIENCE);
        assert!(started.elapsed() < PATIENCE / 2, "it was tried again and again");
        let visited = StoreGuest::enter(at, "job", guest((b"swordfish", own)), BRIEF);
        if is_let_in {
            assert!(entered.is_ok() && visited.is_ok(), "{own} at {served}");
            continue;
        }
        let error = entered.err().expect("refused").to_string();
        assert!(error.contains("one side encrypts and the other does not"), "{error}");
        assert!(error.contains("hint `encryption`"), "{error}");
        let refusal = visited.err();
        assert!(matches!(refusal, Some(GuestRefusal::Refused(_))), "{served}: {refusal:?}");
    }
}

/// A relay on this host passes proofs of another host on, whose secret is right.
#[test]
fn a_proof_of_another_host_is_refused_though_the_secret_is_right() {
    let (_server, at) = serve(EncryptionMode::Auto);
    let secret = b"swordfish";
    for (binding, verdict) in [
        (&[7; 32][..], StoreVerdict::Secret),
        (&[], StoreVerdict::Secret),
        (host_binding(), StoreVerdict::Ok),
    ] {
        let mut stream = StoreStream::connect(&at, PATIENCE).expect("a connection");
        stream.set_timeouts(PATIENCE).expect("a timeout");
        let (job, nonce) = (digest("job"), [1; 32]);
        let hello = StoreHello { rank: 1, size: 2, job, is_host_bound: true, nonce }.bytes();
        stream.write_all(&hello).expect("sent");
        let mut challenge = [0; CHALLENGE];
        stream.read_exact(&mut challenge).expect("a challenge");
        let theirs = proof(secret, ProofSide::Connecting, &[&hello, &challenge, binding]);
        stream.write_all(&theirs).expect("sent");
        let mut answer = [0; VERDICT];
        stream.read_exact(&mut answer).expect("a verdict");
        assert_eq!(StoreVerdict::from_byte(answer[0]), Some(verdict));
        let transcript: [&[u8]; 3] = [&hello, &challenge, host_binding()];
        let is_proved = accepts(secret, &answer[5..], ProofSide::Accepting, &transcript);
        assert_eq!(
            is_proved,
            verdict == StoreVerdict::Ok,
            "the server proves it for its host alone"
        );
    }
}

#[test]
fn another_secret_is_refused() {
    let (_server, at) = serve(EncryptionMode::Required);
    let error = enter(&at, 1, (b"swordfist", EncryptionMode::Required), BRIEF).err();
    let error = error.expect("refused").to_string();
    assert!(error.contains("rank 1"), "{error}");
}
