//! Two ends of a stream in one process, over all devices that there are; without any they skip with a reason and
//! pass: `tests/rdma.sh` runs them where there is one.

use std::io::IoSliceMut;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::choice::DeviceChoice;
use super::connect::{connect, connect_with, found};
use super::error::VerbsError;
use super::stream::{CompletionShuffle, DEPTH, PIECE, RailStream, RandomNumbers, SLOTS};
use crate::transport::fault::ConnectionFault;

mod one_sided;
mod placed;
mod renewed;
mod zero_copy;

/// A time longer than anything takes here, also in a machine that is thirty times slower.
const LIMIT: Duration = Duration::from_secs(120);

/// Connects two ends over `devices` devices with `receives` receives; `None` where there is no device.
fn pair_with(devices: usize, receives: u32) -> Option<(RailStream, RailStream)> {
    pair_of(devices, false, receives)
}

/// Connects two ends, which may be one-sided too.
fn pair_of(devices: usize, one_sided: bool, receives: u32) -> Option<(RailStream, RailStream)> {
    let names = match found() {
        Ok(lines) => lines,
        Err(why) => {
            roundelay_tests::skip(roundelay_tests::CheckNeeds::Rdma, why);
            return None;
        }
    };
    let name = |line: &String| line.split(':').next().unwrap_or_default().to_owned();
    let devices = names.iter().take(devices).map(name).collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("its address")).expect("a socket");
    let (near, _) = listener.accept().expect("a socket");
    let choice = DeviceChoice { devices, gid: None };
    let end = move |socket: TcpStream| {
        let mut ends = connect_with(
            vec![socket.into()],
            (&choice, one_sided),
            receives,
            Instant::now() + LIMIT,
        )?;
        Ok::<RailStream, (usize, ConnectionFault)>(ends.remove(0).1)
    };
    let other = std::thread::spawn({
        let end = end.clone();
        move || end(far)
    });
    Some((end(near).expect("this end"), other.join().expect("no panic").expect("that end")))
}

fn pair() -> Option<(RailStream, RailStream)> {
    pair_with(usize::MAX, DEPTH)
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..).take(len).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Checks that neither end has failed, and that there is time left.
fn goes_on((a, b): (&RailStream, &RailStream), deadline: Instant, place: impl Fn() -> String) {
    let said = || format!("{}\n{}{}", place(), a.state(), b.state());
    assert_eq!((a.trouble(), b.trouble()), (None, None), "{}", said());
    assert!(Instant::now() < deadline, "too late: {}", said());
}

/// Moves `total` bytes in writes and reads of these lengths, and compares them. `meanwhile` is called with the number
/// that has come.
fn moves_while(
    (a, b): (&mut RailStream, &mut RailStream),
    total: usize,
    mut lengths: impl FnMut() -> usize,
    mut meanwhile: impl FnMut(&mut RailStream, &mut RailStream, usize),
) {
    let (mut sent, mut got) = (0, 0);
    let mut rest: Vec<u8> = Vec::new();
    let mut place = vec![0; 4 * PIECE];
    let deadline = Instant::now() + LIMIT;
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
        meanwhile(a, b, got);
        goes_on((a, b), deadline, || format!("after {got} of {total} bytes"));
    }
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut place)]), 0, "and nothing else");
}

fn moves(a: &mut RailStream, b: &mut RailStream, total: usize, lengths: impl FnMut() -> usize) {
    moves_while((a, b), total, lengths, |_, _, _| {});
}

/// Returns lengths from a seed: mostly odd ones around a piece, and small ones.
fn odd(seed: u64) -> impl FnMut() -> usize {
    let mut random = RandomNumbers(seed);
    move || match (random.next() % 16, random.next()) {
        (0..5, x) => x % 64 + 1,
        (5..10, x) => x % 4097 + 1,
        (_, x) => PIECE - 3 + x % (2 * PIECE),
    }
}

/// Polls both ends until the first has failed; returns the reason.
fn failure(stream: &mut RailStream, other: &mut RailStream) -> VerbsError {
    let deadline = Instant::now() + LIMIT;
    loop {
        stream.progress();
        other.progress();
        if let Some(why) = stream.trouble() {
            return why;
        }
        assert!(Instant::now() < deadline, "the device said nothing");
    }
}

