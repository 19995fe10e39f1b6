//! The part of the library that only roundelay's own command line, tests and benchmarks use. It may change with any
//! version: there is no promise of stability.

use roundelay_compiler::Plan;
use roundelay_compiler::plan::PathShares;

use crate::comm::Communicator;
use crate::launch::JobSetup;
pub use crate::launch::{host_addresses, listen_everywhere};
#[cfg(feature = "cuda")]
pub use roundelay_cuda::backend::wheels;
use roundelay_engine::bind::CallStats;
pub use roundelay_engine::custom::{AlgorithmFiles, allow_imports};
use roundelay_engine::{CallArgs, EngineCore, PlanCall};
use roundelay_net::memory::{bytes, bytes_mut};
pub use roundelay_net::net::scale;
use roundelay_net::transport::shm::SegmentLayout;
pub use roundelay_net::wire::WireMessage;
use roundelay_support::dtype::{Element, RedOp};
use roundelay_support::error::Error;
pub use roundelay_support::fork::{OwnerProcess, give_up_in_children};
pub use roundelay_support::ports::bind_within;
pub use roundelay_support::process::ChildStatuses;
pub use roundelay_support::secret::ProofSide;
pub use roundelay_support::secret::random as random_bytes;
pub use roundelay_support::threads::{run_shared, run_together};
pub use roundelay_support::tunables;
pub use roundelay_tls::{ChannelSocket, ChannelTrust};

/// Returns what the ranks of this process's environment prove on encrypted connections; `None` if it gives neither a
/// secret nor certificates, or has encryption turned off.
///
/// # Errors
///
/// Those of [`JobSetup::from_env`], and of certificates that cannot be had.
pub fn channel_trust() -> Result<Option<ChannelTrust>, Error> {
    let setup = JobSetup::from_env()?;
    match setup.is_authenticated() {
        true => Ok(setup.secured()?.channel_trust()),
        false => Ok(None),
    }
}

/// Returns the address of the network interface that the hint `interface` names.
///
/// # Errors
///
/// [`Error::Start`] if this host has none.
pub fn interface_address(interface: &str) -> Result<std::net::IpAddr, Error> {
    let unknown = std::net::Ipv4Addr::UNSPECIFIED.into();
    roundelay_net::net::address::choose(Some(interface), unknown).map(|address| address.ip())
}

/// Returns all kinds of messages that come to a listening port, or from a peer that was let in.
pub fn wires() -> Vec<WireMessage> {
    let all = [
        roundelay_net::net::wires(),
        roundelay_net::bootstrap::wires(),
        roundelay_engine::messages::wires(),
        roundelay_engine::tolerant_wires(),
        #[cfg(feature = "cuda")]
        roundelay_cuda::wires(),
    ];
    all.into_iter().flatten().collect()
}

/// Returns the tunables of the packages that this library is made of.
pub fn library_tunables() -> Vec<tunables::TunableRow> {
    let all = [
        roundelay_support::tunables::TUNABLES,
        roundelay_tls::tunables::TUNABLES,
        roundelay_net::tunables::TUNABLES,
        roundelay_engine::tunables::TUNABLES,
        #[cfg(feature = "cuda")]
        roundelay_cuda::tunables::TUNABLES,
        crate::tunables::TUNABLES,
    ];
    all.concat()
}

/// Interrupts of waits: see [`set_interrupt_check`](interrupt::set_interrupt_check).
pub mod interrupt {
    pub use roundelay_support::interrupt::{error, is_in_check, set_interrupt_check};
}

/// Creates the ranks of a job like [`Communicator::local`], with other parameters of the shared memory.
///
/// # Errors
///
/// [`Error::Memory`] if shared memory cannot be had, [`Error::Usage`] if the parameters make no sense.
pub fn local_with(layout: SegmentLayout) -> Result<Vec<Communicator>, Error> {
    Communicator::local_with(layout)
}

/// Returns the state of a rank, ready for a call.
///
/// # Errors
///
/// [`Error::Work`] if the progress thread is gone.
pub fn core(comm: &mut Communicator) -> Result<&mut EngineCore, Error> {
    comm.core()
}

/// Waits for all operations that were started.
///
/// # Errors
///
/// [`Error::Work`] if the progress thread is gone.
pub fn settle(comm: &mut Communicator) -> Result<(), Error> {
    comm.settled()
}

/// The devices of this host, as the system lists them.
pub mod system {
    pub use roundelay_support::fabric::system::{SYS, devices, named_paths};
}

/// Sets shares of the parts for plans that are split by bandwidth into as many, in place of those that
/// the balance gives; `None` gives that back to it. All ranks must say the same.
///
/// # Errors
///
/// [`Error::Usage`] if the progress thread is gone.
pub fn set_shares(comm: &mut Communicator, shares: Option<PathShares>) -> Result<(), Error> {
    comm.core()?.shares = shares;
    Ok(())
}

/// Executes a plan out of place whose vector has one block a rank, block b of `counts[b]` elements.
/// A buffer that is a rank's own block has that rank's count, and other buffers the sum.
///
/// # Errors
///
/// The errors of [`Communicator::run`]; [`Error::Unsupported`], which ends the job, if the algorithm
/// relies on blocks of equal length.
pub fn run_cut<T: Element>(
    comm: &mut Communicator,
    plan: &Plan,
    op: RedOp,
    counts: &[usize],
    input: &[T],
    output: &mut [T],
) -> Result<CallStats, Error> {
    let args = CallArgs::OutOfPlace { input: bytes(input), output: bytes_mut(output) };
    let call = PlanCall { count: 0, dtype: T::DTYPE, op, factor: 1.0, args };
    comm.core()?.run_cut(plan, call, counts)
}

/// Returns the largest of all ranks' values.
///
/// # Errors
///
/// The errors of [`Communicator::run`].
pub fn max_f64(comm: &mut Communicator, value: f64) -> Result<f64, Error> {
    let mut most = value;
    comm.core()?
        .control_all_gather(value.to_bits(), |_, bits| most = most.max(f64::from_bits(bits)))?;
    Ok(most)
}

/// Runs one rank's code on that many ranks, as threads of this process: the examples of the documentation.
///
/// # Panics
///
/// If a rank fails.
pub fn each_rank(ranks: u32, body: impl Fn(&mut Communicator) -> Result<(), Error> + Sync) {
    let body = &body;
    std::thread::scope(|scope| {
        for mut comm in Communicator::local(ranks).expect("ranks") {
            scope.spawn(move || body(&mut comm).unwrap_or_else(|error| panic!("{error}")));
        }
    });
}
