//! Two ends of encrypted connections in one thread, and what stands between them.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::{ChannelSocket, ChannelTrust, PeerSocket, SecureError, SecureProgress, is_handshake};
use roundelay_support::secret::{JobSecret, ProofSide};

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
    let (far, _) = listener.accept().expect("accepted");
    for stream in [&near, &far] {
        stream.set_nonblocking(true).expect("non-blocking");
        stream.set_nodelay(true).expect("no delay");
    }
    (near, far)
}

fn connecting(stream: TcpStream) -> PeerSocket {
    let mut socket = PeerSocket::from(stream);
    socket.connect_encryption(None).expect("begun");
    socket
}

fn accepting(stream: TcpStream) -> PeerSocket {
    let mut socket = PeerSocket::from(stream);
    socket.accept_encryption(None).expect("begun");
    socket
}

fn secret(text: &str) -> JobSecret {
    JobSecret::from(text.as_bytes().to_vec())
}

type Ends = (Result<SecureProgress, SecureError>, Result<SecureProgress, SecureError>);

/// Goes on with both ends, and with what is between them, until both have an end.
fn secure(
    (near, near_secret): (&PeerSocket, &str),
    (far, far_secret): (&PeerSocket, &str),
    mut between: impl FnMut(bool),
) -> Ends {
    let start = Instant::now();
    let (mut one, mut other) = (Ok(SecureProgress::Waiting), Ok(SecureProgress::Waiting));
    while matches!(one, Ok(SecureProgress::Waiting)) || matches!(other, Ok(SecureProgress::Waiting))
    {
        assert!(start.elapsed() < Duration::from_secs(20), "{one:?} {other:?}");
        if matches!(one, Ok(SecureProgress::Waiting)) {
            one = near.secure(&secret(near_secret));
            if one.is_err() {
                near.shut();
            }
        }
        if matches!(other, Ok(SecureProgress::Waiting)) {
            other = far.secure(&secret(far_secret));
            if other.is_err() {
                far.shut();
            }
        }
        between(other.is_err());
    }
    (one, other)
}

fn open() -> (PeerSocket, PeerSocket) {
    let (near, far) = streams();
    let near = connecting(near);
    let far = accepting(far);
    let ends = secure((&near, "s3cret"), (&far, "s3cret"), |_| ());
    assert!(matches!(ends, (Ok(SecureProgress::Open), Ok(SecureProgress::Open))), "{ends:?}");
    (near, far)
}

/// Sends all of some bytes while the other end reads them; returns what it read.
fn carry(from: &PeerSocket, to: &PeerSocket, bytes: &[u8], step: usize) -> Vec<u8> {
    let start = Instant::now();
    let (mut sent, mut got) = (0, Vec::new());
    let mut place = vec![0; step];
    while got.len() < bytes.len() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} of {}", got.len(), bytes.len());
        if sent < bytes.len() {
            let (head, tail) = bytes[sent..].split_at((bytes.len() - sent) / 3);
            match from.transmit(&[IoSlice::new(head), IoSlice::new(tail)]) {
                Ok(n) => sent += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        let (one, other) = place.split_at_mut(step / 2);
        match to.receive(&mut [IoSliceMut::new(one), IoSliceMut::new(other)]) {
            Ok(0) => panic!("closed"),
            Ok(n) => got.extend_from_slice(&place[..n]),
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(sent, bytes.len());
    got
}

#[test]
fn bytes_arrive_in_both_directions_and_none_of_them_is_on_the_wire() {
    let (near, far) = streams();
    let (near_end, far_end) = (near.try_clone().expect("its copy"), far);
    // A relay that passes everything on and keeps it.
    let (inner, outer) = streams();
    let relayed = std::thread::spawn(move || relay(far_end, inner));
    let near = connecting(near);
    let far = accepting(outer);
    let ends = secure((&near, "s3cret"), (&far, "s3cret"), |_| ());
    assert!(matches!(ends, (Ok(SecureProgress::Open), Ok(SecureProgress::Open))), "{ends:?}");
    let words = b"gradients of a model that stays in this cluster".repeat(100);
    assert_eq!(carry(&near, &far, &words, 1000), words);
    assert_eq!(carry(&far, &near, &words, 77), words);
    drop((near, far, near_end));
    let seen = relayed.join().expect("it ends");
    assert!(seen.len() > 2 * words.len(), "{} bytes went by", seen.len());
    assert!(!seen.windows(16).any(|part| part == &words[..16]));
}

/// Passes on what comes from either side until one closes; returns all of it.
fn relay(mut one: TcpStream, mut other: TcpStream) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < Duration::from_secs(60), "neither side closes");
        for forth in [true, false] {
            let (from, to) = if forth { (&mut one, &mut other) } else { (&mut other, &mut one) };
            match from.read(&mut buffer) {
                Ok(0) => return seen,
                Ok(n) => {
                    seen.extend_from_slice(&buffer[..n]);
                    to.set_nonblocking(false).expect("blocking");
                    // The receiver may have closed.
                    let _ = to.write_all(&buffer[..n]);
                    to.set_nonblocking(true).expect("non-blocking");
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => return seen,
            }
        }
    }
}

