//! NVLink: memory of GPUs that several processes map, so that the kernels of one load and store in the memory of
//! another.
//!
//! Memory of a device goes from process to process as a descriptor ([`descriptors`]), and is mapped there ([`shared`]).
//! The driver decides how two GPUs are joined, by NVLink or by the bus: what one can map it can use.
//!
//! There is no policy: `crate::cuda` decides what is shared, and what happens when a rank cannot.

mod descriptors;
mod shared;

pub(crate) use descriptors::{DescriptorError, DescriptorMessage, DescriptorSocket};
pub(crate) use shared::SharedRanges;
pub(crate) use shared::offer;
