//! In the place of `transport/rdma` where roundelay was built without the feature `rdma`: the same items, none of which
//! does anything. With it nothing else needs to ask whether the feature is there.

mod connect;
mod device_stream;
mod memory;

pub use connect::check;
pub(super) use connect::{QueueHandshake, found};
pub use device_stream::DeviceStream;
pub use memory::{Exposure, Registrations};
