//! Endpoints of a caller in another language: memory at addresses.

use std::any::Any;

use roundelay::Error;
use roundelay::endpoint::{Endpoint, RegisteredRegion, RemoteRegion};
use roundelay::window::WindowRights;

use crate::buffer::ElementBuffer;
use crate::pending::PendingOperation;

/// A region of a caller's memory, with whatever owns that.
pub type Registered = RegisteredRegion<Box<dyn Any + Send>>;

/// Registers a buffer, whose memory `kept` owns: see [`Endpoint::register`].
///
/// # Errors
///
/// Those of that function; [`Error::Unsupported`] for memory of a GPU.
pub fn register(
    endpoint: &Endpoint,
    buffer: &ElementBuffer,
    rights: WindowRights,
    kept: Box<dyn Any + Send>,
) -> Result<Registered, Error> {
    buffer.on_host()?;
    let memory = bytes(buffer)?;
    // SAFETY: `ElementBuffer::new` promises that they lie there until this has ended.
    unsafe { endpoint.register_at(memory, rights, kept) }
}

/// Starts to write a buffer to a peer's region, and to notify it if there is a value: see
/// [`RemoteRegion::put_async`]. `kept` is dropped when it has ended.
///
/// # Errors
///
/// Errors of the buffer; others come with [`PendingOperation::wait`].
pub fn start_write(
    region: &RemoteRegion,
    buffer: &ElementBuffer,
    (at, value): (u64, Option<u64>),
    kept: Box<dyn Any + Send>,
) -> Result<PendingOperation, Error> {
    buffer.on_host()?;
    let (address, bytes) = bytes(buffer)?;
    // SAFETY: `ElementBuffer::new` promises that they lie there until it has ended.
    let work = unsafe { region.put_at_async((address.cast_const(), bytes), at, value, kept) };
    Ok(PendingOperation::of(work))
}

/// Starts to read a peer's region into a buffer: see [`RemoteRegion::get_async`]. `kept` is dropped when it has ended.
///
/// # Errors
///
/// Errors of the buffer; others come with [`PendingOperation::wait`].
pub fn start_read(
    region: &RemoteRegion,
    buffer: &ElementBuffer,
    at: u64,
    kept: Box<dyn Any + Send>,
) -> Result<PendingOperation, Error> {
    buffer.on_host()?;
    // SAFETY: `ElementBuffer::new` promises that they lie there until it has ended.
    Ok(PendingOperation::of(unsafe { region.get_at_async(bytes(buffer)?, at, kept) }))
}

/// Writes a buffer to a peer's region; returns when it is there: see [`RemoteRegion::put`].
///
/// # Errors
///
/// Those of that function, and of the buffer.
pub fn write(
    region: &RemoteRegion,
    buffer: &ElementBuffer,
    at: u64,
    value: Option<u64>,
) -> Result<(), Error> {
    buffer.on_host()?;
    let data = buffer.read()?;
    match value {
        Some(value) => region.put_signal(&data, at, value),
        None => region.put(&data, at),
    }
}

/// Reads a peer's region into a buffer: see [`RemoteRegion::get`].
///
/// # Errors
///
/// Those of that function, and of the buffer.
pub fn read(region: &RemoteRegion, buffer: &ElementBuffer, at: u64) -> Result<(), Error> {
    buffer.on_host()?;
    region.get(&mut buffer.write()?, at)
}

/// Returns the memory of a buffer.
fn bytes(buffer: &ElementBuffer) -> Result<(*mut u8, usize), Error> {
    // Refuses what has no address, or is too long.
    buffer.read()?;
    let address = std::ptr::with_exposed_provenance_mut(buffer.address() as usize);
    Ok((address, buffer.elements() * buffer.dtype().size()))
}
