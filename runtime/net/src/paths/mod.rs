//! The paths between hosts that a communicator has, what they are measured to do, and the shares that
//! follow.
//!
//! The module `net` opens the addresses of each path on a host; `transport/stream/resume` lets a
//! stream go on over another path when its own fails. This module decides how much each path is given.
//! [`PathBalance`] begins with the estimate of the model. Each rank measures, for every call that is split over the
//! paths, when each part of it was there and the bytes that its sockets moved. At fixed intervals of calls the ranks
//! exchange this as words: of each path the longest time of a byte on any rank, and whether a rank has lost
//! it. So all ranks compute the same shares at the same call.
//!
//! Calls of sizes at which the model expects little gain are tried, divided and whole, and the faster is
//! kept ([`trial`]).
//!
//! | file | content |
//! |---|---|
//! | [`options`] | the settings of connections: paths, their media, timeouts, the secret |
//! | [`list`] | the paths of a communicator, from hints and topology files, and their costs |
//! | [`measure`] | the times of the parts of calls, and the measured speed of each path |
//! | [`trial`] | the sizes of calls at which divided and whole are compared |
//! | [`balance`] | the shares that follow |
//!
//! Shares are changed only if the slowest part would be there sooner by a twentieth; a path that is lost
//! has none until it is back with all ranks. They never change a result: they are where the vector is
//! cut, and a plan is right for any.

mod balance;
mod list;
mod measure;
mod options;
mod trial;

pub use balance::PathBalance;
pub(crate) use list::carried;
pub use list::{costs, host_name, settle};
pub use measure::{PartClock, PathCode, PathMeasurement};
pub use options::{CertificateFiles, CertificateIdentity, PathMedium, PathOptions};
