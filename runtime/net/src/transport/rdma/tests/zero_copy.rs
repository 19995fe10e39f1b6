//! Tests what is sent from where it lies: the same bytes, and none that change too late.

use std::sync::Arc;

use super::*;
use crate::memory::{Arena, Buffer};
use crate::transport::one_sided::AccessRights;
use crate::transport::rdma::registrations::{ArenaRegistrations, BLOCK};
use crate::transport::rdma::verbs::{MemoryRegistration, VerbsDevice};
use crate::transport::shm::{SegmentLayout, ShmSegment};

/// The byte that overwrites a message as soon as nothing reads it any more.
pub(super) const POISON: u8 = 0xee;

/// Buffers, and their registrations with devices.
pub(super) struct BufferRegistrant {
    pub(super) arena: Arc<Arena>,
    pub(super) registrations: Arc<ArenaRegistrations>,
}

impl BufferRegistrant {
    /// Makes an arena of `bytes` bytes, of which `limit` may be registered.
    pub(super) fn new(bytes: u64, limit: u64) -> BufferRegistrant {
        let layout = SegmentLayout { arena_bytes: bytes, slot_bytes: 64, ..SegmentLayout::new(1) };
        let segment = ShmSegment::create(layout).expect("a small segment");
        let registrations = ArenaRegistrations::with_limit(segment.clone(), 0, limit);
        BufferRegistrant { arena: Arena::new(segment, 0), registrations }
    }

    pub(super) fn buffer(&self, len: usize) -> Buffer<u8> {
        Buffer::zeroed(&self.arena, len).expect("room")
    }

    /// Returns a buffer, and the range of `len` bytes in it that lies in one block.
    pub(super) fn within(&self, len: usize) -> (Buffer<u8>, std::ops::Range<usize>) {
        let buffer = self.buffer(BLOCK + len);
        let skip = buffer.as_ptr().align_offset(BLOCK);
        (buffer, skip..skip + len)
    }
}

/// Sends a part of a buffer; returns how much was taken.
fn zero_copy(stream: &mut RailStream, from: &[u8]) -> usize {
    // SAFETY: tests write there when `zero_copy` allows it, or to see what comes of it; nothing is unmapped.
    unsafe { stream.write_zero_copy([from].into_iter()) }
}

/// Connects a pair whose first end has sent all of this part of a buffer by zero-copy, 32 pieces, and whose
/// second has one receive for each queue: most of it cannot have been read.
fn all_registered() -> Option<(RailStream, RailStream, Buffer<u8>, std::ops::Range<usize>)> {
    let (mut a, b) = pair_with(usize::MAX, 1)?;
    let registrant = BufferRegistrant::new(2 * BLOCK as u64, u64::MAX);
    let (mut buffer, part) = registrant.within(32 * PIECE);
    a.register(&registrant.registrations);
    buffer[part.clone()].copy_from_slice(&bytes(0, 32 * PIECE));
    assert_eq!(zero_copy(&mut a, &buffer[part.clone()]), 32 * PIECE);
    Some((a, b, buffer, part))
}

/// Sends messages of random lengths at random places of a buffer, which is overwritten as soon as that is
/// allowed, also while none of them was read. `meanwhile` is called with the number of bytes that have come.
fn sends_while(
    (a, b): (&mut RailStream, &mut RailStream),
    buffer: &mut Buffer<u8>,
    (total, seed): (usize, u64),
    mut meanwhile: impl FnMut(&mut RailStream, &mut RailStream, usize),
) {
    let mut random = RandomNumbers(seed);
    let (mut sent, mut got, mut most) = (0, 0, 0);
    let (mut at, mut len, mut taken) = (0, 0, 0);
    let mut place = vec![0; 3 * PIECE];
    let deadline = Instant::now() + LIMIT;
    while got < total {
        if taken == len && a.zero_copy() == 0 {
            buffer[at..at + len].fill(POISON);
            len = match random.next() % 4 {
                0 => random.next() % PIECE,
                1 => PIECE + random.next() % 3,
                _ => random.next() % (20 * PIECE),
            };
            (len, taken) = (len.min(total - sent), 0);
            at = random.next() % (buffer.len() - len);
            buffer[at..at + len].copy_from_slice(&bytes(sent as u64, len));
            sent += len;
        }
        taken += zero_copy(a, &buffer[at + taken..at + len]);
        most = most.max(a.zero_copy_pieces());
        // A receiver that lags behind, and one that does not.
        if !random.next().is_multiple_of(4) {
            let len = 1 + random.next() % place.len();
            let n = b.read(&mut [IoSliceMut::new(&mut place[..len])]);
            assert!(place[..n] == bytes(got as u64, n), "seed {seed}, after {got} bytes");
            got += n;
        }
        meanwhile(a, b, got);
        assert_eq!((a.trouble(), b.trouble()), (None, None), "after {got} of {total} bytes");
        assert!(Instant::now() < deadline, "{got} of {total} bytes came");
    }
    assert!(most > 0 || a.registrations_used() == 0, "nothing was sent by zero-copy");
}

