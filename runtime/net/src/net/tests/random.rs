//! Random bytes for a listener: they let no stranger in, and keep no rank out.

use std::io::Write;
use std::net::TcpStream;

use super::super::hello::{CONTROL, ConnectionName, HELLO, PeerHello};
use super::*;
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
    let listener =
        |secret| RankListener::open(PathOptions { secret, ..options() }, here).expect("open");
    let listeners = [listener(secret), listener(None)];
    let name = ConnectionName { job: JOB, comm: 7, to: 0, from: 1, lane: CONTROL };
    for trial in 0..300 * number("ROUNDS", 1) {
        let mut dice = SeededRandom(number("SEED", 1) << 32 ^ trial);
        let has_secret = dice.below(2) == 0;
        let listener = &listeners[usize::from(!has_secret)];
        // The job is there for the honest alone, so that a hello that survives is a stranger's.
        let hello =
            PeerHello { name: ConnectionName { job: JOB ^ 1, ..name }, has_secret, nonce: [4; 32] };
        let mut bytes = mutated(&hello.encode(), &mut dice);
        bytes.extend(mutated(&[7; HELLO], &mut dice));
        let mut stream = TcpStream::connect(listener.address()).expect("a connection");
        stream.write_all(&bytes[..dice.below(bytes.len() + 1)]).expect("sent");
        drop(stream);
        listener.progress();
    }
    for (listener, secret) in listeners.iter().zip([Some("a secret"), None]) {
        let start = Instant::now();
        while listener.has_pending() || listener.refused() == 0 {
            assert!(start.elapsed() < PATIENCE, "strangers are still pending");
            listener.progress();
            std::thread::yield_now();
        }
        assert_eq!(listener.accepted(), 0);
        listener.expect(JOB);
        let options = secret.map_or_else(options, with_secret);
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
