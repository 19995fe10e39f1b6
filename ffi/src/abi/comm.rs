//! Communicators: joining, parts, settings, ends.

use std::ffi::{c_char, c_void};
use std::time::{Duration, Instant};

use roundelay::internal::OwnerProcess;
use roundelay::launch::{JobSetup, RankHandles};
use roundelay::{Communicator, Error, HintError, Hints};

use super::arguments::{dtype, op};
use super::error::{guard, rl_status};
use super::pointers::{free, give, object, text, text_or_none, there, write_text};
use super::values::{RL_ABI_VERSION, rl_dtype, rl_op};
use crate::handle::CommHandle;

/// One rank's handle on the others. Any thread may use it.
pub struct rl_comm {
    pub(super) handle: CommHandle,
}

/// A store in which the ranks of a job leave notes for each other, as torch's `Store` or a PMI server.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rl_store {
    /// The first argument of both functions.
    pub context: *mut c_void,
    /// Leaves a note of `len` bytes, which others can read when it returns. Returns 0, or another number if it failed.
    pub set: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_char,
            value: *const c_void,
            len: u64,
        ) -> i32,
    >,
    /// Waits for a note, at most that many milliseconds, writes it into a buffer of `capacity` bytes and its length to
    /// `len`. Returns 0, or another number if the note did not come or is too long.
    pub get: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            key: *const c_char,
            timeout_ms: u64,
            value: *mut c_void,
            capacity: u64,
            len: *mut u64,
        ) -> i32,
    >,
}

/// The key of the one note that goes through the caller's store.
const KEY: &std::ffi::CStr = c"roundelay";
/// The longest note.
const NOTE: usize = 4 << 10;

impl rl_store {
    /// Passes rank 0's note to the others.
    fn share(&self, note: Option<&str>, timeout: Duration) -> Result<String, Error> {
        let (Some(set), Some(get)) = (self.set, self.get) else {
            return Err(Error::Usage("the store has no function `set` or no `get`".into()));
        };
        let failed = |what: &str, rc: i32| {
            Err(Error::Start(format!(
                "the caller's store could not {what} a note: it returned {rc}"
            )))
        };
        if let Some(note) = note {
            let (value, len) = (note.as_ptr().cast(), note.len() as u64);
            // SAFETY: `rl_join` asks for functions that can be called so.
            let rc = unsafe { set(self.context, KEY.as_ptr(), value, len) };
            return if rc == 0 { Ok(note.into()) } else { failed("leave", rc) };
        }
        let (mut value, mut len) = (vec![0u8; NOTE], 0);
        let until = Instant::now() + timeout;
        let left = u64::try_from(until.saturating_duration_since(Instant::now()).as_millis());
        // SAFETY: as above; the buffer has that capacity.
        let rc = unsafe {
            get(
                self.context,
                KEY.as_ptr(),
                left.unwrap_or(u64::MAX),
                value.as_mut_ptr().cast(),
                NOTE as u64,
                &raw mut len,
            )
        };
        match usize::try_from(len) {
            Ok(len) if rc == 0 && len <= NOTE => {
                value.truncate(len);
                Ok(String::from_utf8_lossy(&value).into_owned())
            }
            _ => failed("read", rc),
        }
    }
}

fn comm(handle: CommHandle) -> *mut rl_comm {
    Box::into_raw(Box::new(rl_comm { handle }))
}

/// Returns the version of the interface that this library has; `RL_ABI_VERSION` is that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn rl_abi_version() -> u32 {
    RL_ABI_VERSION
}

/// Returns the version of the library, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn rl_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Returns the address of a word that holds the number of the calling process, and 0 in every process that is forked
/// from it, whose calls on what this one has made fail by RL0718. It is read as a whole, and stays where it is.
#[unsafe(no_mangle)]
pub extern "C" fn rl_process_word() -> *const u32 {
    OwnerProcess::here().word()
}