#[test]
fn what_is_sent_by_zero_copy_arrives_as_it_was() {
    let Some((mut a, mut b)) = pair() else { return };
    // Longer than two blocks: some messages cross from one into the next.
    let registrant = BufferRegistrant::new(3 * BLOCK as u64, u64::MAX);
    let mut buffer = registrant.buffer(5 * BLOCK / 2);
    a.register(&registrant.registrations);
    sends_while((&mut a, &mut b), &mut buffer, (6 << 20, 1), |_, _, _| {});
    assert!(registrant.registrations.bytes() > 0);
    // Other memory, and memory after the end of the other one's arena, is copied as ever.
    moves(&mut a, &mut b, 1 << 20, odd(2));
    b.register(&registrant.registrations);
    sends_while((&mut b, &mut a), &mut buffer, (2 << 20, 3), |_, _, _| {});
    assert_eq!((a.dead(), b.dead()), (vec![], vec![]));
}

#[test]
fn what_changes_before_it_is_given_back_is_seen() {
    // Receives run out: the device cannot have read all that was taken for the last time.
    let Some((mut a, mut b, mut buffer, part)) = all_registered() else { return };
    let buffer = &mut buffer[part];
    while a.complete() < a.rails() {
        a.progress();
    }
    assert_eq!(
        a.zero_copy() as usize,
        (32 - a.rails()) * PIECE,
        "what was delivered is given back"
    );
    buffer.fill(POISON);
    let (mut got, mut place) = (0, vec![0; 32 * PIECE]);
    let deadline = Instant::now() + LIMIT;
    while got < place.len() {
        a.progress();
        got += b.read(&mut [IoSliceMut::new(&mut place[got..])]);
        assert!(Instant::now() < deadline, "{got} bytes came");
    }
    let changed = (0..32).filter(|i| place[i * PIECE..(i + 1) * PIECE].ends_with(&[POISON; 64]));
    assert!(changed.count() > 0, "nothing was read from where it lies");
}

#[test]
fn a_queue_that_dies_during_zero_copy_takes_nothing_with_it() {
    for seed in 0..6 {
        let devices = if seed < 3 { 1 } else { usize::MAX };
        let Some((mut a, mut b)) = pair_with(devices, DEPTH) else { return };
        let registrant = BufferRegistrant::new(3 * BLOCK as u64, u64::MAX);
        let mut buffer = registrant.buffer(5 * BLOCK / 2);
        a.register(&registrant.registrations);
        b.register(&registrant.registrations);
        let (mut random, mut broken) = (RandomNumbers(seed), false);
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        let (at, victim) = (random.next() % (1 << 20), random.next() % a.rails());
        sends_while((&mut a, &mut b), &mut buffer, (2 << 20, seed), |a, b, got| {
            if got >= at && !broken {
                broken = true;
                if seed % 2 == 0 { a.break_rail(victim) } else { b.break_rail(victim) }
            }
        });
        assert!(broken);
        sends_while((&mut b, &mut a), &mut buffer, (1 << 20, seed), |_, _, _| {});
        assert_eq!((a.dead(), b.dead()), (vec![victim], vec![victim]), "both have ended it");
    }
}

