//! Streams over real connections that are cut after random numbers of bytes, some of them while the ranks
//! still exchange their positions. A cut is what the system makes of one: both sides see an end or a reset, and
//! read what had arrived before. Cables that are pulled are for `tests/paths.rs`.

#[cfg(feature = "rdma")]
mod mixed;

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::net::Shutdown;

use super::{DialResult, PeerDialer, ResumableStream};
use crate::transport::Carrier;
use crate::transport::fault::ConnectionFault;
use crate::transport::tcp::TcpSocket;

/// A generator of numbers: the same for the same seed.
struct SeededDice(u64);

impl SeededDice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % below.max(1)
    }
}

/// Returns the byte at that place of a stream.
fn byte(stream: u64, at: u64) -> u8 {
    let x = (at ^ stream << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 56) as u8 ^ at as u8
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let near = TcpStream::connect(listener.local_addr().expect("its address")).expect("reached");
    let far = listener.accept().expect("accepted").0;
    for stream in [&near, &far] {
        stream.set_nonblocking(true).expect("not to block");
    }
    (near, far)
}

/// A connection, as its ends are seen from outside.
struct CutCable {
    ends: [OwnedFd; 2],
    /// Bytes that may pass.
    left: u64,
}

impl CutCable {
    /// Cuts it if its bytes have passed; returns true if it is cut.
    fn is_cut(&self, dice: &mut SeededDice) -> bool {
        let passed: u64 = self.ends.iter().map(arrived).sum();
        if passed < self.left {
            return false;
        }
        let end = &self.ends[dice.roll(2) as usize];
        let how = if dice.roll(2) == 0 { Shutdown::Both } else { Shutdown::Write };
        // It may have ended already.
        let _ = rustix::net::shutdown(end, how);
        true
    }
}

/// Returns the bytes that have arrived at an end.
fn arrived(fd: &OwnedFd) -> u64 {
    // SAFETY: it is made of numbers, all of which may be zero.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let (fd, place) = (fd.as_raw_fd(), (&raw mut info).cast());
    // SAFETY: the place is as long as is said.
    unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut len) };
    info.tcpi_bytes_received
}

/// All cables between two ranks, and the listeners of both.
struct CableWorld {
    dice: SeededDice,
    cables: Vec<CutCable>,
    /// The connections that the other made, with their paths, by rank.
    listeners: [VecDeque<(usize, OwnedFd)>; 2],
    /// Paths on which no connection is made.
    closed: Vec<usize>,
    shut: bool,
    /// Cables that were cut and may still be.
    cuts: u64,
    most: u64,
    longest: u64,
}

impl CableWorld {
    fn new(seed: u64, most: u64, longest: u64) -> Arc<Mutex<CableWorld>> {
        Arc::new(Mutex::new(CableWorld {
            dice: SeededDice(seed),
            cables: Vec::new(),
            listeners: Default::default(),
            closed: Vec::new(),
            shut: false,
            cuts: 0,
            most,
            longest,
        }))
    }

    /// Makes a cable, and returns its ends.
    fn cable(&mut self) -> [OwnedFd; 2] {
        let (near, far) = pair();
        let left = match self.cuts < self.most {
            true => 1 + self.dice.roll(self.longest),
            false => u64::MAX,
        };
        let ends = [&near, &far].map(|end| end.try_clone().expect("a copy").into());
        self.cables.push(CutCable { ends, left });
        [near.into(), far.into()]
    }

    fn turn(&mut self) {
        for at in (0..self.cables.len()).rev() {
            if self.cables[at].is_cut(&mut self.dice) {
                self.cuts += 1;
                self.cables.swap_remove(at);
            }
        }
    }
}

struct WorldRank(usize, Arc<Mutex<CableWorld>>, Vec<String>);

impl WorldRank {
    fn boxed(rank: usize, world: &Arc<Mutex<CableWorld>>) -> Box<WorldRank> {
        Box::new(WorldRank(rank, world.clone(), vec!["one".into(), "two".into()]))
    }
}

impl PeerDialer for WorldRank {
    fn paths(&self) -> &[String] {
        &self.2
    }

