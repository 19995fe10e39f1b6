//! Streams whose connections are devices on one path and sockets on the other. Needs a device; skips where there is
//! none.

use std::io::Write;

use super::*;
use crate::transport::Transport;
use crate::transport::rdma::{self, DeviceChoice};
use crate::transport::stream::ByteStream;
use crate::transport::stream::handshake;

/// The number of cuts.
const CUTS: u64 = 24;

/// Makes two ends of one path: a device, or a socket.
fn ends(path: usize, device: &DeviceChoice) -> [Carrier; 2] {
    let (near, far) = pair();
    if path == 1 {
        return [near, far].map(|socket| self::socket(socket.into()));
    }
    let begun = [near, far].map(|socket| rdma::over_path(socket.into(), device));
    let streams = handshake(begun.into(), Instant::now() + Duration::from_secs(60), &|| false);
    let streams: Vec<Carrier> =
        streams.into_iter().map(|stream| stream.unwrap_or_else(|why| panic!("{why}"))).collect();
    streams.try_into().ok().expect("two ends")
}

/// Ends a connection as a failure of a device does, or the loss of a socket.
fn cut(carrier: &Carrier) {
    match carrier {
        Carrier::Rdma(stream) => stream.break_all(),
        // It may have ended already.
        Carrier::Tcp(socket) => drop(rustix::net::shutdown(&**socket.fd(), Shutdown::Both)),
    }
}

/// The listeners of both ranks.
struct PathListeners {
    device: DeviceChoice,
    dice: SeededDice,
    listeners: [VecDeque<(usize, Carrier)>; 2],
}

struct PathSide(usize, Arc<Mutex<PathListeners>>, [String; 2]);

impl PeerDialer for PathSide {
    fn paths(&self) -> &[String] {
        &self.2
    }

    fn dial(&mut self, path: usize) -> DialResult {
        let mut listeners = self.1.lock().expect("the listeners");
        // Not at once, so that both may be at it, and either path comes first.
        if listeners.dice.roll(8) > 0 {
            return DialResult::Waiting { answers: true, trouble: None };
        }
        let [near, far] = ends(path, &listeners.device);
        listeners.listeners[1 - self.0].push_back((path, far));
        DialResult::Made(near)
    }

    fn rest(&mut self) {}

    fn incoming(&mut self) -> Option<(usize, Carrier)> {
        self.1.lock().expect("the listeners").listeners[self.0].pop_front()
    }
}

/// Returns the first device, if there is one.
fn device() -> Option<DeviceChoice> {
    match Transport::Rdma.probe() {
        Ok(streams) => {
            let name = streams[0].split(':').next().unwrap_or_default().to_owned();
            Some(DeviceChoice { devices: vec![name], gid: None })
        }
        Err(why) => {
            roundelay_tests::skip(roundelay_tests::CheckNeeds::Rdma, why.to_string());
            None
        }
    }
}

#[test]
fn every_byte_comes_once_whether_devices_or_sockets_are_cut() {
    let Some(device) = device() else { return };
    let first = ends(0, &device);
    let listeners = PathListeners { device, dice: SeededDice(11), listeners: Default::default() };
    let listeners = Arc::new(Mutex::new(listeners));
    let mut rank = 0;
    let mut streams = first.map(|stream| {
        let side = PathSide(rank, listeners.clone(), ["device".into(), "socket".into()]);
        rank += 1;
        ResumableStream::new(Ok(stream), (0, 0), rank == 1, Duration::from_secs(60), Box::new(side))
    });
    let (mut tallies, mut dice) = ([ByteTally::default(); 2], SeededDice(7));
    let (mut cuts, mut total, mut until) = ([0u64; 2], u64::MAX, 20_000);
    let began = Instant::now();
    let done = |tallies: &[ByteTally; 2], total| tallies.iter().all(|t| t.read >= total);
    while !done(&tallies, total) || streams.iter().any(|s| s.path() != Some(0)) {
        let rank = dice.roll(2) as usize;
        run(rank, &mut streams[rank], &mut tallies[rank], total, &mut dice);
        streams[rank].tend();
        assert_eq!(streams[rank].fault(), None, "after {cuts:?} cuts");
        assert!(began.elapsed() < Duration::from_secs(240), "nothing comes after {cuts:?} cuts");
        let (passed, now) = (tallies[0].read + tallies[1].read, cuts.iter().sum::<u64>());
        if now < CUTS && passed >= until && streams[rank].path().is_some() {
            let conn = streams[rank].conns.last_mut().expect("a connection");
            cut(&conn.carrier);
            cuts[conn.path] += 1;
            until = passed + dice.roll(60_000);
        } else if now == CUTS && total == u64::MAX {
            total = tallies.iter().map(|t| t.written).max().unwrap_or(0) + 50_000;
        }
    }
    assert!(cuts.iter().all(|&cuts| cuts > 0), "{cuts:?} cuts of devices and of sockets");
    let moved = tallies[0].read + tallies[1].read;
    let resumed = streams.each_ref().map(ResumableStream::resumed);
    let _ = writeln!(std::io::stderr(), "{moved} bytes, {cuts:?} cuts, {resumed:?} resumed");
}

#[test]
fn what_a_device_delivered_can_be_read_when_it_has_failed() {
    let Some(device) = device() else { return };
    let [mut near, far] = ends(0, &device);
    let (first, second) = ([7u8; 1000], [8u8; 500]);
    assert_eq!(near.write(&[IoSlice::new(&first)]), Ok(1000));
    assert_eq!(near.unacknowledged(), 1000, "no end was polled");
    while near.settle() == Ok(false) {}
    assert_eq!((near.settle(), near.unacknowledged()), (Ok(true), 0));
    cut(&far);
    assert_eq!(near.write(&[IoSlice::new(&second)]), Ok(500));
    let began = Instant::now();
    while near.settle() == Ok(false) && near.silence(Instant::now()).is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "the loss does not show");
    }
    assert_eq!(near.unacknowledged(), 500);
    let (mut got, mut place) = (Vec::new(), [0; 300]);
    while let Ok(n @ 1..) = far.read(&mut [IoSliceMut::new(&mut place)]) {
        got.extend_from_slice(&place[..n]);
    }
    assert_eq!(got, first);
}
