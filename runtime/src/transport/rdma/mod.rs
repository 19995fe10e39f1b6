//! InfiniBand and RoCE: a stream of bytes that devices move, under the same messages as TCP.
//!
//! A connection begins as a socket (`net`), over which both ends exchange what their queues need to know
//! ([`connect`]). From then on [`Stream`] carries the bytes; the socket stays open and is how the end of
//! a peer shows at once, long before a device gives up on it. Framing, staging and landing are those of
//! `transport/tcp`: both are posted links.
//!
//! * `verbs`: the library's calls, and all that is `unsafe`.
//! * `stream`: pieces, rings, several queues and devices, what happens when one fails.
//!
//! Every device with an active port is a *rail*: pieces go over all of them in turn.

mod stream;
#[cfg(test)]
mod tests;
mod verbs;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

pub(crate) use stream::Stream;

use stream::Card;
use verbs::Device;

/// Queue pairs on each device, for each connection.
const PAIRS: usize = 1;
/// Most bytes of a card.
const CARD: usize = 1 << 12;
/// What both ends say when their queues are connected.
const READY: u8 = 0x52;

/// The devices of this process, opened once.
fn devices() -> Result<&'static [Arc<Device>], String> {
    static DEVICES: OnceLock<Result<Vec<Arc<Device>>, String>> = OnceLock::new();
    let opened = DEVICES.get_or_init(|| {
        let gid = match std::env::var("ROUNDELAY_GID_INDEX") {
            Ok(text) => Some(text.parse().map_err(|_| {
                format!("ROUNDELAY_GID_INDEX is `{text}`; it is the number of an entry, say 1")
            })?),
            Err(_) => None,
        };
        let devices = Device::all(gid).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => "the kernel has no RDMA support loaded (module ib_uverbs)".into(),
            _ => format!("opening devices failed: {error}"),
        })?;
        if devices.is_empty() {
            return Err("there is no device with an active port; see `ibv_devinfo`".into());
        }
        Ok(devices)
    });
    opened.as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// The names of the devices that would be used, or why there are none.
pub(crate) fn probe() -> Result<Vec<String>, String> {
    Ok(devices()?.iter().map(|device| device.name.clone()).collect())
}

/// Makes streams of some fresh sockets, whose other ends do the same at the same time, in any order. An
/// error says which of them it is about.
pub(crate) fn connect(
    sockets: Vec<OwnedFd>,
    deadline: Instant,
) -> Result<Vec<(OwnedFd, Stream)>, (usize, String)> {
    let devices = devices().map_err(|why| (0, why))?;
    let mut open = Vec::new();
    // Each step for all connections before the next: nobody waits for a peer that waits for another.
    for (at, fd) in sockets.into_iter().enumerate() {
        let mut socket = TcpStream::from(fd);
        let stream = offer(&mut socket, devices, deadline).map_err(|why| (at, why))?;
        open.push((socket, stream));
    }
    for (at, (socket, stream)) in open.iter_mut().enumerate() {
        accept(socket, stream, deadline).map_err(|why| (at, why))?;
    }
    for (at, (socket, _)) in open.iter_mut().enumerate() {
        let mut ready = [0];
        hear(socket, &mut ready, deadline).map_err(|why| (at, why))?;
        if ready != [READY] {
            return Err((at, "it did not say that it is ready: another version".into()));
        }
    }
    Ok(open.into_iter().map(|(socket, stream)| (socket.into(), stream)).collect())
}

/// Makes an end and tells the peer of it.
fn offer(
    socket: &mut TcpStream,
    devices: &[Arc<Device>],
    deadline: Instant,
) -> Result<Stream, String> {
    let stream = Stream::new(devices, PAIRS)?;
    let card = postcard::to_allocvec(&stream.card()).map_err(|e| e.to_string())?;
    let mut message = (card.len() as u32).to_le_bytes().to_vec();
    message.extend(card);
    say(socket, &message, deadline)?;
    Ok(stream)
}

/// Hears of the peer's end, and connects this one.
fn accept(socket: &mut TcpStream, stream: &mut Stream, deadline: Instant) -> Result<(), String> {
    let mut len = [0; 4];
    hear(socket, &mut len, deadline)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > CARD {
        return Err(format!("its card has {len} bytes: it is no rank of roundelay's"));
    }
    let mut card = vec![0; len];
    hear(socket, &mut card, deadline)?;
    let card: Card = postcard::from_bytes(&card).map_err(|e| format!("its card: {e}"))?;
    stream.connect(&card)?;
    say(socket, &[READY], deadline)
}

/// How long is left, for a socket's own limit.
fn allow(socket: &TcpStream, deadline: Instant) -> Result<(), String> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("it did not answer in time".into());
    }
    let set = socket.set_nonblocking(false);
    let set = set.and_then(|()| socket.set_read_timeout(Some(left)));
    set.and_then(|()| socket.set_write_timeout(Some(left))).map_err(|e| e.to_string())
}

fn said(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "it did not answer in time".into(),
        ErrorKind::UnexpectedEof => "it closed the connection".into(),
        _ => format!("the connection to it failed: {error}"),
    }
}

fn say(socket: &mut TcpStream, bytes: &[u8], deadline: Instant) -> Result<(), String> {
    allow(socket, deadline)?;
    socket.write_all(bytes).map_err(|e| said(&e))
}

fn hear(socket: &mut TcpStream, bytes: &mut [u8], deadline: Instant) -> Result<(), String> {
    allow(socket, deadline)?;
    socket.read_exact(bytes).map_err(|e| said(&e))
}
