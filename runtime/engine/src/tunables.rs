//! The tunables of this package: durations, limits and thresholds, each declared here and nowhere else.

use std::time::Duration;

roundelay_support::tunables! {
    // Waits in a call.

    /// Polls without a pause at the start of a wait: what arrives within a fraction of a microsecond is seen
    /// soonest.
    pub(crate) const FAST_POLLS: u32 = 64;
    /// Polls before a wait first yields its core: a tenth of a millisecond.
    pub(crate) const POLLS_BEFORE_YIELD: u32 = 3000;
    /// Polls before a wait first yields its core where ranks outnumber cores: the awaited rank is likely not
    /// running.
    pub(crate) const POLLS_BEFORE_YIELD_CROWDED: u32 = 8;
    /// The time for which a wait polls sockets without a pause before it sleeps where other programs use its
    /// core: a peer that runs answers sooner, and a wakeup costs more than the rest of a time slice.
    pub(crate) const SOCKET_SPIN_TIME: Duration = Duration::from_micros(300);
    /// The time after which a wait for sockets sleeps: a late wakeup costs little beside it.
    pub(crate) const LONG_WAIT_TIME: Duration = Duration::from_millis(20);
    /// The longest sleep for shared memory. A wakeup that misses a sleeper, which it does not see yet, costs no
    /// more than this.
    pub(crate) const MEMORY_SLEEP_MAX: Duration = Duration::from_micros(200);
    /// The longest sleep for the words of all ranks, the last of which misses no sleeper.
    pub(crate) const WORD_SLEEP_MAX: Duration = Duration::from_millis(5);
    /// The longest sleep in a call for messages that wake no thread.
    pub(crate) const CALL_BLIND_SLEEP_MAX: Duration = Duration::from_micros(50);
    /// The time between two checks of a wait whether its peers run and make progress.
    pub(crate) const PEER_CHECK_INTERVAL: Duration = Duration::from_millis(1);
    /// Polls of a wait between two checks for requests of peers to windows, where a poll is a load.
    pub(crate) const SERVE_POLLS_MEMORY: u32 = 64;
    /// Polls of a wait between two checks for requests of peers to windows, where a poll is a system call.
    pub(crate) const SERVE_POLLS_SOCKETS: u32 = 8;
    /// Polls of a wait after a request to a window, each with a check for the next one: peers often have
    /// another one.
    pub(crate) const SERVE_POLLS_BUSY: u32 = 1024;
    /// The time that a rank waits for control words before it reports its call to its peers.
    pub(crate) const CALL_REPORT_DELAY: Duration = Duration::from_millis(10);
    /// The time between two polls of an abort for a thread that is in a call: a store of that thread has left
    /// its processor by then.
    pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_micros(50);
    /// The most that is written to a caller's memory between two checks whether the job was aborted.
    pub(crate) const ABORT_CHECK_BYTES: usize = 1 << 20;
    /// The time in which a process must have ended whose connection has, and in which the others must go on
    /// after an alarm for a lost rank.
    pub(crate) const ALARM_GRACE: Duration = Duration::from_secs(5);
    /// The time between two polls of a tolerant call after an alarm for a lost rank.
    pub(crate) const ALARM_POLL_INTERVAL: Duration = Duration::from_micros(200);

    /// The time for which ranks that suspend wait for what is under way between them before they refuse: messages
    /// that no rank receives never end.
    pub(crate) const SUSPEND_QUIET_TIMEOUT: Duration = Duration::from_secs(1);

    /// Polls of a proxy thread with a yield after each, before it sleeps.
    pub(crate) const PROXY_YIELDS: u32 = 4000;
    /// The shortest sleep of a proxy thread: a kernel's words wake no thread. It sleeps for a 64th of the time
    /// that it has waited.
    pub(crate) const PROXY_SLEEP_MIN: Duration = Duration::from_micros(50);
    /// The longest sleep of a proxy thread.
    pub(crate) const PROXY_SLEEP_MAX: Duration = Duration::from_micros(500);

    // Copies and choices.

    /// The bytes of another process's memory that are copied at a time to be folded: few enough to stay in the
    /// cache, enough to pay for the system call.
    pub(crate) const FOREIGN_FOLD_BYTES: usize = 128 << 10;
    /// The size from which on a message in memory that peers do not map goes without a slot: through a pipe, or
    /// read through the kernel. Slots are few, so the receiver's cache still has their lines when they are
    /// written again: all_gather of 8 KiB took 0.77 us through slots, and 0.62 through the pipe.
    pub(crate) const UNSLOTTED_BYTES_MIN: usize = 4 << 10;
    /// `UNSLOTTED_BYTES_MIN` where ranks share cores and their caches: there are no pipes then, and two copies
    /// through a slot cost less than a read of the other process's memory.
    pub(crate) const UNSLOTTED_BYTES_MIN_CROWDED: usize = 16 << 10;
    /// The size from which on a message goes to a socket from where it lies. A shorter one is copied behind its
    /// header, which makes one piece of both.
    pub(crate) const POSTED_DIRECT_BYTES_MIN: usize = 4 << 10;
    /// The longest plan that is searched for results which are not read again, to store them past the caches.
    pub(crate) const STREAM_SEARCH_OPERATIONS: usize = 512;
    /// The size from which on a message of a batch in memory that peers do not map is read through the kernel:
    /// the sender waits for that, and shorter ones are sooner on their way in slots.
    pub(crate) const BATCH_FOREIGN_BYTES_MIN: u64 = 64 << 10;
    /// The most pieces of a batch: the steps of more would fill the memory.
    pub(crate) const BATCH_PIECES_MAX: u64 = 1 << 24;
    /// Chunk moves of an algorithm that are unrolled to see in which order it adds.
    pub(crate) const UNROLLED_MOVES_MAX: u64 = 4_000_000;
    /// Algorithms and shapes that a resolver remembers.
    pub(crate) const CANDIDATES_MAX: usize = 512;
    /// The broadcast between two ranks from which on copy engines make it. Where both send at once, stores are
    /// as fast.
    pub(crate) const COPY_ENGINE_BYTES_MIN: u64 = 64 << 20;
    /// The chunk of a task in a pass up to which tasks of a kernel run side by side: what a block has in flight
    /// at once.
    pub(crate) const SIDE_BY_SIDE_BYTES: u64 = 32 << 10;
    /// The chunk that a kernel moves between hosts in a pass: 512 KiB by each of 32 blocks.
    pub(crate) const FAR_PASS_BYTES: u64 = 16 << 20;

    // Messages between single ranks.

    /// The longest message that is sent before the receiver has a buffer for it. Longer ones are faster by an
    /// offer: between two ranks of a host 64 KiB took 45 us at once, and 26 us offered.
    pub(crate) const EAGER_BYTES: u64 = 8 << 10;
    /// Eager messages of a peer that may wait for a receive: together half a MiB.
    pub(crate) const EAGER_CREDITS: u64 = 64;
    /// Offers of a peer that may wait for a receive: their records take less than 128 MiB. A program whose
    /// calls are in order does not reach this.
    pub(crate) const OFFERS_MAX: u64 = 1 << 20;
    /// Operations on a peer's parts of windows that may await its answers. As many answers, of up to
    /// `EAGER_BYTES` each, are kept for a peer that does not receive them: together a MiB.
    pub(crate) const ASKED_OPERATIONS_MAX: usize = 128;
    /// Parts of windows with an unsolicited packet, a refusal or a grant, that waits for a peer.
    pub(crate) const UNSOLICITED_PARTS_MAX: usize = 1 << 12;
    /// The longest payload segment that is sent by rendezvous: the longest that a message can describe.
    pub(crate) const RENDEZVOUS_SEGMENT_BYTES: u64 = 256 << 20;
    /// The most that is read of a sender's memory before other connections are served again.
    pub(crate) const READ_QUANTUM_BYTES: u64 = 1 << 20;
    /// The bytes of a sender's memory that are read between two reports of it to the sender, which sees by them
    /// that the read progresses.
    pub(crate) const READ_REPORT_BYTES: u64 = 64 << 20;
    /// The time for which a peer whose memory cannot be read may still turn out to have ended.
    pub(crate) const UNREADABLE_GRACE: Duration = Duration::from_secs(1);
    /// The longest time for which a change may go unnoticed in a wait for messages.
    pub(crate) const CHANGE_CHECK_INTERVAL: Duration = Duration::from_millis(20);
    /// The time for which a rank that leaves still serves packets that no send needs, while no connection
    /// moves.
    pub(crate) const SERVE_LINGER_TIMEOUT: Duration = Duration::from_secs(2);
    /// The longest sleep on sockets while windows are served and every change is visible on one.
    pub(crate) const SERVE_VISIBLE_SLEEP_MAX: Duration = Duration::from_millis(20);
    /// The longest sleep while some changes are visible on no socket.
    pub(crate) const SERVE_BLIND_SLEEP_MAX: Duration = Duration::from_millis(1);
    /// The time without work after which the progress thread ends.
    pub(crate) const PROGRESS_IDLE_TIMEOUT: Duration = Duration::from_secs(1);
    /// The shortest time between two polls of the progress thread, after one at which it took over; it doubles
    /// up to `PROGRESS_INTERVAL_MAX`.
    pub(crate) const PROGRESS_INTERVAL_MIN: Duration = Duration::from_micros(100);
    /// The longest time between two polls of the progress thread.
    pub(crate) const PROGRESS_INTERVAL_MAX: Duration = Duration::from_millis(1);
    /// The time without work after which the progress thread no longer polls, and sleeps until it is woken.
    pub(crate) const PROGRESS_POLL_TIME: Duration = Duration::from_millis(10);

    // Windows.

    /// The time for which another rank may hold a lock of a window before it is checked for failure.
    pub(crate) const LOCK_CHECK_DELAY: Duration = Duration::from_millis(2);
    /// The longest time for which another rank may hold a lock of a window.
    pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
    /// The most that is combined while the lock of a window is held, so that others get it in between.
    pub(crate) const LOCKED_COMBINE_BYTES: usize = 64 << 10;
    /// Polls of a lock before the waiting thread yields its core.
    pub(crate) const LOCK_POLLS: u32 = 200;
    /// The bytes that are copied to or from a window between two checks whether the job has ended.
    pub const WINDOW_COPY_BYTES: usize = 4 << 20;
    /// The most of a part on a device that one get returns: it is staged in host memory.
    pub const DEVICE_GET_BYTES: u64 = 1 << 20;

    // Records and diagnosis.

    /// Different names of algorithms that a flight recorder keeps.
    pub(crate) const FLIGHT_NAMES_MAX: usize = 1024;
    /// Events of a flight recorder for each reading of the clock: even a load of its latest tick is 5 ns, a
    /// fiftieth of the shortest call.
    pub(crate) const EVENTS_PER_CLOCK_READ: u64 = 16;
    /// Different names that the spans of a rank keep.
    pub(crate) const SPAN_NAMES_MAX: usize = 1 << 16;
    /// The latest events that the dump of a flight recorder has.
    pub(crate) const DUMP_EVENTS_MAX: usize = 128;
    /// Other ranks that the dump of a flight recorder names.
    pub(crate) const DUMP_RANKS_MAX: usize = 256;
    /// The latest calls by which ranks are compared.
    pub(crate) const COMPARED_CALLS: usize = 16;
    /// The shortest delay of a rank that is reported.
    pub(crate) const REPORTED_DELAY_MIN: Duration = Duration::from_millis(10);
    /// The part of the observed time, in percent, that a delay must have to be reported.
    pub(crate) const REPORTED_DELAY_PERCENT: u64 = 20;
    /// The factor by which a delay must exceed the next longest one to be reported.
    pub(crate) const REPORTED_DELAY_FACTOR: u64 = 2;
    /// The time between the two readings of a running rank's state: a wait that is the same in both is one that
    /// lasts.
    pub(crate) const LIVE_CHECK_INTERVAL: Duration = Duration::from_millis(200);
    /// The time between two diagnoses of a wait.
    pub(crate) const DIAGNOSIS_INTERVAL: Duration = Duration::from_millis(10);
    /// Diagnoses in a row over which nothing moves in a circle of waits before it is reported as a cycle: ranks
    /// that the system does not run show old waits.
    pub(crate) const CYCLE_DIAGNOSES: u32 = 11;
    /// Ranks that a diagnosis names before it only counts them.
    pub(crate) const NAMED_RANKS_MAX: usize = 8;
    /// Links of a chain of waits that a diagnosis names.
    pub(crate) const CHAIN_LINKS_MAX: usize = 8;
}
