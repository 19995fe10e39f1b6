//! Calls so short that all their messages travel in headers.
//!
//! Lanes, passes, slots and offers cost more than such a call itself. So a bound plan of one lane and one
//! pass, whose messages are all in headers, is first *run ahead*: its steps are executed one after the
//! other, while their messages are there or come soon. Where that ends `host` continues, with waits,
//! timeouts, faults and spans.

use super::execution::ExecutionBuffers;
use crate::bind::{BoundPlan, BoundStep, NOWHERE};
use roundelay_net::endpoints::{EndpointReceiver, EndpointSender, EndpointTable};
use roundelay_net::transport::mapped::{MappedReceiver, MappedSender};
use roundelay_net::transport::message::{ContentKind, meta};
use roundelay_net::transport::shm::RING;
use roundelay_support::backend::{FoldSource, FoldTarget};

/// Executes a short call as far as it goes without long waits: until a message or room has been missing for `polls`
/// polls. Returns the number of steps that are done.
#[inline]
pub(crate) fn run_ahead(
    bound: &BoundPlan,
    work: &mut ExecutionBuffers,
    endpoints: &mut EndpointTable,
    digest: u32,
    mut polls: u32,
) -> u32 {
    for (index, step) in bound.steps.iter().enumerate() {
        if !is_ready(bound, step, endpoints, digest, &mut polls) {
            return index as u32;
        }
        let (inputs, outs) = bound.operands_of(step);
        fold(bound, step, work, endpoints);
        for out in outs {
            if let EndpointSender::Mapped(sender) = &mut endpoints.senders[out.sender as usize] {
                let len = step.elements as usize * out.size as usize;
                sender.post(meta(digest, len, ContentKind::Inline));
            }
        }
        for input in inputs.iter().filter(|input| input.receiver != NOWHERE) {
            endpoints.receivers[input.receiver as usize].consume();
        }
    }
    bound.steps.len() as u32
}

/// Returns true if the messages of a step are here, and as they should be, and there is room for its own.
#[inline(always)]
fn is_ready(
    bound: &BoundPlan,
    step: &BoundStep,
    endpoints: &mut EndpointTable,
    digest: u32,
    polls: &mut u32,
) -> bool {
    let (inputs, outs) = bound.operands_of(step);
    for input in inputs.iter().filter(|input| input.receiver != NOWHERE) {
        let EndpointReceiver::Mapped(receiver) = &endpoints.receivers[input.receiver as usize]
        else {
            return false;
        };
        let ahead = input.ahead.into();
        while !receiver.has_begun(ahead) {
            if *polls == 0 {
                return false;
            }
            *polls -= 1;
        }
        let len = step.elements as usize * input.size as usize;
        if receiver.message(1, ahead).meta != meta(digest, len, ContentKind::Inline) {
            return false;
        }
    }
    outs.iter()
        .all(|out| endpoints.senders[out.sender as usize].has_room(ContentKind::Inline, RING))
}

/// Folds a step like any other, with one segment at the most and all content in headers.
#[inline(always)]
fn fold(
    bound: &BoundPlan,
    step: &BoundStep,
    work: &mut ExecutionBuffers,
    endpoints: &EndpointTable,
) {
    let stores = step.store != NOWHERE && !step.dead;
    let (inputs, outs) = bound.operands_of(step);
    if step.elements == 0 || !stores && outs.is_empty() {
        return;
    }
    let places = &bound.places[bound.segments[step.segments.start as usize].places as usize..];
    let ExecutionBuffers { inputs: srcs, outputs: dsts, bases, .. } = work;
    let local = |place: u32| {
        let at = places[place as usize];
        bases[at.buffer as usize].address.wrapping_add(at.offset as usize)
    };
    srcs.clear();
    for input in inputs {
        let ptr = match endpoints.receivers.get(input.receiver as usize) {
            Some(receiver) => receiver.message(1, input.ahead.into()).content,
            None => local(input.place).cast_const(),
        };
        srcs.push(FoldSource { ptr, wire: input.wire });
    }
    dsts.clear();
    if stores {
        dsts.push(FoldTarget { ptr: local(step.store), wire: None, stream: false });
    }
    for out in outs {
        if let EndpointSender::Mapped(sender) = &endpoints.senders[out.sender as usize] {
            dsts.push(FoldTarget { ptr: sender.inline(), wire: out.wire, stream: false });
        }
    }
    // SAFETY: `bind` checked every place against the size of its buffer, and the caller the buffers
    // against those sizes; a header has room for as many bytes as `short` compared, and `is_ready`
    // saw that it is free, or that as many have come. The plan was proved free of races.
    unsafe { bound.kernel.fold(srcs, dsts, step.elements as usize) };
}
