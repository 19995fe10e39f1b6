//! An endpoint: the place at which peers find this process, with its regions and its links.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::endpoint_state::EndpointState;
use super::link::EndpointLink;
use super::link_state::LinkState;
use super::region::RegisteredRegion;
use super::served_region::ServedRegion;
use crate::comm::{Host, KeptOwner, MemoryMut, Work, ended, promised};
use crate::launch::{JobSetup, PeerAddress, PeerListener};
use roundelay_engine::window::{MemorySpan, WindowRights};
use roundelay_support::error::{Error, PROCESS_LIMIT_REMEDY};
use roundelay_support::fork::OwnerProcess;

/// A place at which peers meet this process, to read and write the memory that it registers: one-sided communication
/// without a communicator. Clones are the same; any thread may use it.
///
/// Two processes each bind an endpoint, pass each other its [address](Endpoint::address) by any means,
/// and connect each to the other's. What one [registers](Endpoint::register) the other one may then
/// [write and read](crate::endpoint::RemoteRegion) by its [key](crate::endpoint::RegisteredRegion::key).
/// `docs/transport.md` has the rules.
///
/// ```
/// # use std::time::Duration;
/// # use roundelay::endpoint::Endpoint;
/// # use roundelay::launch::JobSetup;
/// # use roundelay::window::WindowRights;
/// # use roundelay::Error;
/// # fn main() -> Result<(), Error> {
/// let (trainer, replica) = (Endpoint::bind(&JobSetup::from_env()?)?, Endpoint::bind(&JobSetup::from_env()?)?);
/// // Both are in one process here; otherwise addresses and keys travel by a store, a file or a message.
/// let limit = Duration::from_secs(30);
/// let (to_replica, to_trainer) = (
///     trainer.connect_async(&replica.address(), limit),
///     replica.connect_async(&trainer.address(), limit),
/// );
/// let (to_replica, to_trainer) = (to_replica.wait()?, to_trainer.wait()?);
///
/// let weights = replica.register(vec![0f32; 1000], WindowRights::WRITE)?;
/// let there = to_replica.region(&weights.key())?;
/// there.put_signal(&[1.5f32; 10], 0, 7)?;
///
/// assert_eq!(to_trainer.wait_signal(limit)?, Some(7));
/// let weights = weights.revoke()?;
/// assert_eq!(weights[..11], [[1.5f32; 10].as_slice(), &[0.0]].concat());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint {
    shared: Arc<EndpointState>,
}

fn closed() -> Error {
    Error::Usage("this endpoint was closed: bind a new one".into())
}

impl Endpoint {
    /// Listens for peers, with these settings: the transports that may be used, the interface, the secret, the longest
    /// wait. Peers need the same, and the same secret.
    ///
    /// # Errors
    ///
    /// [`Error::Start`] and [`Error::System`] if this host has no such address, or it is taken; [`Error::Settings`] if
    /// the settings make no sense.
    pub fn bind(setup: &JobSetup) -> Result<Endpoint, Error> {
        let listener = PeerListener::open(setup)?;
        let (closed, state) = (AtomicBool::new(false), Mutex::default());
        let process = OwnerProcess::here();
        Ok(Endpoint { shared: Arc::new(EndpointState { process, listener, closed, state }) })
    }

    /// Returns the bytes by which a peer connects to this endpoint: its addresses, and a random number without which
    /// no peer is admitted. At most 4 KiB, of printable ASCII.
    pub fn address(&self) -> Vec<u8> {
        self.shared.listener.address()
    }

    /// Connects to the endpoint of that address, which connects to this one: both wait for each other. Two endpoints
    /// connect once; after a failure bind new ones.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the bytes are no address, or this endpoint's own, or one that it has connected to before.
    /// [`Error::Timeout`] and [`Error::Start`] if the peer does not come in time, [`Error::System`] if it is not
    /// reached or has another secret; [`Error::LostRank`] and [`Error::Aborted`] if it ends meanwhile.
    pub fn connect(&self, peer: &[u8], timeout: Duration) -> Result<EndpointLink, Error> {
        let address = self.admit(peer, timeout)?;
        self.shared.connect_to(&address, timeout)
    }

    /// Starts [`Endpoint::connect`], on a thread of its own.
    pub fn connect_async(&self, peer: &[u8], timeout: Duration) -> Work<EndpointLink> {
        let address = match self.admit(peer, timeout) {
            Ok(address) => address,
            Err(error) => return ended(Err(error)),
        };
        let (promise, work) = promised();
        let shared = self.shared.clone();
        let connect = move || {
            promise.begin();
            promise.end(shared.connect_to(&address, timeout));
        };
        match std::thread::Builder::new().name("roundelay-connect".into()).spawn(connect) {
            Ok(_) => work,
            Err(e) => {
                let text = format!("cannot start a thread to connect on: {e}");
                ended(Err(Error::system(text, e, PROCESS_LIMIT_REMEDY)))
            }
        }
    }

