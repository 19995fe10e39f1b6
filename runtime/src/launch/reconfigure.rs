//! Lets a communicator live on with other ranks: survivors, newcomers, ranks of other communicators.
//!
//! Every rank has a *handle*, a short text. All ranks that a list of handles names, and no others, make a new
//! *generation*: they connect to each other at the addresses in the handles, as ranks do that join a job, where they do
//! not share memory already, and agree on the rest. `docs/elastic.md` has the protocol and its invariants.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::JobSetup;
use super::reporter;
use crate::comm::Communicator;
use roundelay_net::bootstrap::Store as _;
use roundelay_net::bootstrap::handle::{RankHandle, names, order, place};
use roundelay_net::bootstrap::limit::JoinDeadline;
use roundelay_net::bootstrap::store::InProcessStore;
use roundelay_net::bootstrap::store::outward;
use roundelay_net::group::{JobTerms, RankGroup, RankIdentity, RankNote, reporters};
use roundelay_net::net::{GenerationMembers, RankNetwork, WaitPolicy};
use roundelay_net::paths;
use roundelay_net::paths::{PathMedium, PathOptions};
use roundelay_net::transport::rdma;
use roundelay_support::error::Error;

/// The remedy where not all ranks come.
const LATE: &str =
    "make sure that every rank that the handles name reconfigures with the same handles and id";

/// The handles of the ranks of a generation. All ranks give the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankHandles<'a> {
    /// Ranks by their places in the list.
    List(&'a [String]),
    /// Ranks that the runtime numbers: those of the oldest generation first, in the order that they have there.
    Set(&'a [String]),
}

impl RankHandles<'_> {
    /// Returns the handles by rank.
    fn ranks(self) -> Result<(Vec<RankHandle>, bool), Error> {
        let (texts, ordered) = match self {
            RankHandles::List(texts) => (texts, true),
            RankHandles::Set(texts) => (texts, false),
        };
        let ranks = texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>()?;
        if u32::try_from(ranks.len()).is_err() {
            return Err(Error::Usage("there are more handles than there can be ranks".into()));
        }
        Ok((if ordered { ranks } else { order(ranks) }, ordered))
    }
}

impl Communicator {
    /// Makes a communicator of this rank alone, for a process that is to come to others by
    /// [`Communicator::reconfigure`]. It needs the settings that they have.
    ///
    /// # Errors
    ///
    /// The errors of [`Communicator::join`] that concern one rank.
    pub fn alone(setup: &JobSetup) -> Result<Communicator, Error> {
        let here = outward().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let mut store = InProcessStore::at(here);
        Self::meet_at(0, 1, &mut store, setup)
    }

    /// Returns this rank's handle: a text without spaces that all ranks of the next generation must be given, by
    /// whatever way they have. It serves for one call of [`Communicator::reconfigure`], whatever becomes of that.
    ///
    /// Ranks that found each other in the memory of their machine listen at its loopback address then, unless the
    /// hint `interface` says otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] if this host has no address to listen at; [`Error::Usage`] if the hints of the environment
    /// are wrong.
    pub fn handle(&mut self) -> Result<String, Error> {
        Ok(self.own_handle()?.to_string())
    }

    fn own_handle(&mut self) -> Result<RankHandle, Error> {
        self.check_process()?;
        let (rank, memory) = (self.rank(), self.memory());
        let identity = match self.identity() {
            Some(identity) => identity,
            none => none.insert(Box::new(of_environment(memory)?)),
        };
        let addresses = identity.listener()?.addresses().to_vec();
        let RankIdentity { generation, comm, process, nonce, .. } = **identity;
        Ok(RankHandle { generation, rank, comm, process, nonce, addresses })
    }

