//! Counts the resources that a communicator takes from the machine.

use serde::Serialize;

use super::communicator::Communicator;
use roundelay_support::error::Error;

/// The memory that one rank of a communicator holds, in bytes, by kind. Kinds do not overlap, but for `mapped_bytes`,
/// which are addresses. Suspending ([`Communicator::suspend`]) gives back what is not the program's own.
///
/// Outside of it are what the system keeps for sockets, code, compiled plans, and what an encryption keeps inside (a
/// record or two for each connection).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStats {
    /// Shared memory that all ranks of this machine have reserved together: control pages, connections, arenas. Of the
    /// far larger range of addresses nothing else is memory.
    pub shared_bytes: u64,
    /// This rank's arena in use: buffers, and what calls keep for themselves. It is a part of the shared memory.
    pub arena_bytes: u64,
    /// Addresses at which this rank has mapped shared memory.
    pub mapped_bytes: u64,
    /// This rank's own memory that is kept for messages of calls on their way through sockets. The system's own socket
    /// buffers come on top.
    pub staging_bytes: u64,
    /// The same for messages with tags and served windows, with messages that came before their receives.
    pub message_bytes: u64,
    /// Buffers with which connections are encrypted: those for data, for messages and for control.
    pub encryption_bytes: u64,
    /// Memory that RDMA devices keep in place, each for itself: rings of connections, and the parts of the arena that
    /// are sent from where they lie. `ulimit -l` must allow them.
    pub pinned_bytes: u64,
    /// Memory of this rank's GPU that suspending gives back: words, slots and staging memory of calls.
    pub device_bytes: u64,
    /// Memory of this rank's GPU that stays: buffers of [`Communicator::alloc_device`].
    pub device_buffer_bytes: u64,
    /// Host memory that is kept in place for the GPU.
    pub device_pinned_bytes: u64,
    /// True if the communicator is suspended.
    pub suspended: bool,
}

/// The resources that one rank of a communicator holds, and the connections it made to meet the others. Parts
/// that were split off share the listener and the arenas with the whole, and count them too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HeldResources {
    /// The memory.
    #[serde(flatten)]
    pub memory: MemoryStats,
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

impl MemoryStats {
    /// Returns each kind by its name and its bytes, in the order of the fields.
    pub fn kinds(&self) -> [(&'static str, u64); 10] {
        [
            ("shared_bytes", self.shared_bytes),
            ("arena_bytes", self.arena_bytes),
            ("mapped_bytes", self.mapped_bytes),
            ("staging_bytes", self.staging_bytes),
            ("message_bytes", self.message_bytes),
            ("encryption_bytes", self.encryption_bytes),
            ("pinned_bytes", self.pinned_bytes),
            ("device_bytes", self.device_bytes),
            ("device_buffer_bytes", self.device_buffer_bytes),
            ("device_pinned_bytes", self.device_pinned_bytes),
        ]
    }
}

impl Communicator {
    /// Returns the resources that this rank holds now. Waits for pending work.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn resources(&mut self) -> Result<HeldResources, Error> {
        let listening = self.identity.as_ref().map_or(0, |identity| identity.descriptors());
        let memory = self.memory_stats()?;
        let core = self.core()?;
        // Between hosts the group counts it.
        let listening = if core.group.is_networked() { 0 } else { listening };
        let counts = core.group.counts();
        let data_sockets = core.endpoints.posted();
        Ok(HeldResources {
            memory,
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

    /// Returns the memory that this rank holds now, by kind, in bytes. Waits for pending work. It is no call: a
    /// suspended communicator answers, and stays suspended.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the progress thread is gone.
    pub fn memory_stats(&mut self) -> Result<MemoryStats, Error> {
        let core = self.core()?;
        let messages = core.message_memory();
        let pinned = core.endpoints.pinned() + core.group.registered() + messages.pinned_bytes;
        let encryption = core.endpoints.encryption_bytes() + core.group.counts().encryption_bytes;
        let stats = MemoryStats {
            shared_bytes: core.group.reserved(),
            arena_bytes: core.arena.in_use(),
            mapped_bytes: core.group.mapped_bytes(),
            staging_bytes: core.endpoints.kept(),
            message_bytes: messages.staging_bytes,
            encryption_bytes: encryption + messages.encryption_bytes,
            pinned_bytes: pinned,
            suspended: core.is_suspended(),
            ..MemoryStats::default()
        };
        #[cfg(feature = "cuda")]
        let stats = self.with_gpu_memory(stats);
        Ok(stats)
    }
}