    fn dial(&mut self, path: usize) -> DialResult {
        let mut world = self.1.lock().expect("the world");
        if world.shut {
            return DialResult::Refused(ConnectionFault::Protocol("no listener is there"));
        }
        // Not at once, so that both may be at it.
        if world.closed.contains(&path) || world.dice.roll(4) > 0 {
            let closed = world.closed.contains(&path);
            let trouble = closed.then(|| ConnectionFault::other(std::io::Error::other("no route")));
            return DialResult::Waiting { answers: false, trouble };
        }
        let [near, far] = world.cable();
        world.listeners[1 - self.0].push_back((path, far));
        DialResult::Made(socket(near))
    }

    fn rest(&mut self) {}

    fn incoming(&mut self) -> Option<(usize, Carrier)> {
        let (path, fd) = self.1.lock().expect("the world").listeners[self.0].pop_front()?;
        Some((path, socket(fd)))
    }
}

fn socket(fd: OwnedFd) -> Carrier {
    TcpSocket::new(fd.into()).into()
}

/// Makes two ranks with a stream between them.
fn streams(world: &Arc<Mutex<CableWorld>>, timeout: Duration) -> [ResumableStream; 2] {
    let [near, far] = world.lock().expect("the world").cable();
    let stream = |rank, fd| {
        let stream = Ok(socket(fd));
        ResumableStream::new(stream, (0, 0), rank == 0, timeout, WorldRank::boxed(rank, world))
    };
    [stream(0, near), stream(1, far)]
}

/// The counts of the bytes that a rank wrote and read.
#[derive(Default, Clone, Copy)]
struct ByteTally {
    written: u64,
    read: u64,
}

/// Goes on with one rank: writes and reads some, and checks every byte.
fn run(
    rank: usize,
    stream: &mut ResumableStream,
    tally: &mut ByteTally,
    total: u64,
    dice: &mut SeededDice,
) {
    if dice.roll(3) > 0 && tally.written < total {
        let most = (1 + dice.roll(3000)).min(total - tally.written);
        let bytes: Vec<u8> = (0..most).map(|i| byte(rank as u64, tally.written + i)).collect();
        let (a, b) = bytes.split_at(dice.roll(most) as usize);
        tally.written += stream.write(&[IoSlice::new(a), IoSlice::new(b)]) as u64;
    }
    if dice.roll(3) > 0 {
        let mut bytes = vec![0; 1 + dice.roll(5000) as usize];
        let (a, b) = bytes.split_at_mut(1);
        let n = stream.read(&mut [IoSliceMut::new(a), IoSliceMut::new(b)]);
        for (i, &got) in bytes[..n].iter().enumerate() {
            let at = tally.read + i as u64;
            assert!(got == byte(1 - rank as u64, at), "byte {at} of rank {}", 1 - rank);
        }
        tally.read += n as u64;
        assert!(tally.read <= total, "rank {rank} read more than was written");
    }
    if dice.roll(4) == 0 {
        stream.tend();
    }
}

/// Moves bytes both ways while cables are cut `most` times, and as many again.
fn survive(seed: u64, most: u64, longest: u64) -> u64 {
    let world = CableWorld::new(seed, most, longest);
    let mut streams = streams(&world, Duration::from_secs(30));
    let (mut tallies, mut dice) = ([ByteTally::default(); 2], SeededDice(!seed));
    let began = Instant::now();
    let mut total = u64::MAX;
    let done = |t: &[ByteTally; 2], s: &mut [ResumableStream; 2]| {
        t.iter().all(|t| t.written == t.read) && s.iter_mut().all(|s| s.settle())
    };
    while total == u64::MAX
        || tallies.iter().any(|t| t.written < total || t.read < total)
        || !done(&tallies, &mut streams)
    {
        let cuts = {
            let mut world = world.lock().expect("the world");
            world.turn();
            world.cuts
        };
        if cuts >= most && total == u64::MAX {
            total = 2 * tallies.iter().map(|t| t.written).max().unwrap_or(0);
        }
        let rank = dice.roll(2) as usize;
        run(rank, &mut streams[rank], &mut tallies[rank], total, &mut dice);
        assert_eq!(streams[rank].fault(), None, "seed {seed}");
        assert!(began.elapsed() < Duration::from_secs(120), "nothing comes, seed {seed}");
    }
    let cuts = world.lock().expect("the world").cuts;
    assert!(streams[0].resumed() >= most.min(1) && streams[1].resumed() >= most.min(1));
    cuts
}

