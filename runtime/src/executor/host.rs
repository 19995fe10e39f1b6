//! Plays a bound plan with the host's processor.
//!
//! Lanes take turns, each at its own operation and pass. An operation whose messages have not come,
//! whose slots are not free or whose predecessors are not done lets the next lane have its turn.
//! When no lane can move, the rank waits.

use std::sync::Arc;

use roundelay_compiler::plan::OpRef;

use super::wait::{Look, Wait};
use crate::backend::{Dst, Kernel, Src};
use crate::bind::{At, Bound, NOWHERE, OutEnd, Step};
use crate::ends::Ends;
use crate::error::Error;
use crate::transport::shm::{INLINE, Kind, RING, Segment, meta};
use crate::watchdog;

/// Where a buffer of the call lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Base {
    pub(crate) address: *mut u8,
    /// Its offset in the shared file, if peers can read it.
    pub(crate) offered: Option<u64>,
}

/// Memory that calls use again and again.
#[derive(Default)]
pub(crate) struct Work {
    cursors: Vec<Cursor>,
    sources: Vec<Source>,
    targets: Vec<Dst>,
    inputs: Vec<Src>,
    outputs: Vec<Dst>,
    /// Messages sent on each end before the call.
    before: Vec<u64>,
    pub(crate) bases: Vec<Base>,
}

// SAFETY: the addresses inside are used only within a call, which fills them in anew.
unsafe impl Send for Work {}

/// Where a lane is.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    pass: u32,
    /// Index into the steps of all lanes.
    step: u32,
    /// Conditions of the step already seen to hold, in the order in which they are tested.
    met: u32,
    /// Elements that the step moves in this pass.
    elements: u64,
}

/// Where an input of a step is read.
#[derive(Debug, Clone, Copy)]
enum Source {
    Local,
    /// A message's content, without gaps.
    Dense(*const u8),
    /// The peer's memory, from the base of its buffer.
    Pulled(*const u8),
}

/// What a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// An operation of another lane.
    After(OpRef),
    /// A message, by receiver.
    Message(u32),
    /// Room for a message, by index into the sends.
    Room(u32),
    /// That the peer has read this rank's memory, by index into the sends.
    Drained(u32),
}

/// What a call moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// How often the plan was played, each time on a part of every chunk.
    pub passes: u32,
    /// Messages sent.
    pub messages: u64,
    /// Of these, messages whose content the peer read where it lay.
    pub pulled: u64,
    /// Bytes of content sent.
    pub bytes: u64,
}

/// A call in progress.
pub(crate) struct Player<'a> {
    pub(crate) bound: &'a Bound,
    pub(crate) work: &'a mut Work,
    pub(crate) ends: &'a mut Ends,
    pub(crate) segment: &'a Arc<Segment>,
    pub(crate) kernel: Kernel,
    pub(crate) rank: u32,
    pub(crate) call: u64,
    pub(crate) digest: u32,
    pub(crate) wait: Wait,
    pub(crate) stats: Stats,
}

