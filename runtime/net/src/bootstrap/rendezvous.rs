//! Opens the store of a membership.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::membership::{JobMembership, StoreAt};
use super::pmi::PmiClient;
use super::store::host_addresses;
use super::store::job::ServedJob;
use super::store::protocol::digest;
use super::store::{ClientIdentity, StoreAddress, StoreClient, StoreListener, StoreServer};
use super::torch::TorchStore;
use crate::net::address;
use crate::paths::{CertificateIdentity, PathOptions};
use crate::store::Store;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_support::ports::{PortRange, bind_within};
use roundelay_support::secret::random;

/// Opens the store of that job. Rank 0 serves it, unless the launcher does, until its store is dropped.
///
/// With a secret, all ranks must have the same, and no other process can read or leave a note; without
/// one, `secret` is empty.
///
/// # Errors
///
/// [`Error::Start`] if this rank does not get in before the timeout, or is not let in; the text
/// has the reason and the remedy.
pub fn store(
    membership: &JobMembership,
    secret: &[u8],
    timeout: Duration,
) -> Result<Box<dyn Store + Send>, Error> {
    let encryption = EncryptionMode::Auto.with_secret(!secret.is_empty());
    store_at(membership, secret, timeout, StorePlace { encryption, ..StorePlace::default() })
}

/// The place where rank 0 listens for a store whose address is not given, and whether connections to it are encrypted.
#[derive(Debug, Clone, Copy)]
pub struct StorePlace<'a> {
    /// The network interface, as the hint gives it; `None` for all addresses of the host.
    interface: Option<&'a str>,
    ports: Option<PortRange>,
    encryption: EncryptionMode,
    certificates: Option<&'a CertificateIdentity>,
}

impl Default for StorePlace<'_> {
    fn default() -> Self {
        let encryption = EncryptionMode::Off;
        StorePlace { interface: None, ports: None, encryption, certificates: None }
    }
}

impl<'a> StorePlace<'a> {
    /// Returns the place that the options of the ranks' own connections name.
    pub fn of(options: &'a PathOptions) -> Self {
        let PathOptions { interface, ports, .. } = options;
        let (interface, encryption) = (interface.as_deref(), options.settled_encryption());
        let certificates = options.certificates.as_ref();
        StorePlace { interface, ports: *ports, encryption, certificates }
    }

    /// Returns the addresses of this host for others: that of the interface, or all.
    fn far(self) -> Result<Vec<IpAddr>, Error> {
        let all = host_addresses();
        let Some(interface) = self.interface else { return Ok(all) };
        let seen = all.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        Ok(vec![address::choose(Some(interface), seen)?.ip()])
    }

    /// Listens at the interface, or else at all addresses.
    fn listen(self) -> Result<StoreListener, Error> {
        let at = match self.interface {
            Some(_) => self.far()?.first().copied(),
            None => None,
        };
        let listener = bind_within(self.ports, |port| match at {
            Some(ip) => StoreListener::bind_to(SocketAddr::new(ip, port)),
            None => StoreListener::everywhere(port),
        });
        listener.map_err(|e| {
            let text = format!("rank 0 cannot listen for the others: {e}");
            Error::system(text, e, "free a port")
        })
    }
}

/// Opens the store as [`store`] does, at a place of this rank's options where no other is given.
pub fn store_at(
    membership: &JobMembership,
    secret: &[u8],
    timeout: Duration,
    place: StorePlace<'_>,
) -> Result<Box<dyn Store + Send>, Error> {
    let JobMembership { rank, size, .. } = *membership;
    let StorePlace { encryption, certificates, .. } = place;
    let me = |job| ClientIdentity { rank, size, job, secret, encryption, certificates };
    let client = match &membership.store {
        StoreAt::Alone => served(loopback()?, me(""), timeout),
        StoreAt::Address { host, port, job } => {
            rendezvous(StoreAddress::Host(host.clone(), *port), me(job), timeout)
        }
        StoreAt::Local { job } => rendezvous(StoreAddress::Local(job.clone()), me(job), timeout),
        StoreAt::Pmi { fd, one_host } => {
            let pmi = PmiClient::take(*fd, rank, timeout)?;
            let far = if *one_host { Vec::new() } else { place.far()? };
            announced(*one_host, &far, me(""), timeout, place, |note| pmi.share(note))
        }
        StoreAt::Torch { host, port, prefix } => {
            let store = TorchStore::connect(rank, host, *port, prefix, timeout)?;
            let own = store.address();
            let one_host = own.is_loopback();
            let others = if one_host { Vec::new() } else { place.far()? };
            let far: Vec<IpAddr> = if place.interface.is_some() {
                others
            } else {
                std::iter::once(own).chain(others.into_iter().filter(|&ip| ip != own)).collect()
            };
            announced(one_host, &far, me(""), timeout, place, |note| store.share(note))
        }
    }?;
    Ok(Box::new(client))
}