/// Makes all ranks of a job whose ranks are threads of this process: `ranks` communicators, written to `comms`.
///
/// # Safety
///
/// `comms` has room for that many pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_local(ranks: u32, comms: *mut *mut rl_comm) -> rl_status {
    guard(|| {
        there(comms, "comms")?;
        for (at, handle) in CommHandle::local(ranks)?.into_iter().enumerate() {
            // SAFETY: what the caller promises.
            unsafe { comms.add(at).write(comm(handle)) };
        }
        Ok(())
    })
}

/// Joins the job that a launcher started: roundelay's, torchrun, mpirun, srun, or a person (`docs/running.md`).
///
/// # Safety
///
/// `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_from_env(out: *mut *mut rl_comm) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        unsafe { give(out, comm(CommHandle::new(Communicator::from_env()?)?), "out") }
    })
}

/// Joins the other ranks, which are given the same store. Ranks may be threads of one process. Collective.
///
/// `hints` is NULL, or as `transport=tcp,lazy=true`; they are those of the communicator's calls too. A `timeout_ms` of
/// 0 is the default, 30 s.
///
/// # Safety
///
/// `store` has functions that can be called as described there, until this returns; `hints` is NULL or a text, `out`
/// a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_join(
    rank: u32,
    size: u32,
    store: *const rl_store,
    hints: *const c_char,
    timeout_ms: u64,
    out: *mut *mut rl_comm,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let (store, hints) =
            unsafe { (object(store, "store")?, text_or_none(hints, "the hints")?) };
        let hints: Hints = hints.unwrap_or_default().parse()?;
        let given = if timeout_ms == 0 { 30_000 } else { timeout_ms };
        let timeout = hints.timeout().unwrap_or(Duration::from_millis(given));
        let setup = JobSetup::from_env()?.timeout(timeout).hints(&hints);
        let handle = CommHandle::join(rank, size, &setup, |note| store.share(note, timeout))?;
        // SAFETY: as above.
        unsafe { give(out, comm(handle), "out") }
    })
}

/// Makes a communicator of the same ranks with a GPU each; `device` counts as the driver does for this process, and
/// -1 is the one of the rank's number modulo the number of GPUs. Collective.
///
/// # Safety
///
/// `hosts` is a live communicator, `out` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_cuda(
    hosts: *const rl_comm,
    device: i32,
    out: *mut *mut rl_comm,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe { opened(hosts, out, |hosts| hosts.cuda(u32::try_from(device).ok())) }
}

/// Makes a communicator on GPUs of one on hosts.
///
/// # Safety
///
/// As [`rl_cuda`].
unsafe fn opened(
    hosts: *const rl_comm,
    out: *mut *mut rl_comm,
    open: impl FnOnce(&CommHandle) -> Result<CommHandle, Error>,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let handle = open(&unsafe { object(hosts, "hosts")? }.handle)?;
        // SAFETY: as above.
        unsafe { give(out, comm(handle), "out") }
    })
}

/// Makes a communicator of the same ranks, of which those have a GPU whose `has_gpu` is not 0, with `device` as for
/// `rl_cuda`. Each rank calls with the memory that it has, with `RL_CUDA` or without. If all have a GPU, this is
/// `rl_cuda`. Else calls on memory of a GPU are made by its host, and return when the result is there; there are no
/// windows of GPU memory, and messages between a rank with a GPU and one without go through `rl_batch`. Collective.
///
/// # Safety
///
/// As [`rl_cuda`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_cuda_mixed(
    hosts: *const rl_comm,
    has_gpu: i32,
    device: i32,
    out: *mut *mut rl_comm,
) -> rl_status {
    let device = (has_gpu != 0).then(|| u32::try_from(device).ok());
    // SAFETY: what the caller promises.
    unsafe { opened(hosts, out, |hosts| hosts.cuda_mixed(device)) }
}

