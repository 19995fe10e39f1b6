//! The parts of a window: where they lie, the words of their signals, and the way to them.

use std::sync::Arc;

use super::remote::RemoteWindow;
use crate::backend::LoadedKernel;
use crate::buffer::DevicePtr;
use crate::rank::GpuRank;
use crate::region::{MappedRegion, RegionSpot};
use roundelay_engine::window::ServedPart;
use roundelay_support::error::{AccessRefusal, Error};

/// A window without its memory's type.
#[derive(Debug)]
pub struct WindowPart {
    /// The place of the memory, its region, and its bytes.
    pub(super) spot: RegionSpot,
    pub(super) region: Arc<MappedRegion>,
    pub(super) bytes: u64,
    /// The words of signals: for each rank what it has signalled here, then what was taken of that, then what this rank
    /// has signalled there; then the state of the kernels that serve other hosts.
    pub(super) words: (u32, Arc<MappedRegion>),
    pub(super) kernel: Arc<LoadedKernel>,
    /// The way to the parts of ranks on other hosts, if there are some.
    pub(super) remote: Option<RemoteWindow>,
}

/// The list of words in which a rank's are counted; the state of kernels comes last.
#[derive(Clone, Copy)]
pub(super) enum SignalWords {
    Arrived,
    Taken,
    Signalled,
    State,
}

/// Bytes of the state of a kernel.
pub(super) const STATE: u64 = 16;

/// A copy between a peer's part and memory of this rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyDirection {
    /// To the peer.
    Put,
    /// From the peer.
    Get,
}

impl CopyDirection {
    pub(super) fn name(self) -> &'static str {
        match self {
            CopyDirection::Put => "put",
            CopyDirection::Get => "get",
        }
    }
}

/// The way to a place of a peer's part.
pub(super) enum WindowRoute {
    /// It is mapped here, at that address.
    Mapped(DevicePtr),
    /// Its own process serves it, on another host.
    Served(Arc<ServedPart>),
}

/// A place in a peer's part: the peer, the first byte, the bytes.
#[derive(Debug, Clone, Copy)]
pub struct WindowSpan {
    /// The peer.
    pub peer: u32,
    /// The first byte.
    pub at: u64,
    /// The bytes.
    pub bytes: u64,
}

/// Returns the way to a place of a peer's part.
pub(super) fn route(
    rank: &GpuRank,
    part: &WindowPart,
    what: &str,
    there: WindowSpan,
) -> Result<WindowRoute, Error> {
    let (own, ranks, regions) = (rank.device.rank, rank.device.ranks, &rank.memory.regions);
    let WindowSpan { peer, at, bytes } = there;
    if peer >= ranks {
        return Err(Error::Usage(format!(
            "{what}: there is no rank {peer}: the ranks are 0 to {}",
            ranks - 1
        )));
    }
    if at.checked_add(bytes).is_none_or(|end| end > part.bytes) {
        let what = format!("{what} {bytes} bytes at byte {at} of rank {peer}");
        let refusal = AccessRefusal::Bounds { bytes: part.bytes };
        return Err(Error::Window { rank: own, what, refusal });
    }
    let known = regions.get(part.spot);
    if known.is_none_or(|known| !Arc::ptr_eq(known, &part.region)) {
        return Err(Error::Usage(format!(
            "{what}: the window's memory is not this communicator's, or was replaced by other memory that was \
             registered"
        )));
    }
    Ok(match part.remote.as_ref().and_then(|window| window.remote(peer)) {
        Some(remote) => WindowRoute::Served(remote.clone()),
        None => WindowRoute::Mapped(DevicePtr(regions.address(part.spot, peer) + at)),
    })
}

/// Returns the offset of a rank's word in a list, of those of `ranks` ranks.
pub(super) fn word(ranks: u32, list: SignalWords, rank: u32) -> u64 {
    8 * u64::from(list as u32 * ranks + rank)
}
