//! Moves the data of a step: its inputs, folded, to its store and the buffers of its messages.

use std::ops::Range;

use super::execution::{BufferAddress, ExecutionBuffers, OperandSource, PlanExecution};
use super::watchdog;
use crate::bind::{BoundPlan, BoundStep, BufferPlace, NOWHERE, StepOperand};
use crate::tunables::FOREIGN_FOLD_BYTES;
use roundelay_net::endpoints::EndpointReceiver;
use roundelay_net::transport::mapped::MappedReceiver;
use roundelay_net::transport::message::IoVecMut;
use roundelay_net::transport::posted::PostedReceiver;
use roundelay_net::transport::shm;
use roundelay_support::backend::{CacheLine, FoldSource, FoldTarget};
use roundelay_support::error::{Error, ErrorSource};

/// The elements of a segment that are moved.
#[derive(Clone, Copy)]
struct SegmentSpan {
    /// The segment's first place.
    places: u32,
    /// Bytes of a chunk before them.
    skip: u64,
    /// Elements of the step before them: where they are in messages.
    done: u64,
    count: u64,
}

impl PlanExecution<'_> {
    /// Folds elements of the inputs of a step into its store and the places of its messages.
    #[inline]
    pub(super) fn fold(&mut self, step: &BoundStep, pass: u32, stores: bool, range: Range<u64>) {
        let bound = self.bound;
        let mut done = 0;
        for segment in &bound.segments[step.segments.start as usize..step.segments.end as usize] {
            let (first, count) = step.pace.piece(segment.elements, pass);
            let from = range.start.max(done);
            let to = range.end.min(done + count);
            if from < to {
                let skip = (first + from - done) * bound.shape.size;
                let span =
                    SegmentSpan { places: segment.places, skip, done: from, count: to - from };
                self.fold_span(step, stores, span);
            }
            done += count;
        }
    }

    /// Moves what has come of the only message of a step, of `len` bytes, to the step's store, folded with the other
    /// inputs; returns true once all of it has come.
    pub(super) fn land(
        &mut self,
        step: &BoundStep,
        pass: u32,
        message: &StepOperand,
        len: usize,
    ) -> bool {
        let (bound, size) = (self.bound, self.bound.shape.size);
        let inputs = &bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        let at = message.receiver as usize;
        if let EndpointReceiver::Posted(receiver) = &mut self.endpoints.receivers[at] {
            let places = landing(bound, step, pass, &self.work.bases);
            // SAFETY: the places are the store of the step at hand, which `bind` checked, and which nothing else
            // accesses until the step is done.
            return unsafe { receiver.land(len, places) };
        }
        self.work.targets.clear();
        while let EndpointReceiver::Mapped(receiver) = &mut self.endpoints.receivers[at]
            && let Some((part, before, bytes)) = receiver.part()
        {
            let content = part.wrapping_sub(before);
            self.work.sources.clear();
            self.work.sources.extend(inputs.iter().map(|operand| match operand.receiver {
                NOWHERE => OperandSource::Local,
                _ => OperandSource::Dense(content),
            }));
            let (from, to) = (before as u64 / size, (before + bytes) as u64 / size);
            self.fold(step, pass, true, from..to);
        }
        self.endpoints.receivers[at].has_landed(true)
    }

    /// Executes a step whose inputs are other processes' own memory: copies it block by block and folds it
    /// from there, or straight to the store where there is nothing to fold.
    #[cold]
    pub(super) fn fetch(&mut self, step: &BoundStep, pass: u32, stores: bool) -> Result<(), Error> {
        let bound = self.bound;
        let size = bound.shape.size;
        let straight = stores && step.inputs.len() == 1;
        let block = match straight {
            true => u64::MAX,
            false => (FOREIGN_FOLD_BYTES as u64 / size).max(1),
        };
        let lines = if straight {
            0
        } else {
            step.inputs.len() * FOREIGN_FOLD_BYTES / size_of::<CacheLine>()
        };
        if self.work.bounce.len() < lines {
            self.work.bounce.resize(lines, CacheLine::ZERO);
        }
        let mut done = 0;
        for segment in &bound.segments[step.segments.start as usize..step.segments.end as usize] {
            let (first, mut left) = step.pace.piece(segment.elements, pass);
            let mut skip = first * size;
            while left > 0 {
                let count = left.min(block);
                let span = SegmentSpan { places: segment.places, skip, done, count };
                self.fetch_span(step, span, straight)?;
                if !straight || !self.work.targets.is_empty() {
                    self.fold_span(step, stores && !straight, span);
                }
                (left, skip, done) = (left - count, skip + count * size, done + count);
            }
        }
        Ok(())
    }

    fn fetch_span(
        &mut self,
        step: &BoundStep,
        span: SegmentSpan,
        straight: bool,
    ) -> Result<(), Error> {
        let bound = self.bound;
        let inputs = &bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        let place = |index: u32| bound.places[(span.places + index) as usize];
        for (i, operand) in inputs.iter().enumerate() {
            let OperandSource::Cma { pid, base, .. } = self.work.sources[i] else { continue };
            let from = base.wrapping_add(place(operand.place).offset + span.skip);
            let to = match straight {
                true => {
                    let BufferPlace { buffer, offset } = place(step.store);
                    let at = self.work.bases[buffer as usize].address;
                    at.wrapping_add((offset + span.skip) as usize)
                }
                false => {
                    self.work.bounce.as_mut_ptr().cast::<u8>().wrapping_add(i * FOREIGN_FOLD_BYTES)
                }
            };
            let len = (span.count * bound.shape.size) as usize;
            // SAFETY: the store was checked by `bind`, and is this step's alone; a block of the
            // bounce buffer has room for as many elements as `fetch` cuts.
            if let Err(e) = unsafe { shm::read(pid, from, to, len) } {
                return Err(self.unreadable(step, operand.receiver, e));
            }
            self.work.sources[i] = OperandSource::Cma { pid, base, copy: to };
        }
        Ok(())
    }

    /// Folds a part of a segment.
    #[inline]
    fn fold_span(&mut self, step: &BoundStep, stores: bool, span: SegmentSpan) {
        let bound = self.bound;
        let size = bound.shape.size;
        let SegmentSpan { places, skip, done, count } = span;
        let inputs = &bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        let ExecutionBuffers { sources, targets, inputs: srcs, outputs: dsts, bases, .. } =
            &mut *self.work;
        let local = |at: BufferPlace| {
            bases[at.buffer as usize].address.wrapping_add((at.offset + skip) as usize)
        };
        let place = |index: u32| bound.places[(places + index) as usize];
        srcs.clear();
        for (operand, source) in inputs.iter().zip(sources.iter()) {
            let ptr = match *source {
                OperandSource::Local => local(place(operand.place)).cast_const(),
                OperandSource::Landed => local(place(step.store)).cast_const(),
                OperandSource::Dense(content) => {
                    content.wrapping_add(done as usize * operand.size as usize)
                }
                OperandSource::ZeroCopy(base) => {
                    base.wrapping_add((place(operand.place).offset + skip) as usize)
                }
                OperandSource::Cma { copy, .. } => copy.cast_const(),
            };
            srcs.push(FoldSource { ptr, wire: operand.wire });
        }
        dsts.clear();
        if stores {
            dsts.push(FoldTarget {
                ptr: local(place(step.store)),
                wire: None,
                stream: step.stream,
            });
        }
        for target in targets.iter() {
            let width = self.kernel.wire_size(target.wire).unwrap_or(size as usize);
            let ptr = target.ptr.wrapping_add(done as usize * width);
            dsts.push(FoldTarget { ptr, ..*target });
        }
        // `bind` checked every place against the size of its buffer, and the caller the buffers
        // against those sizes; messages have as many bytes as `blocked` compared, slots room for
        // them, and pulled memory lies in the peer's arena. The plan was proved free of races, and
        // its order is kept by the messages and by `blocked`.
        // SAFETY: so all places are valid for `count` elements, and nothing else writes them.
        unsafe { self.kernel.fold(srcs, dsts, count as usize) };
    }

    #[cold]
    fn unreadable(&self, step: &BoundStep, receiver: u32, error: std::io::Error) -> Error {
        let location = watchdog::location(self, Some(step));
        // A rank that failed may have freed memory that its peers read; it raised the alarm before.
        if self.group.is_aborted() {
            return self.group.aborted(Some(location));
        }
        let from = self.bound.froms.iter().find(|f| f.receiver == receiver);
        let lost = from.map_or(self.rank, |f| f.peer);
        let how = format!("its memory can no longer be read ({error})");
        let (location, source) = (Some(location.into()), Some(ErrorSource::new(error)));
        Error::LostRank { rank: self.rank, lost, how, location, source }
    }
}

