//! The bounds of a listener whose process computes and makes no call.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use super::super::hello::{CONTROL, ConnectionName, PeerHello};
use super::*;
use crate::limits::LISTENER;
use crate::tunables::{WRONG_PROOF_DELAY, WRONG_PROOFS_MAX};

/// The time that a busy machine may need beyond a bound.
const SLACK: Duration = Duration::from_secs(5);

fn guarded(options: PathOptions) -> (GuardedListener, SocketAddr) {
    let listener = Arc::new(RankListener::open(options, Ipv4Addr::LOCALHOST.into()).expect("open"));
    let to = listener.address();
    (GuardedListener::new(listener), to)
}

fn each() -> [(GuardedListener, SocketAddr); 2] {
    [guarded(PathOptions::default()), guarded(with_secret("a secret"))]
}

/// Returns the time for which a connection is held whatever is sent now and then.
fn held(mut stream: TcpStream, now_and_then: &[u8]) -> Duration {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let mut bytes = now_and_then.iter();
    loop {
        if let Some(&byte) = bytes.next() {
            let _ = stream.write(&[byte]);
        }
        match stream.read(&mut [0; 64]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            _ => return start.elapsed(),
        }
        assert!(start.elapsed() < PATIENCE, "it is held for ever");
    }
}

fn hello(has_secret: bool) -> Vec<u8> {
    let name = ConnectionName { job: 5, comm: 7, to: 1, from: 0, lane: CONTROL };
    PeerHello { name, has_secret, is_host_bound: has_secret, nonce: [0; 32] }.encode().to_vec()
}

#[test]
fn strangers_are_turned_away_while_the_program_computes() {
    let guarded = each();
    std::thread::scope(|scope| {
        for (_, to) in &guarded {
            for bytes in [Vec::new(), hello(false)] {
                scope.spawn(move || {
                    let took = held(TcpStream::connect(to).expect("a connection"), &bytes);
                    assert!(took < LISTENER.patience + SLACK, "{took:?}");
                    assert!(took > LISTENER.patience / 2, "{took:?}");
                });
            }
        }
    });
    // The thread ends with what it guards.
    let start = Instant::now();
    drop(guarded);
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
}

#[test]
fn one_stranger_too_many_turns_the_oldest_away() {
    for (guarded, to) in each() {
        let connect = || TcpStream::connect(to).expect("a connection");
        let mut oldest = connect();
        let crowd: Vec<TcpStream> = (1..LISTENER.places()).map(|_| connect()).collect();
        assert_eq!(guarded.listener().refused(), 0, "all of them are held");
        let one_more = connect();
        oldest.set_read_timeout(Some(LISTENER.patience / 3)).expect("a timeout");
        assert_eq!(oldest.read(&mut [0]).expect("its end"), 0);
        // Those before it were held: it is the only one that was refused.
        assert_eq!(guarded.listener().refused(), 1);
        drop((crowd, one_more));
    }
}

#[test]
fn ranks_come_in_while_the_program_computes_and_strangers_guess() {
    let options = with_secret("a secret");
    let (guarded, to) = guarded(options.clone());
    let guess = || {
        let mut stream = TcpStream::connect(to).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(&hello(true)).expect("room");
        let mut challenge = [0; super::super::hello::REPLY];
        stream.read_exact(&mut challenge).expect("a challenge");
        stream.write_all(&[7; 32]).expect("room");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    };
    (0..WRONG_PROOFS_MAX).for_each(|_| guess());
    let start = Instant::now();
    guess();
    assert!(start.elapsed() >= WRONG_PROOF_DELAY, "{:?}", start.elapsed());
    // A rank names its job, which no stranger can.
    let name = ConnectionName { job: 9, comm: 7, to: 0, from: 1, lane: CONTROL };
    guarded.listener().expect(9);
    let dialed = super::refuse::dial(name, to, &options);
    assert!(dialed.is_ok(), "{dialed:?}");
    assert!(guarded.listener().take(&name).is_some());
}
