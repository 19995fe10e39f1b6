//! How ranks are to reach each other: addresses, paths, times, the secret.

use std::sync::Arc;
use std::time::Duration;

use super::Sheet;
use crate::secret::Secret;
use crate::transport::rdma;

/// What a path is on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A network interface, an address or a network, as [`Options::interface`].
    Interface(String),
    /// An RDMA device. Connections through it begin as sockets where [`Options::interface`] says.
    Device(rdma::Choice),
}

impl Medium {
    /// The device, if it is one.
    pub(crate) fn device(&self) -> Option<&rdma::Choice> {
        match self {
            Medium::Interface(_) => None,
            Medium::Device(choice) => Some(choice),
        }
    }
}

/// How ranks reach each other.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Where to listen: the name of a network interface, an address, or a network such as
    /// `10.0.0.0/8`; nothing for the address that the store sees. Not on paths that are interfaces.
    pub(crate) interface: Option<String>,
    /// The paths to other hosts, in order, where there are several; the same on all ranks.
    pub(crate) paths: Vec<String>,
    /// What each of them is on this host.
    pub(crate) media: Vec<Medium>,
    /// A topology file, and what it says once it was read.
    pub(crate) topology: Option<String>,
    pub(crate) sheet: Option<Arc<Sheet>>,
    /// What all ranks of the job know and nobody else.
    pub(crate) secret: Option<Secret>,
    /// How long joining and splitting may take, and about when a vanished host is noticed.
    pub(crate) timeout: Duration,
    /// How long a connection may take to say who it is.
    pub(crate) hearing: Duration,
    /// Ranks with different labels count as being on different hosts.
    pub(crate) host_label: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        let (timeout, hearing) = (Duration::from_secs(30), Duration::from_secs(10));
        let (paths, media) = (Vec::new(), Vec::new());
        Options {
            interface: None,
            paths,
            media,
            topology: None,
            sheet: None,
            secret: None,
            timeout,
            hearing,
            host_label: None,
        }
    }
}