#[test]
fn bytes_come_in_order_whatever_their_lengths() {
    let Some((mut a, mut b)) = pair() else { return };
    moves(&mut a, &mut b, 3 << 20, odd(1));
    moves(&mut b, &mut a, 1 << 20, odd(2));
    // Around what devices cut packets to, what is sent inline, and a piece.
    for border in [1, 192, 256, 512, 1024, 2048, 4096, PIECE, 2 * PIECE] {
        for len in border.max(2) - 1..=border + 1 {
            moves(&mut a, &mut b, 3 * len, || len);
        }
    }
}

#[test]
fn the_order_of_completions_does_not_matter() {
    let Some((mut a, mut b)) = pair() else { return };
    let mut swaps = 0;
    for seed in 0..10_000 {
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        let mut random = RandomNumbers(seed);
        let mut lengths = move || 1 + random.next() % 48;
        let (mut sent, mut got, mut all) = (0, 0, Vec::new());
        let deadline = Instant::now() + LIMIT;
        for _ in 0..6 {
            let some = bytes(seed + sent as u64, lengths());
            let taken = a.write([&some[..]].into_iter());
            assert!(taken == some.len() || taken == 0, "{taken}");
            all.extend_from_slice(&some[..taken]);
            sent += taken;
        }
        let mut place = [0; 300];
        while got < sent {
            a.progress();
            let n = b.read(&mut [IoSliceMut::new(&mut place[got..])]);
            assert_eq!(place[got..got + n], all[got..got + n], "seed {seed}, after {got} bytes");
            got += n;
            assert!(Instant::now() < deadline, "seed {seed}: {got} of {sent} bytes came");
        }
        for stream in [&mut a, &mut b] {
            let mut stirred = stream.unruly.take().expect("put there above");
            swaps += stirred.swaps;
            // The completions that it holds come now.
            stirred.random = RandomNumbers(0);
            stream.release(stirred.held);
        }
    }
    assert!(swaps > 10_000, "{swaps}");
    moves(&mut a, &mut b, 1 << 20, odd(7));
}

