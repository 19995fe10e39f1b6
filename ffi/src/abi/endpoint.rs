//! Endpoints: memory of single peers, without a communicator.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use roundelay::endpoint::{Endpoint, EndpointLink, RemoteRegion};
use roundelay::launch::JobSetup;
use roundelay::{Error, Hints};

use super::arguments::CommonArguments;
use super::error::{guard, rl_status};
use super::pointers::{free, give, null, object, text, text_or_none, there};
use super::values::RL_U8;
use super::window::rights;
use super::work::rl_work;
use crate::remote::{self, Registered};

/// A place at which peers meet this process. Any thread may use it.
pub struct rl_endpoint {
    endpoint: Endpoint,
}

/// The connection of two endpoints. Any thread may use it.
pub struct rl_link {
    link: EndpointLink,
}

/// Memory of this process that peers may use.
pub struct rl_region {
    region: Registered,
}

/// A region of a peer. Any thread may use it.
pub struct rl_remote {
    remote: RemoteRegion,
}

/// Returns bytes of the caller.
///
/// # Safety
///
/// A pointer that is not NULL points to that many bytes.
unsafe fn bytes<'a>(data: *const c_void, len: u64, what: &str) -> Result<&'a [u8], Error> {
    if data.is_null() {
        return Err(null(what));
    }
    let len = usize::try_from(len).ok().filter(|&len| isize::try_from(len).is_ok());
    let len = len.ok_or_else(|| Error::Usage(format!("{what} exceeds the address space")))?;
    // SAFETY: what the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) })
}

/// Writes bytes to a place of the caller, if they fit, and their number to `len`.
///
/// # Safety
///
/// `data` is NULL or has `capacity` bytes, `len` is a place for a number.
unsafe fn write_bytes(
    value: &[u8],
    (data, capacity): (*mut c_void, u64),
    len: *mut u64,
) -> Result<(), Error> {
    // SAFETY: what the caller promises.
    unsafe { give(len, value.len() as u64, "len")? };
    if (value.len() as u64) > capacity {
        let text = format!("{} bytes do not fit into {capacity}: give more room", value.len());
        return if data.is_null() { Ok(()) } else { Err(Error::Usage(text)) };
    }
    there(data, "data")?;
    // SAFETY: as above; they fit.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), data.cast::<u8>(), value.len()) };
    Ok(())
}

/// Binds an endpoint, with the settings of the environment and these hints (`key=value,key=value`, or NULL); the secret
/// is that of `ROUNDELAY_SECRET`.
///
/// # Safety
///
/// `hints` is NULL or a text, `endpoint` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_bind(
    hints: *const c_char,
    endpoint: *mut *mut rl_endpoint,
) -> rl_status {
    guard(|| {
        there(endpoint, "endpoint")?;
        let mut setup = JobSetup::from_env()?;
        // SAFETY: what the caller promises.
        if let Some(given) = unsafe { text_or_none(hints, "the hints") }? {
            setup = setup.hints(&given.parse::<Hints>()?);
        }
        let bound = rl_endpoint { endpoint: Endpoint::bind(&setup)? };
        // SAFETY: as above.
        unsafe { give(endpoint, Box::into_raw(Box::new(bound)), "endpoint") }
    })
}

/// Writes the bytes by which peers connect to the endpoint, at most 4096, and their number to `len`. With `data` NULL
/// only the number.
///
/// # Safety
///
/// `endpoint` is live; `data` is NULL or has `capacity` bytes, `len` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_address(
    endpoint: *const rl_endpoint,
    data: *mut c_void,
    capacity: u64,
    len: *mut u64,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let endpoint = unsafe { &object(endpoint, "endpoint")?.endpoint };
        // SAFETY: as above.
        unsafe { write_bytes(&endpoint.address(), (data, capacity), len) }
    })
}

/// Connects to the endpoint of that address, which connects to this one, within that many milliseconds. Two endpoints
/// connect once.
///
/// # Safety
///
/// `endpoint` is live; `address` has `len` bytes, `link` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_connect(
    endpoint: *const rl_endpoint,
    address: *const c_void,
    len: u64,
    timeout_ms: u64,
    link: *mut *mut rl_link,
) -> rl_status {
    guard(|| {
        there(link, "link")?;
        // SAFETY: what the caller promises.
        let endpoint = unsafe { &object(endpoint, "endpoint")?.endpoint };
        // SAFETY: as above.
        let address = unsafe { bytes(address, len, "the address")? };
        let made = endpoint.connect(address, Duration::from_millis(timeout_ms))?;
        // SAFETY: as above.
        unsafe { give(link, Box::into_raw(Box::new(rl_link { link: made })), "link") }
    })
}

/// Closes an endpoint, its links and its regions, and ends the waits of other threads. It is still to be freed, as are
/// they.
///
/// # Safety
///
/// `endpoint` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_close(endpoint: *const rl_endpoint) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let endpoint = unsafe { &object(endpoint, "endpoint")?.endpoint };
        endpoint.check_process()?;
        endpoint.close();
        Ok(())
    })
}

