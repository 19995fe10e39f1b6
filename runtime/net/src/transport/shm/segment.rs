//! The segment: the shared file of a job, and how it is made, inherited, mapped and reserved.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;

use super::layout::{PAGE, SegmentLayout};
use super::limits;
use super::views::{FileView, RegionViews};
use roundelay_support::error::{ByteCount, Error, ErrorSource, shortage_remedy};
use roundelay_support::secret::random;

/// The name of the files, which the system shows for debugging.
pub const NAME: &str = "roundelay";
/// The first word of a file.
const MAGIC: u64 = u64::from_le_bytes(*b"rndly\x00\x00\x02");

/// The place of the number that tells this memory from all others, behind the parameters.
const BIRTH: u64 = 48;

/// The shared memory of a job: control pages and boards are mapped into this process, the rest as it is used.
pub struct ShmSegment {
    fd: OwnedFd,
    pub(super) layout: SegmentLayout,
    control: FileView,
    /// Locked while a view is made or all are given back: connections are opened rarely.
    connections: Mutex<RegionViews>,
    /// The ends of connections that are open in this process, whose addresses must stay.
    open_ends: AtomicU64,
    /// By rank.
    arenas: Vec<RegionViews>,
}

/// The reason for which memory was refused, and the error of the system if the system refused it.
struct RefusalCause {
    text: String,
    errno: Option<Errno>,
    source: Option<ErrorSource>,
}

impl RefusalCause {
    fn error(&self, text: String) -> Error {
        match self.errno {
            Some(errno) => Error::system(text, errno, ""),
            None => Error::Start(text),
        }
    }
}

impl std::fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for RefusalCause {
    fn from(text: String) -> Self {
        RefusalCause { text, errno: None, source: None }
    }
}

impl From<Errno> for RefusalCause {
    fn from(error: Errno) -> Self {
        let text = error.to_string();
        let source = Some(ErrorSource::new(std::io::Error::from(error)));
        RefusalCause { text, errno: Some(error), source }
    }
}

