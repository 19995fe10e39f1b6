//! Holds the settings that ranks need before they join, and joins them over sockets.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::reporter;
use crate::comm::Communicator;
use roundelay_engine::hints::{HintLevel, Hints, MergedHints};
use roundelay_net::bootstrap::rendezvous::{StorePlace, shared, store_at};
use roundelay_net::bootstrap::store::InProcessStore;
use roundelay_net::bootstrap::{HOST, JobMembership, Store, given_secret, secret};
use roundelay_net::group::{JobTerms, RankGroup, RankNote, reporters};
use roundelay_net::net::{RankListener, RankNetwork};
use roundelay_net::paths::{CertificateFiles, PathOptions};
use roundelay_net::transport::TransportSet;
use roundelay_net::transport::rdma;
use roundelay_support::digest::mix;
use roundelay_support::encryption::EncryptionMode;
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_support::ports::PortRange;
use roundelay_support::secret::JobSecret;
use roundelay_support::threads::run_together;
use roundelay_support::variables;

/// The settings with which the ranks of a job are brought together. All ranks are given the same.
#[derive(Debug, Clone)]
pub struct JobSetup {
    pub(super) terms: JobTerms,
    pub(super) options: PathOptions,
    pub(super) devices: rdma::DeviceChoice,
    /// The hints that the communicator has for its calls.
    call_hints: Hints,
}

impl Default for JobSetup {
    fn default() -> Self {
        let terms = JobTerms {
            transports: TransportSet::default(),
            channels: JobSetup::CHANNELS,
            slot_bytes: None,
            lazy: false,
            doctor: false,
        };
        JobSetup {
            terms,
            options: PathOptions::default(),
            devices: rdma::DeviceChoice::default(),
            call_hints: Hints::default(),
        }
    }
}

impl JobSetup {
    /// Channels by default: as many as the algorithms of the library use at most, so that their calls
    /// find all connections made.
    pub const CHANNELS: u32 = 3;

    /// Returns the default: shared memory inside a machine, TCP between machines, connections made at once.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the links that may be used.
    #[must_use]
    pub fn transports(mut self, transports: TransportSet) -> Self {
        self.terms.transports = transports;
        self
    }

    /// Sets the number of connections that are opened to each peer at once where TCP is used,
    /// [`JobSetup::CHANNELS`] by default, and one for messages between single ranks; more are opened when a plan
    /// has more channels.
    #[must_use]
    pub fn channels(mut self, channels: u32) -> Self {
        self.terms.channels = channels;
        self
    }

    /// Sets the largest message, see [`Layout::slot_bytes`](crate::transport::SegmentLayout::slot_bytes); by default
    /// [`TransportSet::slot_bytes`].
    #[must_use]
    pub fn slot_bytes(mut self, bytes: u64) -> Self {
        self.terms.slot_bytes = Some(bytes);
        self
    }

