//! Peers that lie about keys, bounds, rights and types, over real sockets: without the checks of the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::element_window::Window;
use super::parts::PartReach;
use crate::comm::communicator::Communicator;
use crate::launch::JobSetup;
use roundelay_dsl::diag::codes;
use roundelay_engine::messages::TransferKind;
use roundelay_engine::progress::{PacketClient, PacketHeader};
use roundelay_engine::tunables::WINDOW_COPY_BYTES;
use roundelay_engine::window::{AtomicFetch, ServedPart, WindowRights};
use roundelay_net::memory::Buffer;
use roundelay_net::transport::TransportSet;
use roundelay_support::dtype::RedOp;
use roundelay_support::error::{AccessRefusal, Error};

const LEN: usize = 100_000;
const BYTES: u64 = 8 * LEN as u64;

/// Runs two ranks over sockets.
fn two(body: impl Fn(&mut Communicator) + Sync) {
    let setup = |_| JobSetup::new().transports(TransportSet::TCP).slot_bytes(64 << 10);
    let ranks = Communicator::local_over(2, setup).expect("two ranks");
    let body = &body;
    std::thread::scope(|scope| {
        for mut comm in ranks {
            scope.spawn(move || body(&mut comm));
        }
    });
}

/// Returns the key of rank 1's part, or 0 on that rank.
fn key_of(window: &Window<u64>) -> u64 {
    match &window.parts.peers[1] {
        PartReach::Served(remote) => remote.key(),
        PartReach::Mapped(_) => 0,
    }
}

/// Does what the packet says, and returns how it was refused.
fn forged(
    window: &Window<u64>,
    what: TransferKind,
    offset: u64,
    bytes: usize,
) -> Option<AccessRefusal> {
    let (TransferKind::Put(key)
    | TransferKind::Get(key)
    | TransferKind::Accumulate(key, _)
    | TransferKind::Fetch(key, _)) = what
    else {
        panic!("{what:?} is no operation on memory")
    };
    let remote = Arc::new(ServedPart::new(1, key, BYTES, WindowRights::ALL));
    let service = window.parts.service.as_ref().expect("it is served");
    service.messenger.serve_window(0, None, vec![remote.clone()], &[1]).expect("a connection");
    let mut data = vec![7u8; bytes];
    let place = (offset, data.as_mut_ptr(), bytes);
    // SAFETY: the bytes are there until it has ended.
    let operation = unsafe { window.parts.begin(&remote, what, place) }.expect("begun");
    let is_answered = !matches!(what, TransferKind::Put(_) | TransferKind::Accumulate(..));
    let refusal = match window.parts.finish(&operation) {
        Err(Error::Window { refusal, .. }) => Some(refusal),
        Ok(()) => None,
        Err(other) => panic!("another error: {other}"),
    };
    assert!(data.iter().all(|&byte| byte == 7) || refusal.is_none(), "something was given");
    if is_answered {
        return refusal;
    }
    match window.parts.flush_served(&remote) {
        Err(Error::Window { refusal, .. }) => Some(refusal),
        Ok(()) => None,
        Err(other) => panic!("another error: {other}"),
    }
}

/// Returns the bytes of a packet whose first word is its kind: those up to 5 are of messages, others of windows.
fn packet(mut words: [u64; 6]) -> Vec<u8> {
    let client = if words[0] <= 5 { PacketClient::Messages } else { PacketClient::Windows };
    words[0] = PacketHeader::new(client, words[0] as u8).encode();
    words.map(u64::to_le_bytes).concat()
}

/// Checks that the job was ended for this reason: a rank may hear of it in its wait, or before its wait has begun.
fn assert_ended(error: &Error, code: codes::ErrorCode, text: &str) {
    let said = error.to_string();
    let earlier = error.code() == codes::USAGE && said.contains("cannot be used after an error");
    assert!(error.code() == code || earlier, "{} {said}", error.code());
    assert!(said.contains(text), "{said}");
}