    /// Reads an address, and records that it was met.
    fn admit(&self, peer: &[u8], timeout: Duration) -> Result<PeerAddress, Error> {
        self.check_process()?;
        let address = PeerAddress::read(peer)?;
        if timeout.is_zero() {
            let text = "a timeout of zero leaves no time to connect: set a longer one";
            return Err(Error::Usage(text.into()));
        }
        if address.number() == self.shared.listener.number() {
            let text = "this is the endpoint's own address: connect to that of the peer";
            return Err(Error::Usage(text.into()));
        }
        if self.shared.closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        if !self.shared.state.lock().met.insert(address.number()) {
            let text = "this endpoint has connected to that address before, and two endpoints connect once: bind new \
                        ones to connect again";
            return Err(Error::Usage(text.into()));
        }
        Ok(address)
    }

    /// Registers memory: peers that this endpoint is connected to, now or later, may do with it what the rights say,
    /// once they know its [key](RegisteredRegion::key). It stays registered until the region is dropped or
    /// [revoked](RegisteredRegion::revoke).
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if a link has no room for the region's words; [`Error::Usage`] once the endpoint was closed, or
    /// if the rights have [`ATOMICS`](WindowRights::ATOMICS) and the memory does not begin at a multiple of 8 bytes.
    pub fn register<B>(&self, buffer: B, rights: WindowRights) -> Result<RegisteredRegion<B>, Error>
    where
        B: MemoryMut<Engine = Host> + Send + 'static,
    {
        let kept = Arc::new(KeptOwner::new(buffer));
        // SAFETY: nothing else has it yet.
        let lent = unsafe { &mut *kept.as_ptr() }.lend_mut();
        let span = MemorySpan::new(lent.as_mut_ptr(), lent.len() as u64);
        self.register_span(span, rights, kept)
    }

    /// Registers memory at an address, as [`Endpoint::register`] does a buffer. `owner` is dropped when no peer writes
    /// there any more.
    ///
    /// # Errors
    ///
    /// The errors of [`Endpoint::register`].
    ///
    /// # Safety
    ///
    /// The bytes can be read and written until `owner` is dropped. Code of this process may access them meanwhile only
    /// while no peer does.
    pub unsafe fn register_at(
        &self,
        (address, bytes): (*mut u8, usize),
        rights: WindowRights,
        owner: Box<dyn Any + Send>,
    ) -> Result<RegisteredRegion<Box<dyn Any + Send>>, Error> {
        self.register_span(
            MemorySpan::new(address, bytes as u64),
            rights,
            Arc::new(KeptOwner::new(owner)),
        )
    }

    fn register_span<B: Send + 'static>(
        &self,
        span: MemorySpan,
        rights: WindowRights,
        buffer: Arc<KeptOwner<B>>,
    ) -> Result<RegisteredRegion<B>, Error> {
        self.check_process()?;
        let part = Arc::new(ServedRegion::new(
            self.shared.listener.number(),
            span,
            rights,
            buffer.clone(),
        )?);
        // Ended if anything fails from here on.
        let region = RegisteredRegion::new(self.shared.clone(), part.clone(), buffer);
        let mut state = self.shared.state.lock();
        if self.shared.closed.load(Ordering::SeqCst) {
            drop(state);
            return Err(closed());
        }
        state.links.retain(|link| link.strong_count() > 0);
        let links: Vec<_> = state.links.iter().filter_map(Weak::upgrade).collect();
        let served = links.iter().try_for_each(|link| part.serve_on(link));
        state.regions.insert(part.number(), part);
        drop(state);
        served.map(|()| region)
    }

    /// Fails in a process that was forked from the one that bound the endpoint.
    #[doc(hidden)]
    pub fn check_process(&self) -> Result<(), Error> {
        self.shared.process.check("endpoint")
    }

    /// Closes the endpoint: its links are [closed](EndpointLink::close), its regions are revoked and no peer connects
    /// any more. Waits of other threads end. Buffers of regions stay with them.
    pub fn close(&self) {
        if !self.shared.process.is_here() {
            return;
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        let mut state = self.shared.state.lock();
        let (regions, links) =
            (std::mem::take(&mut state.regions), std::mem::take(&mut state.links));
        drop(state);
        regions.values().for_each(|part| part.end());
        links.iter().filter_map(Weak::upgrade).for_each(|link| link.close());
    }

    /// Returns true once the endpoint was closed.
    pub fn is_closed(&self) -> bool {
        // In a child it counts as closed.
        !self.shared.process.is_here() || self.shared.closed.load(Ordering::SeqCst)
    }
}

impl EndpointState {
    /// Connects to a peer, and serves the regions to it.
    fn connect_to(&self, address: &PeerAddress, timeout: Duration) -> Result<EndpointLink, Error> {
        let ends = || self.closed.load(Ordering::SeqCst).then(closed);
        let comm = self.listener.connect(address, timeout, &ends);
        let comm = comm.map_err(|error| ends().unwrap_or(error))?;
        let link = LinkState::new(comm, address.number(), self.listener.timeout())?;
        let mut state = self.state.lock();
        if let Some(error) = ends() {
            drop(state);
            return Err(error);
        }
        state.regions.values().try_for_each(|part| part.serve_on(&link))?;
        link.serve_peer()?;
        state.links.push(Arc::downgrade(&link));
        Ok(EndpointLink::new(link))
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = String::from_utf8_lossy(&self.address()).into_owned();
        let place = address.split_once('@').map_or("", |(_, place)| place).to_owned();
        f.debug_struct("Endpoint").field("at", &place).field("closed", &self.is_closed()).finish()
    }
}
