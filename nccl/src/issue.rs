//! Runs what a thread has called on a communicator: the collectives, in order, then all messages at once.
//!
//! A group's calls on one communicator have no order that a program could count on but that of collectives among
//! each other, and of messages from one rank to another. All ranks run the collectives first, so that they wait for
//! no messages.

use std::collections::BTreeMap;

use roundelay::operation::{
    CallBuffer, CallMessage, CallOperand, InputBuffer, MemoryKind, MessageEnd, Operation,
};
use roundelay_emit::cuda::batch::MESSAGES;
use roundelay_ffi::{CallRequest, CommHandle, RequestOptions};

use crate::call::{CallPlace, NcclCall};
use crate::cuda;
use crate::failure::{CallFailure, is_refusal};

/// The error of a call that was run, and whether it leaves the communicator usable.
#[derive(Debug)]
pub(crate) struct IssueError {
    pub(crate) failure: CallFailure,
    pub(crate) is_refusal: bool,
}

impl From<CallFailure> for IssueError {
    fn from(failure: CallFailure) -> Self {
        IssueError { failure, is_refusal: true }
    }
}

impl From<roundelay::Error> for IssueError {
    fn from(error: roundelay::Error) -> Self {
        IssueError { is_refusal: is_refusal(&error), failure: error.into() }
    }
}

/// Runs the calls of a group on one communicator, whose rank has a GPU.
pub(crate) fn run(
    handle: &CommHandle,
    place: CallPlace,
    gpu: u32,
    calls: &[NcclCall],
) -> Result<(), IssueError> {
    for call in calls.iter().filter(|call| !call.kind.is_message()) {
        perform(handle, place, call.request(place)?, call.stream)?;
    }
    let messages: Vec<&NcclCall> = calls.iter().filter(|call| call.kind.is_message()).collect();
    let Some(first) = messages.first() else { return Ok(()) };
    let main = first.stream;
    let mut others: Vec<u64> =
        messages.iter().map(|call| call.stream).filter(|&stream| stream != main).collect();
    others.sort_unstable();
    others.dedup();
    // One kernel moves all messages, in one stream: it comes after what is in the others, and they go on after it.
    if place.device == MemoryKind::Device && !others.is_empty() {
        cuda::enter(gpu)?;
        others.iter().try_for_each(|&other| cuda::order(other, main))?;
    }
    let messages = messages.iter().map(|call| call.message(place)).collect::<Result<_, _>>()?;
    for round in rounds(place.rank, messages) {
        perform(handle, place, CallRequest::Messages(round), main)?;
    }
    if place.device == MemoryKind::Device && !others.is_empty() {
        cuda::enter(gpu)?;
        others.iter().try_for_each(|&other| cuda::order(main, other))?;
    }
    Ok(())
}

/// Divides messages into batches that a kernel has room for.
///
/// The k-th message of each direction of each peer is not in a later batch than any (k+1)-th. Of all messages that are
/// not over, take one whose k is least: at both ends, all messages of batches before its own have a lesser k, so they
/// are over, and both ends run it now. So no rank waits for ever, though ranks with other peers divide otherwise.
fn rounds<'a>(rank: u32, messages: Vec<CallMessage<'a>>) -> Vec<Vec<CallMessage<'a>>> {
    if messages.len() <= MESSAGES {
        return vec![messages];
    }
    let mut ends: BTreeMap<(u32, bool), Vec<CallMessage<'a>>> = BTreeMap::new();
    for message in messages {
        let is_send = matches!(message.end, MessageEnd::Sent(_));
        ends.entry((message.peer, is_send)).or_default().push(message);
    }
    // A rank's messages to itself are copies, and pair within a batch.
    let others = ends.keys().filter(|(peer, _)| *peer != rank).count();
    let most = (MESSAGES / others.max(1)).max(1);
    let longest = ends.values().map(Vec::len).max().unwrap_or(0);
    let mut rounds: Vec<Vec<CallMessage<'a>>> = Vec::new();
    rounds.resize_with(longest.div_ceil(most), Vec::new);
    for list in ends.into_values() {
        for (at, message) in list.into_iter().enumerate() {
            rounds[at / most].push(message);
        }
    }
    rounds
}

fn perform(
    handle: &CommHandle,
    place: CallPlace,
    request: CallRequest,
    stream: u64,
) -> Result<(), IssueError> {
    match place.device {
        MemoryKind::Device => {
            let options = RequestOptions { stream: Some(stream), ..RequestOptions::default() };
            Ok(handle.perform(request, options)?)
        }
        MemoryKind::Host => {
            let mut kept = Vec::new();
            let request = apart(request, &mut kept)?;
            Ok(handle.perform(request, RequestOptions::default())?)
        }
    }
}

