//! Tests streams over boards: between threads, against what others left there, and against processes that end.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BoardStream, RankPresence, SegmentLayout, ShmSegment, StreamBoard};

const NAME: u128 = 3 << 64 | 5;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

fn segment() -> Arc<ShmSegment> {
    let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 64, ..SegmentLayout::new(2) };
    let segment = ShmSegment::create(layout).expect("a small segment");
    (0..2).for_each(|rank| segment.set_state(rank, RankPresence::Present));
    segment
}

/// Opens the board of a rank under a name, and returns its stream to the other one. The streams have different numbers.
fn open(segment: &Arc<ShmSegment>, rank: u32, name: u128) -> (StreamBoard, BoardStream) {
    let board = StreamBoard::open(segment, rank, name, 2).expect("a board");
    let stream = board.stream(u64::from(rank), (1 - rank, u64::from(1 - rank)));
    (board, stream)
}

/// Returns the result of a read: bytes, or the text of the error; `None` if it would block.
fn read_once(stream: &mut BoardStream) -> Option<Result<Vec<u8>, String>> {
    let mut bytes = [0; 64];
    match stream.read(&mut bytes) {
        Ok(read) => Some(Ok(bytes[..read].to_vec())),
        Err(e) if e.kind() == ErrorKind::WouldBlock => None,
        Err(e) => Some(Err(e.to_string())),
    }
}

/// Returns the result of the first read that does not block.
fn heard_at_last(stream: &mut BoardStream) -> Result<Vec<u8>, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(said) = read_once(stream) {
            return said;
        }
        assert!(Instant::now() < until, "nothing is said");
        std::thread::yield_now();
    }
}

#[test]
fn bytes_arrive_whole_and_in_order_however_many() {
    let segment = segment();
    let text: Vec<u8> = (0..100_000_u32).map(|i| (i * 7 + i / 256) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (board, mut stream) = open(&segment, 0, NAME);
            let (mut sent, mut turn) = (0, 0);
            while sent < text.len() {
                turn += 1;
                let end = text.len().min(sent + 1 + turn * 37 % 3001);
                match stream.write(&text[sent..end]) {
                    Ok(bytes) => sent += bytes,
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::WouldBlock);
                        board.announce_sleep();
                        if !stream.has_room() {
                            board.sleep(Duration::from_millis(5));
                        }
                    }
                }
            }
        });
        let (_board, mut stream) = open(&segment, 1, NAME);
        let (mut come, mut turn) = (Vec::new(), 0);
        loop {
            turn += 1;
            let mut to = vec![0; 1 + turn * 13 % 997];
            match stream.read(&mut to) {
                // The other one has ended, and all that it sent was taken.
                Ok(0) => break,
                Ok(bytes) => come.extend_from_slice(&to[..bytes]),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(come == text, "{} bytes of {}", come.len(), text.len());
    });
}

/// Peers take nothing that a rank left on its board for something else, whatever they did then.
#[test]
fn nothing_old_is_taken_for_new() {
    let segment = segment();
    let (board, mut stale) = open(&segment, 0, NAME);
    assert_eq!(stale.write(b"of an older attempt").ok(), Some(19));
    // A peer in the newer attempt finds another name, as long as the older one lasts and after it.
    let (_peer, mut stream) = open(&segment, 1, NAME + 2);
    assert_eq!((read_once(&mut stream), stream.has_news()), (None, false));
    drop(board);
    assert_eq!((read_once(&mut stream), stream.has_news()), (None, false));
    // The board opens anew: what was there is gone, and a late write to where it was goes nowhere.
    let (_board, mut new) = open(&segment, 0, NAME + 2);
    assert_eq!(read_once(&mut stream), None);
    assert_eq!(new.write(b"now").ok(), Some(3));
    assert_eq!(read_once(&mut stream), Some(Ok(b"now".into())));
    // Of two names that differ in either half none is the other.
    for other in [NAME + 2 + (1 << 64), NAME + 4] {
        let (_board, mut odd) = open(&segment, 0, other);
        assert_eq!(odd.write(b"odd").ok(), Some(3));
        assert_eq!(read_once(&mut stream), Some(Ok(vec![])), "who was there is there no more");
        let (_peer, mut fresh) = open(&segment, 1, NAME + 2);
        assert_eq!(read_once(&mut fresh), None);
    }
}

#[test]
fn counts_that_make_no_sense_are_an_error_and_harm_nobody() {
    let segment = segment();
    let (_board, mut stream) = open(&segment, 0, NAME);
    let (_peer, mut forged) = open(&segment, 1, NAME);
    assert_eq!(forged.write(b"right").ok(), Some(5));
    assert_eq!(read_once(&mut stream), Some(Ok(b"right".into())));
    let counts = segment.layout().counts(1, 1);
    segment.word(counts).store(1 << 40, Ordering::Release);
    let error = read_once(&mut stream).expect("an answer").expect_err("no bytes");
    assert!(error.contains("makes no sense"), "{error}");
    // A peer that claims to have read what was never sent makes no room.
    segment.word(counts + 8).store(u64::MAX, Ordering::Release);
    let mut sent = 0;
    while let Ok(bytes) = stream.write(&[7; 100]) {
        sent += bytes;
    }
    assert_eq!(sent, 2048);
}

#[test]
fn who_ends_is_heard_to_the_end() {
    let segment = segment();
    let (board, mut stream) = open(&segment, 0, NAME);
    let (_peer, mut other) = open(&segment, 1, NAME);
    assert_eq!(read_once(&mut other), None);
    assert_eq!(stream.write(b"last words").ok(), Some(10));
    drop(board);
    assert_eq!(read_once(&mut other), Some(Ok(b"last words".into())));
    assert_eq!((read_once(&mut other), other.has_news()), (Some(Ok(vec![])), true));
}

/// A rank that never came is missed at once if it cannot come any more, and only then.
#[test]
fn who_cannot_come_is_not_waited_for() {
    for (state, how) in [
        (RankPresence::Left, "it left the job"),
        (RankPresence::Moved, "it went on to another generation"),
    ] {
        let segment = segment();
        let (_board, mut stream) = open(&segment, 0, NAME);
        assert_eq!(read_once(&mut stream), None);
        segment.set_state(1, state);
        assert_eq!(heard_at_last(&mut stream), Err(how.into()));
    }
}

/// A process that ends on a sudden is noticed, with what it had said read before.
#[test]
fn a_process_that_is_killed_is_noticed() {
    let segment = segment();
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("a process");
    let (_board, mut stream) = open(&segment, 0, NAME);
    let (peer, mut other) = open(&segment, 1, NAME);
    assert_eq!(other.write(b"before").ok(), Some(6));
    // Its board does not end, as it does when a rank leaves.
    std::mem::forget(peer);
    segment.word(segment.layout().rank_line(1, 0)).store(child.id().into(), Ordering::Relaxed);
    assert_eq!(read_once(&mut stream), Some(Ok(b"before".into())));
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        assert_eq!(read_once(&mut stream), None, "it lives");
    }
    assert_eq!(other.write(b"just in time").ok(), Some(12));
    child.kill().and_then(|()| child.wait()).expect("its end");
    assert_eq!(heard_at_last(&mut stream), Ok(b"just in time".into()));
    let error = heard_at_last(&mut stream).expect_err("it is gone");
    assert!(error.contains("no longer exists"), "{error}");
}
