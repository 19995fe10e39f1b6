//! Tests what the peer writes where it is wanted: every byte once, and nothing afterwards.

use super::zero_copy::{BufferRegistrant, POISON};
use super::*;
use crate::memory::Buffer;
use crate::transport::rdma::registrations::BLOCK;

/// Reads to a part of a buffer; returns how much came.
fn land(stream: &mut RailStream, to: &mut [u8]) -> usize {
    // SAFETY: tests read on to the same place until it is full, and look at it then.
    unsafe { stream.read_placed(&mut [IoSliceMut::new(to)]) }
}

/// Sends messages of random lengths, a part of which each lands at a random place of a buffer. What is around
/// it stays as it is, and what has landed is overwritten at once, and stays so until the next message has
/// come.
pub(super) fn lands_while(
    (a, b): (&mut RailStream, &mut RailStream),
    buffers: (&mut Buffer<u8>, &mut Buffer<u8>),
    (total, seed): (usize, u64),
    mut meanwhile: impl FnMut(&mut RailStream, &mut RailStream, usize),
) -> usize {
    let (from, to) = buffers;
    let mut random = RandomNumbers(seed);
    let (mut done, mut placed) = (0, 0);
    let deadline = Instant::now() + LIMIT;
    to.fill(POISON);
    while done < total {
        let len = match random.next() % 4 {
            0 => 1 + random.next() % (3 * PIECE),
            _ => random.next() % (30 * PIECE) + 1,
        };
        let head = random.next() % 40;
        let (at, from_at) = (random.next() % (to.len() - len), random.next() % (from.len() - len));
        let (mut sent, mut taken, mut got) = (head, 0, 0);
        // The receiver is there first, or the sender, or nearly.
        let (first, mut before) = (random.next() % 3, random.next() % 50);
        let mut header = [0; 40];
        let mut headed = 0;
        from[from_at..from_at + len].copy_from_slice(&bytes(done as u64, len));
        while got < len || a.zero_copy() > 0 {
            before = before.saturating_sub(1);
            if first != 1 || before == 0 {
                if sent > 0 {
                    sent -= a.write([&bytes(7, head)[head - sent..]].into_iter());
                } else {
                    let rest = &from[from_at + taken..from_at + len];
                    // SAFETY: nothing is written there before it is not zero-copy any more.
                    taken += unsafe { a.write_zero_copy([rest].into_iter()) };
                }
            }
            if got < len && (first != 0 || before == 0) {
                if headed < head {
                    headed += b.read(&mut [IoSliceMut::new(&mut header[headed..head])]);
                }
                if headed == head {
                    got += land(b, &mut to[at + got..at + len]);
                }
            } else {
                b.progress();
            }
            meanwhile(a, b, done + got);
            let place = || format!("seed {seed}: {got} of {len} after {done} bytes");
            goes_on((a, b), deadline, place);
        }
        assert!(header[..head] == bytes(7, head));
        assert!(to[at..at + len] == bytes(done as u64, len), "seed {seed}, after {done} bytes");
        to[at..at + len].fill(POISON);
        from[from_at..from_at + len].fill(!POISON);
        assert!(to.iter().all(|&byte| byte == POISON), "seed {seed}, after {done} bytes");
        done += len;
        placed = b.came_placed();
    }
    placed
}

#[test]
fn what_lands_in_registered_memory_is_written_there_and_nowhere_else() {
    let Some((mut a, mut b)) = pair() else { return };
    let registrant = BufferRegistrant::new(4 * BLOCK as u64, u64::MAX);
    let (mut from, mut to) = (registrant.buffer(BLOCK), registrant.buffer(5 * BLOCK / 2));
    a.register(&registrant.registrations);
    b.register(&registrant.registrations);
    let placed = lands_while((&mut a, &mut b), (&mut from, &mut to), (8 << 20, 1), |_, _, _| {});
    assert!(placed > 0, "nothing was written where it was wanted");
    // The other way, and with what is copied between.
    moves(&mut b, &mut a, 1 << 20, odd(2));
    lands_while((&mut b, &mut a), (&mut from, &mut to), (3 << 20, 3), |_, _, _| {});
    moves(&mut a, &mut b, 1 << 20, odd(4));
    assert_eq!((a.dead(), b.dead()), (vec![], vec![]), "all is within what was offered");
}

