//! Tests secrets, strangers and floods.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::PollFd;

use super::super::address::DialTarget;
use super::super::dial::{DialError, DialProgress, PeerDial};
use super::super::hello::{CONTROL, ConnectionName, HELLO, HelloRefusal, HelloReply, PeerHello};
use super::super::wait_policy::pause;
use super::*;
use roundelay_support::secret::{JobSecret, ProofSide, random};
use roundelay_tls::PeerSocket;

/// Dials until that ends.
pub(super) fn dial(
    name: ConnectionName,
    to: SocketAddr,
    options: &PathOptions,
) -> Result<PeerSocket, DialError> {
    dial_target(name, DialTarget { from: None, to, is_far: false }, options)
}

/// Dials a target until that ends.
pub(super) fn dial_target(
    name: ConnectionName,
    target: DialTarget,
    options: &PathOptions,
) -> Result<PeerSocket, DialError> {
    let mut dial = PeerDial::new(name, vec![target]);
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match dial.progress(options) {
            DialProgress::Waiting => {
                let wants = dial.awaits();
                let mut fds: Vec<_> = wants
                    .map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags))
                    .into_iter()
                    .collect();
                pause(&mut fds, Duration::from_millis(1));
            }
            DialProgress::Connected(stream) => return Ok(stream),
            DialProgress::Failed(error) => return Err(error),
        }
    }
    panic!("no answer; {:?}", dial.trouble())
}

#[test]
fn those_with_the_secret_come_together() {
    let all = each_rank(
        5,
        &memory(),
        |_| with_secret("swordfish"),
        |mut net| {
            let mut streams = open_all(&mut net, 2);
            check_streams(net.rank, &mut streams);
            check_words(&mut net, 1);
            assert_eq!(net.counts().refused, 0);
        },
    );
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}

/// Checks that all fail if rank 2 of 3 has another secret, or none.
fn outsider(theirs: PathOptions, others: PathOptions, why: &str) {
    let short =
        |options: &PathOptions| PathOptions { timeout: Duration::from_secs(5), ..options.clone() };
    let options = |rank| short(if rank == 2 { &theirs } else { &others });
    let all = each_rank(3, &memory(), options, |_| ());
    let texts: Vec<String> =
        all.into_iter().map(|r| r.expect_err("not all ranks are here").to_string()).collect();
    for text in &texts {
        assert!(text.contains("rank 2") && text.contains("at 127.0.0.1"), "{texts:?}");
        assert!(text.contains(why) && text.contains("same secret"), "{texts:?}");
    }
    assert!(texts.iter().all(|t| !t.contains("swordfish") && !t.contains("herring")), "{texts:?}");
}

#[test]
fn a_wrong_secret_is_refused() {
    outsider(with_secret("herring"), with_secret("swordfish"), "the secrets differ");
}

#[test]
fn no_secret_is_refused() {
    outsider(options(), with_secret("swordfish"), "one side has a secret");
}

#[test]
fn an_unwanted_secret_is_refused() {
    outsider(with_secret("herring"), options(), "one side has a secret");
}

#[test]
fn an_intruder_disturbs_nobody() {
    for secret in [Some("swordfish"), None] {
        let mine = |_| secret.map_or_else(options, with_secret);
        let all = each_rank(3, &memory(), mine, |mut net| {
            check_words(&mut net, 1);
            if net.rank == 0 {
                let to = net.endpoints()[1].addresses[0];
                // It has the right hello but the secret; or all but the job.
                let job = if secret.is_some() { net.job } else { net.job ^ 1 };
                let name = ConnectionName { job, comm: 7, to: 1, from: 0, lane: 0 };
                let theirs = secret.map_or_else(options, |_| with_secret("herring"));
                let refused = std::thread::scope(|scope| {
                    let intruder = scope.spawn(|| dial(name, to, &theirs).err());
                    until(&mut net, |_| intruder.is_finished().then_some(()));
                    intruder.join().expect("no panic").expect("refused")
                });
                let expected =
                    if secret.is_some() { HelloRefusal::HostWrong } else { HelloRefusal::Job };
                assert_eq!(refused, DialError::Refused(expected));
            }
            if net.rank == 1 {
                until(&mut net, |net| (net.counts().refused > 0).then_some(()));
                assert!(
                    net.listener.remark().contains("the last from 127.0.0.1"),
                    "{}",
                    net.listener.remark()
                );
            }
            let mut streams = open_all(&mut net, 1);
            check_streams(net.rank, &mut streams);
            check_words(&mut net, 2);
        });
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    }
}

