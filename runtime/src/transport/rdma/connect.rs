//! The devices of this process, and how the two ends of a connection meet.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::Choice;
use super::stream::{Card, DEPTH, Stream};
use super::verbs::Device;

/// Queue pairs on each device, for each connection: with one device too a queue that fails leaves another.
const PAIRS: usize = 2;
/// Most bytes of a card.
const CARD: usize = 1 << 12;
/// What both ends say when their queues are connected.
const READY: u8 = 0x52;

/// The devices of this process, opened once.
fn devices() -> Result<&'static [Arc<Device>], String> {
    static DEVICES: OnceLock<Result<Vec<Arc<Device>>, String>> = OnceLock::new();
    let opened = DEVICES.get_or_init(|| {
        let devices = Device::all().map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS | libc::ENOENT) => "the kernel has no RDMA support loaded: load the module \
                                                  ib_uverbs and the one of the device; in a container, \
                                                  pass /dev/infiniband on"
                .into(),
            Some(libc::EACCES | libc::EPERM) => {
                format!("this user may not open the files of /dev/infiniband ({error})")
            }
            _ => format!("opening devices failed: {error}"),
        })?;
        if devices.is_empty() {
            return Err("there is no device with an active port: `ibv_devinfo` (Debian's package \
                        ibverbs-utils) shows ports and their state; a device without a driver needs \
                        the package ibverbs-providers"
                .into());
        }
        Ok(devices)
    });
    opened.as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// The devices that would be used, a line each, or why there are none.
pub(crate) fn probe() -> Result<Vec<String>, String> {
    Ok(devices()?.iter().map(Device::describe).collect())
}

/// The devices of a choice.
fn chosen(choice: &Choice) -> Result<Vec<Arc<Device>>, String> {
    let all = devices()?;
    if choice.devices.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        all.iter().find(|device| device.name == *name).cloned().ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|device| &*device.name).collect();
            format!("no device with an active port is named {name}; there are {}", names.join(", "))
        })
    };
    choice.devices.iter().map(find).collect()
}

/// Makes streams of some fresh sockets, whose other ends do the same at the same time, in any order. An
/// error says which of them it is about.
pub(crate) fn connect(
    sockets: Vec<OwnedFd>,
    choice: &Choice,
    deadline: Instant,
) -> Result<Vec<(OwnedFd, Stream)>, (usize, String)> {
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    connect_with(sockets, choice, DEPTH, deadline)
}

/// The same, with so many receives in each queue.
pub(super) fn connect_with(
    sockets: Vec<OwnedFd>,
    choice: &Choice,
    receives: u32,
    deadline: Instant,
) -> Result<Vec<(OwnedFd, Stream)>, (usize, String)> {
    let devices = chosen(choice).map_err(|why| (0, why))?;
    let mut open = Vec::new();
    // Each step for all connections before the next: nobody waits for a peer that waits for another.
    for (at, fd) in sockets.into_iter().enumerate() {
        let mut socket = TcpStream::from(fd);
        let stream = Stream::new(&devices, PAIRS, choice.gid, receives);
        let stream = stream.map_err(|why| (at, why))?;
        offer(&mut socket, &stream, deadline).map_err(|why| (at, why))?;
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

/// Tells the peer of an end.
fn offer(socket: &mut TcpStream, stream: &Stream, deadline: Instant) -> Result<(), String> {
    let card = postcard::to_allocvec(&stream.card()).map_err(|e| e.to_string())?;
    let mut message = (card.len() as u32).to_le_bytes().to_vec();
    message.extend(card);
    say(socket, &message, deadline)
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