#[test]
fn a_queue_that_dies_while_a_message_lands_writes_nothing_afterwards() {
    for seed in 0..6 {
        let devices = if seed < 2 { 1 } else { usize::MAX };
        // With few receives pieces wait half written.
        let receives = if seed % 3 == 0 { 2 } else { DEPTH };
        let Some((mut a, mut b)) = pair_with(devices, receives) else { return };
        let registrant = BufferRegistrant::new(4 * BLOCK as u64, u64::MAX);
        let (mut from, mut to) = (registrant.buffer(BLOCK), registrant.buffer(BLOCK));
        a.register(&registrant.registrations);
        b.register(&registrant.registrations);
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        let (mut random, mut broken) = (RandomNumbers(seed), false);
        let (at, victim) = (random.next() % (1 << 20), random.next() % a.rails());
        let both = (&mut a, &mut b);
        lands_while(both, (&mut from, &mut to), (2 << 20, seed), |a, b, got| {
            if got >= at && !broken {
                broken = true;
                if seed % 2 == 0 { a.break_rail(victim) } else { b.break_rail(victim) }
            }
        });
        assert!(broken);
        let both = (&mut b, &mut a);
        lands_while(both, (&mut from, &mut to), (1 << 20, seed), |_, _, _| {});
        assert_eq!((a.dead(), b.dead()), (vec![victim], vec![victim]), "both have ended it");
    }
}

/// Shows why a piece is sent again only when its queue has ended on both sides.
#[test]
fn a_piece_that_is_sent_again_too_early_is_written_twice() {
    let Some((mut a, mut b)) = pair_with(1, 1) else { return };
    let registrant = BufferRegistrant::new(3 * BLOCK as u64, u64::MAX);
    let (mut from, mut to) = (registrant.within(4 * PIECE), registrant.within(4 * PIECE));
    let (from, to) = (&mut from.0[from.1], &mut to.0[to.1]);
    a.register(&registrant.registrations);
    b.register(&registrant.registrations);
    // The only receive of one queue is used up, so that the next piece waits there, half written.
    let slow = 0;
    b.starve(slow);
    a.use_only(slow);
    moves(&mut a, &mut b, 1, || 1);
    assert_eq!(land(&mut b, to), 0);
    let deadline = Instant::now() + LIMIT;
    while !a.knows_place() {
        a.progress();
        b.progress();
        assert!(Instant::now() < deadline, "no target came");
    }
    from.copy_from_slice(&bytes(1, 4 * PIECE));
    // SAFETY: it changes when it is not zero-copy any more.
    assert_eq!(unsafe { a.write_zero_copy([&from[..PIECE]].into_iter()) }, PIECE);
    let waits = Instant::now() + Duration::from_millis(100);
    while Instant::now() < waits {
        a.progress();
    }
    // Against the rule: over the other queue, while the first one lives on both sides.
    a.use_only(1 - slow);
    a.send_again_at_once(slow);
    // SAFETY: as above.
    assert_eq!(unsafe { a.write_zero_copy([&from[PIECE..]].into_iter()) }, 3 * PIECE);
    let mut got = 0;
    while got < to.len() {
        a.progress();
        got += land(&mut b, &mut to[got..]);
        assert!(Instant::now() < deadline, "{got} bytes came");
    }
    assert!(to[..] == from[..], "so far all is well");
    to.fill(POISON);
    b.feed(slow);
    while to.iter().all(|&byte| byte == POISON) {
        a.progress();
        b.progress();
        assert!(
            Instant::now() < deadline,
            "nothing was written afterwards: the test sees too little"
        );
    }
}

#[test]
fn after_a_cut_nothing_is_written() {
    let Some((mut a, mut b)) = pair_with(usize::MAX, 1) else { return };
    let registrant = BufferRegistrant::new(2 * BLOCK as u64, u64::MAX);
    let (mut to, part) = registrant.within(32 * PIECE);
    let to = &mut to[part];
    b.register(&registrant.registrations);
    let all = bytes(0, 32 * PIECE);
    let (mut got, mut taken) = (0, 0);
    let deadline = Instant::now() + LIMIT;
    while !a.knows_place() {
        got += land(&mut b, to);
        a.progress();
        assert!(Instant::now() < deadline, "no target came");
    }
    while taken < all.len() {
        taken += a.write([&all[taken..]].into_iter());
    }
    while a.complete() < a.rails() {
        a.progress();
    }
    assert_eq!(got, 0);
    b.cut();
    to.fill(POISON);
    let looks = Instant::now() + Duration::from_millis(200);
    while Instant::now() < looks {
        a.progress();
        assert_eq!(land(&mut b, to), 0);
    }
    assert!(to.iter().all(|&byte| byte == POISON), "a device has written");
    assert_eq!(b.trouble(), Some(VerbsError::Cut));
}
