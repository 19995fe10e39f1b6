//! The sockets of ranks: how one listens, and how connections are tuned.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use roundelay_support::error::Error;
use roundelay_support::fork::give_up_in_children;
use roundelay_support::ports::{PortRange, bind_within};

/// Listens at an address, at a port of the range if there is one.
pub(super) fn listen(at: SocketAddr, ports: Option<PortRange>) -> Result<TcpListener, Error> {
    let listen_at = |port| -> std::io::Result<TcpListener> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        give_up_in_children(&socket);
        // Connections of earlier processes that end slowly do not keep their ports from the next.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        let mut at = at;
        at.set_port(port);
        rustix::net::bind(&socket, &at)?;
        rustix::net::listen(&socket, 4096)?;
        Ok(TcpListener::from(socket))
    };
    bind_within(ports, listen_at).map_err(|e| {
        let remedy = match (ports, e.kind()) {
            (Some(_), _) => "choose other ports, or another network interface",
            (None, std::io::ErrorKind::AddrInUse) => {
                "end programs that listen, or widen `sysctl net.ipv4.ip_local_port_range`"
            }
            (None, _) => "choose another network interface",
        };
        Error::system(format!("ranks cannot be reached at {}: {e}", at.ip()), e, remedy)
    })
}

/// Has a new connection send what is written at once. Until then each message of a handshake would wait for the peer to
/// acknowledge the one before, which it delays by 40 ms.
pub(super) fn send_at_once(stream: impl AsFd) -> rustix::io::Result<()> {
    rustix::net::sockopt::set_tcp_nodelay(stream, true)
}

/// Makes a socket fit for messages between ranks. A host that vanished is noticed in about
/// `timeout`, on an idle connection by probes. What is not acknowledged ends only links for control:
/// on data, a peer that is busy for long with something else must not look like one that vanished.
pub(super) fn tune(
    stream: impl AsFd + Copy,
    timeout: Duration,
    is_control: bool,
) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    let second = Duration::from_secs(1);
    let timeout = timeout.clamp(3 * second, 3600 * second);
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, (timeout / 3).max(second))?;
    sockopt::set_tcp_keepintvl(stream, (timeout / 6).max(second))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    if is_control {
        sockopt::set_tcp_user_timeout(stream, timeout.as_millis() as u32)?;
    }
    Ok(())
}