    /// Goes on as a rank of a new generation: of all ranks that the handles name, and of no others. All of them
    /// call together, each on a communicator of its own, with the same handles and the same `id`, any text. Work
    /// that is pending here ends first: [abort](crate::AbortHandle::abort) if it may wait for a rank that is gone.
    ///
    /// Settings, hints, buffers and this rank's memory stay; so do the installed algorithms, if all ranks have the
    /// same. Those that cannot run on the new number of ranks rest, and [`Communicator::explain`] says so. The
    /// next call of a rank that was here and is not named fails, as it was left out. Parts that were split off
    /// stay what they are. GPUs are to be opened again, [messages](Communicator::messages) to be asked for again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use roundelay::launch::RankHandles;
    /// # use roundelay::{Communicator, Error, RedOp};
    /// # fn main() -> Result<(), Error> {
    /// // Three ranks, of which the last is lost.
    /// let mut ranks = Communicator::local(3)?;
    /// ranks.truncate(2);
    /// // The handles may travel by any store, a file or a message.
    /// let handles = ranks.iter_mut().map(Communicator::handle).collect::<Result<Vec<_>, _>>()?;
    /// std::thread::scope(|scope| {
    ///     for mut comm in ranks {
    ///         let handles = &handles;
    ///         scope.spawn(move || {
    ///             comm.reconfigure("after the loss", RankHandles::List(handles), Duration::from_secs(30))?;
    ///             let mut sum = [1u32];
    ///             comm.all_reduce(&mut sum, RedOp::Sum)?;
    ///             assert_eq!((comm.size(), sum), (2, [2]));
    ///             Ok::<(), Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if a handle is none, is named twice or is one of the past, or this rank's own is missing:
    /// nothing was tried. [`Error::Timeout`], [`Error::LostRank`], [`Error::Start`], [`Error::System`] if not all
    /// ranks come within the timeout with the same handles and `id`; [`Error::Aborted`] if another rank fails
    /// meanwhile. This communicator is then what it was before, and can reconfigure again, by new handles.
    pub fn reconfigure(
        &mut self,
        id: &str,
        handles: RankHandles<'_>,
        timeout: Duration,
    ) -> Result<(), Error> {
        if timeout.is_zero() {
            let text = "a timeout of zero leaves no time to reconfigure: set a longer one";
            return Err(Error::Usage(text.into()));
        }
        let (ranks, ordered) = handles.ranks()?;
        let own = self.own_handle()?;
        let rank = place(&ranks, &own)?;
        let mut limit = JoinDeadline::new(timeout, LATE);
        let kept = self.kept()?;
        let Some(identity) = self.identity() else { return Ok(()) };
        identity.renew()?;
        let (terms, devices, listener) =
            (identity.terms, identity.devices.clone(), identity.listener()?);
        let reporting = identity.reporting.clone();
        let (job, comm) = names(id, ordered, &ranks);
        let addresses: Vec<_> = ranks.iter().map(|rank| rank.addresses.clone()).collect();
        let reports_at = reporting.as_ref().map(|reporting| reporting.at);
        let note = postcard::to_allocvec(&RankNote::of(terms, &listener, reports_at, Some(&kept)))
            .map_err(|e| Error::Start(e.to_string()))?;
        let deadline = WaitPolicy { timeout, watch: &mut |_| None, members: &[] };
        let last = |of: &RankHandle| (of.generation, of.comm) == (own.generation, own.comm);
        let near = kept.near(ranks.iter().map(|of| last(of).then_some(of.rank)));
        let generation = GenerationMembers {
            rank,
            size: ranks.len() as u32,
            names: (job, comm),
            what: "reconfigure",
            addresses: &addresses,
            near: Some(near),
        };
        let net = RankNetwork::regroup(generation, &listener, note, deadline)?;
        let reporters = reporting.as_ref().map(|_| reporters(net.endpoints()));
        let (mut store, end) = (limit.clone(), limit.clone());
        let mut group = RankGroup::join(rank, net, terms, limit.left(), &mut store, Some(kept))?;
        group.choose_devices(devices);
        let kept = reporting.and_then(|reporting| reporting.store);
        if let (Some(kept), Some(reporters)) = (kept, reporters) {
            // A store that is lost is the doctor's loss alone.
            let _ = reporter::publish(&mut **kept.lock(), &group, &reporters);
        }
        self.go_on_in(group, &|| end.left(), &mut |_| limit.look())?;
        let oldest = ranks.iter().map(|rank| rank.generation).max().unwrap_or(0);
        if let Some(identity) = self.identity() {
            (identity.generation, identity.comm) = (oldest + 1, comm);
        }
        Ok(())
    }

    /// Returns the generation: 0 until the first [`Communicator::reconfigure`].
    pub fn generation(&mut self) -> u64 {
        self.identity().as_ref().map_or(0, |identity| identity.generation)
    }
}

/// Returns the identity of a rank that found the others in the memory of that number: what those have who join with
/// the settings of the environment.
fn of_environment(memory: u64) -> Result<RankIdentity, Error> {
    let setup = JobSetup::from_env()?;
    let mut identity = setup.identity(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
    identity.comm = memory;
    Ok(identity)
}

impl JobSetup {
    /// Settles what paths and devices there are.
    pub(super) fn settled(&self) -> Result<(PathOptions, rdma::DeviceChoice), Error> {
        let (mut options, mut devices) = (self.secured()?, self.devices.clone());
        paths::settle(&mut options, self.terms()?.transports, devices.gid)?;
        if let [PathMedium::Device(only)] = &options.media[..] {
            devices = only.clone();
        }
        Ok((options, devices))
    }

    /// Returns the terms of the job. Where some connections are encrypted, ranks settle the rest once they have met.
    fn terms(&self) -> Result<JobTerms, Error> {
        match self.options.settled_encryption().is_required() {
            true => self.terms.encrypted(&self.options),
            false => Ok(self.terms),
        }
    }

    pub(super) fn identity(&self, address: IpAddr) -> Result<RankIdentity, Error> {
        let (options, devices) = self.settled()?;
        RankIdentity::new(self.terms()?, options, devices, address)
    }
}
