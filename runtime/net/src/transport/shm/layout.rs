//! Lays out the shared memory of a job: offsets, and nothing else.
//!
//! ```text
//! [ control: parameters, abort record, a few lines for each rank ]
//! [ boards: for each rank, what it writes to others while they make a new generation ]
//! [ connections: for each ordered pair and channel, the headers, the slots, the pipe ]
//! [ arenas: for each rank, the memory that its buffers come from ]
//! ```
//!
//! The file is sparse: unused parts cost neither memory nor addresses.

use std::collections::BTreeSet;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

use roundelay_support::error::Error;

pub(crate) const PAGE: u64 = 4096;
/// The number of message headers of a connection: the most messages in flight, whatever a plan asks for.
pub const RING: u64 = roundelay_compiler::plan::MAX_SLOTS as u64;
/// Bytes that travel in the header itself: on the lines behind its first, which the processor fetches with it
/// (2 ranks, all_gather of messages of 64 B 0.49 us, through slots 0.81; of 4 B, in the first line, 0.37).
pub const INLINE: usize = (HEADER_BYTES - HEADER_PAYLOAD) as usize;

/// The most bytes of a file: a quarter of what the system can number.
const LONGEST_FILE: u64 = 1 << 61;
const ABORT: u64 = PAGE;
const RANKS: u64 = 2 * PAGE;
const RANK_BYTES: u64 = 320;
/// The streams out of a rank on its board, and the bytes on their way on each: 2 KiB hold what a rank sends in a step
/// of gathering 64 endpoints.
pub(super) const STREAMS: u64 = 64;
pub(super) const STREAM: u64 = 2 << 10;
/// Bytes of the counts of a stream on a board.
const COUNTS: u64 = 16;
/// Bytes of a board: the counts of all streams, then the streams.
const BOARD: u64 = (STREAMS * (COUNTS + STREAM)).next_multiple_of(PAGE);
const HEADERS: u64 = 128;
const HEADER_BYTES: u64 = 1 << 10;
/// Bytes of all headers of a connection, with what comes before them.
pub(crate) const HEADS: u64 = (HEADERS + RING * HEADER_BYTES).next_multiple_of(PAGE);
/// Bytes of the pipes out of a rank on one channel, and of a pipe at the least and the most.
const PIPES: u64 = 4 << 20;
const PIPE_LEAST: u64 = 32 << 10;
const PIPE_MOST: u64 = 2 << 20;
/// The bytes of the counts before the content of a pipe: positions up to which was pushed and taken, each in a page of
/// its own.
pub(super) const PIPE_COUNTS: u64 = 2 * PAGE;
/// The lines of a rank's control block.
pub(super) const PRESENCE_LINE: u64 = 0;
pub(super) const EXCHANGE_LINE: u64 = 1;
pub(super) const CALL_LINE: u64 = 2;
pub(super) const WAIT_LINE: u64 = 3;
pub(super) const BOARD_LINE: u64 = 4;
/// The place on the line of presence where the words on which a rank's threads sleep begin.
pub(super) const SLEEP_WORDS: u64 = 24;
/// The place on the line of presence with the number of the communicator.
pub(super) const COMMUNICATOR: u64 = 48;
/// The places on the line of exchanges with a rank's number in its communicator, and with its address.
pub(super) const RANK: u64 = 24;
pub(super) const ADDRESS: u64 = 32;
/// Offset of the payload in a header.
pub(crate) const HEADER_PAYLOAD: u64 = 16;

/// The parameters of a job's shared memory, the same for all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Number of ranks.
    pub ranks: u32,
    /// Parallel connections from each rank to each: the last one for messages with tags, the one before for
    /// batches, the others for plans.
    pub channels: u32,
    /// Capacity of one slot in bytes, a multiple of 64: the largest staged message.
    pub slot_bytes: u64,
    /// The most bytes of the buffers of each rank, a multiple of the page size.
    pub arena_bytes: u64,
    /// True if ranks outnumber cores, so that waiting ranks yield at once.
    pub crowded: bool,
}

impl SegmentLayout {
    /// Slots of 256 KiB: two of them, the data they come from and the data they go to fit the
    /// second-level cache, and the exchange of flags costs under 5 % of copying one.
    pub const SLOT_BYTES: u64 = 256 << 10;
    /// The bytes of a slot where no ranks share memory: what is handed to a socket at once. Over loopback one
    /// message of 1 MiB takes 95 us and four of 256 KiB 140 to 165, but messages of 4 MiB that are folded
    /// have left the cache before (docs/performance.md).
    pub(crate) const UNSHARED_SLOT_BYTES: u64 = 1 << 20;
    /// The number of channels by default.
    pub const CHANNELS: u32 = 33;