/// Connects to another program that listens at a rank's address.
fn impostor(answer: impl Fn(&[u8], TcpStream) + Send) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut hello = [0; HELLO];
            stream.read_exact(&mut hello).expect("a hello");
            assert!(!String::from_utf8_lossy(&hello).contains("swordfish"));
            answer(&hello, stream);
        });
        let name = ConnectionName { job: 1, comm: 2, to: 0, from: 1, lane: CONTROL };
        dial(name, to, &with_secret("swordfish")).expect_err("refused").to_string()
    })
}

#[test]
fn an_impostor_is_found_out() {
    let hold = |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 100]);
    };
    let why = impostor(|_, mut stream| {
        stream.write_all(&HelloReply::Accepted([0; 32]).encode()).expect("sent");
        hold(stream);
    });
    assert!(why.contains("does not ask for the secret"), "{why}");
    let why = impostor(|hello, mut stream| {
        stream.write_all(&HelloReply::Challenge([1; 32]).encode()).expect("sent");
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).expect("a proof");
        let wrong: JobSecret = b"herring".to_vec().into();
        let mine = wrong.proof(ProofSide::Accepting, &[hello, &[1; 32], &proof]);
        stream.write_all(&HelloReply::Accepted(mine).encode()).expect("sent");
        hold(stream);
    });
    assert!(why.contains("cannot prove that it knows the secret"), "{why}");
    // The proof of the connecting side is no proof of the other.
    let why = impostor(|_, mut stream| {
        stream.write_all(&HelloReply::Challenge([1; 32]).encode()).expect("sent");
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).expect("a proof");
        stream.write_all(&HelloReply::Accepted(proof).encode()).expect("sent");
        hold(stream);
    });
    assert!(why.contains("cannot prove that it knows the secret"), "{why}");
    let why = impostor(|_, mut stream| {
        stream.write_all(&[b'x'; 40]).expect("sent");
        hold(stream);
    });
    assert!(why.contains("not a rank"), "{why}");
}

/// Sends strangers of all kinds to all listeners, until it is stopped.
fn strangers(listeners: &Mutex<Vec<SocketAddr>>, seed: u64, stop: &AtomicBool) {
    let mut held = std::collections::VecDeque::new();
    let tls = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let whole = PeerHello {
        name: ConnectionName { job: 5, comm: 7, to: 1, from: 0, lane: CONTROL },
        has_secret: seed == 1,
        is_host_bound: seed == 1,
        nonce: [0; 32],
    }
    .encode();
    for turn in seed.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let all = listeners.lock().expect("listeners").clone();
        let Some(to) = all.get(turn as usize % all.len().max(1)) else {
            std::thread::yield_now();
            continue;
        };
        // The listener may be closed already.
        let Ok(mut stream) = TcpStream::connect(to) else { continue };
        let noise = random::<200>().expect("random");
        let _ = match turn % 7 {
            0 => stream.write_all(&noise),
            1 => stream.write_all(&tls),
            2 => stream.write_all(&whole[..17]),
            3 => stream.write_all(&whole),
            4 => stream.write_all(&[&whole[..], &noise[..]].concat()),
            5 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
            _ => Ok(()),
        };
        // Some go, some stay and send no more.
        if turn % 3 > 0 {
            held.push_back(stream);
        }
        if held.len() > 100 {
            held.pop_front();
        }
        std::thread::yield_now();
    }
}

