//! Messages: a ring of headers, and slots beside it.
//!
//! A connection has one sender and one receiver. The sender of message `m` waits until it may use
//! the next header (and slot), writes the content, and stores `m + 1` in the header's first word
//! with `Release`; the receiver polls that word with `Acquire`. A small message is in the header
//! itself: one of 48 bytes costs the transfer of one line, and the lines of longer ones follow. The
//! receiver counts what it has consumed in a line of its own, which the sender reads only when its
//! last reading no longer suffices.
//!
//! The headers form a ring of [`RING`]; slots are used in turn, as many as the plan was proved with.
//! A smaller number keeps them in the cache. As the number may change from plan to plan, the sender
//! lets the connection run dry when it does.

mod receiver;
mod sender;

pub use receiver::Receiver;
pub use sender::Sender;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::control::{Sleeper, wake};
use super::copy_path::CopyPath;
use super::layout::{HEADER_PAYLOAD, HEADS, Layout, RING};
use super::{INLINE, Segment};
use crate::error::Error;
use crate::transport::mapped::{MappedReceiver, MappedSender};
use crate::transport::message::{IoVec, Kind, Message};

/// The word of a connection's first page by which the receiver says how it wishes to have private memory: whether
/// it can read it through the kernel, above that bit the paths of all lengths, and in the upper half how many samples
/// these rest on.
const WISHES: u64 = 64;
/// The word of a header that says, of private memory, which path it comes, and where in the pipe it begins.
const PUSHED: u64 = HEADER_PAYLOAD + 8;
/// The word of a header that says, of private memory, when it was handed over: nanoseconds of the machine's clock. From
/// then on both ends are at work on it.
const POSTED: u64 = HEADER_PAYLOAD + 16;

#[inline]
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Decodes the path and the place in the pipe that [`PUSHED`] says; messages begin at multiples of a line
/// there.
#[inline]
fn path_of(word: u64) -> (CopyPath, u64) {
    let path = match word % 64 {
        0 => CopyPath::Kernel,
        1 => CopyPath::Pipe,
        _ => CopyPath::Past,
    };
    (path, word / 64 * 64)
}

/// The state of a connection that both ends have.
struct End {
    /// The headers.
    base: *mut u8,
    slot_bytes: u64,
    offset: u64,
    /// The offset of the pipe.
    pipe: u64,
    /// The word on which the rank at the other end sleeps.
    bed: *const AtomicU32,
    segment: Arc<Segment>,
}

// SAFETY: the pointers are into the segment, which is held; an end is used by one thread at a time.
unsafe impl Send for End {}

impl End {
    /// Opens one end of the connection between two ranks on a channel; `peer` is at the other.
    fn open(
        segment: &Arc<Segment>,
        (from, to): (u32, u32),
        channel: u32,
        peer: u32,
    ) -> Result<Self, Error> {
        let offset = segment.layout().connection(from, to, channel);
        segment.reserve(offset, HEADS, "the headers of a connection")?;
        let slot_bytes = segment.layout().slot_bytes;
        let pipe = segment.layout().pipe_at(from, to, channel);
        let sleeper = match channel == u32::from(segment.layout().message_channel()) {
            true => Sleeper::Messages,
            false => Sleeper::Calls,
        };
        let base = segment.mapped(offset, segment.layout().connection_bytes())?;
        let bed = std::ptr::from_ref(segment.bed(peer, sleeper));
        Ok(End { base, slot_bytes, offset, pipe, bed, segment: segment.clone() })
    }

    /// Wakes the peer if it sleeps, for there is something for it to see.
    #[inline]
    fn wake(&self) {
        // SAFETY: it lies in the segment, which is held.
        wake(unsafe { &*self.bed });
    }

    #[inline]
    fn word(&self, at: u64) -> &AtomicU64 {
        // SAFETY: every caller stays in the headers, which were reserved when the end was
        // opened, at a multiple of 8; these words are only accessed as atomics.
        unsafe { &*self.base.add(at as usize).cast::<AtomicU64>() }
    }

    #[inline]
    fn consumed(&self) -> &AtomicU64 {
        self.word(0)
    }

    #[inline]
    fn slot(&self, slot: u64) -> *mut u8 {
        self.base.wrapping_add((HEADS + slot * self.slot_bytes) as usize)
    }
}