#[test]
fn blocks_make_room_for_others_but_not_while_they_are_in_use() {
    let Some((mut a, mut b)) = pair_with(usize::MAX, 1) else { return };
    let registrant = BufferRegistrant::new(6 * BLOCK as u64, 4 * BLOCK as u64);
    let mut buffer = registrant.buffer(6 * BLOCK - (1 << 16));
    a.register(&registrant.registrations);
    // One piece in each block, of which receives are there for some only.
    let all = bytes(0, 6 * PIECE);
    for i in 0..6 {
        let at = (i * BLOCK).min(buffer.len() - PIECE);
        buffer[at..at + PIECE].copy_from_slice(&all[i * PIECE..(i + 1) * PIECE]);
        assert_eq!(zero_copy(&mut a, &buffer[at..at + PIECE]), PIECE);
        assert!(registrant.registrations.bytes() <= 4 * BLOCK as u64);
    }
    let (mut got, mut place) = (0, vec![0; all.len()]);
    let deadline = Instant::now() + LIMIT;
    while got < place.len() {
        a.progress();
        got += b.read(&mut [IoSliceMut::new(&mut place[got..])]);
        assert!(Instant::now() < deadline, "{got} bytes came");
    }
    assert!(place == all);
    sends_while((&mut a, &mut b), &mut buffer, (2 << 20, 5), |_, _, _| {});
    assert!(registrant.registrations.bytes() <= 4 * BLOCK as u64);
    // Without any room all is copied.
    let Some((mut a, mut b)) = pair() else { return };
    let registrant = BufferRegistrant::new(BLOCK as u64, PIECE as u64);
    let mut buffer = registrant.buffer(BLOCK / 2);
    a.register(&registrant.registrations);
    sends_while((&mut a, &mut b), &mut buffer, (1 << 20, 6), |_, _, _| {});
    assert_eq!(registrant.registrations.bytes(), 0);
}

#[test]
fn a_queue_through_which_nothing_is_delivered_is_given_up_for_the_others() {
    let Some((mut a, mut b)) = pair_with(usize::MAX, 4) else { return };
    let registrant = BufferRegistrant::new(2 * BLOCK as u64, u64::MAX);
    let mut buffer = registrant.buffer(BLOCK);
    a.register(&registrant.registrations);
    // The device waits for a receive, for ever.
    let victim = a.rails() - 1;
    b.starve(victim);
    sends_while((&mut a, &mut b), &mut buffer, (4 << 20, 7), |_, _, _| {});
    assert_eq!((a.dead(), b.dead()), (vec![victim], vec![victim]), "both have ended it");
    moves(&mut b, &mut a, 1 << 20, odd(8));
}

#[test]
fn after_a_cut_nothing_is_read_and_nothing_comes() {
    let Some((mut a, mut b, mut buffer, part)) = all_registered() else { return };
    let buffer = &mut buffer[part];
    a.cut();
    buffer.fill(POISON);
    assert_eq!(a.trouble(), Some(VerbsError::Cut));
    assert!(!a.settle() && zero_copy(&mut a, buffer) == 0);
    let mut place = vec![0; 32 * PIECE];
    let looks = Instant::now() + Duration::from_millis(200);
    let mut got = 0;
    while Instant::now() < looks {
        got += b.read(&mut [IoSliceMut::new(&mut place[got..])]);
    }
    assert!(got < place.len() && place[..got] == bytes(0, got), "{got} bytes came");
}

#[test]
fn memory_of_a_gpu_is_registered_where_the_device_can_and_refused_with_the_reason_where_not() {
    let Ok(devices) = VerbsDevice::all() else { return };
    let may = AccessRights { read: false, write: true };
    for device in devices {
        let code = |fd| match MemoryRegistration::dmabuf(&device, fd, (0, 4096), may) {
            Ok(_) => None,
            Err(error) => error.raw_os_error(),
        };
        let refused = code(-1).expect("there is no such descriptor");
        let takes = refused == libc::EBADF;
        assert!(takes || [libc::EOPNOTSUPP, libc::EPROTONOSUPPORT].contains(&refused), "{refused}");
        assert_eq!(MemoryRegistration::takes_dmabuf(&device), takes);
        let line = device.describe(takes);
        assert_eq!(line.ends_with("no dmabuf"), !takes, "{line}");
        // A file is none either, whatever the device can do.
        let file =
            rustix::fs::memfd_create("none", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
        assert!(code(std::os::fd::AsRawFd::as_raw_fd(&file)).is_some());
    }
}
