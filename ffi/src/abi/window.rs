//! Windows: memory that the other ranks put to and get from, of hosts or of GPUs.

use std::ffi::c_void;

use roundelay::Error;
use roundelay::window::WindowRights;

use super::arguments::{CommonArguments, op};
use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::pointers::{free, give, object, there};
use super::values::{RL_U64, rl_dtype, rl_op, rl_options};
use super::work::rl_work;
use crate::request_options::RequestOptions;
use crate::window::{CopyOperation, WindowHandle, WindowPlace, WordChange};
use roundelay::operation::MemoryKind;

/// A window. Any thread may use it.
///
/// One of GPU memory was made with `RL_CUDA` in the options, on a communicator of `rl_cuda`. Its operations are put
/// into the stream of their options and return at once, so `work` is NULL; their buffers are of the GPU too, and
/// `RL_CUDA` says so. It has no `rl_window_take_signal` and `rl_window_withdraw`, and no `rl_window_accumulate` to a
/// rank on another host.
pub struct rl_window {
    window: WindowHandle,
}

/// The right to get.
pub const RL_READ: u32 = 1;
/// The right to put.
pub const RL_WRITE: u32 = 2;
/// The right to accumulate, and to use words atomically.
pub const RL_ATOMICS: u32 = 4;

pub(super) fn rights(bits: u32) -> Result<WindowRights, Error> {
    let known = [
        (RL_READ, WindowRights::READ),
        (RL_WRITE, WindowRights::WRITE),
        (RL_ATOMICS, WindowRights::ATOMICS),
    ];
    if bits > (RL_READ | RL_WRITE | RL_ATOMICS) {
        return Err(Error::Usage(format!(
            "{bits} are no rights: they are 1, 2, 4, and their sums"
        )));
    }
    let given = known.into_iter().filter(|(bit, _)| bits & bit != 0);
    Ok(given.fold(WindowRights::NONE, |all, (_, right)| all | right))
}

/// Does an operation without a buffer under options.
///
/// # Safety
///
/// `window` is NULL or live, `options` NULL or valid.
unsafe fn under(
    window: *const rl_window,
    options: *const rl_options,
    call: impl FnOnce(&WindowHandle, RequestOptions) -> Result<(), Error>,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (window, common) =
            unsafe { (object(window, "window")?, CommonArguments::read(RL_U64, options)?) };
        call(&window.window, common.options)
    })
}

fn place(peer: u32, at: u64) -> WindowPlace {
    WindowPlace { peer, at: usize::try_from(at).unwrap_or(usize::MAX) }
}

/// Makes a window of `count` elements of each rank; peers get these rights to this rank's. Collective. The memory
/// begins at a multiple of 8 bytes. In memory of `rl_alloc` ranks of the same host load and store, elsewhere this
/// process serves them.
///
/// Memory of GPUs (`RL_CUDA` in the options) was made by `cudaMalloc`, has one length on all ranks and gives all
/// rights. It is mapped by all, and must not be freed before `rl_free` of the communicator has returned.
///
/// # Safety
///
/// `comm` is a live communicator, `options` NULL or valid, `window` a place for a pointer. The elements lie there until
/// `rl_window_free` has returned, and nothing reads or writes them while a peer may do so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_create(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    peers_may: u32,
    options: *const rl_options,
    window: *mut *mut rl_window,
) -> rl_status {
    guard(|| {
        there(window, "window")?;
        // SAFETY: what the caller promises.
        let (comm, common) =
            unsafe { (object(comm, "comm")?, CommonArguments::read(dtype, options)?) };
        // SAFETY: as above.
        let buffer = unsafe { common.buffer(data, count) };
        let rights = rights(peers_may)?;
        let made = comm.handle.window(&buffer, rights, common.options, Box::new(()))?;
        // SAFETY: as above.
        unsafe { give(window, Box::into_raw(Box::new(rl_window { window: made })), "window") }
    })
}

/// Ends a window on all ranks, which call together, and frees it: its memory is not written any more. If it fails, a
/// peer that was stopped in an access may yet do so: keep the memory then. NULL is ignored.
///
/// # Safety
///
/// `window` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_free(window: *mut rl_window) -> rl_status {
    guard(|| {
        if window.is_null() {
            return Ok(());
        }
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
        unsafe { Box::from_raw(window) }.window.free()
    })
}

