//! Tests encrypted connections between ranks: they carry the same, and none is made with who does not encrypt.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::super::dial::DialError;
use super::super::hello::{CONTROL, ConnectionName, HelloRefusal};
use super::refuse::dial;
use super::*;
use crate::tls::PeerSocket;
use roundelay_support::encryption::EncryptionMode;

fn encrypted(text: &str) -> PathOptions {
    PathOptions { encryption: EncryptionMode::Required, ..with_secret(text) }
}

#[test]
fn ranks_come_together_and_words_go_around() {
    let all = each_rank(
        5,
        &memory(),
        |_| encrypted("swordfish"),
        |mut net| {
            for round in 1..20 {
                check_words(&mut net, round);
            }
            assert_eq!(net.counts().refused, 0);
        },
    );
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

/// Makes a listener for the ranks of a job.
fn listening(options: PathOptions) -> (Arc<RankListener>, SocketAddr) {
    let listener = RankListener::open(options, Ipv4Addr::LOCALHOST.into()).expect("a listener");
    listener.expect(9);
    let at = listener.address();
    (Arc::new(listener), at)
}

fn dialed(
    listener: &Arc<RankListener>,
    at: SocketAddr,
    options: PathOptions,
) -> Result<PeerSocket, DialError> {
    let name = ConnectionName { job: 9, comm: 7, to: 1, from: 0, lane: CONTROL };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let progress = scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                listener.progress();
                std::thread::yield_now();
            }
        });
        let result = dial(name, at, &options);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        progress.join().expect("it ends");
        result
    })
}

#[test]
fn neither_side_goes_on_in_the_clear() {
    let (listener, at) = listening(encrypted("swordfish"));
    let error = dialed(&listener, at, with_secret("swordfish")).expect_err("refused");
    assert_eq!(error, DialError::Refused(HelloRefusal::EncryptionWanted));
    assert!(error.to_string().contains("hint `encryption`"), "{error}");
    assert_eq!((listener.accepted(), listener.refused()), (0, 1));

    let (listener, at) = listening(with_secret("swordfish"));
    let error = dialed(&listener, at, encrypted("swordfish")).expect_err("refused");
    assert_eq!(error, DialError::Refused(HelloRefusal::EncryptionUnwanted));
    assert_eq!((listener.accepted(), listener.refused()), (0, 1));
}

/// Settings that no job has: the port stays shut all the same.
#[test]
fn a_listener_that_must_encrypt_and_has_no_secret_lets_none_in() {
    let shut = PathOptions { encryption: EncryptionMode::Required, ..options() };
    let (listener, at) = listening(shut);
    let error = dialed(&listener, at, options()).expect_err("refused");
    assert_eq!(error, DialError::Refused(HelloRefusal::SecretWanted));
    assert_eq!(listener.accepted(), 0);
}

#[test]
fn another_secret_is_refused_and_counted() {
    let (listener, at) = listening(encrypted("swordfish"));
    let error = dialed(&listener, at, encrypted("swordfist")).expect_err("refused");
    assert_eq!(error, DialError::Unproved);
    assert!(error.to_string().contains("give all ranks the same secret"), "{error}");
    assert_eq!((listener.accepted(), listener.refused()), (0, 1));
}

#[test]
fn an_accepted_connection_is_encrypted_on_both_ends() {
    let (listener, at) = listening(encrypted("swordfish"));
    let socket = dialed(&listener, at, encrypted("swordfish")).expect("accepted");
    let name = ConnectionName { job: 9, comm: 7, to: 1, from: 0, lane: CONTROL };
    let taken = listener.take(&name).expect("kept");
    assert!(socket.is_encrypted() && taken.is_encrypted());
}

/// A relay between two honest ranks that changes no byte is a wire; one that replays what it saw gets nowhere.
#[test]
fn what_was_recorded_opens_no_connection() {
    let (listener, at) = listening(encrypted("swordfish"));
    let wire = TcpListener::bind("127.0.0.1:0").expect("a port");
    let wire_at = wire.local_addr().expect("its address");
    let recorded = std::thread::spawn(move || {
        let (mut near, _) = wire.accept().expect("a rank");
        let mut far = TcpStream::connect(at).expect("the listener");
        for stream in [&near, &far] {
            stream.set_nonblocking(true).expect("non-blocking");
        }
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match near.read(&mut buffer) {
                Ok(0) => return seen,
                Ok(n) => {
                    seen.extend_from_slice(&buffer[..n]);
                    far.write_all(&buffer[..n]).expect("there is room");
                }
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            match far.read(&mut buffer) {
                Ok(0) => return seen,
                Ok(n) => near.write_all(&buffer[..n]).expect("there is room"),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
            std::thread::yield_now();
        }
    });
    drop(dialed(&listener, wire_at, encrypted("swordfish")).expect("accepted"));
    let seen = recorded.join().expect("it ends");
    assert!(seen.len() > 200, "{} bytes were recorded", seen.len());
    assert_eq!((listener.accepted(), listener.refused()), (1, 0));

    let mut replayed = TcpStream::connect(at).expect("the listener");
    replayed.write_all(&seen).expect("there is room");
    let start = Instant::now();
    while listener.refused() == 0 {
        listener.progress();
        assert!(start.elapsed() < PATIENCE, "it is not refused");
    }
    assert_eq!(listener.accepted(), 1);
}
