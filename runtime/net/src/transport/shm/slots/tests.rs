//! Tests connections in slots and pipes, both ends in one thread.

use std::sync::atomic::Ordering;

use super::end::{PREFERENCES, PUSHED, SlotEnd, path_of};
use super::{SlotReceiver, SlotSender};
use crate::transport::mapped::{MappedReceiver, MappedSender};
use crate::transport::message::{ContentKind, IoVec, meta};
use crate::transport::shm::copy_path::CopyPath;
use crate::transport::shm::layout::{RING, SegmentLayout};
use crate::transport::shm::pipe::PipeReceiver;
use crate::transport::shm::segment::ShmSegment;

fn pair() -> (SlotSender, SlotReceiver) {
    let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 128, ..SegmentLayout::new(2) };
    let segment = ShmSegment::create(layout).expect("a small segment");
    let sender = SlotSender::open(&segment, 0, 1, 3).expect("the sender");
    (sender, SlotReceiver::open(&segment, 0, 1, 3).expect("the receiver"))
}

#[test]
fn messages_arrive_in_order_and_rooms_are_counted() {
    let (mut sender, mut receiver) = pair();
    for round in 0..50u64 {
        assert!(!receiver.has_begun(0));
        for m in 0..RING {
            assert!(sender.has_header());
            // SAFETY: there is room, and 48 bytes of it.
            unsafe { sender.inline().cast::<u64>().write(round * RING + m) };
            sender.post(meta(7, 8, ContentKind::Inline));
        }
        assert!(!sender.has_header());
        for m in 0..RING {
            assert!(receiver.has_begun(0));
            let message = receiver.message(2, 0);
            assert_eq!(message.kind(), ContentKind::Inline);
            assert_eq!(message.pulled_from(), round * RING + m);
            assert!(!sender.is_consumed(round * RING + m));
            receiver.consume();
            assert!(sender.is_consumed(round * RING + m));
        }
    }
}

#[test]
fn another_number_of_slots_waits_for_the_connection_to_run_dry() {
    let (mut sender, mut receiver) = pair();
    assert!(sender.has_slot(2));
    sender.slot(2, 100).expect("memory");
    sender.post(meta(0, 100, ContentKind::Slot));
    assert!(sender.has_slot(2));
    assert!(!sender.has_slot(3));
    assert_eq!(receiver.message(2, 0).kind(), ContentKind::Slot);
    receiver.consume();
    assert!(sender.has_slot(3));
}

/// Opens a pair whose private messages go through the pipe.
fn pushing() -> (SlotSender, SlotReceiver) {
    let layout = SegmentLayout { arena_bytes: 4096, slot_bytes: 1 << 16, ..SegmentLayout::new(2) };
    let segment = ShmSegment::create(layout).expect("a small segment");
    let mut sender = SlotSender::open(&segment, 0, 1, 3).expect("the sender");
    let mut receiver = SlotReceiver::open(&segment, 0, 1, 3).expect("the receiver");
    receiver.taker = PipeReceiver::new(&segment, receiver.end.pipe).ok();
    receiver.publish_preferences();
    sender.learn();
    assert!(sender.reads());
    (sender, receiver)
}

fn rendezvous(sender: &mut SlotSender, content: &[u8]) {
    let piece = IoVec { ptr: content.as_ptr(), len: content.len() };
    let meta = meta(5, content.len(), ContentKind::Cma);
    // SAFETY: the content outlives the pair.
    unsafe { sender.post_private(meta, 0, content.len(), std::iter::once(piece)) };
}

