//! Connections, over TCP or within this host.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::protocol::digest;
use crate::paths::CertificateIdentity;
use crate::tunables::{LISTENER_BACKLOG, SERVER_ADDRESS_TIMEOUT};
use roundelay_support::fork::give_up_in_children;
use roundelay_support::interrupt;
use roundelay_support::ports::bind_within;
use roundelay_support::secret::JobSecret;
use roundelay_support::tunables::INTERRUPT_CHECK_INTERVAL;
use roundelay_tls::{PeerSocket, SecureError, SecureProgress};

/// The place at which a store is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// Name or address of a host, and a port.
    Host(String, u16),
    /// Several ways to one server.
    Any(Vec<SocketAddr>),
    /// A name on this host that vanishes with its owner: no file stays behind.
    Local(String),
}

impl std::fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreAddress::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            StoreAddress::Host(host, port) => write!(f, "{host}:{port}"),
            StoreAddress::Any(ways) => {
                let ways: Vec<String> = ways.iter().map(SocketAddr::to_string).collect();
                f.write_str(&ways.join(" or "))
            }
            StoreAddress::Local(_) => f.write_str("a socket of this host"),
        }
    }
}

impl StoreAddress {
    /// Returns true if it can be reached from this host only.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            StoreAddress::Host(host, _) => {
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
            StoreAddress::Any(ways) => ways.iter().all(|way| way.ip().is_loopback()),
            StoreAddress::Local(_) => true,
        }
    }

    /// Returns the addresses behind it; asks the system's resolver.
    pub(crate) fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            StoreAddress::Host(host, port) => {
                Ok((host.as_str(), *port).to_socket_addrs()?.collect())
            }
            StoreAddress::Any(ways) => Ok(ways.clone()),
            StoreAddress::Local(_) => Ok(Vec::new()),
        }
    }
}

/// Returns the name of a local socket: the user's number keeps users apart, who could take each other's names
/// all the same; so both sides look at who the other is.
fn local_name(job: &str) -> io::Result<UnixAddr> {
    let user = rustix::process::geteuid().as_raw();
    let digest: String = digest(job)[..16].iter().map(|b| format!("{b:02x}")).collect();
    UnixAddr::from_abstract_name(format!("roundelay/{user}/{digest}"))
}

/// Fails unless the other end is a process of this user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let (peer, own) =
        (rustix::net::sockopt::socket_peercred(stream)?.uid, rustix::process::geteuid());
    if peer == own {
        return Ok(());
    }
    let text = format!("the process at the other end belongs to user {}", peer.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A socket that accepts.
#[derive(Debug)]
pub enum StoreListener {
    /// A port.
    Tcp(TcpListener),
    /// A socket of this host that has no file.
    Unix(UnixListener),
}

impl StoreListener {
    /// Listens there, and nowhere else if an address is given that this host has. Of the name of a host all
    /// addresses are listened at, and of an address that others know it by alone: neither says how they
    /// reach it.
    pub(crate) fn bind(at: &StoreAddress) -> io::Result<StoreListener> {
        match at {
            StoreAddress::Local(job) => {
                UnixListener::bind_addr(&local_name(job)?).map(StoreListener::Unix)
            }
            StoreAddress::Host(_, _) if at.is_loopback() => {
                TcpListener::bind(at.addresses()?.as_slice()).map(StoreListener::Tcp)
            }
            StoreAddress::Host(host, port) => {
                match host.parse().map(|ip: IpAddr| SocketAddr::new(ip, *port)) {
                    Ok(own) => match Self::bind_to(own) {
                        Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                            Self::everywhere(*port)
                        }
                        bound => bound,
                    },
                    Err(_) => Self::everywhere(*port),
                }
            }
            StoreAddress::Any(ways) => TcpListener::bind(ways.as_slice()).map(StoreListener::Tcp),
        }
    }

    /// Listens at that address.
    pub fn bind_to(at: SocketAddr) -> io::Result<StoreListener> {
        TcpListener::bind(at).map(StoreListener::Tcp)
    }

    /// Listens at a port of the system's choice, for this host alone.
    pub(crate) fn loopback() -> io::Result<StoreListener> {
        let at = |ip: IpAddr| bind_within(None, |port| TcpListener::bind((ip, port)));
        let listener = at(Ipv4Addr::LOCALHOST.into());
        listener.or_else(|_| at(Ipv6Addr::LOCALHOST.into())).map(StoreListener::Tcp)
    }

    /// Listens at that port of every address; 0 is one of the system's choice.
    pub(crate) fn everywhere(port: u16) -> io::Result<StoreListener> {
        listen_everywhere(port).map(StoreListener::Tcp)
    }

    /// Returns the address that it is bound to, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            StoreListener::Tcp(listener) => listener.local_addr().ok(),
            StoreListener::Unix(_) => None,
        }
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            StoreListener::Tcp(listener) => listener.set_nonblocking(true),
            StoreListener::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    /// Accepts a connection, which does not block.
    pub(crate) fn accept(&self) -> io::Result<StoreStream> {
        match self {
            StoreListener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                give_up_in_children(&stream);
                stream.set_nonblocking(true)?;
                let _ = stream.set_nodelay(true);
                Ok(StoreStream::from(stream))
            }
            StoreListener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                give_up_in_children(&stream);
                check_user(&stream)?;
                stream.set_nonblocking(true)?;
                Ok(StoreStream::from(stream))
            }
        }
    }
}

