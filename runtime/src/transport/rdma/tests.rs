//! Two ends of a stream in one process, over whatever devices there are; without any they say so and
//! pass: `tests/rdma.sh` runs them where there is one.

use std::io::IoSliceMut;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::stream::{PIECE, SLOTS, Stream};

/// Two connected ends, or nothing where there is no device.
fn pair() -> Option<(Stream, Stream)> {
    if let Err(why) = super::probe() {
        println!("skipped: {why}");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("its address")).expect("a socket");
    let (near, _) = listener.accept().expect("a socket");
    let deadline = Instant::now() + Duration::from_secs(60);
    let other = std::thread::spawn(move || super::connect(vec![far.into()], deadline));
    let mut near = super::connect(vec![near.into()], deadline).expect("this end");
    let mut far = other.join().expect("no panic").expect("that end");
    Some((near.remove(0).1, far.remove(0).1))
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..).take(len).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Moves so many bytes in writes and reads of these lengths, and compares them.
fn moves(a: &mut Stream, b: &mut Stream, total: usize, mut lengths: impl FnMut() -> usize) {
    let (mut sent, mut got) = (0, 0);
    let mut rest: Vec<u8> = Vec::new();
    let mut place = vec![0; 4 * PIECE];
    let deadline = Instant::now() + Duration::from_secs(200);
    while got < total {
        if rest.is_empty() && sent < total {
            rest = bytes(sent as u64, lengths().min(total - sent));
            sent += rest.len();
        }
        // In two places, to cross their border.
        let (head, tail) = rest.split_at(rest.len() / 3);
        let taken = a.write([head, tail].into_iter());
        rest.drain(..taken);
        let len = lengths().clamp(1, place.len());
        let n = b.read(&mut [IoSliceMut::new(&mut place[..len])]);
        assert_eq!(place[..n], bytes(got as u64, n), "after {got} bytes");
        got += n;
        assert_eq!((a.trouble(), b.trouble()), (None, None), "after {got} of {total} bytes");
        assert!(Instant::now() < deadline, "{got} of {total} bytes came");
    }
}

/// Lengths from a seed: mostly odd ones around a piece, and small ones.
fn odd(seed: u64) -> impl FnMut() -> usize {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match (state >> 60, (state >> 33) as usize) {
            (0..5, x) => x % 64 + 1,
            (5..10, x) => x % 4097 + 1,
            (_, x) => PIECE - 3 + x % (2 * PIECE),
        }
    }
}

#[test]
fn bytes_come_in_order_whatever_their_lengths() {
    let Some((mut a, mut b)) = pair() else { return };
    moves(&mut a, &mut b, 3 << 20, odd(1));
    moves(&mut b, &mut a, 1 << 20, odd(2));
    for len in [1, 1023, 1024, 1025, 4095, 4096, 4097, PIECE, PIECE + 1] {
        moves(&mut a, &mut b, 3 * len, || len);
    }
}

#[test]
fn a_sender_that_is_ahead_is_held_back() {
    let Some((mut a, mut b)) = pair() else { return };
    let all = bytes(0, 2 * SLOTS * PIECE);
    let mut taken = 0;
    let settled = Instant::now() + Duration::from_millis(500);
    while Instant::now() < settled {
        taken += a.write([&all[taken..]].into_iter());
    }
    assert_eq!(taken, SLOTS * PIECE, "a ring and not more");
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while got.len() < all.len() {
        taken += a.write([&all[taken..]].into_iter());
        let mut place = vec![0; 10_000];
        let n = b.read(&mut [IoSliceMut::new(&mut place)]);
        got.extend_from_slice(&place[..n]);
        assert!(Instant::now() < deadline, "{} bytes came", got.len());
    }
    assert!(got == all);
}

#[test]
fn a_queue_that_fails_is_replaced_by_the_others() {
    let Some((mut a, mut b)) = pair() else { return };
    if a.rails() < 2 {
        println!("skipped: there is one device only");
        return;
    }
    moves(&mut a, &mut b, 1 << 20, odd(3));
    a.break_rail(0);
    moves(&mut a, &mut b, 1 << 20, odd(4));
    moves(&mut b, &mut a, 1 << 20, odd(5));
}

#[test]
fn a_wrong_key_ends_the_stream_with_the_reason() {
    let Some((mut a, _b)) = pair() else { return };
    a.forge_key();
    a.write([&[7u8; 100][..]].into_iter());
    let deadline = Instant::now() + Duration::from_secs(60);
    while a.trouble().is_none() {
        a.progress();
        assert!(Instant::now() < deadline, "the device said nothing");
    }
    let why = a.trouble().unwrap_or_default();
    assert!(why.contains("access") || why.contains("flush"), "{why}");
}

#[test]
fn when_every_queue_has_failed_both_ends_say_so() {
    let Some((mut a, _b)) = pair() else { return };
    (0..a.rails()).for_each(|at| a.break_rail(at));
    a.write([&[7u8; 100][..]].into_iter());
    let deadline = Instant::now() + Duration::from_secs(60);
    while a.trouble().is_none() {
        a.progress();
        assert!(Instant::now() < deadline, "the device said nothing");
    }
    assert!(a.trouble().unwrap_or_default().contains("queue pairs to it failed"));
    assert_eq!(a.write([&[7u8; 100][..]].into_iter()), 0, "nothing more is taken");
}
