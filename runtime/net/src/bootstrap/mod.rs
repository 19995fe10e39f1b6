//! Makes ranks of processes, and leads them to each other.
//!
//! Our own [`launcher`] makes the shared memory and starts a process for each rank, which inherits it and finds
//! everything else in its environment.
//!
//! Ranks that somebody else started (torchrun, mpirun, srun, a person) find out who they are in their environment,
//! [`membership`](membership()), and then meet at a [`store`](store()), where they leave each other the addresses that
//! they listen at.

mod ending;
pub mod env;
pub mod given_secret;
pub mod handle;
mod launcher;
pub mod limit;
mod lines;
pub mod membership;
mod pmi;
pub mod rendezvous;
mod roster;
mod slurm;
pub mod store;
#[cfg(test)]
mod tests;
pub mod torch;
mod wire;

pub use crate::store::Store;
pub use ending::Ending;
pub use given_secret::secret;
pub use launcher::{Launcher, Outcome};
pub use membership::{ByHand, Launched, Membership, StoreAt, membership, membership_with};
pub use rendezvous::store;
pub use roster::Roster;
#[cfg(test)]
pub(crate) use store::InProcessStore;
pub use store::{host_addresses, listen_everywhere};
pub use wire::wires;

/// The environment variable with the file descriptor of the shared memory.
pub const SHM_FD: &str = "ROUNDELAY_SHM_FD";
/// The environment variable with the rank.
pub const RANK: &str = "ROUNDELAY_RANK";
/// The environment variable with the number of ranks.
pub const SIZE: &str = "ROUNDELAY_SIZE";
/// The environment variable with the longest wait for other ranks, in milliseconds.
pub const TIMEOUT_MS: &str = "ROUNDELAY_TIMEOUT_MS";

/// The environment variable with the label of the machine. Ranks with different labels count as being on different
/// machines.
pub const HOST: &str = "ROUNDELAY_HOST";
/// The environment variable with the address at which rank 0 serves the store, `host:port`.
pub const STORE: &str = "ROUNDELAY_STORE";

/// The environment variable with the secret, which all ranks of a job know, and nobody else.
pub const SECRET: &str = "ROUNDELAY_SECRET";
/// The environment variable with the path of a file that holds the secret.
pub const SECRET_FILE: &str = "ROUNDELAY_SECRET_FILE";

/// The environment variable with the hints of all ranks.
pub const HINTS: &str = "ROUNDELAY_HINTS";
