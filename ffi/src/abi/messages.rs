//! Messages between single ranks: with tags, in any order; and batches, which are received in the order in which they
//! are sent.

use std::ffi::c_void;

use super::arguments::CommonArguments;
use super::comm::rl_comm;
use super::error::{guard, rl_status};
use super::perform::perform;
use super::pointers::object;
use super::values::{RL_U8, rl_dtype, rl_options};
use super::work::rl_work;
use roundelay::Error;
use roundelay::message::ReceiveSource;
use roundelay::operation::{CallMessage, MemoryKind};

use crate::buffer::ElementBuffer;
use crate::request::{CallRequest, TaggedMessage};

/// A message of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rl_message {
    /// The elements that are sent, or the place for those that are received.
    pub ptr: *mut c_void,
    /// The number of elements.
    pub count: u64,
    /// Their type.
    pub dtype: rl_dtype,
    /// The rank at the other end.
    pub peer: u32,
    /// 1 if the message is sent, 0 if it is received.
    pub is_send: i32,
}

/// The rank of `rl_recv` that stands for any.
pub const RL_ANY_RANK: u32 = u32::MAX;

/// Sends `count` elements to a rank, which calls `rl_recv` with the same tag, count and type. Messages with tags move
/// beside all other operations, and may be started in any order. Without `work`, returns when the elements may be
/// overwritten. Memory of a GPU is sent in the order of all operations, with tag 0 only.
///
/// # Safety
///
/// `comm` is a live communicator; `data` holds that many elements until the operation has ended, and nothing writes
/// them meanwhile. `options` is NULL or valid, `work` NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_send(
    comm: *const rl_comm,
    data: *const c_void,
    count: u64,
    dtype: rl_dtype,
    peer: u32,
    tag: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    let message = rl_message { ptr: data.cast_mut(), count, dtype, peer, is_send: 1 };
    // SAFETY: what the caller promises.
    guard(|| unsafe { tagged(comm, &message, tag, options, work) })
}

/// Receives `count` elements from a rank, or from any ([`RL_ANY_RANK`]): the first message with this tag.
/// `rl_work_source` says who sent it.
///
/// # Safety
///
/// As [`rl_send`], but that nothing else touches the elements meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_recv(
    comm: *const rl_comm,
    data: *mut c_void,
    count: u64,
    dtype: rl_dtype,
    peer: u32,
    tag: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    let message = rl_message { ptr: data, count, dtype, peer, is_send: 0 };
    // SAFETY: what the caller promises.
    guard(|| unsafe { tagged(comm, &message, tag, options, work) })
}

fn message(
    buffer: &ElementBuffer,
    peer: u32,
    is_send: bool,
) -> Result<CallMessage<'static>, Error> {
    Ok(match is_send {
        true => CallMessage::sent(buffer.operand()?, peer),
        false => CallMessage::received(buffer.operand()?, peer),
    })
}

/// Sends or receives a message with a tag.
///
/// # Safety
///
/// The promises of [`rl_send`] and [`rl_recv`].
unsafe fn tagged(
    comm: *const rl_comm,
    given: &rl_message,
    tag: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> Result<(), Error> {
    // SAFETY: what the caller promises.
    let comm = unsafe { object(comm, "comm")? };
    // SAFETY: as above.
    let common = unsafe { CommonArguments::read(given.dtype, options)? };
    // SAFETY: as above.
    let buffer = unsafe { common.buffer(given.ptr, given.count) };
    let is_send = given.is_send != 0;
    if common.memory == MemoryKind::Device && tag == 0 {
        let request = CallRequest::Messages(vec![message(&buffer, given.peer, is_send)?]);
        // SAFETY: as above.
        return unsafe { perform(comm, request, common.options, work) };
    }
    let peer = if given.peer == RL_ANY_RANK {
        ReceiveSource::Any
    } else {
        ReceiveSource::Rank(given.peer)
    };
    let message = TaggedMessage { buffer, peer, tag, is_send };
    let timeout = common.options.timeout;
    if work.is_null() {
        return comm.handle.message(&message, timeout).map(drop);
    }
    let pending = comm.handle.start_message(&message, timeout, Box::new(()))?;
    // SAFETY: as above.
    unsafe { work.write(Box::into_raw(Box::new(rl_work { pending }))) };
    Ok(())
}

/// Sends and receives `count` messages at once; no order among them can block them.
///
/// # Safety
///
/// `messages` has that many entries, each of which keeps the promises of [`rl_send`] and [`rl_recv`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rl_batch(
    comm: *const rl_comm,
    messages: *const rl_message,
    count: u64,
    options: *const rl_options,
    work: *mut *mut rl_work,
) -> rl_status {
    guard(|| {
        // SAFETY: what the caller promises.
        let comm = unsafe { object(comm, "comm")? };
        let mut all = Vec::new();
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: as above.
            let given = unsafe { object(messages.wrapping_add(at), "messages")? };
            // SAFETY: as above.
            let common = unsafe { CommonArguments::read(given.dtype, options)? };
            // SAFETY: as above.
            let buffer = unsafe { common.buffer(given.ptr, given.count) };
            all.push(message(&buffer, given.peer, given.is_send != 0)?);
        }
        // SAFETY: as above.
        let options = unsafe { CommonArguments::read(RL_U8, options)? }.options;
        // SAFETY: as above.
        unsafe { perform(comm, CallRequest::Messages(all), options, work) }
    })
}
