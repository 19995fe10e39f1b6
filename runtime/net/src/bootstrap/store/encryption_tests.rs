//! Tests encrypted connections to a store.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::client::{ClientIdentity, StoreClient};
use super::guest::{GuestRefusal, StoreGuest};
use super::job::ServedJob;
use super::protocol::{ROSTER, digest};
use super::server::StoreServer;
use super::stream::{StoreAddress, StoreListener};
use crate::store::Store;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::Error;

const PATIENCE: Duration = Duration::from_secs(60);
/// The time for which a client tries again that may succeed later.
const BRIEF: Duration = Duration::from_secs(2);

fn serve(encryption: EncryptionMode) -> (StoreServer, StoreAddress) {
    let (digest, secret) = (digest("job"), b"swordfish".to_vec());
    let job = ServedJob { size: 2, digest, secret, encryption, timeout: PATIENCE, report: None };
    let listener = StoreListener::bind_to((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let server = StoreServer::start(listener, job).expect("a server");
    let at = StoreAddress::Any(server.address().into_iter().collect());
    (server, at)
}

fn enter(
    at: &StoreAddress,
    rank: u32,
    (secret, encryption): (&[u8], EncryptionMode),
    timeout: Duration,
) -> Result<StoreClient, Error> {
    let me = ClientIdentity { rank, size: 2, job: "job", secret, encryption };
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
    let mut guest = StoreGuest::enter(at, "job", key, PATIENCE).expect("let in");
    let note = guest.note(ROSTER, Instant::now() + PATIENCE).expect("an answer");
    assert_eq!(note.as_deref(), Some(&b"for guests"[..]));
}

#[test]
fn neither_side_goes_on_in_the_clear() {
    for (served, own) in [
        (EncryptionMode::Required, EncryptionMode::Off),
        (EncryptionMode::Off, EncryptionMode::Required),
    ] {
        let (_server, at) = serve(served);
        let started = Instant::now();
        let error = enter(&at, 1, (b"swordfish", own), PATIENCE).err().expect("refused");
        assert!(error.to_string().contains("one side encrypts and the other does not"), "{error}");
        assert!(started.elapsed() < PATIENCE / 2, "it was tried again and again");
        let refusal = StoreGuest::enter(at, "job", (b"swordfish", own), BRIEF).err();
        assert!(matches!(refusal, Some(GuestRefusal::Refused(_))), "{served}: {refusal:?}");
    }
}

#[test]
fn another_secret_is_refused() {
    let (_server, at) = serve(EncryptionMode::Required);
    let error = enter(&at, 1, (b"swordfist", EncryptionMode::Required), BRIEF).err();
    let error = error.expect("refused").to_string();
    assert!(error.contains("rank 1"), "{error}");
}