    /// Sets whether connections are made when a call first needs them, and not at once.
    #[must_use]
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.terms.lazy = lazy;
        self
    }

    /// Sets whether every rank reports to `roundelay doctor --store`, wherever it runs, while it lives: a thread that
    /// sleeps listens at a port of its own. The rank that serves the store keeps it.
    #[must_use]
    pub fn doctor(mut self, doctor: bool) -> Self {
        self.terms.doctor = doctor;
        self
    }

    /// Sets the address to listen at: the name of a network interface, an address, or a network as
    /// `10.0.0.0/8`.
    #[must_use]
    pub fn interface(mut self, interface: impl Into<String>) -> Self {
        self.options.interface = Some(interface.into());
        self
    }

    /// Sets the ports to listen at, any by default: for peers, and on rank 0 for the rendezvous where no address of it
    /// is given.
    #[must_use]
    pub fn ports(mut self, ports: PortRange) -> Self {
        self.options.ports = Some(ports);
        self
    }

    /// Sets the paths to other hosts, in order: on each host an interface, an address or a network, as
    /// [`JobSetup::interface`], or an RDMA device, and under the same name on all. With more than one,
    /// algorithms may split what they move over them, and a call goes on over the others when one fails. One
    /// path is none, but one device is the only rail.
    #[must_use]
    pub fn paths<S: Into<String>>(mut self, paths: impl IntoIterator<Item = S>) -> Self {
        self.options.paths = paths.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the topology file (`docs/paths.md`), the same on all hosts: which paths there are, what each is
    /// on this host, and what they can do. With [`JobSetup::paths`] only those of them are used.
    #[must_use]
    pub fn topology(mut self, file: impl Into<String>) -> Self {
        self.options.topology = Some(file.into());
        self
    }

    /// Sets the entry of each RDMA device's table of addresses to speak as. Ranks may be given different
    /// ones.
    #[must_use]
    pub fn rdma_gid(mut self, index: u32) -> Self {
        self.devices.gid = Some(index);
        self
    }

    /// Sets the secret, which only the ranks of the job have: no other process can join or connect. An empty one is
    /// an error when ranks join.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.options.secret = Some(JobSecret::from(secret.into()));
        self
    }

    /// Sets whether connections between ranks, and to the store, are encrypted. That takes a secret; RDMA devices, which
    /// do not encrypt, are not used then. All ranks must choose the same.
    #[must_use]
    pub fn encryption(mut self, mode: EncryptionMode) -> Self {
        self.options.encryption = mode;
        self
    }

    /// Sets the files of this rank's certificate: its chain, its key, and the authorities whose certificates are accepted,
    /// all in PEM; and the name that every rank's certificate must have. Connections are encrypted then.
    #[must_use]
    pub fn certificates(mut self, files: CertificateFiles) -> Self {
        self.options.certificate_files = files;
        self
    }

    /// Sets the longest time that ranks wait for each other to join, and afterwards in calls.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets the label of the machine. Ranks with different labels count as being on different machines,
    /// wherever they are.
    #[must_use]
    pub fn host_label(mut self, label: impl Into<String>) -> Self {
        self.options.host_label = Some(label.into());
        self
    }

    /// Applies hints; settings that they do not name stay as they are. The communicator has them for its calls too, as
    /// by [`Communicator::set_hints`].
    #[must_use]
    pub fn hints(mut self, hints: &Hints) -> Self {
        let levels = [(HintLevel::Call, hints), (HintLevel::Communicator, &self.call_hints)];
        self.call_hints = MergedHints::new(levels).hints().clone();
        self.connection_hints(hints)
    }

    fn connection_hints(mut self, hints: &Hints) -> Self {
        self.terms.transports = hints.transport().unwrap_or(self.terms.transports);
        self.terms.channels = hints.channels().unwrap_or(self.terms.channels);
        self.terms.slot_bytes = hints.slot_bytes().or(self.terms.slot_bytes);
        self.terms.lazy = hints.lazy().unwrap_or(self.terms.lazy);
        self.terms.doctor = hints.doctor().unwrap_or(self.terms.doctor);
        self.options.timeout = hints.timeout().unwrap_or(self.options.timeout);
        if let Some(interface) = hints.interface() {
            self.options.interface = Some(interface.into());
        }
        self.options.ports = hints.ports().or(self.options.ports);
        self.options.encryption = hints.encryption().unwrap_or(self.options.encryption);
        self.devices.gid = hints.rdma_gid().or(self.devices.gid);
        let files = &mut self.options.certificate_files;
        let [chain, key, authorities, name] = hints.certificate_files();
        for (file, given) in [
            (&mut files.chain, chain),
            (&mut files.key, key),
            (&mut files.authorities, authorities),
            (&mut files.name, name),
        ] {
            *file = given.map(String::from).or(file.take());
        }
        if let Some(file) = hints.topology() {
            self = self.topology(file);
        }
        match hints.paths() {
            Some(paths) => self.paths(paths),
            None => self,
        }
    }

    /// Returns the settings that the environment names: hints, the secret, and the label of the machine.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for hints that are not understood; [`Error::Start`] and [`Error::System`] for a secret that is
    /// given and cannot be read, or is empty, and for a label that is not UTF-8.
    pub fn from_env() -> Result<Self, Error> {
        // Calls read those of the environment themselves, and say that they are its.
        let mut setup = JobSetup::new().connection_hints(&Hints::from_env()?);
        if let Some(secret) = secret()? {
            setup = setup.secret(secret);
        }
        if let Some(label) = variables::text(HOST)? {
            setup = setup.host_label(label);
        }
        Ok(setup)
    }
}

