//! The functions that move data.

use std::ffi::{c_int, c_void};

use super::{Stream, address, exported};
use crate::call::{self, CallKind, NcclCall};
use crate::comm::{self, Handle};
use crate::elements;
use crate::failure::{Outcome, ResultCode};
use crate::group;
use crate::operator::CallOperator;

/// The arguments that most functions have.
struct CallArguments {
    kind: CallKind,
    send: *const c_void,
    recv: *mut c_void,
    count: usize,
    dtype: c_int,
    op: c_int,
    /// The root, or the rank at the other end, with its name.
    other: Option<(&'static str, c_int)>,
}

/// Checks a call, and makes it, or leaves it to the end of the group.
fn submit(arguments: CallArguments, comm: Handle, stream: Stream) -> Outcome<ResultCode> {
    let CallArguments { kind, send, recv, count, dtype, op, other } = arguments;
    let comm = comm::find(comm)?;
    let place = comm.place()?;
    let dtype = if kind.reduces() { elements::reduced(dtype)? } else { elements::copied(dtype)? };
    let operator = match kind.reduces() {
        true => comm.operators.find(op, dtype)?,
        false => CallOperator::NONE,
    };
    let other = other.map_or(Ok(0), |(name, value)| call::rank(name, value, place.ranks))?;
    let (send, recv, stream) = (address(send), address(recv), address(stream));
    let call = NcclCall { kind, send, recv, count, dtype, operator, other, stream };
    call.check(place)?;
    group::submit(&comm, call)
}

exported! {
    /// Reduces to every rank.
    "ncclAllReduce", "pncclAllReduce": fn all_reduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: Stream,
    ) {
        let kind = CallKind::AllReduce;
        submit(CallArguments { kind, send, recv, count, dtype, op, other: None }, comm, stream)
    }

    /// Reduces to the root.
    "ncclReduce", "pncclReduce": fn reduce(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int, comm: Handle,
        stream: Stream,
    ) {
        let (kind, other) = (CallKind::Reduce, Some(("root", root)));
        submit(CallArguments { kind, send, recv, count, dtype, op, other }, comm, stream)
    }

    /// Copies from the root to every rank.
    "ncclBroadcast", "pncclBroadcast": fn broadcast(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let (kind, other) = (CallKind::Broadcast, Some(("root", root)));
        submit(CallArguments { kind, send, recv, count, dtype, op: 0, other }, comm, stream)
    }

    /// Copies from the root to every rank, in place.
    "ncclBcast", "pncclBcast": fn bcast(
        buff: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let (kind, other) = (CallKind::Broadcast, Some(("root", root)));
        submit(CallArguments { kind, send: buff, recv: buff, count, dtype, op: 0, other }, comm, stream)
    }

    /// Gathers on every rank.
    "ncclAllGather", "pncclAllGather": fn all_gather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: Handle, stream: Stream,
    ) {
        let kind = CallKind::AllGather;
        submit(CallArguments { kind, send, recv, count, dtype, op: 0, other: None }, comm, stream)
    }

    /// Reduces, and leaves a block of the result on each rank.
    "ncclReduceScatter", "pncclReduceScatter": fn reduce_scatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: Stream,
    ) {
        let kind = CallKind::ReduceScatter;
        submit(CallArguments { kind, send, recv, count, dtype, op, other: None }, comm, stream)
    }

    /// Sends a block from each rank to each.
    "ncclAlltoAll", "pncclAlltoAll": fn all_to_all(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, comm: Handle, stream: Stream,
    ) {
        let kind = CallKind::AlltoAll;
        submit(CallArguments { kind, send, recv, count, dtype, op: 0, other: None }, comm, stream)
    }

    /// Gathers on the root.
    "ncclGather", "pncclGather": fn gather(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let (kind, other) = (CallKind::Gather, Some(("root", root)));
        submit(CallArguments { kind, send, recv, count, dtype, op: 0, other }, comm, stream)
    }

    /// Sends a block of the root's to each rank.
    "ncclScatter", "pncclScatter": fn scatter(
        send: *const c_void, recv: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let (kind, other) = (CallKind::Scatter, Some(("root", root)));
        submit(CallArguments { kind, send, recv, count, dtype, op: 0, other }, comm, stream)
    }

    /// Sends to one rank.
    "ncclSend", "pncclSend": fn send(
        send: *const c_void, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: Stream,
    ) {
        let (recv, other) = (std::ptr::null_mut(), Some(("peer", peer)));
        submit(CallArguments { kind: CallKind::Send, send, recv, count, dtype, op: 0, other }, comm, stream)
    }

    /// Receives from one rank.
    "ncclRecv", "pncclRecv": fn recv(
        recv: *mut c_void, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: Stream,
    ) {
        let (send, other) = (std::ptr::null(), Some(("peer", peer)));
        submit(CallArguments { kind: CallKind::Recv, send, recv, count, dtype, op: 0, other }, comm, stream)
    }

    /// Makes an operator that multiplies by a factor before it sums.
    "ncclRedOpCreatePreMulSum", "pncclRedOpCreatePreMulSum": fn create_premul_sum(
        op: *mut c_int, scalar: *const c_void, dtype: c_int, residence: c_int, comm: Handle,
    ) {
        super::there(op, "op")?;
        let comm = comm::find(comm)?;
        // SAFETY: the caller promises that the scalar is of the type, where the residence says.
        let made = unsafe { comm.operators.make(scalar, dtype, residence, crate::open::is_host()) };
        // SAFETY: it is a place for a number, as the caller promises.
        unsafe { super::give(op, "op", made?) }?;
        Ok(ResultCode::Success)
    }

    /// Forgets an operator.
    "ncclRedOpDestroy", "pncclRedOpDestroy": fn destroy_op(op: c_int, comm: Handle) {
        comm::find(comm)?.operators.destroy(op)?;
        Ok(ResultCode::Success)
    }
}
