//! The outcome of an attempt to encrypt a connection.

use std::io;

use crate::certificates::reason;

/// The progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecureProgress {
    /// Something of the peer is awaited.
    Waiting,
    /// Both ends have proved that they know the secret.
    Open,
}

/// The reason for which a connection cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// The peer closed the connection.
    #[error("it closed the connection while it was being encrypted")]
    Closed,
    /// The peer answers in the clear, with these bytes.
    #[error("it does not encrypt")]
    Plain(Vec<u8>),
    /// The system failed.
    #[error("{0}")]
    System(#[source] io::Error),
    /// The peer breaks the protocol.
    #[error("it does not keep to the protocol of encrypted connections: {0}")]
    Protocol(#[source] rustls::Error),
    /// The peer's certificate is not accepted.
    #[error(
        "its certificate is not accepted: {}; see its `tls_cert`, and `tls_ca` and `tls_name` here", reason(.0)
    )]
    Certificate(#[source] rustls::Error),
    /// The peer does not accept the certificate of this side.
    #[error(
        "it does not accept this side's certificate ({0:?}): see `tls_cert` here, and its `tls_ca` and `tls_name`"
    )]
    CertificateRefused(rustls::AlertDescription),
    /// One side has certificates and the other has none.
    #[error(
        "one side has a certificate and the other has none: give all ranks `tls_cert`, `tls_key` and `tls_ca`, or none"
    )]
    CertificateMissing,
    /// The peer has another secret, or a relay stands between.
    #[error(
        "it cannot prove that it knows the secret on this connection: give all ranks the same secret, or look for who \
         stands between the hosts"
    )]
    Unproved,
}

impl SecureError {
    pub(crate) fn of(fault: rustls::Error) -> SecureError {
        use rustls::AlertDescription as Alert;
        use rustls::{Error, PeerIncompatible};
        match fault {
            Error::InvalidCertificate(_) => SecureError::Certificate(fault),
            // Ranks have all else in common: what they cannot agree on is the kind of certificate.
            Error::NoCertificatesPresented
            | Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::UnsupportedCertificate
                | Alert::HandshakeFailure,
            )
            | Error::PeerIncompatible(
                PeerIncompatible::IncorrectCertificateTypeExtension
                | PeerIncompatible::UnsolicitedCertificateTypeExtension,
            ) => SecureError::CertificateMissing,
            Error::AlertReceived(
                alert @ (Alert::BadCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA),
            ) => SecureError::CertificateRefused(alert),
            fault => SecureError::Protocol(fault),
        }
    }

    /// Returns true if it is about certificates: another try ends alike.
    pub fn is_of_certificates(&self) -> bool {
        matches!(
            self,
            SecureError::Certificate(_)
                | SecureError::CertificateRefused(_)
                | SecureError::CertificateMissing
        )
    }
}