    /// Returns the default layout for that many ranks on this machine.
    pub fn new(ranks: u32) -> Self {
        let memory = rustix::system::sysinfo();
        let total = (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit));
        let cores = cores().len();
        SegmentLayout {
            ranks,
            channels: Self::CHANNELS,
            slot_bytes: Self::SLOT_BYTES,
            arena_bytes: total.next_multiple_of(1 << 30).max(1 << 30),
            crowded: ranks as usize > cores,
        }
    }

    /// Returns the default layout for ranks of these processes. Launchers bind each to cores of its own:
    /// together they have more than any of them.
    pub(crate) fn among(processes: &[Option<i32>]) -> Self {
        let known = processes.iter().filter_map(|pid| Pid::from_raw((*pid)?));
        let cores: BTreeSet<usize> = known.flat_map(|pid| cores_of(Some(pid))).collect();
        let layout = SegmentLayout::new(processes.len() as u32);
        match cores.len() {
            0 => layout,
            cores => SegmentLayout { crowded: processes.len() > cores, ..layout },
        }
    }

    /// Refuses parameters that no memory could have.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |text: &str| Err(Error::Usage(text.into()));
        if self.ranks == 0 || self.ranks > 4096 {
            return wrong("the number of local ranks must be between 1 and 4096");
        }
        if self.channels < 3 || self.channels > u32::from(u16::MAX) {
            return wrong("the number of channels must be between 3 and 65535");
        }
        if self.slot_bytes < 64 || self.slot_bytes > 64 << 20 || !self.slot_bytes.is_multiple_of(64)
        {
            return wrong("slots must have between 64 bytes and 64 MiB, in multiples of 64 bytes");
        }
        if self.arena_bytes == 0 || !self.arena_bytes.is_multiple_of(PAGE) {
            return wrong("the arena of a rank must be a positive multiple of 4096 bytes");
        }
        match self.total() {
            Some(_) => Ok(()),
            None => wrong("the ranks, channels and slots together exceed what a file can hold"),
        }
    }

    /// Returns the size of the whole, if a file can have it.
    pub(crate) fn total(&self) -> Option<u64> {
        let ranks = u64::from(self.ranks);
        let connections = (ranks * ranks * u64::from(self.channels))
            .checked_mul(self.connection_bytes())?
            .checked_add(self.connections())?;
        let total = ranks.checked_mul(self.arena_bytes)?.checked_add(connections)?;
        (total < LONGEST_FILE).then_some(total)
    }

    pub(crate) fn control_bytes(&self) -> u64 {
        (RANKS + u64::from(self.ranks) * RANK_BYTES).next_multiple_of(PAGE)
    }

    /// Returns the offset of the board of a rank.
    pub(super) fn board(&self, rank: u32) -> u64 {
        debug_assert!(rank < self.ranks);
        self.control_bytes() + u64::from(rank) * BOARD
    }

    /// Returns the offset of a rank's counts of a stream out of it.
    pub(super) fn counts(&self, rank: u32, stream: u64) -> u64 {
        debug_assert!(stream < STREAMS);
        self.board(rank) + stream * COUNTS
    }

    /// Returns the offset of the bytes of a stream out of a rank.
    pub(super) fn stream(&self, rank: u32, stream: u64) -> u64 {
        debug_assert!(stream < STREAMS);
        self.board(rank) + STREAMS * COUNTS + stream * STREAM
    }

    /// Returns the offset of the first connection.
    pub(super) fn connections(&self) -> u64 {
        self.control_bytes() + u64::from(self.ranks) * BOARD
    }

    /// Returns the bytes of a connection, its pipe included.
    pub(crate) fn connection_bytes(&self) -> u64 {
        self.slot(RING).next_multiple_of(PAGE) + self.pipe()
    }

    /// Returns the channel of batches, the last but one.
    pub fn batch_channel(&self) -> u16 {
        (self.channels - 2) as u16
    }

    /// Returns the channel of messages with tags, the last one.
    pub fn message_channel(&self) -> u16 {
        (self.channels - 1) as u16
    }

    pub(crate) fn abort(&self) -> u64 {
        ABORT
    }

    /// Returns the offset of line `line` of the control block of a rank.
    pub(crate) fn rank_line(&self, rank: u32, line: u64) -> u64 {
        debug_assert!(rank < self.ranks && line < RANK_BYTES / 64);
        RANKS + u64::from(rank) * RANK_BYTES + line * 64
    }

    /// Returns the offset of the first byte of a connection: its headers.
    pub(crate) fn connection(&self, from: u32, to: u32, channel: u32) -> u64 {
        debug_assert!(from < self.ranks && to < self.ranks && channel < self.channels);
        let pair = u64::from(from) * u64::from(self.ranks) + u64::from(to);
        let index = pair * u64::from(self.channels) + u64::from(channel);
        self.connections() + index * self.connection_bytes()
    }

    /// Returns the offset in a connection of the header of a message.
    pub(crate) fn header(message: u64) -> u64 {
        HEADERS + (message % RING) * HEADER_BYTES
    }

    /// Returns the offset in a connection of a slot.
    pub(crate) fn slot(&self, slot: u64) -> u64 {
        HEADS + slot * self.slot_bytes
    }

    /// Returns the offset of the pipe of a connection.
    pub(crate) fn pipe_at(&self, from: u32, to: u32, channel: u32) -> u64 {
        self.connection(from, to, channel) + self.slot(RING).next_multiple_of(PAGE)
    }

    /// Returns the bytes that a pipe holds: together those of a rank are larger than its second-level cache.
    pub(crate) fn pipe_bytes(&self) -> u64 {
        let each = PIPES / u64::from(self.ranks.max(2) - 1);
        (1 << each.max(1).ilog2()).clamp(PIPE_LEAST, PIPE_MOST)
    }

    /// Returns the bytes of the pipe with its counts.
    pub(super) fn pipe(&self) -> u64 {
        PIPE_COUNTS + self.pipe_bytes()
    }

    /// Returns the offset of the first byte of a rank's arena.
    pub(crate) fn arena(&self, rank: u32) -> u64 {
        let ranks = u64::from(self.ranks);
        let connections = ranks * ranks * u64::from(self.channels) * self.connection_bytes();
        self.connections() + connections + u64::from(rank) * self.arena_bytes
    }
}