#[test]
fn private_messages_are_put_together_or_land() {
    let (mut sender, mut receiver) = pushing();
    let content: Vec<u8> = (0..30_000u32).map(|i| (i ^ i >> 7) as u8).collect();
    for round in 0..3 {
        // Two messages with one in a slot between them, to be had at the same time.
        rendezvous(&mut sender, &content[round..]);
        // SAFETY: a slot of 100 bytes.
        unsafe { sender.slot(4, 100).expect("memory").write_bytes(7, 100) };
        sender.post(meta(5, 100, ContentKind::Slot));
        rendezvous(&mut sender, &content[..9000]);
        let lens = [content.len() - round, 100, 9000];
        for (ahead, len) in lens.into_iter().enumerate() {
            while !receiver.is_ready(ahead as u64, len) {
                assert!(sender.push(), "neither end can move");
            }
        }
        for (ahead, right) in [(0, &content[round..]), (2, &content[..9000])] {
            let message = receiver.message(4, ahead);
            assert_eq!(message.kind(), ContentKind::Slot);
            // SAFETY: as many bytes as were put together.
            let got = unsafe { std::slice::from_raw_parts(message.content, right.len()) };
            assert!(got == right);
        }
        // SAFETY: the slot's content.
        assert_eq!(unsafe { receiver.message(4, 1).content.read() }, 7);
        (0..3).for_each(|_| receiver.consume());
        let last = sender.sent() - 1;
        assert!(sender.is_consumed(last));

        let wanted = meta(5, 9000, ContentKind::Inline);
        assert_eq!(receiver.lands(wanted), None, "nothing has come");
        rendezvous(&mut sender, &content[..9000]);
        assert_eq!(receiver.lands(wanted), Some(true));
        let other = meta(6, 9000, ContentKind::Inline);
        assert_eq!(receiver.lands(other), Some(false), "another call's is used nowhere");
        let mut got = Vec::new();
        loop {
            while let Some((part, before, len)) = receiver.part() {
                assert_eq!(before, got.len());
                // SAFETY: `len` bytes are there.
                got.extend_from_slice(unsafe { std::slice::from_raw_parts(part, len) });
            }
            if receiver.has_landed() {
                break;
            }
            assert!(sender.push(), "neither end can move");
        }
        assert!(got == content[..9000] && receiver.has_landed());
        receiver.consume();
        assert!(!receiver.has_landed());
    }
}

#[test]
fn a_private_message_of_another_length_is_there_at_once() {
    let (mut sender, mut receiver) = pushing();
    rendezvous(&mut sender, &[3; 9000]);
    assert!(receiver.is_ready(0, 8000));
    assert_eq!(receiver.lands(meta(5, 8000, ContentKind::Inline)), Some(false));
    assert_eq!(receiver.message(2, 0).meta >> 2 & 0x3fff_ffff, 9000, "and is refused by that");
}

#[test]
fn the_lower_rank_wishes_for_both_while_messages_go_both_ways() {
    let (mut there, receiver) = pushing();
    let segment = &receiver.end.segment;
    let mut back = SlotSender::open(segment, 1, 0, 3).expect("the sender");
    let own = SlotReceiver::open(segment, 1, 0, 3).expect("the receiver");
    let all =
        |path: CopyPath| (0..9).fold(0, |bits, class| bits | (path as u64) << (2 * class + 1)) | 1;
    let (theirs, wished) = (receiver.end.word(PREFERENCES), own.end.word(PREFERENCES));
    theirs.store(all(CopyPath::Pipe), Ordering::Relaxed);
    wished.store(all(CopyPath::Past) | 1 << 32, Ordering::Relaxed);
    let path = |sender: &mut SlotSender, end: &SlotEnd| {
        let at = SegmentLayout::header(sender.sent());
        sender.learn();
        rendezvous(sender, &[1; 9000]);
        path_of(end.word(at + PUSHED).load(Ordering::Relaxed)).0
    };
    assert_eq!(path(&mut there, &receiver.end), CopyPath::Past, "as this rank prefers");
    assert_eq!(path(&mut back, &own.end), CopyPath::Past, "as the lower one prefers");
    (0..40).for_each(|_| there.learn());
    assert_eq!(path(&mut there, &receiver.end), CopyPath::Pipe, "nothing comes back any more");
}
