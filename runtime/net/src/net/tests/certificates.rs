//! Tests ranks that know each other by certificates, with a secret and without.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::super::dial::DialError;
use super::encrypted::{dialed, listening};
use super::*;
use crate::bootstrap::store::job::ServedJob;
use crate::bootstrap::store::protocol::digest;
use crate::bootstrap::store::{
    GuestRefusal, GuestTrust, StoreAddress, StoreGuest, StoreListener, StoreServer,
};
use crate::paths::{CertificateFiles, CertificateIdentity};
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::Error;

/// A folder of certificates, which vanishes with this.
struct CertificateFolder(PathBuf);

impl Drop for CertificateFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type TestAuthority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> TestAuthority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("made")
}

impl CertificateFolder {
    fn new() -> CertificateFolder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("roundelay-certificates-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        CertificateFolder(folder)
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("a file");
        path.into_os_string().into_string().expect("text")
    }

    /// Makes the files of a rank: its certificate by one authority for a name until a year, and what it accepts.
    fn files(
        &self,
        by: &TestAuthority,
        name: &str,
        until: i32,
        accepted: &[&TestAuthority],
    ) -> CertificateFiles {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let own = params.signed_by(&key, by).expect("made");
        let accepted: String = accepted.iter().map(|authority| authority.pem()).collect();
        CertificateFiles {
            chain: Some(self.file("rank.pem", &own.pem())),
            key: Some(self.file("rank.key", &key.serialize_pem())),
            authorities: Some(self.file("ca.pem", &accepted)),
            name: None,
        }
    }
}

fn made(by: &TestAuthority, name: &str, accepted: &[&TestAuthority]) -> CertificateIdentity {
    let folder = CertificateFolder::new();
    let files =
        CertificateFiles { name: Some(name.into()), ..folder.files(by, name, 4000, accepted) };
    files.load().expect("files").expect("some")
}

fn certified(certificates: &CertificateIdentity, secret: Option<&str>) -> PathOptions {
    let certificates = Some(certificates.clone());
    PathOptions { certificates, ..secret.map_or_else(options, with_secret) }
}

#[test]
fn ranks_with_certificates_come_together_with_a_secret_and_without() {
    let authority = authority("one");
    for secret in [None, Some("swordfish")] {
        // Each has a certificate of its own.
        let own: Vec<_> = (0..4).map(|_| made(&authority, "job", &[&authority])).collect();
        let all = each_rank(
            4,
            &memory(),
            |rank| certified(&own[rank as usize], secret),
            |mut net| {
                check_words(&mut net, 1);
                assert_eq!(net.counts().refused, 0);
            },
        );
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    }
}

/// Dials a listener, and returns the error of the side that connects.
fn refused(accepting: PathOptions, connecting: PathOptions) -> String {
    let (listener, at) = listening(accepting);
    let error = dialed(&listener, at, connecting).map(drop).expect_err("refused");
    assert!(!matches!(error, DialError::Stranger), "{error}");
    assert_eq!((listener.accepted(), listener.refused()), (0, 1), "{error}");
    error.to_string()
}

#[test]
fn certificates_that_are_not_of_the_job_are_refused_by_both_sides() {
    let (one, other) = (authority("one"), authority("other"));
    let honest = made(&one, "job", &[&one]);
    let with = |identity: &CertificateIdentity| certified(identity, Some("swordfish"));
    // It trusts the honest, who do not trust it.
    let alien = made(&other, "job", &[&one, &other]);
    let error = refused(with(&honest), with(&alien));
    assert!(error.contains("does not accept this side's certificate"), "{error}");
    let error = refused(with(&alien), with(&honest));
    assert!(error.contains("of another authority") && error.contains("`tls_ca`"), "{error}");
    let named = made(&one, "another", &[&one]);
    let error = refused(with(&named), with(&honest));
    assert!(error.contains("it is for another name"), "{error}");
    // Both find the other's name wrong: the one that connects is first.
    let error = refused(with(&honest), with(&named));
    assert!(error.contains("it is for another name"), "{error}");
    // The secret counts too.
    let error = refused(with(&honest), certified(&honest, Some("swordfist")));
    assert!(error.contains("give all ranks the same secret"), "{error}");
    for (accepting, connecting) in [(Some("swordfish"), None), (None, Some("swordfish"))] {
        let error = refused(certified(&honest, accepting), certified(&honest, connecting));
        assert!(error.contains("secret"), "{error}");
    }
}

