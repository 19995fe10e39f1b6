//! Certificates of ranks: the files, and the check of a peer's by authority, time and name.
//!
//! Ranks reach each other at addresses that they learn from each other, and have no names of their own. So all of them
//! show a certificate for one name, that of the job, and both sides of a connection check it.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error as TlsError, PeerIncompatible,
    RootCertStore, ServerConfig, SignatureScheme,
};

use crate::identity::{TlsIdentity, provider, without_tickets};
use roundelay_support::error::Error;

/// The files of a rank's certificate, and the name that the certificates of all ranks are for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain of this rank's certificate, its own first, in PEM.
    pub chain: Option<String>,
    /// Its private key, in PEM.
    pub key: Option<String>,
    /// The authorities whose certificates are accepted, in PEM.
    pub authorities: Option<String>,
    /// The name that every rank's certificate must have.
    pub name: Option<String>,
}

/// The certificate of a rank, and what it accepts of others.
#[derive(Clone)]
pub struct CertificateIdentity(pub(crate) TlsIdentity);

impl std::fmt::Debug for CertificateIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateIdentity(not shown)")
    }
}

impl CertificateFiles {
    /// The name of certificates where none is given.
    pub const NAME: &'static str = "roundelay";

    /// Reads the files; `None` if none are named.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if one of the files is missing, cannot be read or does not fit the others, and if peers would not
    /// accept this rank's own certificate.
    pub fn load(&self) -> Result<Option<CertificateIdentity>, Error> {
        let CertificateFiles { chain, key, authorities, name } = self;
        let (chain, key, authorities) = match (chain, key, authorities) {
            (None, None, None) => return Ok(None),
            (Some(chain), Some(key), Some(authorities)) => (chain, key, authorities),
            _ => {
                let given = [("tls_cert", chain), ("tls_key", key), ("tls_ca", authorities)];
                let missing = given.iter().filter(|(_, file)| file.is_none());
                let missing: Vec<&str> = missing.map(|(hint, _)| *hint).collect();
                return Err(Error::Start(format!(
                    "certificates take three files, and `{}` is not given: name all of `tls_cert`, `tls_key` and `tls_ca`, \
                     or none",
                    missing.join("` and `")
                )));
            }
        };
        let name = name.as_deref().unwrap_or(Self::NAME);
        let peer = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::Start(format!(
                "`tls_name={name}` is no name of a certificate: give a name as of a host, such as `job.example`"
            ))
        })?;
        let own = certificates(chain, "tls_cert")?;
        let secret_key = PrivateKeyDer::from_pem_file(Path::new(key)).map_err(|e| {
            Error::Start(format!(
                "`tls_key` names no private key in PEM: {key}: {e}; see the file and who may read it"
            ))
        })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities, "tls_ca")? {
            roots.add(authority).map_err(|e| {
                Error::Start(format!("`tls_ca`: {authorities} has no authority in it: {e}"))
            })?;
        }
        let provider = Arc::new(provider());
        let unusable = |e: TlsError| {
            Error::Start(format!(
                "{key} is not the key of {chain}: {e}; give the key that the certificate was made for"
            ))
        };
        let own = CertifiedKey::from_der(own, secret_key, &provider).map_err(unusable)?;
        let check = Arc::new(NamedPeer { roots, name: peer.clone(), provider: provider.clone() });
        check.check(&own.cert[0], &own.cert[1..], UnixTime::now()).map_err(|e| {
            Error::Start(format!(
                "no rank accepts the certificate {chain} for the name `{name}` (`tls_name`): {}; its authority must be in \
                 {authorities}",
                reason(&e)
            ))
        })?;
        let made = TlsIdentity::of_certificate(own, check, provider, peer);
        let made = made.map_err(|e| Error::Start(format!("certificates cannot be used: {e}")))?;
        Ok(Some(CertificateIdentity(made)))
    }
}

/// Reads the certificates of a file.
fn certificates(file: &str, hint: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unreadable = |e: &dyn std::fmt::Display| {
        Error::Start(format!(
            "`{hint}` names no certificate in PEM: {file}: {e}; see the file and who may read it"
        ))
    };
    let all = CertificateDer::pem_file_iter(Path::new(file)).map_err(|e| unreadable(&e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| unreadable(&e))?;
    match all.is_empty() {
        true => Err(unreadable(&"there is none in it")),
        false => Ok(all),
    }
}

/// Returns why a certificate is not accepted, in words.
pub(crate) fn reason(error: &TlsError) -> String {
    use rustls::CertificateError as Fault;
    let TlsError::InvalidCertificate(fault) = error else { return error.to_string() };
    match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => "it has expired".into(),
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => "it is not valid yet".into(),
        Fault::UnknownIssuer => "it is of another authority".into(),
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            "it is for another name".into()
        }
        other => other.to_string(),
    }
}

impl TlsIdentity {
    fn of_certificate(
        own: CertifiedKey,
        check: Arc<NamedPeer>,
        provider: Arc<CryptoProvider>,
        peer_name: ServerName<'static>,
    ) -> Result<TlsIdentity, TlsError> {
        let own = Arc::new(SingleCertAndKey::from(own));
        let mut connecting = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(check.clone())
            .with_client_cert_resolver(own.clone());
        connecting.enable_sni = false;
        let accepting = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(check)
            .with_cert_resolver(own);
        Ok(without_tickets(connecting, accepting, peer_name))
    }
}

/// Accepts the certificates of some authorities for one name, of either side.
#[derive(Debug)]
struct NamedPeer {
    roots: RootCertStore,
    name: ServerName<'static>,
    provider: Arc<CryptoProvider>,
}

impl NamedPeer {
    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), TlsError> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            others,
            now,
            algorithms,
        )?;
        verify_server_name(&certificate, &self.name)
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for NamedPeer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(certificate, others, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for NamedPeer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A rank has one certificate: there is nothing to choose by them.
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(certificate, others, now).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
