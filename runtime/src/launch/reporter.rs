//! A thread of a rank that answers `roundelay doctor`, whatever the rank does.
//!
//! It serves the protocol of stores ([`store`](mod@roundelay_net::bootstrap::store)) to guests alone, at a port of its
//! own: a guest has proved possession of the secret of the job, or where there is none, of a number that only the ranks
//! and their store have. It reads what ranks of this host publish in memory, so that no call, and no message, has
//! anything to do with it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roundelay_engine::trace::live;
use roundelay_net::bootstrap::store::job::ServedJob;
use roundelay_net::bootstrap::store::protocol::{ROSTER, digest};
use roundelay_net::bootstrap::store::{StoreListener, StoreServer};
use roundelay_net::bootstrap::{ReporterRoster, Store};
use roundelay_net::group::{DoctorReporting, RankGroup, ReporterAt};
use roundelay_net::net::RankListener;
use roundelay_support::error::Error;
use roundelay_support::ports::bind_within;
use roundelay_support::secret::{JobSecret, random};

/// Returns the name by which guests call a reporter.
pub(super) fn name(key: u128) -> String {
    format!("reporter {key:032x}")
}

/// Opens the reporter of this process's rank, beside its listener.
pub(super) fn open(listener: &RankListener) -> Result<DoctorReporting, Error> {
    let failed = |e: std::io::Error| {
        let ip = listener.address().ip();
        let remedy =
            "see whether its limits allow a thread and a port more, or leave out the hint `doctor`";
        Error::system(format!("a rank cannot report at {ip}: {e}"), e, remedy)
    };
    let own = |port| SocketAddr::new(listener.address().ip(), port);
    let socket = bind_within(listener.options().ports, |port| StoreListener::bind_to(own(port)));
    let socket = socket.map_err(failed)?;
    let port = socket.address().map_or(0, |address| address.port());
    let at = ReporterAt { port, key: u128::from_le_bytes(random()?) };
    let secret = listener.options().secret.as_ref().map_or(&[][..], JobSecret::bytes).to_vec();
    let digest = digest(&name(at.key));
    // It has no ranks, so that there is nothing for which it could wait.
    let timeout = Duration::ZERO;
    let options = listener.options();
    let (encryption, certificates) = (options.settled_encryption(), options.certificates.clone());
    let report: Option<fn() -> Vec<u8>> = Some(report);
    let job = ServedJob { size: 0, digest, secret, encryption, certificates, timeout, report };
    Ok(DoctorReporting::new(at, StoreServer::start(socket, job).map_err(failed)?))
}

/// Returns what the memory of this host shows of all communicators of this process.
fn report() -> Vec<u8> {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    // Where there is nothing to see, nothing is reported.
    let seen = live(pid).unwrap_or_default();
    serde_json::to_vec(&seen).unwrap_or_default()
}

/// Publishes the addresses of all reporters at the store.
pub(super) fn publish(
    store: &mut dyn Store,
    group: &RankGroup,
    reporters: &[Option<(IpAddr, ReporterAt)>],
) -> Result<(), Error> {
    let communicator = format!("{:016x}", group.number());
    let roster = ReporterRoster { communicator, reporters: reporters.to_vec() };
    let bytes = postcard::to_allocvec(&roster).map_err(|e| Error::Start(e.to_string()))?;
    store.set(ROSTER, &bytes)
}