impl Player<'_> {
    /// Plays the plan to its end.
    pub(crate) fn play(&mut self) -> Result<Stats, Error> {
        self.begin();
        let lanes = self.bound.lanes.len();
        let mut left = self.work.cursors.iter().filter(|c| c.pass < self.stats.passes).count();
        while left > 0 {
            let mut moved = false;
            for lane in 0..lanes {
                if self.is_done(lane) || self.blocked(lane)?.is_some() {
                    continue;
                }
                self.step(lane)?;
                moved = true;
                if self.advance(lane) {
                    left -= 1;
                }
            }
            match moved {
                true => self.wait.progress(),
                false => self.pause()?,
            }
        }
        self.finish()
    }

    fn begin(&mut self) {
        let (bound, work) = (self.bound, &mut *self.work);
        self.stats.passes = bound.shape.passes;
        // Nothing grows in the middle of a call.
        work.sources.reserve(bound.widest.saturating_sub(work.sources.len()));
        work.inputs.reserve(bound.widest.saturating_sub(work.inputs.len()));
        work.targets.reserve(bound.widest.saturating_sub(work.targets.len()));
        work.outputs.reserve(bound.widest.saturating_sub(work.outputs.len()));
        work.cursors.clear();
        for lane in &bound.lanes {
            let elements = match lane.is_empty() {
                true => 0,
                false => bound.elements(&bound.steps[lane.start as usize], 0),
            };
            let pass = if lane.is_empty() { bound.shape.passes } else { 0 };
            work.cursors.push(Cursor { pass, step: lane.start, met: 0, elements });
        }
        work.before.clear();
        let senders = &self.ends.senders;
        work.before.extend(bound.sends.iter().map(|s| senders[s.sender as usize].sent()));
    }

    fn is_done(&self, lane: usize) -> bool {
        self.work.cursors[lane].pass >= self.bound.shape.passes
    }

    /// Moves a lane to its next step; says whether it has come to its end.
    #[inline]
    fn advance(&mut self, lane: usize) -> bool {
        let bound = self.bound;
        let steps = &bound.lanes[lane];
        let cursor = &mut self.work.cursors[lane];
        cursor.met = 0;
        cursor.step += 1;
        if cursor.step == steps.end {
            cursor.step = steps.start;
            cursor.pass += 1;
            if cursor.pass == bound.shape.passes {
                return true;
            }
        }
        cursor.elements = bound.elements(&bound.steps[cursor.step as usize], cursor.pass);
        false
    }

    /// What the current step of a lane waits for, if anything. What was once seen to hold is not
    /// tested again, except for rooms and drains, which cost little.
    #[inline]
    pub(crate) fn blocked(&mut self, lane: usize) -> Result<Option<Blocked>, Error> {
        let bound = self.bound;
        let Cursor { pass, step, mut met, elements } = self.work.cursors[lane];
        let step = &bound.steps[step as usize];
        let after = step.after.len() as u32;
        while met < after {
            let other = bound.after[(step.after.start + met) as usize];
            let cursor = &self.work.cursors[usize::from(other.lane)];
            let at = bound.lanes[usize::from(other.lane)].start + other.op;
            if cursor.pass < pass || cursor.pass == pass && cursor.step <= at {
                self.work.cursors[lane].met = met;
                return Ok(Some(Blocked::After(other)));
            }
            met += 1;
        }
        while met < after + step.inputs.len() as u32 {
            let operand = &bound.operands[(step.inputs.start + met - after) as usize];
            if operand.receiver != NOWHERE {
                let receiver = &self.ends.receivers[operand.receiver as usize];
                if !receiver.is_ready(operand.ahead.into()) {
                    self.work.cursors[lane].met = met;
                    return Ok(Some(Blocked::Message(operand.receiver)));
                }
                let arrived =
                    receiver.message(u64::from(bound.header.slots), operand.ahead.into()).meta;
                let len = elements as usize * operand.size as usize;
                if (arrived ^ meta(self.digest, len, Kind::Inline)) >> 2 != 0 {
                    return Err(watchdog::mismatch(self, operand.receiver));
                }
            }
            met += 1;
        }
        self.work.cursors[lane].met = met;
        Ok(self.no_room(step, pass, elements))
    }

    #[inline]
    fn no_room(&mut self, step: &Step, pass: u32, elements: u64) -> Option<Blocked> {
        let bound = self.bound;
        let slots = u64::from(bound.header.slots);
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            let kind = self.kind(out, elements);
            let sender = &mut self.ends.senders[out.sender as usize];
            let room = match kind {
                Kind::Slot => sender.has_slot(slots),
                Kind::Inline | Kind::Pull => sender.has_room(RING),
            };
            if !room {
                return Some(Blocked::Room(out.send));
            }
        }
        for drained in &bound.drained[step.drained.start as usize..step.drained.end as usize] {
            let send = &bound.sends[drained.send as usize];
            let first = self.work.before[drained.send as usize];
            let message = first + u64::from(pass) * send.messages + u64::from(drained.message);
            let sender = &mut self.ends.senders[send.sender as usize];
            // Only memory that was offered is still being read after a message was sent.
            if sender.offered() > message && !sender.is_consumed(message) {
                return Some(Blocked::Drained(drained.send));
            }
        }
        None
    }

    /// How a message is to travel.
    #[inline]
    fn kind(&self, out: &OutEnd, elements: u64) -> Kind {
        let len = elements as usize * out.size as usize;
        if len >= out.direct && self.work.bases[out.buffer as usize].offered.is_some() {
            return Kind::Pull;
        }
        if len <= INLINE { Kind::Inline } else { Kind::Slot }
    }

    /// Plays the current step of a lane, which is not blocked.
    #[inline]
    fn step(&mut self, lane: usize) -> Result<(), Error> {
        let bound = self.bound;
        let Cursor { pass, step, elements, .. } = self.work.cursors[lane];
        let step = &bound.steps[step as usize];
        let offers = self.targets(step, elements)?;
        let stores = step.store != NOWHERE && (!step.dead || offers);
        if elements > 0 && (stores || !self.work.targets.is_empty()) {
            self.sources(step)?;
            self.fold(step, pass, stores);
        }
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            self.post(out, elements);
        }
        for operand in &bound.operands[step.inputs.start as usize..step.inputs.end as usize] {
            if operand.receiver != NOWHERE {
                self.ends.receivers[operand.receiver as usize].consume();
            }
        }
        Ok(())
    }

    /// Finds out where the messages of a step are written; says whether any is offered instead.
    #[inline]
    fn targets(&mut self, step: &Step, elements: u64) -> Result<bool, Error> {
        let bound = self.bound;
        let slots = u64::from(bound.header.slots);
        let mut offers = false;
        self.work.targets.clear();
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            let kind = self.kind(out, elements);
            let sender = &mut self.ends.senders[out.sender as usize];
            let ptr = match kind {
                Kind::Inline => sender.inline(),
                Kind::Slot => sender.slot(slots, elements * u64::from(out.size))?,
                Kind::Pull => {
                    offers = true;
                    continue;
                }
            };
            self.work.targets.push(Dst { ptr, wire: out.wire, stream: false });
        }
        Ok(offers)
    }

    /// Finds out where the inputs of a step are read.
    #[inline]
    fn sources(&mut self, step: &Step) -> Result<(), Error> {
        let bound = self.bound;
        self.work.sources.clear();
        for operand in &bound.operands[step.inputs.start as usize..step.inputs.end as usize] {
            if operand.receiver == NOWHERE {
                self.work.sources.push(Source::Local);
                continue;
            }
            let receiver = &self.ends.receivers[operand.receiver as usize];
            let slots = u64::from(bound.header.slots);
            let message = receiver.message(slots, operand.ahead.into());
            let source = match message.kind() {
                Some(Kind::Inline | Kind::Slot) => Source::Dense(message.content),
                Some(Kind::Pull) if operand.place != NOWHERE => {
                    let base = message.pulled_from();
                    // Wherever the peer says its buffer begins, what is read must lie in its arena.
                    if !self.lies_in_arena(operand.receiver, base, operand.span) {
                        return Err(watchdog::mismatch(self, operand.receiver));
                    }
                    Source::Pulled(self.segment.at(base))
                }
                _ => return Err(watchdog::mismatch(self, operand.receiver)),
            };
            self.work.sources.push(source);
        }
        Ok(())
    }

    fn lies_in_arena(&self, receiver: u32, base: u64, span: (u64, u64)) -> bool {
        let Some(from) = self.bound.froms.iter().find(|f| f.receiver == receiver) else {
            return false;
        };
        let layout = self.segment.layout();
        let arena = layout.arena(from.peer);
        let (low, high) = (base.wrapping_add(span.0), base.wrapping_add(span.1));
        low >= arena && low <= high && high <= arena + layout.arena_bytes
    }

    /// Folds the inputs of a step into its store and the places of its messages.
    #[inline]
    fn fold(&mut self, step: &Step, pass: u32, stores: bool) {
        let bound = self.bound;
        let size = bound.shape.size;
        let inputs = &bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        let Work { sources, targets, inputs: srcs, outputs: dsts, bases, .. } = &mut *self.work;
        let local = |at: At, skip: u64| {
            bases[at.buffer as usize].address.wrapping_add((at.offset + skip) as usize)
        };
        let mut done = 0u64;
        for segment in &bound.segments[step.segments.start as usize..step.segments.end as usize] {
            let (first, count) = bound.shape.piece(segment.elements, pass);
            if count == 0 {
                continue;
            }
            let place = |index: u32| bound.places[(segment.places + index) as usize];
            let skip = first * size;
            srcs.clear();
            for (operand, source) in inputs.iter().zip(sources.iter()) {
                let ptr = match *source {
                    Source::Local => local(place(operand.place), skip).cast_const(),
                    Source::Dense(content) => {
                        content.wrapping_add(done as usize * operand.size as usize)
                    }
                    Source::Pulled(base) => {
                        base.wrapping_add((place(operand.place).offset + skip) as usize)
                    }
                };
                srcs.push(Src { ptr, wire: operand.wire });
            }
            dsts.clear();
            if stores {
                let ptr = local(place(step.store), skip);
                dsts.push(Dst { ptr, wire: None, stream: step.stream });
            }
            for target in targets.iter() {
                let width = self.kernel.wire_size(target.wire).unwrap_or(size as usize);
                let ptr = target.ptr.wrapping_add(done as usize * width);
                dsts.push(Dst { ptr, ..*target });
            }
            // `bind` checked every place against the size of its buffer, and the caller the buffers
            // against those sizes; messages have as many bytes as `blocked` compared, slots room for
            // them, and pulled memory lies in the peer's arena. The plan was proved free of races, and
            // its order is kept by the messages and by `blocked`.
            // SAFETY: so all places are valid for `count` elements, and nobody else writes them.
            unsafe { self.kernel.fold(srcs, dsts, count as usize) };
            done += count;
        }
    }

    /// Hands a message over.
    #[inline]
    fn post(&mut self, out: &OutEnd, elements: u64) {
        let kind = self.kind(out, elements);
        let len = elements as usize * out.size as usize;
        let meta = meta(self.digest, len, kind);
        self.stats.messages += 1;
        self.stats.bytes += len as u64;
        let sender = &mut self.ends.senders[out.sender as usize];
        match kind {
            Kind::Inline | Kind::Slot => sender.post(meta),
            Kind::Pull => {
                let base = self.work.bases[out.buffer as usize].offered.unwrap_or(0);
                sender.post_pull(meta, base.wrapping_sub(out.before));
                self.stats.pulled += 1;
            }
        }
    }

    /// Waits until nobody reads this rank's memory any more.
    #[inline]
    fn finish(&mut self) -> Result<Stats, Error> {
        if self.stats.pulled > 0 {
            for i in 0..self.bound.sends.len() {
                while self.is_read(i) {
                    self.pause()?;
                }
                self.wait.progress();
            }
        }
        Ok(self.stats)
    }

    /// Whether the peer of a send may still read memory that it was offered in this call.
    fn is_read(&mut self, send: usize) -> bool {
        let sender = &mut self.ends.senders[self.bound.sends[send].sender as usize];
        let offered = sender.offered();
        offered > self.work.before[send] && !sender.is_consumed(offered - 1)
    }

    #[inline]
    fn pause(&mut self) -> Result<(), Error> {
        match self.wait.pause(self.segment) {
            Look::Again => Ok(()),
            look => self.look(look),
        }
    }

    #[cold]
    fn look(&mut self, look: Look) -> Result<(), Error> {
        let (lane, blocked) = self.obstacle()?;
        watchdog::look(self, look, lane, blocked)
    }

    /// The first lane that waits for another rank, and for what; lanes that wait for it follow.
    pub(crate) fn obstacle(&mut self) -> Result<(Option<usize>, Option<Blocked>), Error> {
        let mut found = (None, None);
        for lane in 0..self.bound.lanes.len() {
            if self.is_done(lane) {
                continue;
            }
            match self.blocked(lane)? {
                Some(blocked @ Blocked::After(_)) if found.0.is_none() => {
                    found = (Some(lane), Some(blocked));
                }
                Some(Blocked::After(_)) | None => {}
                Some(blocked) => return Ok((Some(lane), Some(blocked))),
            }
        }
        if found.0.is_none() {
            let read = (0..self.bound.sends.len()).find(|&i| self.is_read(i));
            found.1 = read.map(|i| Blocked::Drained(i as u32));
        }
        Ok(found)
    }

    /// The step that a lane is at; of no lane, the last.
    pub(crate) fn at(&self, lane: Option<usize>) -> Option<&Step> {
        match lane {
            Some(lane) => self.bound.steps.get(self.work.cursors[lane].step as usize),
            None => self.bound.steps.last(),
        }
    }
}