#[test]
fn another_secret_is_refused_by_both_sides() {
    let (near, far) = streams();
    let near = connecting(near);
    let far = accepting(far);
    let (one, other) = secure((&near, "s3cret"), (&far, "secret"), |_| ());
    assert!(matches!(other, Err(SecureError::Unproved)), "{other:?}");
    assert!(matches!(one, Err(SecureError::Closed)), "{one:?}");
}

/// A relay that speaks TLS to both sides has two exporters: neither side takes the proof of the other.
#[test]
fn a_relay_that_decrypts_is_refused_by_both_sides() {
    let ((near, near_end), (far_end, far)) = (streams(), streams());
    let near = connecting(near);
    let far = accepting(far);
    // The relay knows no secret: it passes on the proofs of both sides as they are.
    let toward_near = accepting(near_end);
    let toward_far = connecting(far_end);
    let passed = std::cell::Cell::new(0);
    let (one, other) = secure((&near, "s3cret"), (&far, "s3cret"), |is_over| {
        for (from, to) in [(&toward_near, &toward_far), (&toward_far, &toward_near)] {
            let mut proof = [0; 32];
            if let Some(n) = from.pass_handshake(&mut proof) {
                to.transmit(&[IoSlice::new(&proof[..n])]).expect("there is room");
                passed.set(passed.get() + n);
            }
            let _ = to.pass_handshake(&mut []);
        }
        if is_over {
            toward_near.shut();
        }
    });
    assert!(matches!(other, Err(SecureError::Unproved)), "{other:?}");
    assert!(one.is_err(), "{one:?}");
    assert!(passed.get() >= 32, "the relay passed on {} bytes", passed.get());
}

#[test]
fn what_is_no_handshake_is_an_error() {
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"rndelay\n\x03\0", &[22, 3, 1, 0, 5, 1, 2, 3]]
    {
        let (mut near, far) = streams();
        let far = accepting(far);
        near.write_all(garbage).expect("sent");
        near.shutdown(std::net::Shutdown::Write).expect("shut");
        let start = Instant::now();
        let end = loop {
            match far.secure(&secret("s3cret")) {
                Ok(SecureProgress::Waiting) => {
                    assert!(start.elapsed() < Duration::from_secs(20), "it waits for more");
                }
                end => break end,
            }
        };
        assert!(
            matches!(
                end,
                Err(SecureError::Protocol(_) | SecureError::Plain(_) | SecureError::Closed)
            ),
            "{garbage:?}: {end:?}"
        );
    }
    assert!(is_handshake(&[22, 3, 1]) && is_handshake(&[]) && !is_handshake(b"rndelay\n"));
}

/// A handshake that goes on and on is ended: the memory of strangers is bounded.
#[test]
fn a_handshake_has_a_bound() {
    let (mut near, far) = streams();
    let far = accepting(far);
    // Records of a handshake message of 60,000 bytes, of which no end comes.
    let mut record = vec![22, 3, 1, 0x10, 0x00, 1, 0, 0xea, 0x60];
    record.resize(5 + 0x1000, 0);
    let start = Instant::now();
    let end = loop {
        let _ = near.write(&record);
        match far.secure(&secret("s3cret")) {
            Ok(SecureProgress::Waiting) => assert!(start.elapsed() < Duration::from_secs(20)),
            end => break end,
        }
    };
    assert!(matches!(end, Err(SecureError::System(_) | SecureError::Protocol(_))), "{end:?}");
}

