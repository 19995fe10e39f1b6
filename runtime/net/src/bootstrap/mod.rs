//! Turns processes into ranks of a job, and gives them a store at which they rendezvous.
//!
//! The [`RankLauncher`] of this library makes the shared memory and starts a process for each rank, which inherits the
//! memory and its place. Ranks of another launcher (torchrun, mpirun, srun, a command line) read their place from the
//! environment, [`membership`](membership()), and rendezvous at a [`store`](store()), where they leave the addresses
//! at which they listen. Ranks of a later generation have each other's [`handle`]s and use no store.
//!
//! | file | content |
//! |---|---|
//! | [`names`] | the environment variables of ranks |
//! | [`membership`](mod@membership) | rank, size, launcher and store of a process |
//! | [`launch_variables`] | the environment as text and numbers, and the report of one launcher |
//! | [`env`](mod@env), [`slurm`] | the readers of each launcher's variables, and their order |
//! | [`launcher`], [`ending`] | the launcher of one host, and how the processes of ranks end |
//! | [`given_secret`] | the secret of the job, from the environment or a file |
//! | [`store`](mod@store) | the store of notes: protocol, server, client, guest |
//! | [`rendezvous`], [`pmi`], [`torch`] | how a rank finds the store: at an address, through PMI, through torchrun |
//! | [`lines`] | lines of text from a socket, for PMI |
//! | [`handle`], [`limit`] | the handle of a rank in a new generation, and the deadline of a join without a store |
//! | [`roster`] | the note in which rank 0 lists the reporters |
//! | [`wire`] | the messages of this folder, for tests and fuzzers |
//!
//! Conventions: an environment that contradicts itself is an error that names the variable, its value and the remedy.
//! An empty variable counts as unset. What a process of another job sends ends its connection and nothing else.

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
pub use ending::ProcessEnding;
pub use env::{membership, membership_with};
pub use given_secret::secret;
pub use launcher::{JobOutcome, RankLauncher};
pub use membership::{ByHand, JobMembership, LauncherKind, StoreAt};
pub(crate) use names::SECRET_FILE;
pub use names::{HINTS, HOST, RANK, SECRET, SHM_FD, SIZE, STORE, TIMEOUT_MS};
pub use rendezvous::store;
pub use roster::ReporterRoster;
#[cfg(test)]
pub(crate) use store::InProcessStore;
pub use store::{host_addresses, listen_everywhere};
pub use wire::wires;
