//! In the place of `transport/rdma` where roundelay was built without the feature `rdma`: the same items, none of which
//! does anything. With it nothing else needs to ask whether the feature is there.

mod connect;
mod device_stream;
mod memory;

pub(crate) use connect::{QueueHandshake, check, found};
pub use device_stream::DeviceStream;
pub(crate) use memory::ArenaRegistrations;
pub use memory::MemoryExposure;