const _: () =
    assert!((HEADER_PAYLOAD as usize + INLINE).is_multiple_of(64) && RING.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::super::pipe::Taker;
    use super::*;
    use crate::transport::message::meta;

    fn pair() -> (Sender, Receiver) {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 128, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        let sender = Sender::open(&segment, 0, 1, 3).expect("the sender");
        (sender, Receiver::open(&segment, 0, 1, 3).expect("the receiver"))
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
                sender.post(meta(7, 8, Kind::Inline));
            }
            assert!(!sender.has_header());
            for m in 0..RING {
                assert!(receiver.has_begun(0));
                let message = receiver.message(2, 0);
                assert_eq!(message.kind(), Kind::Inline);
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
        sender.post(meta(0, 100, Kind::Slot));
        assert!(sender.has_slot(2));
        assert!(!sender.has_slot(3));
        assert_eq!(receiver.message(2, 0).kind(), Kind::Slot);
        receiver.consume();
        assert!(sender.has_slot(3));
    }

    /// Opens a pair whose private messages go through the pipe.
    fn pushing() -> (Sender, Receiver) {
        let layout = Layout { arena_bytes: 4096, slot_bytes: 1 << 16, ..Layout::new(2) };
        let segment = Segment::create(layout).expect("a small segment");
        let mut sender = Sender::open(&segment, 0, 1, 3).expect("the sender");
        let mut receiver = Receiver::open(&segment, 0, 1, 3).expect("the receiver");
        receiver.taker = Taker::new(&segment, receiver.end.pipe).ok();
        receiver.wish();
        sender.learn();
        assert!(sender.reads());
        (sender, receiver)
    }

    fn rendezvous(sender: &mut Sender, content: &[u8]) {
        let piece = IoVec { ptr: content.as_ptr(), len: content.len() };
        let meta = meta(5, content.len(), Kind::Cma);
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
            // SAFETY: a slot of so many bytes.
            unsafe { sender.slot(4, 100).expect("memory").write_bytes(7, 100) };
            sender.post(meta(5, 100, Kind::Slot));
            rendezvous(&mut sender, &content[..9000]);
            let lens = [content.len() - round, 100, 9000];
            for (ahead, len) in lens.into_iter().enumerate() {
                while !receiver.is_ready(ahead as u64, len) {
                    assert!(sender.push(), "neither end can move");
                }
            }
            for (ahead, right) in [(0, &content[round..]), (2, &content[..9000])] {
                let message = receiver.message(4, ahead);
                assert_eq!(message.kind(), Kind::Slot);
                // SAFETY: as many bytes as were put together.
                let got = unsafe { std::slice::from_raw_parts(message.content, right.len()) };
                assert!(got == right);
            }
            // SAFETY: the slot's content.
            assert_eq!(unsafe { receiver.message(4, 1).content.read() }, 7);
            (0..3).for_each(|_| receiver.consume());
            let last = sender.sent() - 1;
            assert!(sender.is_consumed(last));

            let wanted = meta(5, 9000, Kind::Inline);
            assert_eq!(receiver.lands(wanted), None, "nothing has come");
            rendezvous(&mut sender, &content[..9000]);
            assert_eq!(receiver.lands(wanted), Some(true));
            let other = meta(6, 9000, Kind::Inline);
            assert_eq!(receiver.lands(other), Some(false), "another call's is used nowhere");
            let mut got = Vec::new();
            loop {
                while let Some((part, before, len)) = receiver.part() {
                    assert_eq!(before, got.len());
                    // SAFETY: so many bytes are there.
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
        assert_eq!(receiver.lands(meta(5, 8000, Kind::Inline)), Some(false));
        assert_eq!(receiver.message(2, 0).meta >> 2 & 0x3fff_ffff, 9000, "and is refused by that");
    }

    #[test]
    fn the_lower_rank_wishes_for_both_while_messages_go_both_ways() {
        let (mut there, receiver) = pushing();
        let segment = &receiver.end.segment;
        let mut back = Sender::open(segment, 1, 0, 3).expect("the sender");
        let own = Receiver::open(segment, 1, 0, 3).expect("the receiver");
        let all = |path: CopyPath| {
            (0..9).fold(0, |bits, class| bits | (path as u64) << (2 * class + 1)) | 1
        };
        let (theirs, wished) = (receiver.end.word(WISHES), own.end.word(WISHES));
        theirs.store(all(CopyPath::Pipe), Ordering::Relaxed);
        wished.store(all(CopyPath::Past) | 1 << 32, Ordering::Relaxed);
        let path = |sender: &mut Sender, end: &End| {
            let at = Layout::header(sender.sent());
            sender.learn();
            rendezvous(sender, &[1; 9000]);
            path_of(end.word(at + PUSHED).load(Ordering::Relaxed)).0
        };
        assert_eq!(path(&mut there, &receiver.end), CopyPath::Past, "as this rank wishes");
        assert_eq!(path(&mut back, &own.end), CopyPath::Past, "as the lower one wishes");
        (0..40).for_each(|_| there.learn());
        assert_eq!(path(&mut there, &receiver.end), CopyPath::Pipe, "nothing comes back any more");
    }
}
