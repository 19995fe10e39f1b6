//! Tests encrypted connections between ranks: they carry the same, and none is made with who does not encrypt.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::super::address::DialTarget;
use super::super::dial::DialError;
use super::super::hello::{CONTROL, ConnectionName, HelloRefusal, HelloReply, PeerHello, REPLY};
use super::refuse::dial_target;
use super::*;
use crate::bootstrap::store::host_addresses;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::secret::{JobSecret, NONCE, ProofSide};
use roundelay_tests::{CheckNeeds, skip};
use roundelay_tls::{PeerSocket, host_binding};

fn encrypted(text: &str) -> PathOptions {
    moded(text, EncryptionMode::Required)
}

fn moded(text: &str, encryption: EncryptionMode) -> PathOptions {
    PathOptions { encryption, ..with_secret(text) }
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
pub(super) fn listening(options: PathOptions) -> (Arc<RankListener>, SocketAddr) {
    let listener = RankListener::open(options, Ipv4Addr::LOCALHOST.into()).expect("a listener");
    listener.expect(9);
    let at = listener.address();
    (Arc::new(listener), at)
}

pub(super) fn dialed(
    listener: &Arc<RankListener>,
    to: SocketAddr,
    options: PathOptions,
) -> Result<PeerSocket, DialError> {
    dialed_at(listener, DialTarget { from: None, to, is_far: false }, options)
}

fn dialed_at(
    listener: &Arc<RankListener>,
    target: DialTarget,
    options: PathOptions,
) -> Result<PeerSocket, DialError> {
    let name = ConnectionName { job: 9, comm: 7, to: 1, from: 0, lane: CONTROL };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let progress = scope.spawn(|| {
            // The side that connects may know first: the listener has counted the connection once none is pending.
            let start = Instant::now();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) || listener.has_pending() {
                assert!(start.elapsed() < PATIENCE, "the listener still has a connection");
                listener.progress();
                std::thread::yield_now();
            }
        });
        let result = dial_target(name, target, &options);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        progress.join().expect("it ends");
        result
    })
}

/// Which of two ranks of one host go on, and how, by their hints: `None` is a refusal that names the hint.
#[test]
fn neither_side_goes_on_against_its_hint() {
    use EncryptionMode::{Auto, Off, Required};
    use HelloRefusal::{EncryptionUnwanted, EncryptionWanted};
    for (accepting, connecting, outcome) in [
        (Off, Off, Ok(false)),
        (Off, Auto, Err(EncryptionUnwanted)),
        (Off, Required, Err(EncryptionUnwanted)),
        (Auto, Off, Err(EncryptionWanted)),
        (Auto, Auto, Ok(false)),
        (Auto, Required, Ok(true)),
        (Required, Off, Err(EncryptionWanted)),
        (Required, Auto, Err(EncryptionWanted)),
        (Required, Required, Ok(true)),
    ] {
        let case = format!("{connecting} connects to {accepting}");
        let (listener, at) = listening(moded("swordfish", accepting));
        let ended = dialed(&listener, at, moded("swordfish", connecting));
        match outcome {
            Ok(is_encrypted) => {
                assert_eq!(ended.expect(&case).is_encrypted(), is_encrypted, "{case}");
                assert_eq!((listener.accepted(), listener.refused()), (1, 0), "{case}");
            }
            Err(why) => {
                let error = ended.expect_err(&case);
                assert_eq!(error, DialError::Refused(why), "{case}");
                assert!(error.to_string().contains("hint `encryption`"), "{error}");
                assert_eq!((listener.accepted(), listener.refused()), (0, 1), "{case}");
            }
        }
    }
}