/// The error of encryption without a secret.
const NO_SECRET: &str = "`encryption=required` takes a secret, by which ranks know each other, or certificates: give all of them the same \
     ROUNDELAY_SECRET, of 16 random bytes or more, or the file ROUNDELAY_SECRET_FILE, or the hints `tls_cert`, \
     `tls_key` and `tls_ca`";

impl JobSetup {
    /// Returns the bytes of the secret, none if there is none; an error for an empty secret.
    pub(super) fn secret_bytes(&self) -> Result<&[u8], Error> {
        let Some(secret) = &self.options.secret else {
            return match self.options.encryption.is_required() && !self.options.has_certificates() {
                false => Ok(&[]),
                true => Err(Error::Start(NO_SECRET.into())),
            };
        };
        given_secret::check(secret.bytes())?;
        Ok(secret.bytes())
    }

    /// Returns true if there is something by which ranks know each other.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.options.secret.is_some() || self.options.has_certificates()
    }

    /// Returns the options with what the files of certificates hold; an error for a secret that is none.
    pub(crate) fn secured(&self) -> Result<PathOptions, Error> {
        self.secret_bytes()?;
        let mut options = self.options.clone();
        if options.encryption != EncryptionMode::Off {
            options.certificates = options.certificate_files.load()?;
        }
        Ok(options)
    }
}

impl Communicator {
    /// Joins as this process's rank of a job whose ranks another launcher started. Collective.
    ///
    /// # Errors
    ///
    /// [`Error::Start`], [`Error::Timeout`] or [`Error::LostRank`] if the ranks do not come together;
    /// the text names the rank that is missing, or the cause for which one was refused. [`Error::Memory`] if shared
    /// memory cannot be had.
    pub fn join(membership: &JobMembership, setup: &JobSetup) -> Result<Communicator, Error> {
        let timeout = setup.options.timeout;
        let secret = setup.secret_bytes()?;
        let options = setup.secured()?;
        let place = StorePlace::of(&options);
        let store = store_at(membership, secret, timeout, place)?;
        Self::join_at(membership.rank, membership.size, store, setup)
    }

    /// Joins as one rank of a job whose ranks can pass a note in some way of their own: a key-value store, a
    /// file, a broadcast of another library. Rank 0's `share` is given a note of at most 4 KiB and makes it
    /// known; the others' is given `None`, waits for the note and returns it. Ranks may be threads of one
    /// process. Collective.
    ///
    /// # Errors
    ///
    /// The errors of `share`, and of [`Communicator::join`]; [`Error::Usage`] if there is no such rank.
    pub fn join_with(
        rank: u32,
        size: u32,
        setup: &JobSetup,
        share: impl FnOnce(Option<&str>) -> Result<String, Error>,
    ) -> Result<Communicator, Error> {
        if rank >= size {
            return Err(Error::Usage(format!(
                "rank {rank} is not one of {size} ranks; they go from 0 to size - 1"
            )));
        }
        let secret = setup.secret_bytes()?;
        let options = setup.secured()?;
        let place = StorePlace::of(&options);
        let store = shared((rank, size), secret, setup.options.timeout, place, share)?;
        Self::join_at(rank, size, Box::new(store), setup)
    }