/// Returns a request on host memory whose input does not lie in its output: where it does, it is copied.
fn apart(mut request: CallRequest, kept: &mut Vec<u64>) -> Result<CallRequest, roundelay::Error> {
    let CallRequest::Collective(Operation {
        output: CallOperand::One(output),
        input: CallOperand::One(input),
        ..
    }) = &mut request
    else {
        return Ok(request);
    };
    let (from, to) = (span(input), span(output));
    if from.0 < to.1 && to.0 < from.1 {
        let bytes = (from.1 - from.0) as usize;
        kept.resize(bytes.div_ceil(8), 0);
        let source = std::ptr::with_exposed_provenance::<u8>(from.0 as usize);
        // SAFETY: the caller of the function promised that that many bytes lie there; the copy has as many.
        unsafe { std::ptr::copy_nonoverlapping(source, kept.as_mut_ptr().cast(), bytes) };
        let address = kept.as_ptr().expose_provenance() as u64;
        let (elements, dtype) = (input.elements(), input.dtype());
        // SAFETY: `kept` lives as long as the request, which is performed before the caller drops it.
        *input = unsafe { InputBuffer::new(address, elements, dtype, MemoryKind::Host)? };
    }
    Ok(request)
}

/// Returns the first address of a buffer and that after its last one.
fn span<A>(buffer: &CallBuffer<A>) -> (u64, u64) {
    (buffer.address(), buffer.address() + buffer.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay::DType;
    use roundelay::operation::ALL_GATHER;

    fn message(peer: u32, is_send: bool, number: u64) -> CallMessage<'static> {
        match is_send {
            true => {
                // SAFETY: it is never given to a communicator.
                let buffer = unsafe { CallBuffer::on_device(8 * number, 1, DType::U8) };
                CallMessage::sent(buffer, peer)
            }
            false => {
                // SAFETY: as above.
                let buffer = unsafe { CallBuffer::on_device(8 * number, 1, DType::U8) };
                CallMessage::received(buffer, peer)
            }
        }
    }

    fn is_send(message: &CallMessage<'_>) -> bool {
        matches!(message.end, MessageEnd::Sent(_))
    }

    #[test]
    fn few_messages_are_one_batch_in_the_order_of_the_calls() {
        let messages = || (0..80).map(|k| message(k % 3, k % 2 == 0, k.into())).collect();
        let rounds = rounds(0, messages());
        assert_eq!(rounds.len(), 1);
        let addresses =
            |list: &[CallMessage<'_>]| list.iter().map(CallMessage::address).collect::<Vec<_>>();
        assert_eq!(addresses(&rounds[0]), addresses(&messages()));
    }

    #[test]
    fn many_messages_are_batches_that_keep_the_order_of_each_direction() {
        // One rank talks to two others, one of which has more peers, and so divides otherwise.
        for peers in [1u32, 2, 7, 30] {
            let messages = || -> Vec<CallMessage<'static>> {
                let message = |k| message(1 + (k % u64::from(peers)) as u32, k % 3 == 0, k);
                (0..500u64).map(message).collect()
            };
            let rounds = rounds(0, messages());
            let messages = messages();
            assert!(rounds.iter().all(|round| round.len() <= MESSAGES && !round.is_empty()));
            assert_eq!(rounds.iter().map(Vec::len).sum::<usize>(), 500);
            let of = |list: &[CallMessage<'_>], peer, sends| -> Vec<u64> {
                let same = |m: &&CallMessage<'_>| (m.peer, is_send(m)) == (peer, sends);
                list.iter().filter(same).map(CallMessage::address).collect()
            };
            for (peer, sends) in (1..=peers).flat_map(|peer| [(peer, true), (peer, false)]) {
                let moved: Vec<u64> =
                    rounds.iter().flat_map(|round| of(round, peer, sends)).collect();
                assert_eq!(moved, of(&messages, peer, sends));
            }
            // A direction's k-th message is never behind another's (k+1)-th.
            for round in rounds.windows(2) {
                let longest = (1..=peers).flat_map(|p| [(p, true), (p, false)]);
                let counts: Vec<[usize; 2]> = longest
                    .map(|(p, s)| [of(&round[0], p, s).len(), of(&round[1], p, s).len()])
                    .collect();
                let most = counts.iter().map(|c| c[0]).max().unwrap_or(0);
                assert!(counts.iter().all(|c| c[1] == 0 || c[0] == most), "{counts:?}");
            }
        }
    }

    #[test]
    fn an_input_inside_the_output_is_copied_on_hosts() {
        let data = [1u32, 2, 3, 4, 5, 6];
        let address = data.as_ptr().expose_provenance() as u64;
        let moved = |input: (u64, usize), output: (u64, usize)| {
            let (memory, dtype) = (MemoryKind::Host, DType::U32);
            // SAFETY: the elements lie there.
            let (from, to) = unsafe {
                let from = CallBuffer::new(address + 4 * input.0, input.1, dtype, memory);
                (from, CallBuffer::new(address + 4 * output.0, output.1, dtype, memory))
            };
            let (output, input) = (to.expect("an output"), from.expect("an input"));
            let given = input.address();
            let operation = Operation {
                collective: &ALL_GATHER,
                output: CallOperand::One(output),
                input: CallOperand::One(input),
                reduction: roundelay::RedOp::Sum.into(),
                root: 0,
            };
            let mut kept = Vec::new();
            let moved = apart(CallRequest::Collective(operation), &mut kept).expect("a request");
            let CallRequest::Collective(Operation { input: CallOperand::One(input), .. }) = moved
            else {
                panic!("{moved:?}")
            };
            (input.address() != given, kept)
        };
        let (is_moved, kept) = moved((2, 2), (0, 6));
        assert!(is_moved && kept == [3 | 4 << 32]);
        assert!(!moved((0, 2), (2, 4)).0, "side by side");
    }
}