/// Ends a window on this rank alone, and frees it, where the others cannot be called together: peers are refused from
/// now on. NULL is ignored.
///
/// # Safety
///
/// As [`rl_window_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_drop(window: *mut rl_window) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(window) })
}

/// Does or starts an operation on elements.
///
/// # Safety
///
/// The promises of [`rl_window_put`] and [`rl_window_get`].
unsafe fn access(
    (window, what): (*const rl_window, CopyOperation),
    (data, count): (*mut c_void, u64),
    (peer, at): (u32, u64),
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> Result<(), Error> {
    // SAFETY: what the caller promises.
    let window = unsafe { &object(window, "window")?.window };
    let dtype = window.dtype()? as rl_dtype;
    // SAFETY: as above.
    let common = unsafe { CommonArguments::read(dtype, options)? };
    // SAFETY: as above.
    let buffer = unsafe { common.buffer(data, count) };
    if work.is_null() {
        return window.access(what, &buffer, place(peer, at), common.options);
    }
    let pending = window.start(what, &buffer, place(peer, at), Box::new(()))?;
    // SAFETY: as above.
    unsafe { work.write(Box::into_raw(Box::new(rl_work { pending }))) };
    Ok(())
}

/// Writes `count` elements of the window's type to a peer's part, from element `at` on. Without `work`, returns when
/// `data` may be overwritten (on GPUs, by what follows in the stream); `rl_window_flush` returns when they are there.
///
/// # Safety
///
/// `window` is live; `data` holds that many elements until the operation has ended, and nothing writes them meanwhile.
/// `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_put(
    window: *const rl_window,
    data: *const c_void,
    count: u64,
    peer: u32,
    at: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    let of = (window, CopyOperation::Put);
    // SAFETY: what the caller promises.
    guard(|| unsafe { access(of, (data.cast_mut(), count), (peer, at), options, work) })
}

/// Reads `count` elements of a peer's part, from element `at` on.
///
/// # Safety
///
/// As [`rl_window_put`], but that nothing else touches the elements meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_get(
    window: *const rl_window,
    data: *mut c_void,
    count: u64,
    peer: u32,
    at: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe {
        access((window, CopyOperation::Get), (data, count), (peer, at), options, work)
    })
}

/// Combines `count` elements with those of a peer's part, from element `at` on: each as one.
///
/// # Safety
///
/// As [`rl_window_put`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_accumulate(
    window: *const rl_window,
    data: *const c_void,
    count: u64,
    by: rl_op,
    peer: u32,
    at: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    guard(|| {
        let of = (window, CopyOperation::Accumulate(op(by)?));
        // SAFETY: what the caller promises.
        unsafe { access(of, (data.cast_mut(), count), (peer, at), options, work) }
    })
}

/// Changes a word, and writes what it was to the caller's place, in the memory of the options.
///
/// # Safety
///
/// The promises of [`rl_window_fetch_add`].
unsafe fn change(
    window: *const rl_window,
    what: WordChange,
    place: WindowPlace,
    before: *mut u64,
    options: *const rl_options,
) -> Result<(), Error> {
    there(before, "before")?;
    // SAFETY: what the caller promises.
    let (window, common) =
        unsafe { (&object(window, "window")?.window, CommonArguments::read(RL_U64, options)?) };
    match common.memory {
        // SAFETY: as above.
        MemoryKind::Host => unsafe { give(before, window.change(what, place)?, "before") },
        MemoryKind::Device => {
            // SAFETY: as above.
            let before = unsafe { common.buffer(before.cast(), 1) };
            window.change_into(what, place, &before, common.options)
        }
    }
}

/// Adds to the word of 8 bytes that begins at element `at` of a peer's part, and writes what it was to `before`; for a
/// window of GPU memory that is there too, and written in the stream.
///
/// # Safety
///
/// `window` is live, `before` a place for a number, `options` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_fetch_add(
    window: *const rl_window,
    value: u64,
    peer: u32,
    at: u64,
    before: *mut u64,
    options: *const rl_options,
) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { change(window, WordChange::Add(value), place(peer, at), before, options) })
}

