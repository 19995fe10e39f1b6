//! The devices of this process, and how the two ends of a connection meet.

use std::io::{ErrorKind, IoSliceMut, Read, Write};
#[cfg(test)]
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::sockopt;

use super::choice::DeviceChoice;
use super::device_stream::DeviceStream;
use super::error::VerbsError;
use super::registrations::ArenaRegistrations;
use super::stream::{ConnectionTerms, DEPTH, RailStream};
use super::verbs::{MemoryRegistration, VerbsDevice};
#[cfg(test)]
use crate::transport::carrier::Carrier;
use crate::transport::fault::ConnectionFault;
#[cfg(test)]
use crate::transport::stream::handshake;
use crate::transport::stream::{PendingHandshake, StreamHandshake};
#[cfg(test)]
use crate::transport::tcp::TcpSocket;
use crate::transport::unavailable::TransportUnavailable;
use crate::tunables::{RDMA_PATH_QUEUE_PAIRS, RDMA_PROOF_TIMEOUT, RDMA_QUEUE_PAIRS};
use roundelay_support::error::ErrorSource;
use roundelay_tls::PeerSocket;

/// The most bytes of a connection info.
const LONGEST_INFO: usize = 1 << 12;
/// The byte that both ends send when their queues are connected.
const READY_BYTE: u8 = 0x52;

/// Returns the devices of this process, opened once.
fn devices() -> Result<&'static [Arc<VerbsDevice>], VerbsError> {
    static DEVICES: OnceLock<Result<Vec<Arc<VerbsDevice>>, VerbsError>> = OnceLock::new();
    let opened = DEVICES.get_or_init(|| {
        let devices = VerbsDevice::all().map_err(|error| {
            let (code, source) = (error.raw_os_error(), ErrorSource::new(error));
            match code {
                Some(libc::ENOSYS | libc::ENOENT) => VerbsError::NoSupport { source },
                Some(libc::EACCES | libc::EPERM) => VerbsError::NoAccess { source },
                _ => VerbsError::NotOpened { source },
            }
        })?;
        if devices.is_empty() { Err(VerbsError::NoDevice) } else { Ok(devices) }
    });
    opened.as_ref().map(Vec::as_slice).map_err(Clone::clone)
}

/// Lists the devices that would be used, a line each; fails with the reason where there are none.
pub(super) fn found() -> Result<Vec<String>, VerbsError> {
    Ok(devices()?
        .iter()
        .map(|device| device.describe(MemoryRegistration::takes_dmabuf(device)))
        .collect())
}

/// Returns the devices of a choice.
pub(super) fn chosen(choice: &DeviceChoice) -> Result<Vec<Arc<VerbsDevice>>, VerbsError> {
    let all = devices()?;
    if choice.devices.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |name: &String| {
        all.iter().find(|device| device.name == *name).cloned().ok_or_else(|| {
            let devices = all.iter().map(|device| device.name.clone()).collect();
            VerbsError::NoSuchDevice { name: name.clone(), devices }
        })
    };
    choice.devices.iter().map(find).collect()
}

/// Fails unless a choice can be had.
pub(crate) fn check(choice: &DeviceChoice) -> Result<(), TransportUnavailable> {
    let devices = chosen(choice);
    let each =
        |all: Vec<Arc<VerbsDevice>>| all.iter().try_for_each(|d| d.gid(choice.gid).map(drop));
    devices.and_then(each).map_err(TransportUnavailable::devices)
}

/// The reason for which the connection info of a peer does not describe its queues.
#[derive(Debug, thiserror::Error)]
enum InfoError {
    #[error("its connection info has {0} bytes: it is no rank of roundelay's")]
    TooLong(u32),
    #[error("its connection info: {0}")]
    Malformed(#[source] postcard::Error),
}

/// The handshake of a stream over devices: both ends exchange the addresses of their queues over a fresh socket and
/// connect them, in any order. Nothing here waits: connecting a queue may take the kernel a second, in which it
/// resolves an address of the network, and a thread of its own waits for that.
pub(super) struct QueueHandshake {
    socket: PeerSocket,
    stage: HandshakeStage,
    purpose: StreamPurpose,
    /// The bytes that the socket has yet to take, and those that came.
    unsent: Vec<u8>,
    received: Vec<u8>,
}

/// The purpose of the stream.
enum StreamPurpose {
    /// A connection of its own; this memory may be registered.
    Rails(Option<Arc<ArenaRegistrations>>),
    /// A path: bytes of the peer must have come over the devices too.
    Path,
}

enum HandshakeStage {
    /// The peer's connection info is awaited.
    AwaitingInfo(Box<RailStream>),
    Connecting(JoinHandle<Result<Box<RailStream>, ConnectionFault>>),
    /// The peer's word is awaited that its end is connected.
    Waiting(Box<RailStream>),
    /// The end waits for the same byte over the devices, since then.
    Proving(Box<RailStream>, Instant),
}

impl QueueHandshake {
    /// Offers an end on the rails of a choice.
    pub(super) fn over_rails(
        socket: PeerSocket,
        choice: &DeviceChoice,
        registrations: &Arc<ArenaRegistrations>,
    ) -> Result<QueueHandshake, ConnectionFault> {
        let purpose = StreamPurpose::Rails(Some(registrations.clone()));
        Self::begin(socket, (choice, (RDMA_QUEUE_PAIRS, true)), DEPTH, purpose)
    }