/// Makes a communicator of `count` ranks in the order in which they are listed. A rank that lists none takes part and
/// gets NULL. Collective over all ranks of `whole`.
///
/// # Safety
///
/// `whole` is a live communicator, `ranks` has `count` numbers, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_split(
    whole: *const rl_comm,
    ranks: *const u32,
    count: u32,
    out: *mut *mut rl_comm,
) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let whole = unsafe { object(whole, "whole")? };
        let ranks = match count {
            0 => &[][..],
            _ => {
                there(ranks, "ranks")?;
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts(ranks, count as usize) }
            }
        };
        let part = whole.handle.split(ranks)?;
        // SAFETY: as above.
        unsafe { give(out, part.map_or(std::ptr::null_mut(), comm), "out") }
    })
}

/// Returns the number of this rank; `UINT32_MAX` for NULL.
///
/// # Safety
///
/// `comm` is NULL or a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_rank(comm: *const rl_comm) -> u32 {
    // SAFETY: what the caller promises.
    unsafe { comm.as_ref() }.map_or(u32::MAX, |comm| comm.handle.rank())
}

/// Returns the number of ranks; 0 for NULL.
///
/// # Safety
///
/// `comm` is NULL or a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_size(comm: *const rl_comm) -> u32 {
    // SAFETY: what the caller promises.
    unsafe { comm.as_ref() }.map_or(0, |comm| comm.handle.size())
}

/// Sets the longest time without progress of the calls from now on, in milliseconds.
///
/// # Safety
///
/// `comm` is a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_set_timeout(comm: *const rl_comm, timeout_ms: u64) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let comm = unsafe { object(comm, "comm")? };
        comm.handle.with(|comm| {
            comm.set_timeout(Duration::from_millis(timeout_ms));
            Ok(())
        })
    })
}

/// Sets the hints of the communicator, as `deterministic=true,algorithm=ring`. The same on all ranks.
///
/// # Safety
///
/// `comm` is a live communicator, `hints` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_set_hints(comm: *const rl_comm, hints: *const c_char) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, hints) = unsafe { (object(comm, "comm")?, text(hints, "the hints")?) };
        let hints: Hints = hints.parse()?;
        comm.handle.with(|comm| comm.set_hints(hints))
    })
}

/// Returns 0 if there is a hint of that name, else the status of an error that names what is near: for programs whose
/// hints are for several libraries.
///
/// # Safety
///
/// `key` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_hint_known(key: *const c_char) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let key = unsafe { text(key, "the key")? };
        match Hints::from_pairs([(key, "")]) {
            Err(unknown @ HintError::Key { .. }) => Err(unknown.into()),
            _ => Ok(()),
        }
    })
}

/// Says which algorithm a call on a vector of that many bytes would use, and why, in at most `capacity` bytes with the
/// final 0; `length`, if not NULL, becomes the length of the whole text.
///
/// # Safety
///
/// `comm` is a live communicator, `collective` a text, `buffer` has `capacity` bytes, `length` is NULL or a place for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_explain(
    comm: *const rl_comm,
    collective: *const c_char,
    bytes: u64,
    of: rl_dtype,
    by: rl_op,
    buffer: *mut c_char,
    capacity: u64,
    length: *mut u64,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, name) = unsafe { (object(comm, "comm")?, text(collective, "collective")?) };
        let said = comm.handle.explain(name, bytes, dtype(of)?, op(by)?.into())?;
        // SAFETY: as above.
        unsafe { write_text(&said, buffer, capacity, length) };
        Ok(())
    })
}

/// Makes a communicator of this rank alone, for a process that is to come to others by `rl_reconfigure`. `hints` as in
/// `rl_join`; they and the environment are to be those of the others.
///
/// # Safety
///
/// `hints` is NULL or a text, `out` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_alone(hints: *const c_char, out: *mut *mut rl_comm) -> rl_status {
    guard(|| {
        there(out, "out")?;
        // SAFETY: what the caller promises.
        let hints = unsafe { text_or_none(hints, "the hints")? };
        let hints: Hints = hints.unwrap_or_default().parse()?;
        let handle = CommHandle::alone(&JobSetup::from_env()?.hints(&hints))?;
        // SAFETY: as above.
        unsafe { give(out, comm(handle), "out") }
    })
}