/// Returns the pieces of memory at which a place of a step lies in a pass.
pub(super) fn pieces<'a>(
    bound: &'a BoundPlan,
    step: &BoundStep,
    place: u32,
    pass: u32,
    bases: &'a [BufferAddress],
) -> impl Iterator<Item = (*mut u8, usize)> + 'a {
    let segments = &bound.segments[step.segments.start as usize..step.segments.end as usize];
    // A mapped link has no such place, and needs no pieces.
    let segments = if place == NOWHERE { &segments[..0] } else { segments };
    let pace = step.pace;
    segments.iter().filter_map(move |segment| {
        let (first, count) = pace.piece(segment.elements, pass);
        let BufferPlace { buffer, offset } = bound.places[(segment.places + place) as usize];
        let at = bases[buffer as usize].address;
        let size = bound.shape.size;
        let ptr = at.wrapping_add((offset + first * size) as usize);
        (count > 0).then_some((ptr, (count * size) as usize))
    })
}

/// Returns the pieces of memory to which the only message of a step goes straight.
pub(super) fn landing<'a>(
    bound: &'a BoundPlan,
    step: &BoundStep,
    pass: u32,
    bases: &'a [BufferAddress],
) -> impl Iterator<Item = IoVecMut> + 'a {
    pieces(bound, step, step.store, pass, bases).map(|(ptr, len)| IoVecMut { ptr, len })
}
