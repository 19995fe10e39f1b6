//! Counts the resources that a communicator takes from the machine.

use serde::Serialize;

use super::communicator::Communicator;
use roundelay_support::error::Error;

/// The resources that one rank of a communicator holds, and the connections it made to meet the others. Parts
/// that were split off share the listener and the arenas with the whole, and count them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HeldResources {
    /// Bytes of shared memory that all ranks of this machine have reserved together: control pages,
    /// connections, arenas. Of the far larger range of addresses nothing else is memory.
    pub shared_bytes: u64,
    /// Bytes of this rank's arena in use: buffers, and what calls keep for themselves.
    pub arena_bytes: u64,
    /// Bytes of this rank's own memory that are kept for messages on their way through sockets.
    /// The system's own socket buffers come on top.
    pub staging_bytes: u64,
    /// Bytes that RDMA devices keep in place, each for itself: rings of connections, and the parts of the
    /// arena that are sent from where they lie. `ulimit -l` must allow them.
    pub pinned_bytes: u64,
    /// Descriptors: shared memory, connections for data, control links, and the listening socket with
    /// what watches it.
    pub descriptors: u64,
    /// Endpoints of connections over shared memory, one for each peer, channel and direction in use; a
    /// connection takes a page and its slots, and no descriptor.
    pub memory_ends: u64,
    /// Connections for data over sockets, one for each peer and channel.
    pub data_sockets: u64,
    /// Connections over which ranks without shared memory say who fails and who is gone; at most
    /// `2 log2 n` of n ranks.
    pub control_links: u64,
    /// Bytes that control links have carried, both ways.
    pub control_bytes: u64,
    /// Connections that this rank made, of both kinds.
    pub made: u64,
    /// Connections that other ranks made to this one, of both kinds.
    pub accepted: u64,
    /// Connections that were turned away: port scanners, other jobs, processes without the secret.
    pub refused: u64,
    /// Operations of the rendezvous store.
    pub store_operations: u64,
    /// True if connections for data are made when a call first needs them, not at once.
    pub lazy: bool,
}

impl Communicator {
    /// Returns the resources that this rank holds now. Waits for pending work.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn resources(&mut self) -> Result<HeldResources, Error> {
        let listening = self.identity.as_ref().map_or(0, |identity| identity.descriptors());
        let core = self.core()?;
        // Between hosts the group counts it.
        let listening = if core.group.is_networked() { 0 } else { listening };
        let counts = core.group.counts();
        let data_sockets = core.endpoints.posted();
        Ok(HeldResources {
            shared_bytes: core.group.reserved(),
            arena_bytes: core.arena.in_use(),
            staging_bytes: core.endpoints.kept(),
            pinned_bytes: core.endpoints.pinned() + core.group.registered(),
            descriptors: core.group.descriptors() + data_sockets + listening,
            memory_ends: core.endpoints.mapped(),
            data_sockets,
            control_links: counts.links,
            control_bytes: counts.bytes_in + counts.bytes_out,
            made: counts.made,
            accepted: counts.accepted,
            refused: counts.refused,
            store_operations: counts.store,
            lazy: core.group.is_lazy(),
        })
    }
}