/// Returns the cores that this process may use.
pub fn cores() -> Vec<usize> {
    let cores = cores_of(None);
    if cores.is_empty() { vec![0] } else { cores }
}

/// Returns the cores that a process may use, this one if none is named; none if the system does not say.
fn cores_of(process: Option<Pid>) -> Vec<usize> {
    let set = sched_getaffinity(process);
    set.map(|set| (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_overlap() {
        let layout = SegmentLayout {
            channels: 3,
            slot_bytes: 192,
            arena_bytes: 8192,
            ..SegmentLayout::new(5)
        };
        layout.check().expect("a small layout");
        let mut ends = layout.control_bytes();
        for rank in 0..5 {
            assert_eq!(layout.board(rank), ends);
            assert_eq!(layout.stream(rank, 0), layout.counts(rank, STREAMS - 1) + COUNTS);
            ends = (layout.stream(rank, STREAMS - 1) + STREAM).next_multiple_of(PAGE);
        }
        for from in 0..5 {
            for to in 0..5 {
                for channel in 0..3 {
                    assert_eq!(layout.connection(from, to, channel), ends);
                    assert!(SegmentLayout::header(RING - 1) + HEADER_BYTES <= HEADS);
                    let slots = layout.slot(RING).next_multiple_of(PAGE);
                    assert_eq!(layout.pipe_at(from, to, channel), ends + slots);
                    ends += slots + layout.pipe();
                }
            }
        }
        assert_eq!(layout.arena(0), ends);
        assert_eq!(layout.arena(4) + 8192, layout.total().expect("small"));
    }

    #[test]
    fn ranks_are_crowded_where_they_outnumber_the_cores_of_all_of_them() {
        let (first, last) = (cores()[0], *cores().last().expect("a core"));
        let (send, bound_thread) = std::sync::mpsc::channel();
        let end = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for core in [first, last] {
                let (send, end) = (send.clone(), &end);
                scope.spawn(move || {
                    let mut one = CpuSet::new();
                    one.set(core);
                    rustix::thread::sched_setaffinity(None, &one).expect("one of its own cores");
                    send.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("a listener");
                    end.wait();
                });
            }
            let bound = [(); 2].map(|()| bound_thread.recv().ok());
            assert_eq!(SegmentLayout::among(&bound).crowded, first == last);
            assert!(SegmentLayout::among(&[bound[0], bound[0]]).crowded);
            assert_eq!(
                SegmentLayout::among(&[None, None]),
                SegmentLayout::new(2),
                "without a process the default stands"
            );
            end.wait();
        });
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let good = SegmentLayout::new(2);
        assert!(good.check().is_ok());
        for (ranks, tebibytes) in [(256, 4), (1024, 4), (4096, 1)] {
            let large = SegmentLayout { arena_bytes: tebibytes << 40, ..SegmentLayout::new(ranks) };
            assert!(large.check().is_ok(), "{ranks} ranks with {tebibytes} TiB");
        }
        for bad in [
            SegmentLayout { ranks: 0, ..good },
            SegmentLayout { channels: 2, ..good },
            SegmentLayout { slot_bytes: 100, ..good },
            SegmentLayout { arena_bytes: 1 << 61, ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