/// Writes this rank's handle for the next generation, in at most `capacity` bytes with the final 0; `length`, if not
/// NULL, becomes the length of the whole text. It has less than 400 bytes with up to four paths between hosts, and
/// serves for one call of `rl_reconfigure`.
///
/// # Safety
///
/// `comm` is a live communicator, `buffer` has `capacity` bytes, `length` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reconfigure_handle(
    comm: *const rl_comm,
    buffer: *mut c_char,
    capacity: u64,
    length: *mut u64,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let handle = unsafe { object(comm, "comm")? }.handle.handle()?;
        // SAFETY: as above.
        unsafe { write_text(&handle, buffer, capacity, length) };
        Ok(())
    })
}

/// Goes on as a rank of a new generation, of all ranks that the `count` handles name: by their places in the list if
/// `ordered` is not 0, else as the runtime numbers them. All of them call together with the same handles and `id`, any
/// text. Operations that were started end first: abort if they may wait for a rank that is gone. If it fails the
/// communicator is what it was, and may try again by new handles.
///
/// # Safety
///
/// `comm` is a live communicator, `id` a text, `handles` has `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_reconfigure(
    comm: *const rl_comm,
    id: *const c_char,
    handles: *const *const c_char,
    count: u32,
    ordered: i32,
    timeout_ms: u64,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, id) = unsafe { (object(comm, "comm")?, text(id, "the id")?) };
        there(handles, "handles")?;
        // SAFETY: as above.
        let handles = unsafe { std::slice::from_raw_parts(handles, count as usize) };
        // SAFETY: as above.
        let read = |&handle: &*const c_char| Ok(unsafe { text(handle, "a handle")? }.to_owned());
        let handles = handles.iter().map(read).collect::<Result<Vec<String>, Error>>()?;
        let handles =
            if ordered != 0 { RankHandles::List(&handles) } else { RankHandles::Set(&handles) };
        comm.handle.reconfigure(id, handles, Duration::from_millis(timeout_ms))
    })
}

/// Goes on with the ranks that are left, all of which call it after a call has failed, or has lost a rank. It waits
/// for them for so long at the most; ranks and their number are others then.
///
/// # Safety
///
/// `comm` is a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_shrink(comm: *const rl_comm, timeout_ms: u64) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        unsafe { object(comm, "comm")? }.handle.shrink(Duration::from_millis(timeout_ms))
    })
}

/// Ends the communicator on all ranks, from any thread, at once: calls that are pending, or follow, fail. When it
/// returns, 8 ms later at most, operations write to no memory of this host any more, unless the system gave their
/// thread no processor for so long. `why` is a text for the messages, or NULL.
///
/// # Safety
///
/// `comm` is a live communicator, `why` NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_abort(comm: *const rl_comm, why: *const c_char) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (comm, why) = unsafe { (object(comm, "comm")?, text_or_none(why, "the reason")?) };
        comm.handle.abort(why.unwrap_or("no reason was given")).map(drop)
    })
}

/// Returns 1 once any rank has ended the communicator, else 0.
///
/// # Safety
///
/// `comm` is NULL or a live communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_is_aborted(comm: *const rl_comm) -> i32 {
    // SAFETY: what the caller promises.
    i32::from(unsafe { comm.as_ref() }.is_some_and(|comm| comm.handle.is_aborted()))
}

/// Frees a communicator after all operations that were started. NULL is ignored. In a process that was forked from the
/// rank's it frees that process's copy and ends nothing.
///
/// # Safety
///
/// `comm` is NULL or a live communicator, which is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_free(comm: *mut rl_comm) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(comm) })
}