#[test]
fn strangers_disturb_nobody() {
    for secret in [None, Some("swordfish")] {
        let (listeners, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let store = memory();
        let refused: u64 = std::thread::scope(|scope| {
            for seed in 0..3 {
                let (listeners, stop) = (&listeners, &stop);
                scope.spawn(move || strangers(listeners, seed, stop));
            }
            let spawn = |rank: u32| {
                let (mut store, listeners) = (store.of(rank), &listeners);
                scope.spawn(move || {
                    let options = secret.map_or_else(options, with_secret);
                    let listener =
                        Arc::new(RankListener::open(options, store.address()).expect("opened"));
                    listeners.lock().expect("listeners").push(listener.address());
                    let net = RankNetwork::join(rank, 4, 7, listener, &mut store, vec![]);
                    let mut net = net.expect("joined");
                    for round in 0..10 {
                        let (rank, all) = (net.rank, [3, 1, 0, 2]);
                        check_words(&mut net, 3 * round + 1);
                        let at = all.iter().position(|m| *m == rank).expect("a member") as u32;
                        let mut part = split(&net, 100 + round, &all, at).expect("split");
                        let mut streams = open_all(&mut part, 3);
                        check_streams(part.rank, &mut streams);
                        check_words(&mut net, 3 * round + 2);
                    }
                    // Each rank has met strangers before a rank goes.
                    until(&mut net, |net| (net.counts().refused > 10).then_some(()));
                    check_words(&mut net, 100);
                    net.counts().refused
                })
            };
            let threads: Vec<_> = (0..4).map(spawn).collect();
            let ends: Vec<_> =
                threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            ends.into_iter().map(|end| end.expect("a rank panicked")).sum()
        });
        assert!(refused > 40, "{refused}");
    }
}

#[test]
fn silent_strangers_are_few() {
    let seen = Ipv4Addr::LOCALHOST.into();
    let listener = RankListener::open(with_secret("swordfish"), seen).expect("opened");
    let to = listener.address();
    let crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(to).expect("open")).collect();
    let start = Instant::now();
    while listener.refused() < 300 - 128 {
        listener.progress();
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(listener.refused(), 300 - 128);
    // A rank comes in all the same, and is kept until it is asked for.
    listener.expect(9);
    let name = ConnectionName { job: 9, comm: 7, to: 1, from: 0, lane: 3 };
    let options = with_secret("swordfish");
    let mut rank = PeerDial::new(name, vec![DialTarget { from: None, to, is_far: false }]);
    let mut stream = loop {
        listener.progress();
        match rank.progress(&options) {
            DialProgress::Waiting => assert!(start.elapsed() < PATIENCE),
            DialProgress::Connected(stream) => break stream,
            DialProgress::Failed(error) => panic!("{error}"),
        }
    };
    assert_eq!(
        (listener.accepted(), listener.take(&ConnectionName { lane: 4, ..name }).is_some()),
        (1, false)
    );
    assert_eq!(stream.write(b"data").expect("sent"), 4);
    let mut taken = listener.take(&name).expect("kept");
    rustix::io::ioctl_fionbio(&taken, false).expect("blocking");
    let mut data = [0; 4];
    taken.read_exact(&mut data).expect("data");
    assert_eq!(&data, b"data");
    // Closed communicators accept no connection.
    listener.close(9, 7, 1);
    let mut late = PeerDial::new(name, vec![DialTarget { from: None, to, is_far: false }]);
    let why = loop {
        listener.progress();
        match late.progress(&options) {
            DialProgress::Waiting => assert!(start.elapsed() < PATIENCE),
            DialProgress::Connected(_) => panic!("let in"),
            DialProgress::Failed(error) => break error,
        }
    };
    assert_eq!(why, DialError::Refused(HelloRefusal::Ended));
    drop(crowd);
}

#[test]
fn a_slow_talker_is_turned_away() {
    let hearing = Duration::from_millis(300);
    let options = PathOptions { hearing, ..options() };
    let listener = RankListener::open(options, Ipv4Addr::LOCALHOST.into()).expect("opened");
    let mut slow = TcpStream::connect(listener.address()).expect("open");
    let start = Instant::now();
    let whole = PeerHello {
        name: ConnectionName { job: 5, comm: 7, to: 1, from: 0, lane: CONTROL },
        has_secret: false,
        is_host_bound: false,
        nonce: [0; 32],
    };
    // A byte now and then does not buy time: 60 of them, spread over more than the hearing.
    let bytes = whole.encode();
    let mut sent = 0;
    while listener.refused() == 0 {
        if sent < 60 && start.elapsed() >= hearing * sent / 50 {
            let _ = slow.write(&[bytes[sent as usize]]);
            sent += 1;
        }
        listener.progress();
        std::thread::yield_now();
        assert!(start.elapsed() < PATIENCE);
    }
    assert!(start.elapsed() > hearing, "{:?}", start.elapsed());
    assert!(listener.remark().contains("did not say who it is"), "{}", listener.remark());
}