/// A rank that knows that its peer is on another host encrypts, whatever the addresses look like.
#[test]
fn a_peer_of_another_host_is_encrypted_at_any_address() {
    let (listener, to) = listening(with_secret("swordfish"));
    let target = DialTarget { from: None, to, is_far: true };
    let socket = dialed_at(&listener, target, with_secret("swordfish")).expect("accepted");
    assert!(socket.is_encrypted());
    // Without a secret there is nothing by which it could.
    let (listener, to) = listening(options());
    let target = DialTarget { from: None, to, is_far: true };
    assert!(!dialed_at(&listener, target, options()).expect("accepted").is_encrypted());
}

/// Addresses of two kinds are not those of one host: the side that sees so encrypts, or lets nothing else in.
#[test]
fn addresses_that_may_be_of_two_hosts_are_encrypted() {
    let outer = host_addresses().into_iter().find(|ip| ip.is_ipv4() && !ip.is_loopback());
    let Some(outer) = outer else {
        return skip(CheckNeeds::Without, "this host has no address beside loopback");
    };
    let secret = || with_secret("swordfish");
    // The connecting side sees another address than its own.
    let listener = Arc::new(RankListener::open(secret(), outer).expect("a listener"));
    listener.expect(9);
    let from = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
    let target = DialTarget { from, to: listener.address(), is_far: false };
    let socket = dialed_at(&listener, target, secret()).expect("accepted");
    assert!(socket.is_encrypted());
    // The accepting side alone does: the other one says that it need not encrypt, and is turned away.
    let (listener, to) = listening(secret());
    let target = DialTarget { from: Some(outer), to, is_far: false };
    let error = dialed_at(&listener, target, secret()).expect_err("refused");
    assert_eq!(error, DialError::Refused(HelloRefusal::EncryptionWanted));
    assert_eq!((listener.accepted(), listener.refused()), (0, 1));
}

/// Two relays, one on each of two hosts, make both ends see addresses of their own host. The proofs cover the host.
#[test]
fn a_proof_of_another_host_is_refused_though_the_secret_is_right() {
    let (listener, at) = listening(with_secret("swordfish"));
    let name = ConnectionName { job: 9, comm: 7, to: 1, from: 0, lane: CONTROL };
    let secret = JobSecret::from(b"swordfish".to_vec());
    for (binding, is_accepted) in [(&[7; 32][..], false), (&[], false), (host_binding(), true)] {
        let counts = (listener.accepted(), listener.refused());
        let mut stream = TcpStream::connect(at).expect("the listener");
        stream.set_nonblocking(true).expect("non-blocking");
        let hello = PeerHello { name, has_secret: true, is_host_bound: true, nonce: [3; NONCE] };
        let hello = hello.encode();
        stream.write_all(&hello).expect("sent");
        let Some(HelloReply::Challenge(nonce)) = reply(&listener, &mut stream) else {
            panic!("no challenge");
        };
        let proof = secret.proof(ProofSide::Connecting, &[&hello, &nonce, binding]);
        stream.write_all(&proof).expect("sent");
        match reply(&listener, &mut stream) {
            Some(HelloReply::Accepted(_)) => assert!(is_accepted),
            Some(HelloReply::Refused(why)) => {
                assert_eq!((why, is_accepted), (HelloRefusal::HostWrong, false));
                assert!(why.text().contains("hint `encryption=required`"));
            }
            other => panic!("{other:?}"),
        }
        let (accepted, refused) = (u64::from(is_accepted), u64::from(!is_accepted));
        let after = (listener.accepted(), listener.refused());
        assert_eq!(after, (counts.0 + accepted, counts.1 + refused));
    }
}

/// Returns the next reply of a listener.
fn reply(listener: &RankListener, stream: &mut TcpStream) -> Option<HelloReply> {
    let (mut bytes, mut got, start) = ([0; REPLY], 0, Instant::now());
    while got < REPLY {
        assert!(start.elapsed() < PATIENCE, "no reply");
        listener.progress();
        match stream.read(&mut bytes[got..]) {
            Ok(0) => return None,
            Ok(n) => got += n,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    HelloReply::decode(&bytes)
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