/// Frees an endpoint; its links and regions live on. NULL is ignored.
///
/// # Safety
///
/// `endpoint` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_free(endpoint: *mut rl_endpoint) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(endpoint) })
}

/// Registers memory: peers of the endpoint, now or later, get these rights to it, `RL_READ`, `RL_WRITE` and
/// `RL_ATOMICS`, with which it begins at a multiple of 8 bytes.
///
/// # Safety
///
/// `endpoint` is live, `region` a place for a pointer. The bytes lie there until `rl_region_revoke` has returned 0, and
/// nothing reads or writes them while a peer may do so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_endpoint_register(
    endpoint: *const rl_endpoint,
    data: *mut c_void,
    bytes: u64,
    peers_may: u32,
    region: *mut *mut rl_region,
) -> rl_status {
    guard(|| {
        there(region, "region")?;
        // SAFETY: what the caller promises.
        let endpoint = unsafe { &object(endpoint, "endpoint")?.endpoint };
        // SAFETY: as above.
        let buffer = unsafe { CommonArguments::read(RL_U8, std::ptr::null())?.buffer(data, bytes) };
        let made = remote::register(endpoint, &buffer, rights(peers_may)?, Box::new(()))?;
        // SAFETY: as above.
        unsafe { give(region, Box::into_raw(Box::new(rl_region { region: made })), "region") }
    })
}

/// Writes the bytes by which a peer names the region, 36 of them, and their number to `len`.
///
/// # Safety
///
/// `region` is live; `data` is NULL or has `capacity` bytes, `len` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_region_key(
    region: *const rl_region,
    data: *mut c_void,
    capacity: u64,
    len: *mut u64,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let region = unsafe { &object(region, "region")?.region };
        // SAFETY: as above.
        unsafe { write_bytes(&region.key(), (data, capacity), len) }
    })
}

/// Revokes a region, and frees it: no peer reads or writes its memory any more. If it fails, a peer that was stopped in
/// an access may yet do so until its link is closed: keep the memory until then. NULL is ignored.
///
/// # Safety
///
/// `region` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_region_revoke(region: *mut rl_region) -> rl_status {
    guard(|| {
        if region.is_null() {
            return Ok(());
        }
        // SAFETY: it came from `Box::into_raw`, and the caller gives it back once.
        unsafe { Box::from_raw(region) }.region.revoke().map(drop)
    })
}

/// Opens the peer's region of that key. Whether the key is good shows when it is used.
///
/// # Safety
///
/// `link` is live; `key` has `len` bytes, `remote` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_open(
    link: *const rl_link,
    key: *const c_void,
    len: u64,
    remote: *mut *mut rl_remote,
) -> rl_status {
    guard(|| {
        there(remote, "remote")?;
        // SAFETY: what the caller promises.
        let link = unsafe { &object(link, "link")?.link };
        // SAFETY: as above.
        let opened = link.region(unsafe { bytes(key, len, "the key")? })?;
        // SAFETY: as above.
        unsafe { give(remote, Box::into_raw(Box::new(rl_remote { remote: opened })), "remote") }
    })
}

/// Frees what `rl_link_open` made. NULL is ignored.
///
/// # Safety
///
/// `remote` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_remote_free(remote: *mut rl_remote) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(remote) })
}

/// Writes bytes to a peer's region, from byte `at` on; if `value` is not NULL, notifies the peer by it afterwards.
/// Without `work`, returns when they are there.
///
/// # Safety
///
/// `remote` is live; `data` holds that many bytes until the operation has ended, and nothing writes them meanwhile.
/// `value` is NULL or a number, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_remote_put(
    remote: *const rl_remote,
    data: *const c_void,
    bytes: u64,
    at: u64,
    value: *const u64,
    work: *mut *mut rl_work,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let remote = unsafe { &object(remote, "remote")?.remote };
        // SAFETY: as above.
        let value = unsafe { value.as_ref() }.copied();
        // SAFETY: as above.
        let buffer = unsafe { CommonArguments::read(RL_U8, std::ptr::null())?.buffer(data, bytes) };
        if work.is_null() {
            return remote::write(remote, &buffer, at, value);
        }
        let pending = remote::start_write(remote, &buffer, (at, value), Box::new(()))?;
        // SAFETY: as above.
        unsafe { give(work, Box::into_raw(Box::new(rl_work { pending })), "work") }
    })
}