#[test]
fn a_changed_record_is_an_error_and_not_another_value() {
    let (near, far) = streams();
    let (inner, outer) = streams();
    let (near, far_end) = (connecting(near), far);
    let far = accepting(outer);
    let (mut far_end, mut inner) = (far_end, inner);
    let changes = std::cell::Cell::new(false);
    let pass = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut buffer = [0; 4096];
        if let Ok(n) = from.read(&mut buffer) {
            if changes.get() && n > 0 {
                buffer[n - 1] ^= 1;
            }
            to.write_all(&buffer[..n]).expect("there is room");
        }
    };
    let ends = secure((&near, "s3cret"), (&far, "s3cret"), |_| {
        pass(&mut far_end, &mut inner);
        pass(&mut inner, &mut far_end);
    });
    assert!(matches!(ends, (Ok(SecureProgress::Open), Ok(SecureProgress::Open))), "{ends:?}");
    changes.set(true);
    assert_eq!(near.transmit(&[IoSlice::new(b"eight by")]).expect("sent"), 8);
    let (start, mut place) = (Instant::now(), [0; 8]);
    let error = loop {
        pass(&mut far_end, &mut inner);
        match far.receive(&mut [IoSliceMut::new(&mut place)]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                assert!(start.elapsed() < Duration::from_secs(20));
            }
            end => break end,
        }
    };
    assert_eq!(error.expect_err("an error").kind(), ErrorKind::InvalidData);
    assert_eq!(place, [0; 8]);
}

/// A key seals a bounded number of records, and the other side follows.
#[test]
fn keys_are_replaced_on_the_way() {
    let (near, far) = open();
    near.set_records_per_key(3);
    far.set_records_per_key(1);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| i.wrapping_mul(2_654_435_761) as u8).collect();
    assert!(carry(&near, &far, &bytes, 1 << 20) == bytes);
    assert!(carry(&far, &near, &bytes, 10_000) == bytes);
    assert!(carry(&near, &far, &bytes, 16_383) == bytes);
}

#[test]
fn long_messages_go_through_full_sockets() {
    let (near, far) = open();
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| i.wrapping_mul(2_654_435_761) as u8).collect();
    assert!(carry(&near, &far, &bytes, 1 << 20) == bytes);
    // A step of one record less one byte leaves something in the session, which the descriptor does not show.
    assert!(carry(&far, &near, &bytes, 16_383) == bytes);
}

#[test]
fn a_channel_is_made_with_the_same_secret_alone() {
    let trust = |text: Option<&str>| text.map(|text| ChannelTrust::new(secret(text), None));
    for (near, far, is_made) in [
        (Some("s3cret"), Some("s3cret"), true),
        (None, None, true),
        (Some("s3cret"), Some("secret"), false),
        (Some("s3cret"), None, false),
        (None, Some("s3cret"), false),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let until = Instant::now() + Duration::from_secs(20);
        let exchanged = std::thread::scope(|scope| {
            let accepts = scope.spawn(move || {
                let (stream, _) = listener.accept().expect("accepted");
                let mut channel =
                    ChannelSocket::open(stream, ProofSide::Accepting, trust(far).as_ref(), until)?;
                let mut word = [0; 4];
                channel.read_until(&mut word, until)?;
                channel.write_all(&word)
            });
            let stream = TcpStream::connect(at).expect("reached");
            let connects = || {
                let mut channel = ChannelSocket::open(
                    stream,
                    ProofSide::Connecting,
                    trust(near).as_ref(),
                    until,
                )?;
                channel.write_all(b"word")?;
                let mut word = [0; 4];
                channel.read_until(&mut word, until).map(|()| word)
            };
            let word = connects();
            (word, accepts.join().expect("no panic"))
        });
        match exchanged {
            (Ok(word), Ok(())) => assert!(is_made && word == *b"word", "{near:?} {far:?}"),
            other => assert!(!is_made, "{near:?} {far:?}: {other:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_sent_arrives(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..70_000), 1..6),
        step in 2usize..40_000,
    ) {
        let (near, far) = open();
        for message in messages {
            prop_assert!(carry(&near, &far, &message, step) == message);
            prop_assert!(carry(&far, &near, &message, step) == message);
        }
    }
}