#[test]
fn every_byte_comes_once_through_a_thousand_cuts() {
    // Some cables end while ranks still exchange their positions.
    let longest = |seed| if seed % 2 == 0 { 300 } else { 60_000 };
    let cuts: u64 = std::thread::scope(|scope| {
        let halves = [0..10, 10..20].map(|seeds| {
            scope.spawn(move || seeds.map(|seed| survive(seed, 50, longest(seed))).sum::<u64>())
        });
        halves.into_iter().map(|half| half.join().expect("no panic")).sum()
    });
    assert!(cuts >= 1000, "{cuts} cuts");
}

#[test]
fn without_a_cut_nothing_is_made_again() {
    let world = CableWorld::new(1, 0, 1);
    let mut streams = streams(&world, Duration::from_secs(30));
    let (mut tallies, mut dice) = ([ByteTally::default(); 2], SeededDice(5));
    while tallies.iter().any(|t| t.read < 300_000) {
        world.lock().expect("the world").turn();
        let rank = dice.roll(2) as usize;
        run(rank, &mut streams[rank], &mut tallies[rank], 300_000, &mut dice);
    }
    assert_eq!(streams.map(|s| (s.resumed(), s.path())), [(0, Some(0)); 2]);
}

#[test]
fn a_stream_returns_to_its_path() {
    let world = CableWorld::new(3, 1, 1);
    world.lock().expect("the world").closed.push(0);
    let mut streams = streams(&world, Duration::from_secs(30));
    let (mut tallies, mut dice) = ([ByteTally::default(); 2], SeededDice(5));
    let mut home_again = false;
    while !home_again {
        world.lock().expect("the world").turn();
        let rank = dice.roll(2) as usize;
        run(rank, &mut streams[rank], &mut tallies[rank], u64::MAX, &mut dice);
        assert_eq!(streams[rank].fault(), None);
        if streams.iter().all(|s| s.path() == Some(1)) {
            world.lock().expect("the world").closed.clear();
        }
        home_again = streams.iter().all(|s| s.path() == Some(0) && s.resumed() >= 2);
    }
}

#[test]
fn a_peer_whose_door_is_shut_is_gone() {
    let world = CableWorld::new(4, 1, 1);
    let mut streams = streams(&world, Duration::from_secs(3600));
    world.lock().expect("the world").shut = true;
    let began = Instant::now();
    while streams[0].fault().is_none() {
        world.lock().expect("the world").turn();
        streams[0].write(&[IoSlice::new(&[1])]);
        streams[0].read(&mut [IoSliceMut::new(&mut [0])]);
        streams[0].tend();
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(streams[0].fault(), Some(&ConnectionFault::Closed));
}

#[test]
fn without_a_path_the_fault_names_each() {
    let world = CableWorld::new(4, 1, 1);
    let mut streams = streams(&world, Duration::from_millis(50));
    world.lock().expect("the world").closed.extend([0, 1]);
    while streams[0].fault().is_none() {
        world.lock().expect("the world").turn();
        streams[0].write(&[IoSlice::new(&[1])]);
        streams[0].read(&mut [IoSliceMut::new(&mut [0])]);
        streams[0].tend();
    }
    let fault = streams[0].fault().map(ConnectionFault::to_string);
    assert_eq!(fault.as_deref(), Some("no path to it is left (one: no route; two: no route)"));
}

/// A middlebox that acknowledges bytes and then loses them; here the peer's own system is made to do it.
#[test]
fn bytes_that_were_acknowledged_and_lost_are_a_fault() {
    let world = CableWorld::new(6, 0, 1);
    let mut streams = streams(&world, Duration::from_secs(3600));
    let block = [7; 32 << 10];
    let mut written = 0;
    while written < 1 << 20 && streams[0].kept.base() == 0 {
        written += streams[0].write(&[IoSlice::new(&block)]);
    }
    let far = world.lock().expect("the world").cables[0].ends[1].as_raw_fd();
    let unspecified = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    // SAFETY: the address is as long as is said. This ends the connection and drops what had arrived.
    unsafe { libc::connect(far, &raw const unspecified, size_of::<libc::sockaddr>() as u32) };
    let began = Instant::now();
    while streams[1].fault().is_none() {
        let mut place = [0; 100];
        assert_eq!(streams[1].read(&mut [IoSliceMut::new(&mut place)]), 0);
        streams.iter_mut().for_each(ResumableStream::tend);
        streams[0].write(&[IoSlice::new(&[1])]);
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert!(
        matches!(streams[1].fault(), Some(ConnectionFault::Missing(1..))),
        "{:?}",
        streams[1].fault()
    );
}