/// Reads bytes of a peer's region, from byte `at` on. Without `work`, returns when they are here.
///
/// # Safety
///
/// `remote` is live; `data` has room for that many bytes until the operation has ended, and nothing touches them
/// meanwhile. `work` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_remote_get(
    remote: *const rl_remote,
    data: *mut c_void,
    bytes: u64,
    at: u64,
    work: *mut *mut rl_work,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let remote = unsafe { &object(remote, "remote")?.remote };
        // SAFETY: as above.
        let buffer = unsafe { CommonArguments::read(RL_U8, std::ptr::null())?.buffer(data, bytes) };
        if work.is_null() {
            return remote::read(remote, &buffer, at);
        }
        let pending = remote::start_read(remote, &buffer, at, Box::new(()))?;
        // SAFETY: as above.
        unsafe { give(work, Box::into_raw(Box::new(rl_work { pending })), "work") }
    })
}

/// Changes a word of a peer's region, and writes what it was to the caller's place.
///
/// # Safety
///
/// `remote` is live, `before` a place for a number.
unsafe fn change(
    remote: *const rl_remote,
    before: *mut u64,
    change: impl FnOnce(&RemoteRegion) -> Result<u64, Error>,
) -> rl_status {
    guard(|| {
        there(before, "before")?;
        // SAFETY: what the caller promises.
        let remote = unsafe { &object(remote, "remote")?.remote };
        // SAFETY: as above.
        unsafe { give(before, change(remote)?, "before") }
    })
}

/// Adds to the word of 8 bytes that begins at byte `at` of a peer's region, and writes what it was to `before`. The
/// region was registered with `RL_ATOMICS`, and `at` is a multiple of 8.
///
/// # Safety
///
/// `remote` is live, `before` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_remote_fetch_add(
    remote: *const rl_remote,
    value: u64,
    at: u64,
    before: *mut u64,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe { change(remote, before, |remote| remote.fetch_add(value, at)) }
}

/// Stores `to` in the word of 8 bytes that begins at byte `at` of a peer's region if it is `from`, and writes what it
/// was to `before`, as `rl_remote_fetch_add`.
///
/// # Safety
///
/// As [`rl_remote_fetch_add`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_remote_compare_swap(
    remote: *const rl_remote,
    from: u64,
    to: u64,
    at: u64,
    before: *mut u64,
) -> rl_status {
    // SAFETY: what the caller promises.
    unsafe { change(remote, before, |remote| remote.compare_swap(from, to, at)) }
}

/// Notifies the peer by a value, after everything that this thread has done on the link before.
///
/// # Safety
///
/// `link` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_signal(link: *const rl_link, value: u64) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { object(link, "link")? }.link.signal(value))
}

/// Waits for a notification of the peer, at most that many milliseconds, and takes it: writes 1 to `came` and its value
/// to `value`. Writes 0 to `came` if none has come; the link is then as before.
///
/// # Safety
///
/// `link` is live; `value` and `came` are places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_wait_signal(
    link: *const rl_link,
    timeout_ms: u64,
    value: *mut u64,
    came: *mut i32,
) -> rl_status {
    guard(|| {
        there(value, "value")?;
        there(came, "came")?;
        // SAFETY: what the caller promises.
        let link = unsafe { &object(link, "link")?.link };
        let taken = link.wait_signal(Duration::from_millis(timeout_ms))?;
        // SAFETY: as above.
        unsafe { give(came, i32::from(taken.is_some()), "came")? };
        // SAFETY: as above.
        taken.map_or(Ok(()), |taken| unsafe { give(value, taken, "value") })
    })
}

/// Sets the longest time without progress of a wait on a link, in milliseconds.
///
/// # Safety
///
/// `link` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_set_timeout(link: *const rl_link, timeout_ms: u64) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        unsafe { object(link, "link")? }.link.set_timeout(Duration::from_millis(timeout_ms));
        Ok(())
    })
}

/// Writes 1 to `open` unless the link was closed, has failed, or the peer is known to be gone; else 0. Never waits.
///
/// # Safety
///
/// `link` is live, `open` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_is_open(link: *const rl_link, open: *mut i32) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let link = unsafe { &object(link, "link")?.link };
        // SAFETY: as above.
        unsafe { give(open, i32::from(link.is_open()), "open") }
    })
}

/// Ends a link at both ends, from any thread and without a wait.
///
/// # Safety
///
/// `link` is live, `why` a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_abort(link: *const rl_link, why: *const c_char) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let link = unsafe { &object(link, "link")?.link };
        link.check_process()?;
        // SAFETY: as above.
        link.abort(unsafe { text(why, "the reason")? });
        Ok(())
    })
}

/// Closes a link, and ends the waits of other threads. It is still to be freed.
///
/// # Safety
///
/// `link` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_close(link: *const rl_link) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let link = unsafe { &object(link, "link")?.link };
        link.check_process()?;
        link.close();
        Ok(())
    })
}

/// Frees a link; it is closed once its remote regions are freed, too. NULL is ignored.
///
/// # Safety
///
/// `link` is NULL or live, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_link_free(link: *mut rl_link) -> rl_status {
    // SAFETY: what the caller promises.
    guard(|| unsafe { free(link) })
}