/// Stores `to` in the word of 8 bytes that begins at element `at` of a peer's part if it is `from`, and writes what it
/// was to `before`, as `rl_window_fetch_add`.
///
/// # Safety
///
/// As [`rl_window_fetch_add`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_compare_swap(
    window: *const rl_window,
    from: u64,
    to: u64,
    peer: u32,
    at: u64,
    before: *mut u64,
    options: *const rl_options,
) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe {
        change(window, WordChange::Swap(from, to), place(peer, at), before, options)
    })
}

/// Signals a peer: it sees that after everything that this thread has done to its part before. On GPUs that is what was
/// put into streams.
///
/// # Safety
///
/// `window` is live, `options` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_signal(
    window: *const rl_window,
    peer: u32,
    options: *const rl_options,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe { under(window, options, |window, options| window.signal(peer, options)) }
}

/// Waits for a signal of a peer, and takes it: each ends one wait. On GPUs what follows in the stream waits, and
/// `rl_window_flush` returns the error if the signal does not come.
///
/// # Safety
///
/// `window` is live, `options` NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_wait_signal(
    window: *const rl_window,
    peer: u32,
    options: *const rl_options,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe { under(window, options, |window, options| window.wait_signal(peer, options)) }
}

/// Takes a signal of a peer if one is there: writes 1 to `taken`, else 0.
///
/// # Safety
///
/// `window` is live, `taken` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_take_signal(
    window: *const rl_window,
    peer: u32,
    taken: *mut i32,
) -> rl_status {
    guard(|| {
        there(taken, "taken")?;
        // SAFETY: what the caller promises.
        let is_taken = unsafe { object(window, "window") }?.window.take_signal(peer)?;
        // SAFETY: as above.
        unsafe { give(taken, i32::from(is_taken), "taken") }
    })
}

/// Returns when everything that this rank began on a peer's part has taken effect there, or with the first refusal of
/// it; with `work`, at once. On GPUs it waits for everything in the stream of the options first, and returns what went
/// wrong there.
///
/// # Safety
///
/// `window` is live, `options` NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_flush(
    window: *const rl_window,
    peer: u32,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    let flush = |window: &WindowHandle, options| {
        if work.is_null() {
            return window.flush(peer, options);
        }
        let pending = window.start_flush(peer)?;
        // SAFETY: what the caller promises.
        unsafe { work.write(Box::into_raw(Box::new(rl_work { pending }))) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { under(window, options, flush) }
}

/// Withdraws rights to this rank's part from all ranks: when it returns, nothing is under way that needed them.
///
/// # Safety
///
/// `window` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_withdraw(
    window: *const rl_window,
    from_peers: u32,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let window = unsafe { &object(window, "window")?.window };
        window.withdraw(rights(from_peers)?)
    })
}

/// Writes the address of a peer's part to `address`, as it is mapped here, for as long as the window is: for loads and
/// stores of the caller's, by kernels of this rank's GPU if it is memory of GPUs. Parts in memory of `rl_alloc` can
/// be mapped by ranks of the same host; others are refused (RL0716). A peer whose part is mapped cannot withdraw rights
/// meanwhile.
///
/// # Safety
///
/// `window` is live, `address` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_map_remote(
    window: *const rl_window,
    peer: u32,
    address: *mut *mut c_void,
) -> rl_status {
    guard(|| {
        there(address, "address")?;
        // SAFETY: what the caller promises.
        let found = unsafe { object(window, "window")? }.window.map_remote(peer)?;
        let found = std::ptr::with_exposed_provenance_mut(found.address() as usize);
        // SAFETY: as above.
        unsafe { give(address, found, "address") }
    })
}

/// Writes what is known of a peer's part: the number of its elements to `count`, and 1 to `is_mapped` if it is mapped
/// here, so that operations there are loads and stores, else 0. Each may be NULL.
///
/// # Safety
///
/// `window` is live, `count` and `is_mapped` NULL or places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_window_attributes(
    window: *const rl_window,
    peer: u32,
    count: *mut u64,
    is_mapped: *mut i32,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let (len, mapped) = unsafe { object(window, "window")? }.window.attributes(peer)?;
        // SAFETY: as above.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = len as u64;
        }
        // SAFETY: as above.
        if let Some(is_mapped) = unsafe { is_mapped.as_mut() } {
            *is_mapped = mapped.into();
        }
        Ok(())
    })
}
