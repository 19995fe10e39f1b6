//! Encrypted connections: TLS 1.3 between processes that share the secret or the certificates of a job. Built on
//! `roundelay-support`; `roundelay-net` opens and polls the sockets.
//!
//! A part of `roundelay`, which re-exports what its users need. There is no promise of stability.
//!
//! | to read | for |
//! |---|---|
//! | [`certificates`] | certificates of ranks: the files, and the check of a peer's |
//! | [`channel`] | a connection that waits, for exchanges before there are ranks |
//! | [`identity`] | the key of this process, and the settings of both sides |
//! | [`locality`] | which connections stay within this host, and what proves it |
//! | [`session`] | one encrypted connection: reading and writing |
//! | [`proving`] | its beginning: the handshake, and the proof that both ends know the secret |
//! | [`secure_error`] | the reasons for which a connection cannot be encrypted |
//! | [`records`] | the records of an open connection, and their keys |
//! | [`peer_socket`] | a socket between ranks, plain or encrypted, read and written alike |
//!
//! Keys are ephemeral: each process makes one when it first needs it, and no key is derived from the secret, so that a
//! secret that becomes known later opens no recorded traffic. Public keys are raw ones (RFC 7250), and are not what a
//! peer is trusted for: each side proves that it knows the job's secret by an HMAC over the exporter of the handshake
//! (`EXPORTER-Channel-Binding`, RFC 9266) and over its role. A relay between two honest ranks has two handshakes, whose
//! exporters differ, and can pass on neither proof. The side that connects proves first, so that a stranger gets nothing
//! by which it could test secrets without being counted.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "its documentation is for those who change it, who read it with private items"
)]

mod certificates;
mod channel;
mod identity;
mod locality;
mod peer_socket;
mod proving;
mod records;
mod secure_error;
mod session;
#[cfg(test)]
mod tests;
pub mod tunables;

pub use certificates::{CertificateFiles, CertificateIdentity};
pub use channel::{ChannelSocket, ChannelTrust};
pub use locality::host_binding;
pub use peer_socket::PeerSocket;
pub use secure_error::{SecureError, SecureProgress};
pub use session::is_handshake;
