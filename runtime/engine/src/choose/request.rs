//! The request: the facts that decide a choice.

use crate::tunables::FAR_PASS_BYTES;
use roundelay_compiler::cost::Topology;
use roundelay_compiler::{BufferPlacement, Shape};

use roundelay_net::transport::{Transport, TransportSet};
use roundelay_support::dtype::{DType, RedOp};

/// The transport of buffers on GPUs.
pub const NVLINK: &str = "nvlink";

/// The part of a call that decides the choice: the same on all ranks.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceRequest<'a> {
    /// The collective by name.
    pub collective: &'a str,
    /// The ranks, their hosts and links.
    pub topology: &'a Topology,
    /// The ranks as a grid for algorithms on one; `None` for the one that hosts make.
    pub grid: Option<&'a Shape>,
    /// The root, 0 where the collective has none.
    pub root: u32,
    /// Bytes of the whole vector: one rank's buffer in all_reduce, broadcast and reduce, all blocks
    /// elsewhere.
    pub bytes: u64,
    /// Type of the elements.
    pub dtype: DType,
    /// Operator, of no meaning where the collective only copies.
    pub op: RedOp,
    /// The placement of the call: in place or out of place.
    pub placement: BufferPlacement,
    /// True if the blocks have lengths of their own, as in `reduce_scatter_v` on hosts.
    pub is_cut: bool,
    /// Capacity of a slot in bytes, if it is not [`TransportSet::slot_bytes`].
    pub slot_bytes: Option<u64>,
    /// The links between ranks, as the tuned table names them: `shm`, `tcp`, `shm+tcp` where they are on
    /// several hosts, or `nvlink` for buffers on GPUs.
    pub transport: &'a str,
}

impl ChoiceRequest<'_> {
    pub(super) fn slots(&self) -> u64 {
        if self.transport == NVLINK {
            return FAR_PASS_BYTES;
        }
        let apart = self.transport == Transport::Tcp.name();
        let over = if apart { TransportSet::TCP } else { TransportSet::ALL };
        self.slot_bytes.unwrap_or(over.slot_bytes())
    }
}
