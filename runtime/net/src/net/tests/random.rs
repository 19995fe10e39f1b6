//! Random bytes for a listener: they let no stranger in, and keep no rank out.

use std::io::Write;
use std::net::TcpStream;

use super::super::hello::{CONTROL, ConnectionName, HELLO, PeerHello};
use super::*;
use crate::bootstrap::store::random_tests::first_flight;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::JobSecret;
use roundelay_tests::SeededRandom;
use roundelay_tests::fuzz::mutated;

const JOB: u128 = 0x1234_5678_9abc_def0;

/// `ROUNDS=100` tries a hundred times as many, `SEED=7` others.
#[test]
fn bytes_at_random_get_nobody_in() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    };
    let here = Ipv4Addr::LOCALHOST.into();
    let secret = Some(JobSecret::from(b"a secret".to_vec()));
    let listener = |secret, encryption| {
        let options = PathOptions { secret, encryption, ..options() };
        RankListener::open(options, here).expect("open")
    };
    let listeners = [
        listener(secret.clone(), EncryptionMode::Off),
        listener(None, EncryptionMode::Off),
        listener(secret.clone(), EncryptionMode::Required),
        listener(secret, EncryptionMode::Auto),
    ];
    let flight = first_flight();
    let name = ConnectionName { job: JOB, comm: 7, to: 0, from: 1, lane: CONTROL };
    for trial in 0..300 * number("ROUNDS", 1) {
        let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
        let at = dice.below(listeners.len());
        let (listener, has_secret) = (&listeners[at], at != 1);
        // The job is there for the honest alone, so that a hello that survives is a stranger's.
        let name = ConnectionName { job: JOB ^ 1, ..name };
        let hello = PeerHello { name, has_secret, is_host_bound: at == 3, nonce: [4; 32] };
        let mut bytes = match dice.below(2) {
            0 => mutated(&flight, &mut dice),
            _ => mutated(&hello.encode(), &mut dice),
        };
        bytes.extend(mutated(&[7; HELLO], &mut dice));
        let mut stream = TcpStream::connect(listener.address()).expect("a connection");
        stream.write_all(&bytes[..dice.below(bytes.len() + 1)]).expect("sent");
        drop(stream);
        listener.progress();
    }
    let modes = [EncryptionMode::Off, EncryptionMode::Off, EncryptionMode::Required];
    let secrets = [Some("a secret"), None, Some("a secret")];
    for ((listener, secret), encryption) in listeners.iter().zip(secrets).zip(modes) {
        let start = Instant::now();
        while listener.has_pending() || listener.refused() == 0 {
            assert!(start.elapsed() < PATIENCE, "strangers are still pending");
            listener.progress();
            std::thread::yield_now();
        }
        assert_eq!(listener.accepted(), 0);
        listener.expect(JOB);
        let options = PathOptions { encryption, ..secret.map_or_else(options, with_secret) };
        let dialed = std::thread::scope(|scope| {
            let dial = scope.spawn(|| super::refuse::dial(name, listener.address(), &options));
            while !dial.is_finished() {
                listener.progress();
                std::thread::yield_now();
            }
            dial.join().expect("no panic")
        });
        assert!(dialed.is_ok(), "{dialed:?}");
        assert!(listener.take(&name).is_some());
    }
}
