//! Looks into a running job from outside, over the network: what its ranks report.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::JobSetup;
use super::reporter::name;
use crate::tunables::REPORTERS_MAX;
use roundelay_engine::trace::LiveRanks;
use roundelay_net::bootstrap::env::address;
use roundelay_net::bootstrap::membership::StoreAt;
use roundelay_net::bootstrap::store::protocol::ROSTER;
use roundelay_net::bootstrap::store::{GuestRefusal, GuestTrust, StoreAddress, StoreGuest};
use roundelay_net::bootstrap::torch::TorchStore;
use roundelay_net::bootstrap::{ReporterRoster, STORE};
use roundelay_net::group::ReporterAt;
use roundelay_support::error::Error;
use roundelay_support::secret::JobSecret;
use roundelay_support::threads::run_shared;

/// The state of a job that was looked at from outside.
#[derive(Debug, Clone)]
pub enum JobReport {
    /// Its ranks have not all joined: who is missing, or why they gave up, in words of the store.
    Joining(String),
    /// Its ranks have joined.
    Running {
        /// The communicator of all ranks, as recorders name it.
        communicator: String,
        /// The answers of the ranks, by rank.
        reports: Vec<RankReport>,
    },
}

/// The answer of a rank.
#[derive(Debug, Clone)]
pub enum RankReport {
    /// The memory of its host shows this of the communicators of its process.
    Seen(Vec<LiveRanks>),
    /// Its process has ended, in words: its host answers, and nothing listens where it did.
    Gone(String),
    /// It does not answer, in words, and nothing else is known.
    Silent(String),
}

/// Queries all ranks of a running job for what they do. They were given the hint `doctor`, and met at the store at that
/// address, `host:port` as the ranks were given it, or at that of a torch.distributed job. A rank that does not answer
/// takes no longer than the timeout. Ranks that make no calls answer too.
///
/// `setup` has the secret of the ranks, their hint `encryption` and a certificate as theirs. `job` is the name of the job
/// where ranks were given one; it is empty where a person or mpirun gave the address.
///
/// # Errors
///
/// [`Error::Start`] if no store answers there, or if it refuses this secret; [`Error::Usage`] if that
/// is no address.
pub fn gather(
    at: &str,
    job: &str,
    setup: &JobSetup,
    timeout: Duration,
) -> Result<JobReport, Error> {
    let options = setup.secured()?;
    let trust = GuestTrust {
        secret: options.secret.as_ref().map_or(&[], JobSecret::bytes),
        encryption: options.settled_encryption(),
        certificates: options.certificates.as_ref(),
    };
    let at = match address(at.strip_prefix("tcp://").unwrap_or(at)) {
        Ok(StoreAt::Address { host, port, .. }) => StoreAddress::Host(host, port),
        Ok(StoreAt::Local { job }) => StoreAddress::Local(job),
        _ => {
            return Err(Error::Usage(format!(
                "{at} is not an address of a store: give what the ranks were given as {STORE}, host:port"
            )));
        }
    };
    let mut store = enter(&at, job, trust, timeout)?;
    let lost = |stranger| refused(&at, stranger);
    // It is there at once, or no rank has set it yet.
    let until = Instant::now() + timeout.min(Duration::from_secs(1));
    let Some(roster) = store.note(ROSTER, until).map_err(lost)? else {
        if let Some(failure) = store.failure() {
            let text = format!("the ranks gave up joining: {}: {}", failure.code.0, failure.text);
            return Ok(JobReport::Joining(text));
        }
        let who = store.who().map_err(lost)?;
        let who = who.unwrap_or_else(|| "the store does not say who is missing".into());
        return Ok(JobReport::Joining(format!("the ranks have not all joined: {who}")));
    };
    let Ok(ReporterRoster { communicator, reporters }) = postcard::from_bytes(&roster) else {
        return Err(Error::Start(format!(
            "the store at {at} is of another version of roundelay: use the `roundelay` of the job"
        )));
    };
    Ok(JobReport::Running { communicator, reports: query_all(&reporters, trust, timeout) })
}

