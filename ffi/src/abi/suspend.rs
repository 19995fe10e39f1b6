//! Memory of communicators that goes back to the system, and its figures.

use roundelay::{Error, MemoryStats, SuspendDepth};

use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::pointers::{object, there};

/// For `rl_suspend`: connections for data between hosts go too, and not memory alone.
pub const RL_SUSPEND_CONNECTIONS: u32 = 1;

/// The memory that a rank of a communicator holds, in bytes, by kind. Kinds do not overlap, but for `mapped`, which are
/// addresses, and `arena`, which is a part of `shared`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct rl_memory_figures {
    /// The size of this structure, as the caller has it: no more is written. Figures that the library does not have are
    /// 0.
    pub size: u64,
    /// 1 if the communicator is suspended, else 0.
    pub suspended: u64,
    /// Shared memory that all ranks of this host have reserved together.
    pub shared: u64,
    /// This rank's arena in use: buffers, and what calls keep for themselves.
    pub arena: u64,
    /// Addresses at which this rank has mapped shared memory.
    pub mapped: u64,
    /// Memory for messages of calls on their way through sockets.
    pub staging: u64,
    /// The same for messages with tags and served windows.
    pub message: u64,
    /// Buffers with which connections are encrypted.
    pub encryption: u64,
    /// Memory that RDMA devices keep in place.
    pub pinned: u64,
    /// Memory of the GPU that suspending gives back.
    pub device: u64,
    /// Memory of the GPU that stays.
    pub device_buffer: u64,
    /// Host memory that is kept in place for the GPU.
    pub device_pinned: u64,
}

impl From<MemoryStats> for rl_memory_figures {
    fn from(stats: MemoryStats) -> Self {
        rl_memory_figures {
            size: size_of::<rl_memory_figures>() as u64,
            suspended: stats.suspended.into(),
            shared: stats.shared_bytes,
            arena: stats.arena_bytes,
            mapped: stats.mapped_bytes,
            staging: stats.staging_bytes,
            message: stats.message_bytes,
            encryption: stats.encryption_bytes,
            pinned: stats.pinned_bytes,
            device: stats.device_bytes,
            device_buffer: stats.device_buffer_bytes,
            device_pinned: stats.device_pinned_bytes,
        }
    }
}

/// Gives the memory of a communicator back to the system until it is used again: all ranks together, with the same
/// flags, after messages between single ranks were received. `flags` is 0 or `RL_SUSPEND_CONNECTIONS`. Calls fail
/// meanwhile, or the first one resumes it, as the hint `suspended` says. `docs/suspend.md` has what goes and what stays.
///
/// # Safety
///
/// `comm` is a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_suspend(comm: *const rl_comm, flags: u32) -> rl_status {
    guard(|| {
        let depth = match flags {
            0 => SuspendDepth::Memory,
            RL_SUSPEND_CONNECTIONS => SuspendDepth::Connections,
            flags => {
                return Err(Error::Usage(format!(
                    "the flags are {flags:#x}: there is RL_SUSPEND_CONNECTIONS (1), or none"
                )));
            }
        };
        // SAFETY: what the caller promises.
        unsafe { object(comm, "comm")? }.handle.with(|comm| comm.suspend(depth))
    })
}

/// Resumes a communicator: all ranks together. Of one that is not suspended it is a barrier.
///
/// # Safety
///
/// `comm` is a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_resume(comm: *const rl_comm) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        unsafe { object(comm, "comm")? }.handle.with(roundelay::Communicator::resume)
    })
}

/// Writes the memory that this rank holds to `out`, whose `size` says how long the structure is that the caller has. It
/// is no call of all ranks, and a suspended communicator stays so.
///
/// # Safety
///
/// `comm` is a live communicator; `out` is a structure of that size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_memory_stats(
    comm: *const rl_comm,
    out: *mut rl_memory_figures,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises: the size comes first.
        let (comm, room) = unsafe { (object(comm, "comm")?, (&raw const (*out).size).read()) };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        if room < size_of::<u64>() {
            return Err(Error::Usage(format!(
                "`size` is {room}: set it to sizeof(rl_memory_figures) before the call"
            )));
        }
        let figures =
            rl_memory_figures::from(comm.handle.with(roundelay::Communicator::memory_stats)?);
        let figures = rl_memory_figures { size: room as u64, ..figures };
        let known = room.min(size_of::<rl_memory_figures>());
        // SAFETY: the caller's structure has `room` bytes, of which the first `known` are figures, and numbers of any
        // value may be zero.
        unsafe {
            out.cast::<u8>().write_bytes(0, room);
            out.cast::<u8>().copy_from_nonoverlapping((&raw const figures).cast(), known);
        }
        Ok(())
    })
}