#[test]
fn a_sender_that_is_ahead_is_held_back() {
    let Some((mut a, mut b)) = pair() else { return };
    let all = bytes(0, 2 * SLOTS * PIECE);
    let mut taken = 0;
    let settled = Instant::now() + Duration::from_millis(500);
    while Instant::now() < settled || a.complete() < SLOTS {
        taken += a.write([&all[taken..]].into_iter());
    }
    assert_eq!(taken, SLOTS * PIECE, "a ring and not more");
    let mut got = Vec::new();
    let deadline = Instant::now() + LIMIT;
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
fn a_receive_queue_that_is_exhausted_holds_the_sender_back_and_loses_nothing() {
    const RECEIVES: usize = 2;
    let Some((mut a, mut b)) = pair_with(usize::MAX, RECEIVES as u32) else { return };
    let all = bytes(0, 32 * PIECE);
    let mut taken = 0;
    while taken < all.len() {
        taken += a.write([&all[taken..]].into_iter());
    }
    // The other end is not polled: what it has receives for completes, and no more.
    let room = RECEIVES * a.rails();
    let settled = Instant::now() + Duration::from_millis(500);
    while Instant::now() < settled || a.complete() < room {
        a.progress();
    }
    assert_eq!(a.complete(), room);
    let (mut got, mut place) = (0, vec![0; all.len()]);
    let deadline = Instant::now() + LIMIT;
    while got < all.len() {
        a.progress();
        got += b.read(&mut [IoSliceMut::new(&mut place[got..])]);
        assert_eq!((a.trouble(), b.trouble()), (None, None));
        assert!(Instant::now() < deadline, "{got} bytes came");
    }
    assert!(place == all);
    moves(&mut a, &mut b, 1 << 20, odd(9));
    moves(&mut b, &mut a, 1 << 20, odd(10));
}

#[test]
fn a_queue_that_dies_in_mid_transfer_is_replaced_and_every_byte_comes_once() {
    for seed in 0..8 {
        // On one device too: it has two queues.
        let devices = if seed < 4 { 1 } else { usize::MAX };
        let Some((mut a, mut b)) = pair_with(devices, DEPTH) else { return };
        let (mut random, mut broken) = (RandomNumbers(seed), false);
        (a.unruly, b.unruly) =
            (Some(CompletionShuffle::new(seed)), Some(CompletionShuffle::new(!seed)));
        let at = random.next() % (1 << 20);
        let victim = random.next() % a.rails();
        moves_while((&mut a, &mut b), 2 << 20, odd(seed), |a, b, got| {
            if got >= at && !broken {
                broken = true;
                if seed % 2 == 0 { a.break_rail(victim) } else { b.break_rail(victim) }
            }
        });
        assert!(broken);
        moves(&mut b, &mut a, 1 << 20, odd(seed + 100));
        assert_eq!((a.dead(), b.dead()), (vec![victim], vec![victim]), "both have ended it");
    }
}

#[test]
fn a_queue_whose_device_says_nothing_is_replaced() {
    let Some((mut a, mut b)) = pair() else { return };
    moves(&mut a, &mut b, 1 << 20, odd(1));
    // Neither end gets a completion of what is on it: as if the device had never sent it.
    (a.silent, b.silent) = (Some(1), Some(1));
    moves(&mut a, &mut b, 1 << 20, odd(2));
    moves(&mut b, &mut a, 1 << 20, odd(3));
    assert_eq!((a.dead(), b.dead()), (vec![1], vec![1]), "both have ended it");
    // A peer that is only slow to read is not taken for one.
    let sent = a.write([&[7u8; 100][..]].into_iter());
    let later = Instant::now() + Duration::from_secs(3);
    while Instant::now() < later {
        a.progress();
    }
    let mut place = [0; 100];
    assert_eq!((sent, b.read(&mut [IoSliceMut::new(&mut place)]), place), (100, 100, [7; 100]));
    assert_eq!(a.dead(), [1], "and no other");
}

#[test]
fn all_queues_but_one_may_die_one_after_the_other() {
    let Some((mut a, mut b)) = pair() else { return };
    for at in 1..a.rails() {
        if at % 2 == 0 {
            a.break_rail(at);
        } else {
            b.break_rail(at);
        }
        moves(&mut a, &mut b, 1 << 20, odd(at as u64));
        moves(&mut b, &mut a, 1 << 20, odd(at as u64));
    }
}

#[test]
fn a_wrong_key_ends_the_stream_with_the_reason() {
    let Some((mut a, mut b)) = pair() else { return };
    moves(&mut a, &mut b, 1000, || 1000);
    a.forge_key();
    a.write([&[7u8; 100][..]].into_iter());
    let why = failure(&mut a, &mut b).to_string();
    assert!(why.contains("refused the key") && why.contains("on device "), "{why}");
    assert_eq!(b.read(&mut [IoSliceMut::new(&mut [0; 100])]), 0, "nothing came");
}

#[test]
fn when_every_queue_has_failed_both_ends_say_so() {
    let Some((mut a, mut b)) = pair() else { return };
    (0..a.rails()).for_each(|at| a.break_rail(at));
    a.write([&[7u8; 100][..]].into_iter());
    let why = failure(&mut a, &mut b).to_string();
    assert!(why.contains("queue pairs to it failed, the last one on device "), "{why}");
    assert_eq!(a.write([&[7u8; 100][..]].into_iter()), 0, "nothing more is taken");
    b.write([&[7u8; 100][..]].into_iter());
    let why = failure(&mut b, &mut a).to_string();
    assert!(why.contains("does not answer"), "{why}");
}

#[test]
fn devices_and_addresses_that_do_not_exist_are_named() {
    let Ok(devices) = found() else { return };
    let socket = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        TcpStream::connect(listener.local_addr().expect("its address")).expect("a socket").into()
    };
    let error = |choice: &DeviceChoice| {
        let made = connect(vec![socket()], choice, Instant::now() + LIMIT);
        made.err().expect("no such thing").1.to_string()
    };
    let name = devices[0].split(':').next().expect("its name");
    let why = error(&DeviceChoice { devices: vec!["none".into()], gid: None });
    assert!(why.contains("is named none") && why.contains(name), "{why}");
    let why = error(&DeviceChoice { devices: vec![name.into()], gid: Some(200) });
    assert!(why.contains(&format!("{name} has no GID 200; it has 0 (")), "{why}");
}