impl ShmSegment {
    /// Makes the memory of a new job.
    pub fn create(layout: SegmentLayout) -> Result<Arc<Self>, Error> {
        layout.check()?;
        let len = layout.total().unwrap_or(u64::MAX);
        let refused = |cause: RefusalCause| Error::Memory {
            what: "the shared file of the ranks".into(),
            wanted: len,
            cause: cause.text,
            remedy: match cause.errno {
                Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                    "allow the system call memfd_create, or say transport=tcp"
                }
                errno => errno.and_then(shortage_remedy).unwrap_or(
                    "this is the size of a sparse file, not memory: raise the limit on file sizes \
                     (`ulimit -f`), or make the arenas smaller",
                ),
            }
            .into(),
            source: cause.source,
        };
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < len) {
            let cause = format!("files may have {} here", ByteCount(limit.unwrap_or(0)));
            return Err(refused(cause.into()));
        }
        let fd =
            rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(|e| refused(e.into()))?;
        rustix::fs::ftruncate(&fd, len).map_err(|e| refused(e.into()))?;
        let segment = Self::map(fd, layout)?;
        segment.reserve(0, layout.control_bytes(), "the control pages")?;
        let words = [
            u64::from(layout.ranks),
            u64::from(layout.channels),
            layout.slot_bytes,
            layout.arena_bytes,
            u64::from(layout.crowded),
            u64::from_le_bytes(random()?),
        ];
        for (i, word) in words.into_iter().enumerate() {
            segment.word(8 + 8 * i as u64).store(word, Ordering::Relaxed);
        }
        segment.word(0).store(MAGIC, Ordering::Release);
        Ok(Arc::new(segment))
    }

    /// Maps the memory of the job that this process was started for.
    pub fn inherit(number: RawFd) -> Result<Arc<Self>, Error> {
        let foreign = |why: RefusalCause| {
            why.error(format!(
                "file descriptor {number} is not the shared memory of a job: {why}; \
                 start the ranks with the launcher, which passes it on"
            ))
        };
        if number < 3 {
            return Err(foreign("it is a standard stream".to_string().into()));
        }
        // SAFETY: the launcher passed this number to this process for this purpose, and the
        // environment is read once; a number that is not open is refused by `fstat`.
        let fd = unsafe { OwnedFd::from_raw_fd(number) };
        let result = Self::read(&fd).map_err(&foreign);
        let layout = match result {
            Ok(layout) => layout,
            Err(error) => {
                // The descriptor has another owner: it stays open.
                let _ = fd.into_raw_fd();
                return Err(error);
            }
        };
        // Children of this process have no business with it.
        let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
        Self::map(fd, layout).map(Arc::new)
    }

    /// Maps the memory that another process of this machine made and still holds open.
    pub fn of_process(pid: i32, number: RawFd) -> Result<Arc<Self>, Error> {
        let path = format!("/proc/{pid}/fd/{number}");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
        let foreign =
            |why: RefusalCause| why.error(format!("cannot share memory by {path}: {why}"));
        let fd = rustix::fs::open(&path, flags, rustix::fs::Mode::empty())
            .map_err(|e| foreign(e.into()))?;
        let layout = Self::read(&fd).map_err(foreign)?;
        Self::map(fd, layout).map(Arc::new)
    }

    fn read(fd: &OwnedFd) -> Result<SegmentLayout, RefusalCause> {
        let stat = rustix::fs::fstat(fd)?;
        let mut bytes = [0u8; 48];
        let n = rustix::io::pread(fd, &mut bytes, 0)?;
        let word = |i: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[8 * i..8 * i + 8]);
            u64::from_le_bytes(w)
        };
        if n < bytes.len() || word(0) != MAGIC {
            return Err("it does not begin as one of this version".to_string().into());
        }
        let layout = SegmentLayout {
            ranks: word(1) as u32,
            channels: word(2) as u32,
            slot_bytes: word(3),
            arena_bytes: word(4),
            crowded: word(5) != 0,
        };
        layout.check().map_err(|e| RefusalCause::from(e.to_string()))?;
        if layout.total() != u64::try_from(stat.st_size).ok() {
            return Err("its size is wrong".to_string().into());
        }
        Ok(layout)
    }

    fn map(fd: OwnedFd, layout: SegmentLayout) -> Result<Self, Error> {
        let len = layout.connections();
        let control = FileView::new(&fd, 0, len).map_err(|e| unmapped(len, e))?;
        let arenas = (0..layout.ranks).map(|_| RegionViews::default()).collect();
        let (connections, open_ends) = (Mutex::default(), AtomicU64::new(0));
        Ok(ShmSegment { fd, layout, control, connections, open_ends, arenas })
    }

    /// Returns the address of `len` bytes of a connection or of an arena, which are mapped now if they were not. Those
    /// of an arena are mapped for as long as the segment lives, those of a connection while an end of one is
    /// [open](OpenEnd).
    pub fn mapped(&self, offset: u64, len: u64) -> Result<*mut u8, Error> {
        let (layout, first) = (&self.layout, self.layout.arena(0));
        let address = |views: &RegionViews, region: (u64, u64)| {
            let lies = offset >= region.0 && offset.saturating_add(len) <= region.1;
            lies.then(|| views.address(&self.fd, region, (offset, len)))
        };
        let address = match offset.checked_sub(first) {
            None => address(&self.connections.lock(), (layout.connections(), first)),
            Some(behind) => {
                let rank = behind / layout.arena_bytes;
                let start = first + rank * layout.arena_bytes;
                let views = self.arenas.get(rank as usize);
                views.and_then(|views| address(views, (start, start + layout.arena_bytes)))
            }
        };
        let lost = || Error::Work("a piece of shared memory lies outside of its region".into());
        address.ok_or_else(lost)?.map_err(|e| unmapped(len, e))
    }

    /// Returns the bytes of this process's address space that the segment takes.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        let arenas = self.arenas.iter().map(RegionViews::bytes).sum::<u64>();
        self.control.end() + self.connections.lock().bytes() + arenas
    }

    /// Gives the addresses of all connections back, if no end of one is open in this process; returns true if so.
    pub(crate) fn unmap_connections(&self) -> bool {
        let mut views = self.connections.lock();
        // An end that is being opened counts before it waits for the lock.
        let is_unused = self.open_ends.load(Ordering::SeqCst) == 0;
        if is_unused {
            *views = RegionViews::default();
        }
        is_unused
    }

    /// Gives the memory of a range of whole pages back to the system: it reads as zeros, and is to be
    /// [reserved](Self::reserve) again before it is touched.
    ///
    /// # Errors
    ///
    /// The error of the system, which may not know how.
    pub(crate) fn free(&self, offset: u64, len: u64) -> Result<(), Errno> {
        debug_assert!(offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match rustix::fs::fallocate(&self.fd, flags, offset, len) {
                Err(Errno::INTR) => {}
                freed => return freed,
            }
        }
    }

    /// Gives the memory of the first connections from one rank to another back, those of that many channels. Neither end
    /// of them is open in any process.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::free`].
    pub(crate) fn free_connections(&self, from: u32, to: u32, channels: u32) -> Result<(), Errno> {
        let len = u64::from(channels) * self.layout.connection_bytes();
        self.free(self.layout.connection(from, to, 0), len)
    }

    /// Returns the view of a rank's arena that has `len` bytes at an address, if this process has mapped one, and their
    /// offset in the file.
    #[inline]
    pub(crate) fn view_of(
        &self,
        rank: u32,
        address: *const u8,
        len: usize,
    ) -> Option<(&FileView, u64)> {
        let views = self.arenas.get(rank as usize)?;
        views.iter().find_map(|view| Some((view, view.offset_of(address, len)?)))
    }

    /// Returns the layout of the segment.
    pub fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    /// Returns the bytes that all ranks together have reserved.
    pub(crate) fn reserved(&self) -> u64 {
        // The file has memory for what was reserved, and for nothing else.
        rustix::fs::fstat(&self.fd).map_or(0, |stat| (stat.st_blocks as u64).saturating_mul(512))
    }

    /// Returns the descriptor, for a child that inherits it.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the descriptor's number, for the environment of a child.
    pub(crate) fn number(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Returns a number, below 2^48, that no other memory of this machine has while this one exists; 0 if it has
    /// none.
    pub fn identity(&self) -> u64 {
        rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_ino & 0xffff_ffff_ffff)
    }

    /// Returns a random number that no other memory has, of any machine.
    pub(crate) fn birth(&self) -> u64 {
        self.word(BIRTH).load(Ordering::Relaxed)
    }

    /// Returns a word of the control pages or of a board, which were reserved.
    pub(crate) fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.control.end());
        // SAFETY: in bounds and aligned; the mapping lives as long as `self`; these words are only ever
        // accessed as atomics.
        unsafe { &*self.control.at(offset).cast::<AtomicU64>() }
    }

    /// Makes sure that the pages of a range exist, so that touching them cannot fail.
    pub(crate) fn reserve(&self, offset: u64, len: u64, what: &str) -> Result<(), Error> {
        let from = offset / PAGE * PAGE;
        let len = (offset + len).next_multiple_of(PAGE) - from;
        let refused = |cause: RefusalCause| Error::Memory {
            what: what.into(),
            wanted: len,
            cause: cause.text,
            source: cause.source,
            remedy: "give the machine or container more memory, or ask for smaller buffers, fewer \
                     ranks, or smaller slots (`--slot-bytes`)"
                .into(),
        };
        if let Some(cause) = limits::objection(len) {
            return Err(refused(cause.into()));
        }
        loop {
            match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), from, len) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(refused(e.into())),
            }
        }
    }
}

/// An open end of a connection: while it lives, what it mapped stays mapped.
pub(super) struct OpenEnd(Arc<ShmSegment>);

impl OpenEnd {
    pub(super) fn new(segment: &Arc<ShmSegment>) -> Self {
        segment.open_ends.fetch_add(1, Ordering::SeqCst);
        OpenEnd(segment.clone())
    }
}

impl Drop for OpenEnd {
    fn drop(&mut self) {
        self.0.open_ends.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the error of a part of the file that the system does not map.
fn unmapped(wanted: u64, error: Errno) -> Error {
    Error::Memory {
        what: "the mapping of the shared file".into(),
        wanted,
        cause: error.to_string(),
        remedy: "raise the limit on address space (`ulimit -v`), or the number of mappings that a process may have \
                 (`sysctl vm.max_map_count`)"
            .into(),
        source: RefusalCause::from(error).source,
    }
}