    /// Offers an end on a path, where an end that exists also works.
    pub(super) fn over_path(
        socket: PeerSocket,
        choice: &DeviceChoice,
    ) -> Result<QueueHandshake, ConnectionFault> {
        Self::begin(socket, (choice, (RDMA_PATH_QUEUE_PAIRS, false)), DEPTH, StreamPurpose::Path)
    }

    /// Offers an end with `pairs` queue pairs on each device, `receives` receives in each, and one more queue pair for
    /// accesses if it is to be one-sided too.
    fn begin(
        socket: PeerSocket,
        (choice, pairs): (&DeviceChoice, (usize, bool)),
        receives: u32,
        purpose: StreamPurpose,
    ) -> Result<QueueHandshake, ConnectionFault> {
        let stream =
            chosen(choice).and_then(|all| RailStream::new(&all, pairs, choice.gid, receives));
        let stream = stream.map_err(ConnectionFault::other)?;
        if socket.is_encrypted() {
            return Err(ConnectionFault::Protocol(
                "its bytes would cross the network as they are: give the hint `transport` without `rdma`, or \
                 `encryption=off`",
            ));
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(ConnectionFault::other)?;
        let info = postcard::to_allocvec(&stream.info()).map_err(ConnectionFault::other)?;
        let mut unsent = (info.len() as u32).to_le_bytes().to_vec();
        unsent.extend(info);
        let (stage, received) = (HandshakeStage::AwaitingInfo(Box::new(stream)), Vec::new());
        Ok(QueueHandshake { socket, stage, purpose, unsent, received })
    }

    /// Takes a step, and returns true if it could be taken; or ends.
    fn advance(mut self, is_sent: bool) -> Result<(QueueHandshake, bool), StreamHandshake> {
        match self.stage {
            HandshakeStage::AwaitingInfo(mut stream) => {
                let info =
                    receive_up_to(&mut self.socket, &mut self.received, 4).and_then(|is_there| {
                        let len =
                            self.received.first_chunk().map_or(0, |len| u32::from_le_bytes(*len));
                        if len as usize > LONGEST_INFO {
                            return Err(ConnectionFault::other(InfoError::TooLong(len)));
                        }
                        let len = 4 + len as usize;
                        Ok(is_there && receive_up_to(&mut self.socket, &mut self.received, len)?)
                    });
                if !info.map_err(StreamHandshake::Failed)? {
                    return Ok((
                        QueueHandshake { stage: HandshakeStage::AwaitingInfo(stream), ..self },
                        false,
                    ));
                }
                let info = postcard::from_bytes::<ConnectionTerms>(&self.received[4..]);
                let info = info.map_err(|e| failed(InfoError::Malformed(e)))?;
                self.received.clear();
                let connecting = move || stream.connect(&info).map(|()| stream);
                let thread = std::thread::Builder::new().name("roundelay-rdma".into());
                let thread = thread.spawn(connecting);
                let no_thread = |e| VerbsError::NoThread { source: ErrorSource::new(e) };
                let thread = thread.map_err(|e| failed(no_thread(e)))?;
                Ok((QueueHandshake { stage: HandshakeStage::Connecting(thread), ..self }, true))
            }
            HandshakeStage::Connecting(thread) if !thread.is_finished() => {
                Ok((QueueHandshake { stage: HandshakeStage::Connecting(thread), ..self }, false))
            }
            HandshakeStage::Connecting(thread) => {
                let panicked = |_| Err(ConnectionFault::Protocol("connecting a queue panicked"));
                let stream =
                    thread.join().unwrap_or_else(panicked).map_err(StreamHandshake::Failed)?;
                self.unsent.push(READY_BYTE);
                Ok((QueueHandshake { stage: HandshakeStage::Waiting(stream), ..self }, true))
            }
            HandshakeStage::Waiting(mut stream) => {
                let is_received = is_sent
                    && receive_up_to(&mut self.socket, &mut self.received, 1)
                        .map_err(StreamHandshake::Failed)?;
                if !is_received {
                    return Ok((
                        QueueHandshake { stage: HandshakeStage::Waiting(stream), ..self },
                        false,
                    ));
                }
                if self.received != [READY_BYTE] {
                    let why = "it did not confirm that it is ready: another version";
                    return Err(StreamHandshake::Failed(ConnectionFault::Protocol(why)));
                }
                if let StreamPurpose::Rails(registrations) = &self.purpose {
                    if let Some(registrations) = registrations {
                        stream.register(registrations);
                    }
                    return Err(done(self.socket, *stream));
                }
                self.received.clear();
                stream.write([&[READY_BYTE][..]].into_iter());
                Ok((
                    QueueHandshake {
                        stage: HandshakeStage::Proving(stream, Instant::now()),
                        ..self
                    },
                    true,
                ))
            }
            HandshakeStage::Proving(mut stream, since) => {
                let mut word = [0];
                if self.received.is_empty() && stream.read(&mut [IoSliceMut::new(&mut word)]) > 0 {
                    self.received.push(word[0]);
                }
                if stream.settle() && self.received == [READY_BYTE] {
                    // The network that it goes over may be lost: devices have one of their own.
                    let is_alone = sockopt::set_socket_keepalive(&self.socket, false);
                    is_alone.map_err(|e| StreamHandshake::Failed(ConnectionFault::SetUp(e)))?;
                    return Err(done(self.socket, *stream));
                }
                match stream.trouble() {
                    Some(why) => Err(failed(why)),
                    None if since.elapsed() > RDMA_PROOF_TIMEOUT => {
                        Err(StreamHandshake::Failed(ConnectionFault::Protocol(
                            "nothing comes through, though its system answers",
                        )))
                    }
                    None => Ok((
                        QueueHandshake { stage: HandshakeStage::Proving(stream, since), ..self },
                        false,
                    )),
                }
            }
        }
    }

    /// Sends what the socket takes; returns true if that was all.
    fn flush(&mut self) -> Result<bool, ConnectionFault> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(broken(&e)),
            }
        }
        Ok(true)
    }
}