    fn join_at(
        rank: u32,
        size: u32,
        mut store: Box<dyn Store + Send>,
        setup: &JobSetup,
    ) -> Result<Communicator, Error> {
        let mut comm = Self::meet_at(rank, size, &mut *store, setup)?;
        if let Err(error) = store.finish(Instant::now() + setup.options.timeout) {
            // The other ranks have joined this one, and have to receive the cause of its end.
            return Err(comm.core()?.fail(store.fail(error)));
        }
        let reporting = comm.identity().as_mut().and_then(|identity| identity.reporting.as_mut());
        if let Some(reporting) = reporting.filter(|_| rank == 0) {
            reporting.store = Some(Arc::new(Mutex::new(store)));
        }
        Ok(comm)
    }

    /// Creates all ranks of a job whose ranks are threads of this process, brought together as ranks on
    /// several machines are: `setup` gives for each rank the links that it may use, and the machine
    /// that it counts as its own.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::from_env`]; of several ranks that failed, the error of one that saw the
    /// cause itself, not of one that was aborted.
    pub fn local_over(
        ranks: u32,
        setup: impl Fn(u32) -> JobSetup + Sync,
    ) -> Result<Vec<Communicator>, Error> {
        let store = InProcessStore::at(Ipv4Addr::LOCALHOST.into());
        let stores: Vec<_> = (0..ranks).map(|rank| (rank, store.of(rank))).collect();
        let joined = run_together(stores, |(rank, mut store)| {
            Self::meet_at(rank, ranks, &mut store, &setup(rank))
        });
        let joined = joined.map_err(|e| {
            let text = format!("cannot start {ranks} threads, one for each rank: {e}");
            Error::system(text, e, PROCESS_LIMIT_REMEDY)
        })?;
        let (mut comms, mut cause, mut aborted) = (Vec::new(), None, None);
        for joined in joined {
            match joined.unwrap_or_else(|_| Err(Error::Start("a rank panicked".into()))) {
                Ok(comm) => comms.push(comm),
                Err(error @ Error::Aborted { .. }) => aborted = aborted.or(Some(error)),
                Err(error) => cause = cause.or(Some(error)),
            }
        }
        cause.or(aborted).map_or(Ok(comms), Err)
    }

    /// Joins the other ranks through a store. Collective.
    pub(crate) fn meet_at(
        rank: u32,
        size: u32,
        store: &mut dyn Store,
        setup: &JobSetup,
    ) -> Result<Communicator, Error> {
        let timeout = setup.options.timeout;
        let identity = setup.identity(store.address());
        let mut identity = identity.map_err(|error| store.fail(error))?;
        let listener = RankListener::open(identity.options.clone(), store.address());
        let listener = Arc::new(listener.map_err(|error| store.fail(error))?);
        let terms = identity.terms;
        identity.reporting = match terms.doctor {
            true => Some(reporter::open(&listener).map_err(|error| store.fail(error))?),
            false => None,
        };
        let reports_at = identity.reporting.as_ref().map(|reporting| reporting.at);
        let note = postcard::to_allocvec(&RankNote::of(terms, &listener, reports_at, None))
            .map_err(|e| Error::Start(e.to_string()))?;
        let net = RankNetwork::join(rank, size, 0, listener.clone(), store, note)?;
        let (job, id) = net.names();
        identity.comm = mix(mix(job as u64, (job >> 64) as u64), id);
        let reporters = (rank == 0 && terms.doctor).then(|| reporters(net.endpoints()));
        let mut group = RankGroup::join(rank, net, terms, timeout, store, None)?;
        if let Some(reporters) = reporters
            && let Err(error) = reporter::publish(store, &group, &reporters)
        {
            return Err(store.fail(error));
        }
        group.choose_devices(identity.devices.clone());
        // Ranks that share all memory need none until they meet others.
        if group.is_networked() {
            identity.listens(listener);
        }
        let mut comm = Communicator::of_group(group, timeout, store)?;
        *comm.identity() = Some(Box::new(identity));
        comm.core()?.plans.set_hints(setup.call_hints.clone());
        Ok(comm)
    }
}
