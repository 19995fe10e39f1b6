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
mod launch_variables;
mod launcher;
pub mod limit;
mod lines;
pub mod membership;
mod names;
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
pub use env::{membership, membership_with};
pub use given_secret::secret;
pub use launcher::{Launcher, Outcome};
pub use membership::{ByHand, Launched, Membership, StoreAt};
pub use names::{HINTS, HOST, RANK, SECRET, SECRET_FILE, SHM_FD, SIZE, STORE, TIMEOUT_MS};
pub use rendezvous::store;
pub use roster::Roster;
#[cfg(test)]
pub(crate) use store::InProcessStore;
pub use store::{host_addresses, listen_everywhere};
pub use wire::wires;