impl AsFd for StoreListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            StoreListener::Tcp(listener) => listener.as_fd(),
            StoreListener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// Listens at that port of every address of this host, of both families; 0 is a port of the system's choice.
///
/// # Errors
///
/// The error of the system.
pub fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
    let both = || -> rustix::io::Result<TcpListener> {
        let flags = SocketFlags::CLOEXEC;
        let (family, kind) = (AddressFamily::INET6, SocketType::STREAM);
        let socket = rustix::net::socket_with(family, kind, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // The system may be set up otherwise (`net.ipv6.bindv6only`).
        sockopt::set_ipv6_v6only(&socket, false)?;
        rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
        rustix::net::listen(&socket, LISTENER_BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    // A host without IPv6 has one family.
    both().or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// A connection.
#[derive(Debug)]
pub(crate) struct StoreStream {
    kind: StreamKind,
    /// The longest wait for input. The socket has it too; reading it there fails where an emulator answers.
    input_timeout: Option<Duration>,
}

#[derive(Debug)]
enum StreamKind {
    /// A connection over a network.
    Tcp(PeerSocket),
    /// A connection inside of this host.
    Unix(UnixStream),
}

impl From<TcpStream> for StoreStream {
    fn from(stream: TcpStream) -> Self {
        StoreStream { kind: StreamKind::Tcp(stream.into()), input_timeout: None }
    }
}

impl From<UnixStream> for StoreStream {
    fn from(stream: UnixStream) -> Self {
        StoreStream { kind: StreamKind::Unix(stream), input_timeout: None }
    }
}

impl StoreStream {
    /// Tries each way once.
    pub(crate) fn connect(at: &StoreAddress, timeout: Duration) -> io::Result<StoreStream> {
        if let StoreAddress::Local(job) = at {
            let stream = UnixStream::connect_addr(&local_name(job)?)?;
            give_up_in_children(&stream);
            check_user(&stream)?;
            return Ok(StoreStream::from(stream));
        }
        // A zero would be refused.
        let timeout = timeout.max(Duration::from_millis(1));
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let addresses = at.addresses()?;
        let timeout =
            if addresses.len() > 1 { timeout.min(SERVER_ADDRESS_TIMEOUT) } else { timeout };
        for address in addresses {
            match connect(address, timeout) {
                Ok(stream) if is_itself(&stream) => {
                    last = io::ErrorKind::ConnectionRefused.into();
                }
                Ok(stream) => {
                    give_up_in_children(&stream);
                    let _ = stream.set_nodelay(true);
                    return Ok(StoreStream::from(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the address of this end.
    pub(crate) fn local(&self) -> Option<IpAddr> {
        match &self.kind {
            StreamKind::Tcp(socket) => socket.local().map(|address| address.ip().to_canonical()),
            StreamKind::Unix(_) => None,
        }
    }

    /// Returns true if the other end is on this host: then its address is not one by which other hosts reach this one.
    pub(crate) fn is_within_host(&self) -> bool {
        match &self.kind {
            StreamKind::Tcp(socket) => socket.is_within_host(),
            StreamKind::Unix(_) => true,
        }
    }

    /// Returns true if what it carries is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        matches!(&self.kind, StreamKind::Tcp(socket) if socket.is_encrypted())
    }

    /// Returns the address of the other end; `None` within this host.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match &self.kind {
            StreamKind::Tcp(socket) => socket.peer().map(|address| address.ip().to_canonical()),
            StreamKind::Unix(_) => None,
        }
    }

    /// Waits for input where the stream has a timeout.
    fn await_input(&self) -> io::Result<()> {
        if self.has_input() {
            return Ok(());
        }
        self.input_timeout.map_or(Ok(()), |timeout| ready(self.as_fd(), PollFlags::IN, timeout))
    }

    pub(crate) fn set_timeouts(&mut self, timeout: Duration) -> io::Result<()> {
        // A zero would mean no timeout.
        let timeout = Some(timeout.max(Duration::from_millis(1)));
        sockopt::set_socket_timeout(self.as_fd(), Timeout::Recv, timeout)?;
        self.input_timeout = timeout;
        Ok(sockopt::set_socket_timeout(self.as_fd(), Timeout::Send, timeout)?)
    }

    /// Returns true if bytes have come that the descriptor does not show.
    pub(crate) fn has_input(&self) -> bool {
        matches!(&self.kind, StreamKind::Tcp(socket) if socket.has_input())
    }

    /// Returns the socket, unless the connection is within this host: that needs no encryption.
    pub(super) fn socket(&mut self) -> Option<&mut PeerSocket> {
        match &mut self.kind {
            StreamKind::Tcp(socket) => Some(socket),
            StreamKind::Unix(_) => None,
        }
    }

    /// Encrypts a new connection to a store, waiting for that long.
    pub(super) fn encrypt(
        &mut self,
        secret: &[u8],
        certificates: Option<&CertificateIdentity>,
        timeout: Duration,
    ) -> Result<(), EncryptionFailure> {
        let Some(socket) = self.socket() else { return Ok(()) };
        let (secret, until) = (JobSecret::from(secret.to_vec()), Instant::now() + timeout);
        rustix::io::ioctl_fionbio(&*socket, true).map_err(io::Error::from)?;
        socket.connect_encryption(certificates)?;
        loop {
            match socket.secure(&secret)? {
                SecureProgress::Open => break,
                SecureProgress::Waiting => {
                    let left = until.saturating_duration_since(Instant::now());
                    ready(socket.as_fd(), PollFlags::IN, left)?;
                }
            }
        }
        rustix::io::ioctl_fionbio(&*socket, false).map_err(io::Error::from)?;
        Ok(())
    }
}

/// The reason for which a connection to a store could not be encrypted.
pub(super) enum EncryptionFailure {
    /// The server answers in the clear or cannot prove the secret, or the connection broke.
    Secure(SecureError),
    /// The system failed.
    System(io::Error),
}

impl From<io::Error> for EncryptionFailure {
    fn from(error: io::Error) -> Self {
        EncryptionFailure::System(error)
    }
}

impl From<SecureError> for EncryptionFailure {
    fn from(error: SecureError) -> Self {
        EncryptionFailure::Secure(error)
    }
}

/// Connects to an address, as [`TcpStream::connect_timeout`], until an interrupt.
fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream =
        TcpStream::from(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
    // Its port serves listeners while the connection ends slowly.
    sockopt::set_socket_reuseaddr(&stream, true)?;
    match rustix::net::connect(&stream, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            ready(stream.as_fd(), PollFlags::OUT, timeout)?;
            sockopt::socket_error(&stream)??;
        }
        Err(error) => return Err(error.into()),
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Waits for a socket, until an interrupt.
fn ready(socket: BorrowedFd<'_>, flags: PollFlags, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let part = left.min(INTERRUPT_CHECK_INTERVAL);
        let moment = Timespec { tv_sec: 0, tv_nsec: part.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&moment)) {
            Ok(0) if left.is_zero() => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if interrupt::is_requested() {
            return Err(io::Error::other("a signal interrupted its wait"));
        }
    }
}

/// Returns true if a connection is to itself: one to a free port of this host can come out of that very port.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(a), Ok(b)) if a == b)
}

impl Read for StoreStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.await_input()?;
        match &mut self.kind {
            StreamKind::Tcp(stream) => stream.read(buffer),
            StreamKind::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for StoreStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.kind {
            StreamKind::Tcp(stream) => stream.write(bytes),
            StreamKind::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for StoreStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            StreamKind::Tcp(socket) => socket.as_fd(),
            StreamKind::Unix(stream) => stream.as_fd(),
        }
    }
}
