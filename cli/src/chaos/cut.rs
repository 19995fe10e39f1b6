//! Cuts TCP connections of a rank from outside, as a network does: neither end closes it.

use std::io;
use std::net::{Shutdown, TcpStream};

use roundelay::transport::{Transport, TransportSet};
use rustix::io::Errno;
use rustix::net::{SocketType, sockopt::socket_type};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::args::JobArgs;
use crate::hints;
use crate::random::RandomSource;
use crate::report::VerbError;

/// Refuses jobs whose data need no TCP connections.
pub(super) fn possible(job_args: &JobArgs) -> Result<(), VerbError> {
    let hints = hints::merged(&hints::texts(job_args))?;
    if hints.transport() == Some(TransportSet::of(Transport::Tcp)) {
        return Ok(());
    }
    let text = "--chaos cut=RATE/s cuts TCP connections, and these ranks may reach each other otherwise: give \
                --transport tcp";
    Err(VerbError::Usage(text.into()))
}

/// Cuts one of the TCP connections of a process that this one has started. Returns false if it has none, or has ended.
pub(super) fn cut(process: Pid, random: &mut RandomSource) -> io::Result<bool> {
    let ended = |e: &io::Error| {
        e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error())
    };
    match connections(process) {
        // One that has just ended is not cut.
        Ok(mut all) => {
            let at = random.below(all.len() as u64) as usize;
            Ok(at < all.len() && all.swap_remove(at).shutdown(Shutdown::Both).is_ok())
        }
        Err(e) if ended(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns the TCP connections of a process, as sockets of this one.
fn connections(process: Pid) -> io::Result<Vec<TcpStream>> {
    let held = pidfd_open(process, PidfdFlags::empty())?;
    let mut connections = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()))?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have been closed meanwhile.
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        if !is_socket {
            continue;
        }
        let socket = match pidfd_getfd(&held, number, PidfdGetfdFlags::empty()) {
            Ok(socket) => socket,
            Err(Errno::BADF) => continue,
            Err(e) => return Err(e.into()),
        };
        let is_stream = socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
        let stream = TcpStream::from(socket);
        // Listeners have no peer, and sockets inside a machine no address.
        if is_stream && stream.peer_addr().is_ok() {
            connections.push(stream);
        }
    }
    Ok(connections)
}