#[test]
fn a_peer_that_lies_is_refused_and_nothing_is_written() {
    two(|comm| {
        let rights = if comm.rank() == 1 {
            WindowRights::WRITE | WindowRights::ATOMICS
        } else {
            WindowRights::ALL
        };
        let old = comm.window(Buffer::from(vec![3u64; LEN])).expect("a window");
        let gone = key_of(&old);
        old.free(comm).expect("the buffer");
        let window = comm.window_with(vec![5u64; LEN].into(), rights).expect("a window");
        if comm.rank() == 1 {
            comm.barrier().expect("both are there");
            let mut mine = vec![0; LEN];
            window.read(0, &mut mine).expect("its own part");
            assert!(mine.iter().all(|&x| x == 5), "something was written");
            window
                .withdraw(WindowRights::WRITE | WindowRights::ATOMICS)
                .expect("nothing is under way");
            comm.barrier().expect("both are there");
            comm.barrier().expect("both are there");
            window.read(0, &mut mine).expect("its own part");
            assert!(mine.iter().all(|&x| x == 5), "something was written");
            window.free(comm).expect("the buffer");
            return;
        }
        let key = key_of(&window);
        let sum = |key| TransferKind::Accumulate(key, RedOp::Sum);
        let add = |key| TransferKind::Fetch(key, AtomicFetch::Add(1));
        // Few bytes come at once, and many go to their place by themselves.
        for bytes in [8, 4096, 80_000] {
            for lie in [key ^ 1, 0, gone] {
                for what in [TransferKind::Put(lie), TransferKind::Get(lie), sum(lie), add(lie)] {
                    assert_eq!(
                        forged(&window, what, 0, bytes),
                        Some(AccessRefusal::Gone),
                        "{what:?}"
                    );
                }
            }
            let end = Some(AccessRefusal::Bounds { bytes: BYTES });
            for offset in [BYTES - bytes as u64 + 8, BYTES, u64::MAX - 7, 1 << 63] {
                for what in [TransferKind::Put(key), TransferKind::Get(key), sum(key)] {
                    assert_eq!(forged(&window, what, offset, bytes), end, "{what:?} {offset}");
                }
            }
            let needs = |needed, has: &str| Some(AccessRefusal::Rights { needed, has: has.into() });
            let got = forged(&window, TransferKind::Get(key), 0, bytes);
            assert_eq!(got, needs("read", "write + atomics"));
            for op in [RedOp::Avg, RedOp::PremulSum] {
                let refused = forged(&window, TransferKind::Accumulate(key, op), 0, bytes);
                assert!(matches!(refused, Some(AccessRefusal::Elements(_))), "{op}");
            }
            let part = forged(&window, sum(key), 4, bytes);
            assert!(matches!(part, Some(AccessRefusal::Elements(_))), "no whole elements");
        }
        assert_eq!(forged(&window, add(key), 4, 8), Some(AccessRefusal::Alignment { offset: 4 }));
        assert_eq!(
            forged(&window, add(key), BYTES, 8),
            Some(AccessRefusal::Bounds { bytes: BYTES })
        );
        let long = forged(&window, TransferKind::Get(key), 0, WINDOW_COPY_BYTES + 8);
        assert!(matches!(long, Some(AccessRefusal::Bounds { .. })), "longer than a piece");
        comm.barrier().expect("both are there");
        comm.barrier().expect("both are there");
        for (what, needed) in [(TransferKind::Put(key), "write"), (sum(key), "atomics")] {
            for bytes in [8, 80_000] {
                let refused = forged(&window, what, 0, bytes);
                let rights = AccessRefusal::Rights { needed, has: "none".into() };
                assert_eq!(refused, Some(rights), "{what:?}");
            }
        }
        comm.barrier().expect("both are there");
        window.free(comm).expect("the buffer");
    });
}

