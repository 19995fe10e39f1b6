//! The reasons for which devices cannot be used, and for which a queue of theirs failed.

use std::io;
use std::time::Duration;

use super::verbs::describe_status;
use roundelay_support::error::ErrorSource;

/// The reason for which devices carry no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VerbsError {
    /// The kernel has no support.
    #[error(
        "the kernel has no RDMA support loaded: load the module ib_uverbs and the one of the device; in a \
         container, pass /dev/infiniband on"
    )]
    NoSupport { source: ErrorSource },
    /// The user has no access.
    #[error("this user may not open the files of /dev/infiniband ({source})")]
    NoAccess { source: ErrorSource },
    /// The library opens no device.
    #[error("opening devices failed: {source}")]
    NotOpened { source: ErrorSource },
    /// No device has an active port.
    #[error(
        "there is no device with an active port: `ibv_devinfo` (Debian's package ibverbs-utils) shows ports \
         and their state; a device without a driver needs the package ibverbs-providers"
    )]
    NoDevice,
    /// No device has the name.
    #[error("no device with an active port is named {name}; there are {}", .devices.join(", "))]
    NoSuchDevice { name: String, devices: Vec<String> },
    /// A device has no address of the number.
    #[error("device {device} has no GID {gid}; it has {}", .gids.join(", "))]
    NoSuchGid { device: String, gid: u32, gids: Vec<String> },
    /// A call of the library failed.
    #[error("{action} on {device} failed: {source}{}", remedy(.source))]
    Call { action: &'static str, device: String, source: ErrorSource },
    /// A queue was not connected.
    #[error(
        "connecting a queue pair on {device} with its {peer} failed: {source}; the two must be of one network: \
         the hint `rdma_gid` picks another address"
    )]
    NotConnected { device: String, peer: String, source: ErrorSource },
    /// No thread connects queues.
    #[error("no thread can be had: {source}")]
    NoThread { source: ErrorSource },
    /// No queue of a connection is left.
    #[error("all {count} queue pairs to it failed, the last one on device {device}: {source}")]
    NoQueue { count: usize, device: String, source: QueueError },
    /// This end gave up the connection.
    #[error("its connection was cut, because a call has failed")]
    Cut,
}

/// Returns the remedy for an error of the library, if one is known.
fn remedy(error: &ErrorSource) -> &'static str {
    match error.downcast_ref().and_then(io::Error::raw_os_error) {
        Some(libc::ENOMEM | libc::EPERM | libc::EAGAIN) => {
            "; devices need memory that stays in place: raise `ulimit -l`"
        }
        _ => "",
    }
}

/// The reason for which a queue failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueError {
    /// Work came back with a status.
    #[error("{}", describe_status(*.0))]
    Status(u32),
    /// The device took no work.
    #[error("{source}")]
    Post { source: ErrorSource },
    /// Nothing was delivered for so long.
    #[error("nothing was acknowledged for {} ms", .0.as_millis())]
    Stalled(Duration),
    /// The peer ended its side.
    #[error("it has ended on the other side")]
    EndedThere,
    /// There is no such queue any more.
    #[error("it was destroyed")]
    Destroyed,
}

impl From<io::Error> for QueueError {
    fn from(error: io::Error) -> Self {
        QueueError::Post { source: ErrorSource::new(error) }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::transport::fault::ConnectionFault;

    #[test]
    fn a_fault_has_its_causes_down_to_the_systems() {
        let refused = io::Error::from_raw_os_error(libc::ENOMEM);
        let (device, source) = ("mlx5_0".to_owned(), QueueError::from(refused));
        let fault = ConnectionFault::other(VerbsError::NoQueue { count: 2, device, source });
        let causes = std::iter::successors(fault.source(), |&cause| cause.source());
        let last = causes.last().and_then(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(last.and_then(io::Error::raw_os_error), Some(libc::ENOMEM));
        let text = fault.to_string();
        let wanted =
            "all 2 queue pairs to it failed, the last one on device mlx5_0: Cannot allocate";
        assert!(text.starts_with(wanted), "{text}");
    }

    #[test]
    fn the_remedy_for_pinned_memory_is_named() {
        let error = |code| VerbsError::Call {
            action: "registering memory",
            device: "mlx5_0".into(),
            source: ErrorSource::new(io::Error::from_raw_os_error(code)),
        };
        assert!(error(libc::ENOMEM).to_string().ends_with("raise `ulimit -l`"));
        assert!(error(libc::EINVAL).to_string().ends_with("(os error 22)"));
    }
}
