//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay_support::tunables! {
    // Setup and failures.

    /// The time that a copy of some kilobytes may take while a rank is set up.
    pub(crate) const SETUP_COPY_TIMEOUT: Duration = Duration::from_secs(10);
    /// The time that filling memory with zeros may take.
    pub(crate) const ZERO_TIMEOUT: Duration = Duration::from_secs(60);
    /// The time that a copy between a buffer and host memory may take.
    pub(crate) const BUFFER_COPY_TIMEOUT: Duration = Duration::from_secs(60);
    /// The time that a copy of a slot may take.
    pub(crate) const SLOT_COPY_TIMEOUT: Duration = Duration::from_secs(10);
    /// The time that kernels may take to see the abort word and end.
    pub(crate) const ABORT_TIMEOUT: Duration = Duration::from_secs(10);
    /// The time for which what the kernels of a lost rank have done may still become visible.
    pub(crate) const LOST_RANK_GRACE: Duration = Duration::from_secs(1);
    /// Timeouts after which a stream is given up in which no kernel of ours reports: other work is in it.
    pub(crate) const STALLED_STREAM_TIMEOUTS: u32 = 10;
    /// The longest file of the kernel cache that is read: longer ones are no kernels of ours.
    pub(crate) const CACHED_KERNEL_BYTES: u64 = 64 << 20;
    /// Bound calls that a rank keeps for the next call of the same shape.
    pub(crate) const BOUND_CALLS_MAX: usize = 1024;

    // Passes of kernels.

    /// A half of the staging memory of a rank by default.
    pub(crate) const STAGING_HALF_BYTES: u64 = 32 << 20;
    /// A half of the packet memory of a rank by default.
    pub(crate) const PACKET_HALF_BYTES: u64 = 16 << 20;
    /// The least of a message that a pass for pipelining alone moves, for each block.
    pub(crate) const PASS_CHUNK_BYTES_MIN: u64 = 16 << 10;
    /// The most of a chunk that a block moves in a pass, so that blocks side by side work on memory that lies
    /// together: with 8 MiB a broadcast of 1 GiB ran at 289 GB/s, now and then at 364.
    pub(crate) const PASS_CHUNK_BYTES_MAX: u64 = 2 << 20;
    /// The most of a chunk that a block moves to another host in a pass: a proxy sends it while the next one is
    /// made.
    pub(crate) const FAR_PASS_CHUNK_BYTES_MAX: u64 = 512 << 10;
    /// The bytes that a link could carry while a hop's waits and barriers last: 12 us at 350 GB/s. On four H200
    /// broadcast.chain of 32 MiB took 101.7 us with this, 106.8 with a half and 121.5 with an eighth.
    pub(crate) const HOP_BYTES: u64 = 4 << 20;

    // Proxy threads.

    /// The slots of all inter-host links of a kernel together.
    pub(crate) const PROXY_SLOTS_BYTES: u64 = 64 << 20;
    /// Blocks of a kernel with inter-host links: sockets fill no more, and proxies poll the words of each
    /// block.
    pub(crate) const PROXY_BLOCKS_MAX: u32 = 32;
    /// Lanes of a rank's proxies: connections to each rank on another host.
    pub(crate) const PROXY_LANES_MAX: u32 = 8;
    /// The bytes that a lane carries without a millisecond of pause before it has a helper, if others carry as
    /// many. A call has a second block, and so a second lane, from 16 KiB on.
    pub(crate) const PROXY_HELP_BYTES: u64 = 16 << 10;
    /// The time for which a helper keeps a lane that carries less.
    pub(crate) const PROXY_HELP_TIME: Duration = Duration::from_secs(2);
    /// The time for which a proxy polls before it sleeps until an order comes.
    pub(crate) const PROXY_POLL_TIME: Duration = Duration::from_micros(500);
    /// The longest sleep of a proxy until an order comes.
    pub(crate) const PROXY_ORDER_SLEEP_MAX: Duration = Duration::from_millis(20);
    /// The longest sleep of a proxy thread where connections must be progressed.
    pub(crate) const PROXY_PROGRESS_INTERVAL: Duration = Duration::from_millis(1);
    /// Polls of a kernel's words for each poll of sockets, while a proxy thread spins: a poll of sockets is a
    /// system call.
    pub(crate) const POLLS_PER_SOCKET_POLL: u32 = 8;
    /// Packets that are received from one connection before the next one is polled.
    pub(crate) const PACKETS_PER_TURN: u32 = 64;
    /// The longest payload that is copied when it is sent, so that its slot is free before a system call has
    /// moved it, and read before its slot is.
    pub(crate) const COPIED_PAYLOAD_BYTES: usize = 8 << 10;
    /// The time after the end of a connection in which its reason may come from the group.
    pub(crate) const FAILURE_REASON_TIMEOUT: Duration = Duration::from_millis(150);
    /// The time between two checks in that time.
    pub(crate) const FAILURE_REASON_INTERVAL: Duration = Duration::from_millis(1);
    /// The time for which a proxy thread that ends waits until what was sent over several paths has arrived.
    pub(crate) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time that the probes of GPUDirect RDMA may take.
    pub(crate) const GPU_DIRECT_PROBE_TIMEOUT: Duration = Duration::from_secs(10);

    // Windows.

    /// The threads of a block of the kernel of accumulates: those it is compiled for.
    pub(crate) const ACCUMULATE_THREADS: u32 = 512;
    /// The most blocks of the kernel of accumulates; each thread takes several elements beyond that.
    pub(crate) const ACCUMULATE_BLOCKS_MAX: u64 = 64;

    // The RMA proxy.

    /// The time after an abort in which window operations that were begun end.
    pub(crate) const RMA_ABORT_GRACE: Duration = Duration::from_millis(150);
    /// Timeouts for which a stream waits for the RMA proxy: the proxy's own ends first.
    pub(crate) const RMA_STREAM_TIMEOUTS: u32 = 2;
}
