//! The key of this process, and the settings of both sides of a handshake.

use std::sync::{Arc, OnceLock};

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring as suite;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, PeerIncompatible, ServerConfig, SignatureScheme,
};

/// The settings of both sides of the handshakes of a process.
#[derive(Clone)]
pub(crate) struct TlsIdentity {
    pub(crate) connecting: Arc<ClientConfig>,
    pub(crate) accepting: Arc<ServerConfig>,
    /// The name that clients ask for.
    pub(crate) peer_name: ServerName<'static>,
}

/// The name that a client asks for where nothing is verified by name.
const PEER_NAME: &str = "rank";

impl TlsIdentity {
    /// Returns the identity of this process, which is made when it is first needed.
    ///
    /// # Errors
    ///
    /// The error of the cryptography: the system gives no random numbers.
    pub(crate) fn of_process() -> Result<TlsIdentity, Error> {
        static IDENTITY: OnceLock<Result<TlsIdentity, Error>> = OnceLock::new();
        IDENTITY.get_or_init(TlsIdentity::generate).clone()
    }

    fn generate() -> Result<TlsIdentity, Error> {
        let provider = Arc::new(provider());
        let denied = |_| Error::FailedToGetRandomBytes;
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(denied)?;
        let key = PrivateKeyDer::Pkcs8(key.as_ref().to_vec().into());
        let key = suite::sign::any_supported_type(&key)?;
        let public = key.public_key().ok_or(Error::FailedToGetRandomBytes)?;
        let raw = CertificateDer::from(public.as_ref().to_vec());
        let own = Arc::new(CertifiedKey::new(vec![raw], key));

        let verifier = UnnamedPeer { algorithms: provider.signature_verification_algorithms };
        let mut connecting = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        connecting.enable_sni = false;

        let accepting = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        let peer_name = ServerName::try_from(PEER_NAME).map_err(|_| Error::UnsupportedNameType)?;
        Ok(without_tickets(connecting, accepting, peer_name))
    }
}

/// Returns the identity of these settings: every connection has a handshake of its own, whose exporter is its own.
pub(crate) fn without_tickets(
    mut connecting: ClientConfig,
    mut accepting: ServerConfig,
    peer_name: ServerName<'static>,
) -> TlsIdentity {
    connecting.resumption = Resumption::disabled();
    accepting.send_tls13_tickets = 0;
    accepting.session_storage = Arc::new(NoServerSessionStorage {});
    TlsIdentity { connecting: connecting.into(), accepting: accepting.into(), peer_name }
}

/// Returns the cryptography of [`crate::records`], with the cipher first that this processor is best at.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = suite::default_provider();
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    let first = match has_aes {
        true => suite::cipher_suite::TLS13_AES_128_GCM_SHA256,
        false => suite::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    let second = match has_aes {
        true => suite::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        false => suite::cipher_suite::TLS13_AES_128_GCM_SHA256,
    };
    provider.cipher_suites = vec![first, second];
    provider
}

/// Takes any raw public key whose holder signs the handshake: what a peer is trusted for comes after it
/// ([`crate::session`]).
#[derive(Debug)]
struct UnnamedPeer {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for UnnamedPeer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
