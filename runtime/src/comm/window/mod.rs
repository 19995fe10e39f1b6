//! One-sided communication: memory that other ranks put to and get from.
//!
//! | file | holds |
//! |---|---|
//! | `element_window`, `any` | [`Window`] of a type known to the compiler, and [`AnyWindow`] of one that is not |
//! | `make` | the collective call that makes a window |
//! | `parts` | the ranks' parts, and how each is reached |
//! | `operations`, `nonblocking` | puts, gets, atomics and signals; those that return at once |
//! | `served` | parts that their owner's process serves, as on other hosts |
//! | `mapped` | a peer's part as memory of this process |

mod any;
mod element_window;
#[cfg(test)]
mod forged_tests;
mod make;
mod mapped;
mod nonblocking;
mod operations;
mod parts;
#[cfg(test)]
mod random_tests;
mod served;

pub use any::AnyWindow;
pub use element_window::Window;
pub use mapped::{AnyMapped, RemoteMapping};
pub(crate) use nonblocking::{KeptOwner, ended, gather};
pub(crate) use served::{pieces, typed};