/// Opens a store as a guest: roundelay's own, or the one whose address is in torch's.
fn enter(
    at: &StoreAddress,
    job: &str,
    trust: GuestTrust<'_>,
    timeout: Duration,
) -> Result<StoreGuest, Error> {
    // Roundelay's store ends a connection at the first byte that is not of its protocol, and torch's waits for more: so
    // torch's is tried first.
    let note = match at {
        StoreAddress::Host(host, port) => TorchStore::announced(host, *port, timeout).ok(),
        _ => None,
    };
    let Some(note) = note else {
        return StoreGuest::enter(at.clone(), job, trust, timeout)
            .map_err(|stranger| refused(at, stranger));
    };
    let Some((job, ways)) = note.as_deref().and_then(roundelay_net::bootstrap::rendezvous::read)
    else {
        let why = "it is a store of torch's, and no rank has left an address there".into();
        return Err(refused(at, GuestRefusal::Other(why)));
    };
    let secret = if trust.secret.is_empty() { job.as_bytes() } else { trust.secret };
    let trust = GuestTrust { secret, ..trust };
    let at = StoreAddress::Any(ways);
    StoreGuest::enter(at.clone(), job, trust, timeout).map_err(|stranger| refused(&at, stranger))
}

/// Returns the error of a store that does not answer the query.
fn refused(at: &StoreAddress, stranger: GuestRefusal) -> Error {
    let text = match stranger {
        GuestRefusal::NotListening => format!(
            "no store listens at {at}: the job has ended, or its rank 0 has, or its ranks were not given the hint \
             `doctor=true` (ROUNDELAY_HINTS), with which the store stays; of ranks of this host, `roundelay doctor \
             --pid PID` tells without it"
        ),
        GuestRefusal::Silent(error) => format!(
            "nothing answers at {at} ({error}): see whether that address leads to the host of rank 0, and whether \
             its process is stopped"
        ),
        GuestRefusal::Other(why) => format!(
            "what answers at {at} tells of no ranks with the hint `doctor=true` ({why}): give the address at which \
             they met, and the name of the job (`--job`) if they have one"
        ),
        GuestRefusal::Refused(why) => {
            format!("the store at {at} does not let the doctor in: {why}")
        }
    };
    Error::Start(text)
}

/// Queries all reporters, several at a time.
fn query_all(
    reporters: &[Option<(IpAddr, ReporterAt)>],
    trust: GuestTrust<'_>,
    timeout: Duration,
) -> Vec<RankReport> {
    run_shared(reporters, REPORTERS_MAX, |reporter| match reporter {
        Some(reporter) => query(*reporter, trust, timeout),
        None => RankReport::Silent("it reports nowhere".into()),
    })
}

/// Queries one reporter.
fn query((ip, at): (IpAddr, ReporterAt), trust: GuestTrust<'_>, timeout: Duration) -> RankReport {
    let until = Instant::now() + timeout;
    let place = SocketAddr::new(ip, at.port);
    let report = StoreGuest::enter(StoreAddress::Any(vec![place]), &name(at.key), trust, timeout)
        .and_then(|mut reporter| reporter.report(until));
    match report {
        Ok(Some(report)) => match serde_json::from_slice(&report) {
            Ok(seen) => RankReport::Seen(seen),
            Err(error) => {
                RankReport::Silent(format!("its report from {place} makes no sense: {error}"))
            }
        },
        Ok(None) => RankReport::Silent(format!("it does not answer at {place} within {timeout:?}")),
        Err(GuestRefusal::NotListening) => {
            RankReport::Gone(format!("its process has ended: nothing listens at {place} any more"))
        }
        Err(GuestRefusal::Silent(error)) => RankReport::Silent(format!(
            "it does not answer at {place} within {timeout:?} ({error})"
        )),
        Err(GuestRefusal::Other(why) | GuestRefusal::Refused(why)) => {
            RankReport::Silent(format!("it does not answer at {place}: {why}"))
        }
    }
}
