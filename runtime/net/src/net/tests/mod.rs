//! Ranks as threads, each with a listener of its own, over real sockets.

mod certificates;
mod control;
mod encrypted;
mod guard;
mod join;
mod near;
mod random;
mod refuse;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::words::WordMismatch;
use super::*;
use crate::bootstrap::InProcessStore;
use crate::paths::PathOptions;
use crate::store::Store;
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a store at this machine's own address.
fn memory() -> InProcessStore {
    InProcessStore::at(Ipv4Addr::LOCALHOST.into())
}

fn options() -> PathOptions {
    PathOptions { timeout: PATIENCE, ..PathOptions::default() }
}

fn with_secret(text: &str) -> PathOptions {
    PathOptions { secret: Some(text.as_bytes().to_vec().into()), ..options() }
}

/// Runs `size` ranks that join a communicator with the options that each has.
fn each_rank<T: Send>(
    size: u32,
    store: &InProcessStore,
    options: impl Fn(u32) -> PathOptions + Sync,
    run: impl Fn(RankNetwork) -> T + Sync,
) -> Vec<Result<T, Error>> {
    std::thread::scope(|scope| {
        let spawn = |rank| {
            let (mut store, options, run) = (store.of(rank), &options, &run);
            scope.spawn(move || {
                let listener = Arc::new(RankListener::open(options(rank), store.address())?);
                let note = format!("note {rank}").into_bytes();
                RankNetwork::join(rank, size, 7, listener, &mut store, note).map(run)
            })
        };
        let threads: Vec<_> = (0..size).map(spawn).collect();
        threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
    })
}

/// Runs ranks like [`each_rank`], when all must join.
fn ranks<T: Send>(size: u32, run: impl Fn(RankNetwork) -> T + Sync) -> Vec<T> {
    let all = each_rank(size, &memory(), |_| options(), run);
    all.into_iter().map(|result| result.expect("joined")).collect()
}

/// Polls until `look` returns a result.
fn until<T>(net: &mut RankNetwork, mut look: impl FnMut(&mut RankNetwork) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        net.wait(Duration::from_millis(1));
        if let Some(found) = look(net) {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "rank {} waits in vain", net.rank);
    }
}

/// Makes a whole round of words.
fn words(net: &mut RankNetwork, word: u64, tag: u32) -> Result<Vec<u64>, WordMismatch> {
    net.begin_words(word, tag);
    until(net, |net| net.poll_words().map(|all| all.map(<[u64]>::to_vec)))
}

/// Makes a round in which every rank checks the words of all others.
fn check_words(net: &mut RankNetwork, round: u64) {
    let size = net.endpoints().len() as u64;
    let all = words(net, 1000 * round + u64::from(net.rank), round as u32);
    let expected: Vec<u64> = (0..size).map(|rank| 1000 * round + rank).collect();
    assert_eq!(all, Ok(expected));
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Opens connections, without a watch.
fn open(net: &mut RankNetwork, wanted: &[(u32, u16)]) -> Result<Vec<OwnedFd>, Error> {
    let connection = |&(peer, channel): &(u32, u16)| ConnectionId { peer, channel, path: 0 };
    let wanted: Vec<ConnectionId> = wanted.iter().map(connection).collect();
    let policy = WaitPolicy { timeout: PATIENCE, watch: &mut |_| None, members: &[] };
    let sockets = net.open(&wanted, policy)?;
    Ok(sockets.iter().map(|socket| socket.fd().try_clone().expect("a descriptor")).collect())
}

/// Splits a part off, without a watch.
fn split(net: &RankNetwork, id: u64, members: &[u32], rank: u32) -> Result<RankNetwork, Error> {
    meet(net.part(id, members, rank)?, members, rank)
}

/// Links the ranks of a part.
fn meet(mut part: RankNetwork, members: &[u32], rank: u32) -> Result<RankNetwork, Error> {
    match part.connect_part(WaitPolicy { timeout: PATIENCE, watch: &mut |_| None, members }) {
        Ok(()) => Ok(part),
        Err(error) => {
            part.give_up(&roundelay_support::abort::record(rank, &error));
            Err(error)
        }
    }
}

/// Opens connections to all other ranks, on some channels.
fn open_all(net: &mut RankNetwork, channels: u16) -> Vec<(u32, u16, std::net::TcpStream)> {
    let rank = net.rank;
    let peers = (0..net.endpoints().len() as u32).filter(|peer| *peer != rank);
    let wanted: Vec<(u32, u16)> = peers.flat_map(|p| (0..channels).map(move |c| (p, c))).collect();
    let made = open(net, &wanted).expect("opened");
    let made = wanted.into_iter().zip(made);
    made.map(|((peer, channel), fd)| (peer, channel, fd.into())).collect()
}

/// Checks that connections lead to the ranks that they name.
fn check_streams(rank: u32, streams: &mut [(u32, u16, std::net::TcpStream)]) {
    use std::io::{Read, Write};
    for (peer, channel, stream) in streams.iter_mut() {
        stream.set_nonblocking(false).expect("blocking");
        stream.set_read_timeout(Some(PATIENCE)).expect("a deadline");
        let text = format!("{rank:4} {peer:4} {channel:5}");
        stream.write_all(text.as_bytes()).expect("sent");
    }
    for (peer, channel, stream) in streams {
        let mut text = [0; 15];
        stream.read_exact(&mut text).expect("received");
        assert_eq!(String::from_utf8_lossy(&text), format!("{peer:4} {rank:4} {channel:5}"));
    }
}