#[test]
fn a_rank_without_a_certificate_is_refused() {
    let authority = authority("one");
    let honest = made(&authority, "job", &[&authority]);
    let bare = || PathOptions { encryption: EncryptionMode::Required, ..with_secret("swordfish") };
    for (accepting, connecting) in [
        (certified(&honest, Some("swordfish")), bare()),
        (bare(), certified(&honest, Some("swordfish"))),
    ] {
        let error = refused(accepting, connecting);
        assert!(error.contains("one side has a certificate and the other has none"), "{error}");
    }
    // One that does not encrypt at all.
    let off = PathOptions { encryption: EncryptionMode::Off, ..with_secret("swordfish") };
    let error = refused(certified(&honest, Some("swordfish")), off.clone());
    assert!(error.contains("hint `encryption`"), "{error}");
    let error = refused(off, certified(&honest, Some("swordfish")));
    assert!(error.contains("hint `encryption`"), "{error}");
    let error = refused(certified(&honest, None), options());
    assert!(error.contains("hint `encryption`"), "{error}");
}

#[test]
fn files_that_do_not_fit_are_errors_of_their_own() {
    let (one, other) = (authority("one"), authority("other"));
    let folder = CertificateFolder::new();
    let good = folder.files(&one, "roundelay", 4000, &[&one]);
    assert!(good.load().is_ok_and(|identity| identity.is_some()));
    assert!(CertificateFiles::default().load().is_ok_and(|identity| identity.is_none()));
    let strange = CertificateFolder::new();
    let stranger = strange.files(&one, "roundelay", 4000, &[&other]);
    let nowhere = Some(folder.0.join("nowhere").into_os_string().into_string().expect("text"));
    let empty = Some(folder.file("empty", ""));
    let cases: [(CertificateFiles, &str); 9] = [
        (CertificateFiles { key: None, ..good.clone() }, "`tls_key` is not given"),
        (CertificateFiles { authorities: None, ..good.clone() }, "`tls_ca` is not given"),
        (CertificateFiles { chain: nowhere.clone(), ..good.clone() }, "`tls_cert` names no cert"),
        (CertificateFiles { key: nowhere, ..good.clone() }, "`tls_key` names no private key"),
        (CertificateFiles { authorities: empty, ..good.clone() }, "there is none in it"),
        (CertificateFiles { key: stranger.key.clone(), ..good.clone() }, "is not the key of"),
        (stranger, "it is of another authority"),
        (CertificateFiles { name: Some("job".into()), ..good.clone() }, "it is for another name"),
        (CertificateFiles { name: Some("a b".into()), ..good }, "is no name of a certificate"),
    ];
    for (files, text) in cases {
        let error = files.load().expect_err(text);
        assert!(matches!(&error, Error::Start(why) if why.contains(text)), "{text}: {error}");
    }
    let old = CertificateFolder::new();
    let error = old.files(&one, "roundelay", 2001, &[&one]).load().expect_err("it has expired");
    assert!(error.to_string().contains("it has expired"), "{error}");
}

#[test]
fn a_store_knows_its_clients_by_certificates() {
    let (one, other) = (authority("one"), authority("other"));
    let honest = made(&one, "job", &[&one]);
    let (digest, encryption) = (digest("job"), EncryptionMode::Required);
    let certificates = Some(honest.clone());
    let (secret, timeout, report) = (Vec::new(), PATIENCE, None);
    let job = ServedJob { size: 2, digest, secret, encryption, certificates, timeout, report };
    let listener = StoreListener::bind_to((Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
    let server = StoreServer::start(listener, job).expect("a server");
    let at = StoreAddress::Any(server.address().into_iter().collect());
    let enter = |certificates| {
        let trust = GuestTrust { secret: b"", encryption, certificates };
        StoreGuest::enter(at.clone(), "job", trust, PATIENCE)
    };
    assert!(enter(Some(&honest)).is_ok());
    let alien = made(&other, "job", &[&one, &other]);
    for (stranger, text) in [
        (Some(&alien), "does not accept this side's certificate"),
        (None, "one side has a certificate and the other has none"),
    ] {
        match enter(stranger) {
            Err(GuestRefusal::Refused(why)) => assert!(why.contains(text), "{why}"),
            other => panic!("{text}: {:?}", other.err()),
        }
    }
}