/// Opens the store of ranks of which rank 0 can pass a note to all others: rank 0's `share` is given the note and
/// makes it known, the others' is given nothing and returns it.
pub fn shared(
    (rank, size): (u32, u32),
    secret: &[u8],
    timeout: Duration,
    place: StorePlace<'_>,
    share: impl FnOnce(Option<&str>) -> Result<String, Error>,
) -> Result<StoreClient, Error> {
    let StorePlace { encryption, certificates, .. } = place;
    let me = ClientIdentity { rank, size, job: "", secret, encryption, certificates };
    if size == 1 {
        return served(loopback()?, me, timeout);
    }
    announced(false, &place.far()?, me, timeout, place, share)
}

fn loopback() -> Result<StoreListener, Error> {
    StoreListener::loopback().map_err(|e| {
        let text = format!("rank 0 cannot listen on this host: {e}");
        Error::system(text, e, "see whether it has loopback")
    })
}

/// Opens a store at an address that all ranks share.
fn rendezvous(
    at: StoreAddress,
    me: ClientIdentity<'_>,
    timeout: Duration,
) -> Result<StoreClient, Error> {
    if me.rank != 0 {
        return StoreClient::connect(at, me, timeout);
    }
    let listener = StoreListener::bind(&at).map_err(|e| {
        let taken = e.kind() == std::io::ErrorKind::AddrInUse;
        let remedy = match &at {
            StoreAddress::Local(_) => {
                "another job of this name runs here; set ROUNDELAY_STORE=host:port"
            }
            _ if taken => "choose a free port, or end what has it",
            _ => "see whether that is an address of this host",
        };
        Error::system(format!("rank 0 cannot serve the store at {at}: {e}"), e, remedy)
    })?;
    let server = serve(listener, me, timeout)?;
    Ok(StoreClient::connect(at, me, timeout)?.with(server))
}

fn serve(
    listener: StoreListener,
    me: ClientIdentity<'_>,
    timeout: Duration,
) -> Result<StoreServer, Error> {
    let (digest, secret) = (digest(me.job), me.secret.to_vec());
    let (size, encryption, certificates) = (me.size, me.encryption, me.certificates.cloned());
    let report = None;
    let job = ServedJob { size, digest, secret, encryption, certificates, timeout, report };
    StoreServer::start(listener, job).map_err(|e| {
        Error::system(format!("rank 0 cannot serve the store: {e}"), e, PROCESS_LIMIT_REMEDY)
    })
}

/// Opens the store on rank 0, which has just begun to listen for it.
fn served(
    listener: StoreListener,
    me: ClientIdentity<'_>,
    timeout: Duration,
) -> Result<StoreClient, Error> {
    let server = serve(listener, me, timeout)?;
    let at = StoreAddress::Any(ways(&server, &[]));
    Ok(StoreClient::connect(at, me, timeout)?.with(server))
}

/// Returns the addresses by which ranks reach a server that listens at a port of its own choice.
fn ways(server: &StoreServer, far: &[IpAddr]) -> Vec<SocketAddr> {
    let Some(bound) = server.address() else { return Vec::new() };
    let own = if bound.ip().is_unspecified() {
        // Ranks beside it come this way, in a container without a network too.
        IpAddr::from(Ipv4Addr::LOCALHOST)
    } else {
        bound.ip()
    };
    let far = far.iter().copied().filter(|&far| far != own);
    far.chain([own]).map(|ip| SocketAddr::new(ip, bound.port())).collect()
}

/// Opens a store for which rank 0 chooses a port, which it publishes through a process manager, or
/// torchrun. The note begins with a random name of the job, which keeps them from entering another store
/// behind one of its addresses, and is a secret where there is no other. `far` has the addresses of its host that
/// others may know.
fn announced(
    one_host: bool,
    far: &[IpAddr],
    me: ClientIdentity<'_>,
    timeout: Duration,
    place: StorePlace<'_>,
    share: impl FnOnce(Option<&str>) -> Result<String, Error>,
) -> Result<StoreClient, Error> {
    if me.rank == 0 {
        let job = format!("{:032x}", u128::from_le_bytes(random()?));
        let listener = if one_host { loopback()? } else { place.listen()? };
        let me = me.of(&job);
        let server = serve(listener, me, timeout)?;
        let ways = ways(&server, far);
        let texts: Vec<String> = ways.iter().map(SocketAddr::to_string).collect();
        share(Some(&format!("{job};{}", texts.join(","))))?;
        return Ok(StoreClient::connect(StoreAddress::Any(ways), me, timeout)?.with(server));
    }
    let note = share(None)?;
    match read(&note) {
        Some((job, ways)) => StoreClient::connect(StoreAddress::Any(ways), me.of(job), timeout),
        None => Err(Error::Start(format!(
            "rank {} cannot read where rank 0 said that it is: `{note}`; use one \
             version of roundelay everywhere",
            me.rank
        ))),
    }
}

/// Reads the note in which rank 0 publishes its store: the name of the job, and the addresses.
pub fn read(note: &str) -> Option<(&str, Vec<SocketAddr>)> {
    let (job, ways) = note.split_once(';')?;
    let ways: Result<Vec<SocketAddr>, _> = ways.split(',').map(str::parse).collect();
    Some((job, ways.ok()?))
}
