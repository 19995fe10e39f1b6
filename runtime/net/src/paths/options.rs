//! PathOptions of the links between ranks: addresses, paths, times, the secret.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::LISTENER;
use crate::transport::Transport;
use crate::transport::rdma;
use crate::tunables::HELLO_TIMEOUT;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::fabric::FabricTopology;
use roundelay_support::ports::PortRange;
use roundelay_support::secret::JobSecret;

use roundelay_tls::ChannelTrust;
pub use roundelay_tls::{CertificateFiles, CertificateIdentity};

/// A topology file, and the digest by which ranks compare it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopologyFile {
    pub(super) fabric: FabricTopology,
    pub(crate) digest: u64,
}

/// The kind of a path on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMedium {
    /// A network interface, an address or a network, as [`PathOptions::interface`].
    Interface(String),
    /// An RDMA device. Connections through it begin as sockets on [`PathOptions::interface`].
    Device(rdma::DeviceChoice),
}

impl PathMedium {
    /// Returns the transport that it is a path of.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            PathMedium::Interface(_) => Transport::Tcp,
            PathMedium::Device(_) => Transport::Rdma,
        }
    }

    /// Returns the device, if it is one.
    pub(crate) fn device(&self) -> Option<&rdma::DeviceChoice> {
        match self {
            PathMedium::Interface(_) => None,
            PathMedium::Device(choice) => Some(choice),
        }
    }
}

/// The options of the links between ranks.
#[derive(Debug, Clone)]
pub struct PathOptions {
    /// The address to listen at: the name of a network interface, an address, or a network such as
    /// `10.0.0.0/8`; `None` for the address that the store sees. Not on paths that are interfaces.
    pub interface: Option<String>,
    /// The ports to listen at; `None` for any.
    pub ports: Option<PortRange>,
    /// The paths to other hosts, in order, where there are several; the same on all ranks.
    pub paths: Vec<String>,
    /// The kind of each of them on this host.
    pub media: Vec<PathMedium>,
    /// A topology file, and its content once it was read.
    pub topology: Option<String>,
    pub(crate) topology_file: Option<Arc<TopologyFile>>,
    /// The secret that all ranks of the job share.
    pub secret: Option<JobSecret>,
    /// The encryption of connections, as it was asked for: see [`PathOptions::settled_encryption`].
    pub encryption: EncryptionMode,
    /// The files of this rank's certificate, and what they hold once they were read.
    pub certificate_files: CertificateFiles,
    /// See [`PathOptions::certificate_files`].
    pub certificates: Option<CertificateIdentity>,
    /// The time that joining and splitting may take, and after which, about, a vanished host is noticed.
    pub timeout: Duration,
    /// The longest time that a new connection may take to identify itself.
    pub(crate) hearing: Duration,
    /// Ranks with different labels count as being on different hosts.
    pub host_label: Option<String>,
}

// A connection that is late is refused for that, not turned away as a stranger.
const _: () = assert!(HELLO_TIMEOUT.as_secs() < LISTENER.patience.as_secs());

impl PathOptions {
    /// Returns the encryption of connections, which takes a secret or certificates. With certificates all are encrypted
    /// unless that is turned off: where there is no secret, nothing else says who connects.
    pub fn settled_encryption(&self) -> EncryptionMode {
        match self.encryption {
            EncryptionMode::Auto if self.has_certificates() => EncryptionMode::Required,
            mode => mode.with_secret(self.secret.is_some()),
        }
    }

    /// Returns true if ranks have certificates, read or not.
    pub fn has_certificates(&self) -> bool {
        self.certificates.is_some() || self.certificate_files != CertificateFiles::default()
    }

    /// Returns what both ends of an encrypted connection prove to know; an empty one if certificates alone say who they
    /// are. `None` if nothing does.
    pub(crate) fn proved_secret(&self) -> Option<JobSecret> {
        let alone = || self.certificates.as_ref().map(|_| JobSecret::from(Vec::new()));
        self.secret.clone().or_else(alone)
    }

    /// Returns what both ends of a connection outside the communicators prove, whatever the address; `None` if nothing
    /// is encrypted.
    pub fn channel_trust(&self) -> Option<ChannelTrust> {
        let secret = self.proved_secret()?;
        let is_on = self.encryption != EncryptionMode::Off;
        is_on.then(|| ChannelTrust::new(secret, self.certificates.clone()))
    }
}

impl Default for PathOptions {
    fn default() -> Self {
        let (timeout, hearing) = (Duration::from_secs(30), HELLO_TIMEOUT);
        let (paths, media) = (Vec::new(), Vec::new());
        PathOptions {
            interface: None,
            ports: None,
            paths,
            media,
            topology: None,
            topology_file: None,
            secret: None,
            encryption: EncryptionMode::default(),
            certificate_files: CertificateFiles::default(),
            certificates: None,
            timeout,
            hearing,
            host_label: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_encrypted_by_a_secret_unless_that_is_off() {
        let secret = || Some(JobSecret::from(b"s3cret".to_vec()));
        for (secret, encryption, is_encrypted) in [
            (secret(), EncryptionMode::Auto, true),
            (secret(), EncryptionMode::Required, true),
            (secret(), EncryptionMode::Off, false),
            (None, EncryptionMode::Auto, false),
        ] {
            let options = PathOptions { secret, encryption, ..PathOptions::default() };
            assert_eq!(options.channel_trust().is_some(), is_encrypted, "{encryption:?}");
        }
    }
}
