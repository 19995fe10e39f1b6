//! Kernels of the host's processor.
//!
//! | file | holds |
//! |---|---|
//! | `format.rs` | how a value lies in memory, and conversions between formats |
//! | `ops.rs` | the operators, and which types have them |
//! | `loops.rs` | the loops over both, and the form of their table |
//! | `level.rs` | the same tables compiled for each generation of processors |
//! | `environment.rs`, `register.rs` | the floating-point environment that they compute in, and its control register |
//! | `copy.rs` | copies, plain and past the caches |
//! | `kernel.rs` | what callers hold: [`HostKernel`], and the way a fold goes through the loops |

#[cfg(test)]
mod changed_environment;
pub mod copy;
pub mod environment;
mod format;
mod kernel;
mod level;
mod loops;
mod ops;
mod register;
#[cfg(test)]
mod tests;

pub use kernel::{HostKernel, UnsupportedKernel, kernel};