#[test]
fn a_peer_that_breaks_the_protocol_ends_the_job() {
    // An answer without a request, a short message that is as long as memory, and more short messages without a
    // receive than a peer may send; or more long ones than a rank keeps in mind.
    let strange = (codes::PLAN_DAMAGED, "does not keep to the protocol");
    for (words, times, (code, text)) in [
        ([13, 99, 0, 0, 0, 0], 1, strange),
        ([0, 1, 0, 1 << 60, 0, 0], 1, strange),
        ([0, 1, 0, 0, 0, 0], 65, strange),
        (
            [1, 1, 0, 1 << 20, 1, 0],
            (1 << 20) + 1,
            (codes::USAGE, "that no receive of this rank takes"),
        ),
    ] {
        let packet = packet(words);
        two(|comm| {
            let window = comm.window(Buffer::from(vec![5u64; LEN])).expect("a window");
            let messenger = &window.parts.service.as_ref().expect("it is served").messenger;
            // A rank that is still in the call that makes the window would hear of it there.
            if comm.rank() == 0 {
                window.wait_signal(1).expect("the other is ready");
                messenger.forge(1, std::iter::repeat_n(&packet[..], times));
            } else {
                window.signal(0).expect("a signal");
            }
            let error = window.wait_signal(1 - comm.rank()).expect_err("no signal comes");
            assert_ended(&error, code, text);
        });
    }
}

#[test]
fn a_peer_that_asks_and_takes_no_answers_ends_the_job() {
    // Gets of 8 KiB, additions to a word, flushes, and gets beyond the end.
    let get = |offset| move |key: u64| [8, key, offset, 8 << 10, 1, 0];
    let asks: [&(dyn Fn(u64) -> [u64; 6] + Sync); 4] =
        [&get(0), &|key| [9, key, 0, 1, 0, 0], &|key| [12, key, 1, 0, 0, 0], &get(u64::MAX)];
    for ask in asks {
        let over = AtomicBool::new(false);
        two(|comm| {
            comm.set_timeout(Duration::from_secs(10));
            let window = comm.window(Buffer::from(vec![5u64; LEN])).expect("a window");
            if comm.rank() == 0 {
                window.wait_signal(1).expect("the other is ready");
                let asked = packet(ask(key_of(&window)));
                let messenger = &window.parts.service.as_ref().expect("it is served").messenger;
                let until = Instant::now() + Duration::from_secs(30);
                let over = || over.load(Ordering::Acquire) || Instant::now() > until;
                // More than sockets take.
                messenger.flood(1, &asked, 500_000, over);
            } else {
                window.signal(0).expect("a signal");
                let error = window.wait_signal(0).expect_err("no signal comes");
                over.store(true, Ordering::Release);
                assert_ended(&error, codes::PLAN_DAMAGED, "does not keep to the protocol");
            }
        });
    }
}

#[test]
fn ranks_that_ask_for_much_of_each_other_get_it_all() {
    const GETS: usize = 3000;
    const ELEMENTS: usize = 1 << 10;
    two(|comm| {
        let (rank, other) = (u64::from(comm.rank()), 1 - comm.rank());
        let mine: Vec<u64> = (0..LEN as u64).map(|at| at + (rank << 32)).collect();
        let window = comm.window(Buffer::from(mine)).expect("a window");
        let gets: Vec<_> = (0..GETS)
            .map(|at| {
                let into = Buffer::from(vec![0u64; ELEMENTS]);
                window.get_async(into, other, at)
            })
            .collect();
        let flush = window.flush_async(other);
        window.signal(other).expect("a signal");
        window.wait_signal(other).expect("a signal");
        for (at, get) in gets.into_iter().enumerate() {
            let data = get.wait().expect("what is there");
            let first = at as u64 + (u64::from(other) << 32);
            assert!(data.iter().zip(first..).all(|(&got, wanted)| got == wanted), "get {at}");
        }
        flush.wait().expect("all is there");
        window.free(comm).expect("the buffer");
    });
}