impl PendingHandshake for QueueHandshake {
    fn turn(self: Box<Self>) -> StreamHandshake {
        let mut meeting = *self;
        loop {
            let is_sent = match meeting.flush() {
                Ok(is_sent) => is_sent,
                Err(fault) => return StreamHandshake::Failed(fault),
            };
            meeting = match meeting.advance(is_sent) {
                Ok((meeting, true)) => meeting,
                Ok((meeting, false)) => return StreamHandshake::Waiting(Box::new(meeting)),
                Err(handshake) => return handshake,
            };
        }
    }
}

fn done(socket: PeerSocket, stream: RailStream) -> StreamHandshake {
    StreamHandshake::Done(DeviceStream::new(socket, stream).into())
}

/// Reads from the socket until `wanted` bytes are there; returns true if they are.
fn receive_up_to(
    socket: &mut PeerSocket,
    received: &mut Vec<u8>,
    wanted: usize,
) -> Result<bool, ConnectionFault> {
    while received.len() < wanted {
        let mut place = [0; 256];
        let most = (wanted - received.len()).min(place.len());
        match socket.read(&mut place[..most]) {
            Ok(0) => return Err(ConnectionFault::Closed),
            Ok(n) => received.extend_from_slice(&place[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(broken(&e)),
        }
    }
    Ok(true)
}

fn broken(error: &std::io::Error) -> ConnectionFault {
    ConnectionFault::Failed(Errno::from_io_error(error).unwrap_or(Errno::IO))
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> StreamHandshake {
    StreamHandshake::Failed(ConnectionFault::other(error))
}

/// Makes streams of some fresh sockets, whose other ends do the same at the same time, in any order. An
/// error has the number of the socket that failed.
#[cfg(test)]
pub(super) fn connect(
    sockets: Vec<OwnedFd>,
    choice: &DeviceChoice,
    deadline: Instant,
) -> Result<Vec<(TcpSocket, RailStream)>, (usize, ConnectionFault)> {
    connect_with(sockets, (choice, false), DEPTH, deadline)
}

/// Connects with `receives` receives in each queue.
#[cfg(test)]
pub(super) fn connect_with(
    sockets: Vec<OwnedFd>,
    (choice, one_sided): (&DeviceChoice, bool),
    receives: u32,
    deadline: Instant,
) -> Result<Vec<(TcpSocket, RailStream)>, (usize, ConnectionFault)> {
    let pairs = (RDMA_QUEUE_PAIRS, one_sided);
    let begin = |socket: OwnedFd| {
        QueueHandshake::begin(socket.into(), (choice, pairs), receives, StreamPurpose::Rails(None))
            .into()
    };
    let all = handshake(sockets.into_iter().map(begin).collect(), deadline, &|| false);
    let end = |(at, carrier)| match carrier {
        Ok(Carrier::Rdma(stream)) => Ok(stream.into_parts()),
        Ok(Carrier::Tcp(_)) => Err((at, ConnectionFault::Protocol("no device carries it"))),
        Err(fault) => Err((at, fault)),
    };
    all.into_iter().enumerate().map(end).collect()
}
