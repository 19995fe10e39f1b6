//! The tunables of this package. `roundelay_support::tunables` has what they are, and their macro.

use std::time::Duration;

use roundelay_support::tunables;

tunables! {
    // Waits of any kind.

    /// The steps of a call that never waits between two readings of the clock for the interrupt check.
    pub const INTERRUPT_CHECK_STEPS: u32 = 32;
    /// The longest sleep of a wait for connections all of whose progress is visible on sockets, which wake it.
    pub(crate) const SOCKET_SLEEP_MAX: Duration = Duration::from_millis(1);
    /// The longest sleep of a wait for connections with progress that no socket shows: nothing wakes it.
    pub const BLIND_SLEEP_MAX: Duration = Duration::from_micros(50);

    // Ports and strangers.

    /// Connections at one port that have not proved that they belong to the job. One more turns the oldest
    /// away.
    pub(crate) const STRANGERS_MAX: usize = 128;
    /// The descriptors that a process must be allowed for each connection that has not proved that it belongs
    /// to the job, so that most are left for the ranks.
    pub(crate) const DESCRIPTORS_PER_STRANGER: usize = 8;
    /// The time after which a connection that has not proved that it belongs to the job is turned away,
    /// whatever it has sent.
    pub(crate) const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
    /// The time that a new connection may take to identify itself: less than `STRANGER_TIMEOUT`, which counts
    /// from before it is accepted.
    pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(9);
    /// Wrong proofs of one address after which its connections are answered late.
    pub(crate) const WRONG_PROOFS_MAX: u64 = 8;
    /// The time for which a connection of an address with `WRONG_PROOFS_MAX` wrong proofs is not answered: it
    /// makes guessing a secret slow.
    pub(crate) const WRONG_PROOF_DELAY: Duration = Duration::from_secs(1);
    /// Connections that `WRONG_PROOF_DELAY` holds at a store at one time, half of `STRANGERS_MAX`; others may
    /// come again.
    pub(crate) const DELAYED_CONNECTIONS_MAX: usize = 64;
    /// Addresses whose wrong proofs are remembered. Beyond it the address whose last wrong proof is oldest is
    /// forgotten.
    pub(crate) const GUESSING_ADDRESSES_MAX: usize = 1024;
    /// The time without a wrong proof after which an address is forgotten.
    pub(crate) const WRONG_PROOF_EXPIRY: Duration = Duration::from_secs(60);
    /// The time that a new connection has before it gives way to others where descriptors are short.
    pub(crate) const HANDSHAKE_GRACE: Duration = Duration::from_millis(100);
    /// New connections that a listener accepts at one time, before it serves those that it has.
    pub(crate) const ACCEPT_BATCH_MAX: usize = 64;
    /// Closed communicators that a listener remembers, to refuse ranks that still connect for them.
    pub(crate) const ENDED_COMMUNICATORS_MAX: usize = 4096;
    /// The time that ranks of a process have to accept a connection themselves before the guard thread does.
    pub(crate) const GUARD_DELAY: Duration = Duration::from_millis(500);
    /// Turns of the guard thread without a pause, so that strangers without an end do not take a whole core.
    pub(crate) const GUARD_TURNS_MAX: usize = 64;

    // Launchers and secrets.

    /// The time between two polls of processes whose end no descriptor shows.
    pub(crate) const PROCESS_POLL_INTERVAL: Duration = Duration::from_millis(10);
    /// The time that the other ranks may take to report errors after one has died, before they are killed.
    pub(crate) const DEATH_REPORT_GRACE: Duration = Duration::from_secs(2);
    /// The longest file that holds a secret. A longer one is no secret.
    pub(crate) const SECRET_FILE_BYTES: u64 = 4096;
    /// The longest line that a process manager may send over PMI.
    pub(crate) const PMI_LINE_BYTES: usize = 64 << 10;
    /// The longest value that is read from a store of `torch.distributed`.
    pub(crate) const TORCH_NOTE_BYTES: usize = 4 << 10;

    // The store at which ranks meet.

    /// Connections to a store that may wait to be accepted: all ranks come at once. The system has a limit of
    /// its own.
    pub(crate) const STORE_BACKLOG: i32 = 4096;
    /// Connections to another listening port that may wait to be accepted.
    pub(crate) const LISTENER_BACKLOG: i32 = 128;
    /// Descriptors that a store leaves to the rest of its process when it raises the limit for its ranks.
    pub(crate) const RESERVED_DESCRIPTORS: u64 = 512;
    /// The time that connecting to one of several addresses of a server may take before the next one is tried.
    pub(crate) const SERVER_ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time that one attempt to join a store may take before the next one.
    pub(crate) const STORE_ENTRY_TIMEOUT: Duration = Duration::from_secs(10);
    /// The time that a store may take to name the missing rank after a wait timed out: longer than
    /// `PRESENCE_TIMEOUT`.
    pub(crate) const STORE_CULPRIT_TIMEOUT: Duration = Duration::from_millis(600);
    /// The time that a store may take to report the missing ranks to a guest; ranks have a part of it to
    /// answer.
    pub(crate) const GUEST_CULPRIT_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time that ranks may take to report that they are present. Joining ranks poll every few milliseconds.
    pub(crate) const PRESENCE_TIMEOUT: Duration = Duration::from_millis(200);
    /// The time that the last frames of a store may take on their way once it is closed.
    pub(crate) const STORE_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
    /// The time that ranks which were notified of a failure may take to disconnect. A stopped process never
    /// does.
    pub(crate) const STORE_DISCONNECT_TIMEOUT: Duration = Duration::from_millis(300);
    /// The longest time for which a store accepts no ranks for lack of descriptors before it notifies all; a
    /// program that closes files in time is not disturbed.
    pub(crate) const DESCRIPTOR_SHORTAGE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The time for which a store accepts nothing after the system refused a descriptor, and that a stranger
    /// has then to prove that it is a rank.
    pub(crate) const STORE_ACCEPT_PAUSE: Duration = Duration::from_millis(100);
    /// The longest key of a store.
    pub(crate) const STORE_KEY_BYTES: usize = 1 << 10;
    /// The longest value of a store.
    pub(crate) const STORE_VALUE_BYTES: usize = 1 << 20;
    /// The most that a store holds, beside `STORE_CONTENT_BYTES_PER_RANK`.
    pub(crate) const STORE_CONTENT_BYTES: usize = 64 << 20;
    /// The bytes that each rank adds to `STORE_CONTENT_BYTES`: jobs of many ranks store more.
    pub(crate) const STORE_CONTENT_BYTES_PER_RANK: usize = 4 << 10;
    /// The longest text of a failure that a store passes on.
    pub(crate) const STORE_FAILURE_BYTES: usize = 4 << 10;

    // Connections of a communicator.

    /// The longest note that a rank publishes with its endpoint.
    pub(crate) const ENDPOINT_NOTE_BYTES: usize = 4096;
    /// The time between two attempts to connect to a peer, at first; it doubles up to
    /// `CONNECT_RETRY_INTERVAL_MAX`.
    pub(crate) const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
    /// The longest time between two attempts to connect to a peer.
    pub(crate) const CONNECT_RETRY_INTERVAL_MAX: Duration = Duration::from_millis(500);
    /// The time that one attempt to connect may take where other addresses or further attempts are left.
    pub(crate) const CONNECT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
    /// The longest time for which no address of a peer that announced that it listens may be reached: then its
    /// process is gone, or a firewall stands between.
    pub(crate) const PEER_UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The longest time for which connections wait that this process has no descriptors to accept: it may close
    /// files meanwhile.
    pub(crate) const ACCEPT_SHORTAGE_TIMEOUT: Duration = Duration::from_secs(5);
    /// The time between two polls of what no socket shows, such as an abort, while connections are made.
    pub(crate) const CONNECT_WATCH_INTERVAL: Duration = Duration::from_millis(5);
    /// The time after an attempt to connect again that failed before the next one over the same path.
    pub(crate) const RECONNECT_INTERVAL: Duration = Duration::from_millis(200);
    /// The time that the two ends of a lost connection may take to connect again. One of them may be in a
    /// computation.
    pub(crate) const RECONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The time after the end of a connection in which its reason may arrive over another one.
    pub(crate) const LOSS_REASON_GRACE: Duration = Duration::from_millis(100);
    /// The longest sleep of a wait on control links, while no message comes.
    pub(crate) const CONTROL_POLL_INTERVAL: Duration = Duration::from_millis(5);
    /// Polls of shared memory, with a yield after each, before a wait on control links sleeps.
    pub(crate) const CONTROL_YIELDS: u32 = 16;
    /// The time that sending a goodbye may take if a peer reads nothing.
    pub(crate) const GOODBYE_TIMEOUT: Duration = Duration::from_millis(200);
    /// The longest text of an alarm, by which a rank reports a failure to its peers.
    pub(crate) const ALARM_TEXT_BYTES: usize = 2048;
    /// Lost ranks that control links report. Far fewer end a communicator.
    pub(crate) const REPORTED_DEATHS_MAX: usize = 64;
    /// The time between two polls of the shrink protocol, while no message comes.
    pub(crate) const SHRINK_POLL_INTERVAL: Duration = Duration::from_millis(5);
    /// The time that a rank which seems to be lost has to report to the shrink protocol.
    pub(crate) const SHRINK_REPORT_GRACE: Duration = Duration::from_millis(500);
    /// The time for which the address of a rank that seems to be lost must refuse connections.
    pub(crate) const SHRINK_REFUSED_GRACE: Duration = Duration::from_millis(100);
    /// The longest message of a rank in the shrink protocol.
    pub(crate) const SHRINK_MESSAGE_BYTES: usize = 64 << 20;
    /// The time for which a rank whose call differs from that of another rank of its host waits for that rank
    /// to name its call.
    pub(crate) const MISMATCH_TIMEOUT: Duration = Duration::from_millis(100);
    /// The time between two polls for the call of the other rank.
    pub(crate) const MISMATCH_POLL_INTERVAL: Duration = Duration::from_millis(1);
    /// The time that a closing rank waits until its peers' systems have what it sent over several paths.
    pub(crate) const PATHS_LINGER_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time that ranks on other hosts may take to report their waits. They poll once a millisecond.
    pub(crate) const WAIT_REPORT_TIMEOUT: Duration = Duration::from_millis(200);

    // Shared memory.

    /// The time after which a rank that has not finished the abort record is dead or stopped.
    pub(crate) const ABORT_RECORD_TIMEOUT: Duration = Duration::from_secs(1);
    /// The time between two checks whether the process of a silent peer runs.
    pub(crate) const PROCESS_CHECK_INTERVAL: Duration = Duration::from_millis(50);
    /// Reads of a control line while its rank writes to it, before its content counts as unknown.
    pub(crate) const CONTROL_LINE_RETRIES: u32 = 8;
    /// Messages in a row that make one sample of a copy path, without the slowest, in which a rank may not have
    /// been running.
    pub(crate) const COPY_SAMPLE_MESSAGES: u32 = 4;
    /// Messages before each sample of a copy path that do not count: memory that was not used for long is cold.
    pub(crate) const COPY_WARM_BYTES: usize = 2 << 20;
    /// The most messages before each sample of a copy path that do not count, however short they are.
    pub(crate) const COPY_WARM_MESSAGES: usize = 14;
    /// Samples of which one is of another copy path than the preferred one.
    pub(crate) const COPY_TRIAL_SAMPLES: u32 = 32;
    /// The factor by which a copy path that was much slower is tried more seldom.
    pub(crate) const COPY_SLOW_TRIAL_FACTOR: u32 = 4;
    /// Calls without a new sample of the peer's after which messages no longer count as going both ways.
    pub(crate) const COPY_ONE_WAY_CALLS: u32 = 32;
    /// The most that is copied into a pipe before the rank polls its other connections again.
    pub(crate) const PIPE_TURN_BYTES: u64 = 1 << 20;
    /// The reservation of shared memory from which on the free memory is checked first; the check costs more
    /// than a shorter one can harm.
    pub(crate) const CHECKED_RESERVATION_BYTES: u64 = 1 << 20;
    /// The least part of a region that is mapped at once, of which its offset is a multiple.
    pub(crate) const VIEW_BYTES_MIN: u64 = 32 << 20;
    /// The next mapped part of a region has at least its mapped bytes over this number, so that there are few
    /// parts.
    pub(crate) const VIEW_GROWTH_DIVISOR: u64 = 8;

    // Streams over sockets.

    /// The time without an acknowledgement of sent bytes after which a connection is silent. Systems
    /// acknowledge within 200 ms.
    pub(crate) const TCP_SILENCE_TIMEOUT: Duration = Duration::from_millis(250);
    /// Retransmissions without an acknowledgement after which a connection is silent, however little time has
    /// passed.
    pub(crate) const TCP_SILENT_ATTEMPTS: u8 = 4;
    /// The bytes that may wait to be sent to a peer on this host; the kernel doubles it for its own use. Both ends
    /// share the caches, and what is sent should be read before it has left them: of 112 to 512 KiB this was the
    /// fastest.
    pub(crate) const LOCAL_SEND_BUFFER_BYTES: usize = 256 << 10;
    /// Reads and writes that move nothing before a stream over several paths checks its connections.
    pub(crate) const STREAM_IDLE_CALLS: u32 = 256;
    /// The time between two polls of a handshake.
    pub(crate) const HANDSHAKE_POLL_INTERVAL: Duration = Duration::from_micros(200);
    /// The time for which an offer to resume a stream may remain without an answer, and an answer without a
    /// start.
    pub(crate) const RESUME_REPLY_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time between two attempts to move a stream back to its own path, at first; it doubles up to
    /// `HOMING_INTERVAL_MAX`.
    pub(crate) const HOMING_INTERVAL: Duration = Duration::from_millis(250);
    /// The longest time between two attempts to move a stream back to its own path.
    pub(crate) const HOMING_INTERVAL_MAX: Duration = Duration::from_secs(8);
    /// The time between two checks whether a connection is silent.
    pub(crate) const SILENCE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
    /// The time in which other paths may still reach the peer if one refuses.
    pub(crate) const OTHER_PATHS_TIMEOUT: Duration = Duration::from_millis(300);
    /// Offers to resume a stream that may be without an answer: one that was answered late must still be read.
    pub(crate) const RESUME_OFFERS_MAX: usize = 4;
    /// The time on its own path after which a stream that leaves it again tries to return at the shortest
    /// interval.
    pub(crate) const HOME_SETTLED_TIME: Duration = Duration::from_secs(10);
    /// The bytes that a stream keeps to send again without asking the system what the peer's has acknowledged.
    pub(crate) const UNTRIMMED_RESEND_BYTES: usize = 64 << 10;
    /// The most that a stream keeps to send again: far more than a system takes that the peer's has not
    /// acknowledged.
    pub(crate) const RESEND_BUFFER_BYTES: usize = 64 << 20;

    // InfiniBand and RoCE.

    /// Queue pairs on each device for each connection: with one device too a queue that fails leaves another.
    pub(crate) const RDMA_QUEUE_PAIRS: usize = 2;
    /// Queue pairs of a connection on a path: if it fails, the stream goes on over another connection.
    pub(crate) const RDMA_PATH_QUEUE_PAIRS: usize = 1;
    /// The time that the first message over new queue pairs, which proves that they work, may take.
    pub(crate) const RDMA_PROOF_TIMEOUT: Duration = Duration::from_secs(3);
    /// The most payload that travels inside a work request, where the device can: it needs no read of memory.
    pub(crate) const RDMA_INLINE_BYTES: u32 = 192;
    /// A packet without an acknowledgement is sent again after 4.096 us times 2 to this power: half a second.
    pub(crate) const RDMA_ACK_TIMEOUT_EXPONENT: u8 = 17;
    /// The number of times that a packet without an acknowledgement is sent again. A queue whose peer does not answer
    /// fails after four seconds (some devices take four times that); 7 stands for no end on the kernel's device in
    /// software.
    pub(crate) const RDMA_ACK_RETRIES: u8 = 6;
    /// The time for which nothing may be delivered through a queue while other queues deliver.
    pub(crate) const RDMA_QUEUE_STALL_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time for which nothing may be delivered through a queue while no queue delivers: longer than devices
    /// go on sending again.
    pub(crate) const RDMA_STREAM_STALL_TIMEOUT: Duration = Duration::from_secs(20);
    /// The most time between two polls that counts for a stall: a rank that did not poll for long cannot tell
    /// what it missed.
    pub(crate) const RDMA_POLL_GAP_MAX: Duration = Duration::from_millis(500);
    /// The time that a device may take to return the work of a queue that was ended.
    pub(crate) const RDMA_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
    /// Polls between two checks for a stalled queue.
    pub(crate) const RDMA_POLLS_PER_STALL_CHECK: u32 = 4;
    /// The time that a closing stream waits for the peer to have all that was sent.
    pub(crate) const RDMA_LINGER_TIMEOUT: Duration = Duration::from_secs(2);
    /// The time before a queue that failed is made anew, at first; it doubles with each attempt up to
    /// `RDMA_RENEWAL_INTERVAL_MAX`.
    pub(crate) const RDMA_RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
    /// The longest time before a queue that failed is made anew.
    pub(crate) const RDMA_RENEWAL_INTERVAL_MAX: Duration = Duration::from_secs(30);
    /// The lifetime of a queue after which its next renewal comes after the shortest time again.
    pub(crate) const RDMA_STABLE_TIME: Duration = Duration::from_secs(60);
    /// The time that the first write through a renewed queue may take.
    pub(crate) const RDMA_RENEWAL_PROOF_TIMEOUT: Duration = Duration::from_secs(3);
    /// The most that one work request of a one-sided access moves.
    pub(crate) const RDMA_ACCESS_BYTES: u64 = 1 << 30;
    /// Receive buffers that are offered to the peer and not filled yet.
    pub(crate) const RDMA_TARGETS_MAX: usize = 8;
    /// The time without a completion after which a connection is silent. Devices send again after half a
    /// second, and do not always report that it is in vain.
    pub(crate) const RDMA_SILENCE_TIMEOUT: Duration = Duration::from_secs(2);
    /// Reads that find nothing before the socket of a connection is polled.
    pub(crate) const RDMA_IDLE_READS: u32 = 256;

    // Several paths.

    /// The size of a call from which on its time shows what paths can do.
    pub(crate) const BALANCED_BYTES_MIN: u64 = 1 << 20;
    /// The most calls between two agreements about the shares of paths.
    pub(crate) const BALANCED_CALLS_MAX: u32 = 64;
    /// The part of a call below which its time is no measure of its path.
    pub(crate) const MEASURED_BYTES_MIN: u64 = 64 << 10;
    /// A call whose bytes took this many times longer than in the fastest call was delayed by something else,
    /// and does not count.
    pub(crate) const DELAYED_CALL_FACTOR: u64 = 2;
    /// Calls of each kind that are timed to see whether dividing a call over paths pays.
    pub(crate) const TRIAL_CALLS: usize = 8;
    /// Calls after which dividing is tried again: paths and neighbours change.
    pub(crate) const TRIAL_REPEAT_CALLS: u32 = 1000;
    /// Sizes and plans whose trials are remembered.
    pub(crate) const TRIALS_MAX: usize = 64;

    // Folds on processors.

}
