//! The variables of the environment by which ranks find each other.

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

/// The environment variable with the secret, which all ranks of a job share, and no other process.
pub const SECRET: &str = "ROUNDELAY_SECRET";
/// The environment variable with the path of a file that holds the secret.
pub(crate) const SECRET_FILE: &str = "ROUNDELAY_SECRET_FILE";

/// The environment variable with the hints of all ranks.
pub const HINTS: &str = "ROUNDELAY_HINTS";
