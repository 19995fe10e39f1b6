//! Executes a bound plan with the host's processor.
//!
//! Lanes take turns, each at its own operation and pass. An operation whose messages have not come,
//! whose slots are not free or whose predecessors are not done lets the next lane have its turn.
//! If no lane can move, the rank waits (`idle`).

use super::execution::{BufferAddress, LaneCursor, OperandSource, PlanExecution};
use super::fold::pieces;
use super::watchdog;
use crate::bind::{BoundStep, CallStats, LaneCondition, NOWHERE, OutEnd};
use crate::progress::wait::WaitAction;
use crate::progress::wait_report;
use roundelay_net::transport::message::{ContentKind, IoVec, meta};
use roundelay_net::transport::shm::INLINE;
use roundelay_net::tunables::INTERRUPT_CHECK_STEPS;
use roundelay_support::backend::FoldTarget;
use roundelay_support::error::Error;
use roundelay_support::interrupt;

impl PlanExecution<'_> {
    /// Executes the plan to its end, all lanes from their beginning, or its only lane from a step on.
    pub(crate) fn execute(&mut self, from: u32) -> Result<CallStats, Error> {
        self.begin(from);
        let lanes = self.bound.lanes.len();
        let mut left = (0..lanes).filter(|&lane| !self.is_done(lane)).count();
        let mut steps = 0u32;
        while left > 0 {
            let mut moved = false;
            for lane in 0..lanes {
                if self.is_done(lane) {
                    continue;
                }
                if let Some(blocked) = self.test(lane)? {
                    if let Some(tracer) = &mut self.recorder.tracer {
                        tracer.blocked(self.bound, lane, blocked, self.work.cursors[lane].at());
                    }
                    continue;
                }
                self.step_traced(lane)?;
                moved = true;
                if self.advance(lane) {
                    left -= 1;
                    self.part_ended(lane);
                }
            }
            match moved {
                // A call that never waits must stop too.
                true if self.group.is_stopped() => self.check_wait(WaitAction::Aborted)?,
                true => {
                    self.progress();
                    steps = steps.wrapping_add(1);
                    if steps.is_multiple_of(INTERRUPT_CHECK_STEPS) && interrupt::is_requested() {
                        self.group.abort(&interrupt::record(self.rank));
                        self.check_wait(WaitAction::Aborted)?;
                    }
                }
                false => self.pause()?,
            }
        }
        self.finish()
    }

    #[inline]
    fn step_traced(&mut self, lane: usize) -> Result<(), Error> {
        if let Some(tracer) = &mut self.recorder.tracer {
            tracer.step_begins(self.bound, lane, self.work.cursors[lane].at());
        }
        self.step(lane)?;
        if let Some(tracer) = &mut self.recorder.tracer {
            let cursor = self.work.cursors[lane];
            tracer.step_ends(self.bound, lane, cursor.at(), cursor.elements);
        }
        Ok(())
    }

    #[inline]
    pub(super) fn progress(&mut self) {
        if self.wait.progress() {
            wait_report::withdraw_wait(self.group, self.recorder);
        }
    }

    fn begin(&mut self, from: u32) {
        let (bound, work) = (self.bound, &mut *self.work);
        if let Some(tracer) = &mut self.recorder.tracer {
            tracer.call_begins(bound, self.call);
        }
        self.stats.passes = bound.shape.passes();
        if let Some(shares) = &bound.shares {
            work.clock.begin(shares.parts() as usize);
        }
        // Nothing grows in the middle of a call.
        work.sources.reserve(bound.widest.saturating_sub(work.sources.len()));
        work.inputs.reserve(bound.widest.saturating_sub(work.inputs.len()));
        work.targets.reserve(bound.widest.saturating_sub(work.targets.len()));
        work.outputs.reserve(bound.widest.saturating_sub(work.outputs.len()));
        work.cursors.clear();
        for lane in &bound.lanes {
            let step = lane.start.max(from);
            let elements = match lane.is_empty() {
                true => 0,
                false => bound.elements(&bound.steps[step as usize], 0),
            };
            work.cursors.push(LaneCursor { pass: 0, step, satisfied: 0, elements });
        }
        if bound.cma {
            for send in &bound.sends {
                self.endpoints.senders[send.sender as usize].learn();
            }
        }
        work.before.clear();
        let senders = &self.endpoints.senders;
        work.before.extend(bound.sends.iter().map(|s| senders[s.sender as usize].sent()));
    }

    pub(super) fn is_done(&self, lane: usize) -> bool {
        self.work.cursors[lane].pass >= self.bound.passes(lane)
    }

    /// Moves a lane to its next step; returns true if it has come to its end.
    #[inline]
    fn advance(&mut self, lane: usize) -> bool {
        let bound = self.bound;
        let steps = &bound.lanes[lane];
        let cursor = &mut self.work.cursors[lane];
        cursor.satisfied = 0;
        cursor.step += 1;
        if cursor.step == steps.end {
            cursor.step = steps.start;
            cursor.pass += 1;
            if cursor.pass == bound.steps[steps.start as usize].pace.passes {
                return true;
            }
        }
        cursor.elements = bound.elements(&bound.steps[cursor.step as usize], cursor.pass);
        false
    }

    /// Returns the condition that the current step of a lane waits for, if there is one.
    pub(crate) fn blocked(&mut self, lane: usize) -> Result<Option<LaneCondition>, Error> {
        self.test(lane)
    }

    /// Tests the conditions of the current step, to be polled: inlined so that the answer stays in registers.
    /// Through memory it would wait until all stores before it have left the processor, the message just
    /// posted among them. A condition that was once seen to hold is not tested again, except for rooms and
    /// drains, which cost little.
    #[inline(always)]
    fn test(&mut self, lane: usize) -> Result<Option<LaneCondition>, Error> {
        let bound = self.bound;
        let LaneCursor { pass, step, mut satisfied, elements } = self.work.cursors[lane];
        let step = &bound.steps[step as usize];
        let after = step.after.len() as u32;
        while satisfied < after {
            let other = bound.after[(step.after.start + satisfied) as usize];
            let cursor = &self.work.cursors[usize::from(other.lane)];
            let at = bound.lanes[usize::from(other.lane)].start + other.op;
            if cursor.pass < pass || cursor.pass == pass && cursor.step <= at {
                self.work.cursors[lane].satisfied = satisfied;
                return Ok(Some(LaneCondition::After(other)));
            }
            satisfied += 1;
        }
        while satisfied < after + step.inputs.len() as u32 {
            let operand = &bound.operands[(step.inputs.start + satisfied - after) as usize];
            if operand.receiver != NOWHERE {
                let len = elements as usize * operand.size as usize;
                let wanted = meta(self.digest ^ step.tag, len, ContentKind::Inline);
                let receiver = &self.endpoints.receivers[operand.receiver as usize];
                let lands = match step.lands && elements > 0 {
                    true => receiver.lands(wanted, step.inputs.len() == 1),
                    false => Some(false),
                };
                let Some(lands) = lands else {
                    self.work.cursors[lane].satisfied = satisfied;
                    return Ok(Some(LaneCondition::Message(operand.receiver)));
                };
                if lands && let Some(room) = self.no_room(step, pass, elements) {
                    self.work.cursors[lane].satisfied = satisfied;
                    return Ok(Some(room));
                }
                let ready = match lands {
                    true => self.land(step, pass, operand, len),
                    false => self.endpoints.receivers[operand.receiver as usize]
                        .is_ready(operand.ahead.into(), len),
                };
                if !ready {
                    self.work.cursors[lane].satisfied = satisfied;
                    return Ok(Some(LaneCondition::Message(operand.receiver)));
                }
                let slots = u64::from(bound.header.slots);
                let receiver = &self.endpoints.receivers[operand.receiver as usize];
                let arrived = receiver.message(slots, operand.ahead.into()).meta;
                if (arrived ^ wanted) >> 2 != 0 {
                    return Err(watchdog::unexpected(self, step, operand.receiver, arrived));
                }
            }
            satisfied += 1;
        }
        self.work.cursors[lane].satisfied = satisfied;
        Ok(self.no_room(step, pass, elements))
    }

    #[inline]
    fn no_room(&mut self, step: &BoundStep, pass: u32, elements: u64) -> Option<LaneCondition> {
        let bound = self.bound;
        let slots = u64::from(bound.header.slots);
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            let kind = self.kind(out, elements);
            if !self.endpoints.senders[out.sender as usize].has_room(kind, slots) {
                return Some(LaneCondition::Room(out.send));
            }
        }
        for drained in &bound.drained[step.drained.start as usize..step.drained.end as usize] {
            let send = &bound.sends[drained.send as usize];
            let first = self.work.before[drained.send as usize];
            let message = first + u64::from(pass) * send.messages + u64::from(drained.message);
            let sender = &mut self.endpoints.senders[send.sender as usize];
            // Only memory that was not copied is still being read after a message was sent. The message stands for
            // those before it, which may have stayed where they were though it did not.
            let stayed = sender.zero_copied();
            if stayed > first && !sender.is_consumed(message.min(stayed - 1)) {
                return Some(LaneCondition::Drained(drained.send));
            }
        }
        None
    }

    /// Returns the kind of a message: in a header or a slot, or read where it lies.
    #[inline]
    fn kind(&self, out: &OutEnd, elements: u64) -> ContentKind {
        let len = elements as usize * out.size as usize;
        if len >= out.direct.min(out.cma) {
            // A socket takes it from anywhere; of what peers map they need no kernel to read it.
            let mapped = out.posted || self.work.bases[out.buffer as usize].mapped.is_some();
            if mapped && len >= out.direct {
                return ContentKind::ZeroCopy;
            }
            if !mapped && len >= out.cma && self.endpoints.senders[out.sender as usize].reads() {
                return ContentKind::Cma;
            }
        }
        if len <= INLINE { ContentKind::Inline } else { ContentKind::Slot }
    }

    /// Executes the current step of a lane, which is not blocked.
    #[inline]
    fn step(&mut self, lane: usize) -> Result<(), Error> {
        let bound = self.bound;
        let LaneCursor { pass, step, elements, .. } = self.work.cursors[lane];
        let step = &bound.steps[step as usize];
        let zero_copy = self.targets(step, elements)?;
        let landed = step.lands && elements > 0 && self.has_landed(step);
        let stores = step.store != NOWHERE && (!step.dead || zero_copy) && !landed;
        if elements > 0 && (stores || !self.work.targets.is_empty()) {
            match self.sources(step, landed)? {
                false => self.fold(step, pass, stores, 0..u64::MAX),
                true => self.fetch(step, pass, stores)?,
            }
        }
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            self.post(step, out, pass, elements);
        }
        for operand in &bound.operands[step.inputs.start as usize..step.inputs.end as usize] {
            if operand.receiver != NOWHERE {
                self.endpoints.receivers[operand.receiver as usize].consume();
            }
        }
        Ok(())
    }

    /// Returns true if the only message of a step is at its destination, folded with the other inputs.
    #[inline]
    fn has_landed(&self, step: &BoundStep) -> bool {
        let operands = &self.bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        operands.iter().filter(|operand| operand.receiver != NOWHERE).any(|operand| {
            self.endpoints.receivers[operand.receiver as usize].has_landed(operands.len() == 1)
        })
    }

    /// Determines where the messages of a step are written; returns true if any stays where it is.
    #[inline]
    fn targets(&mut self, step: &BoundStep, elements: u64) -> Result<bool, Error> {
        let bound = self.bound;
        let slots = u64::from(bound.header.slots);
        let mut zero_copy = false;
        self.work.targets.clear();
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            let kind = self.kind(out, elements);
            let sender = &mut self.endpoints.senders[out.sender as usize];
            if matches!(kind, ContentKind::ZeroCopy | ContentKind::Cma) {
                zero_copy = true;
                continue;
            }
            let ptr = sender.place(kind, slots, elements as usize * out.size as usize)?;
            self.work.targets.push(FoldTarget { ptr, wire: out.wire, stream: false });
        }
        Ok(zero_copy)
    }

    /// Determines where the inputs of a step are read; returns true if any is in private memory of another process.
    #[inline]
    fn sources(&mut self, step: &BoundStep, landed: bool) -> Result<bool, Error> {
        let bound = self.bound;
        let mut cma = false;
        self.work.sources.clear();
        if landed {
            self.work.sources.push(OperandSource::Landed);
            return Ok(false);
        }
        for operand in &bound.operands[step.inputs.start as usize..step.inputs.end as usize] {
            if operand.receiver == NOWHERE {
                self.work.sources.push(OperandSource::Local);
                continue;
            }
            let receiver = &self.endpoints.receivers[operand.receiver as usize];
            let slots = u64::from(bound.header.slots);
            let message = receiver.message(slots, operand.ahead.into());
            let source = match message.kind() {
                _ if operand.posted => OperandSource::Dense(message.content),
                ContentKind::Inline | ContentKind::Slot => OperandSource::Dense(message.content),
                ContentKind::ZeroCopy if operand.place != NOWHERE => {
                    let base = message.pulled_from();
                    // Whatever base the peer gives, what is read must lie in its arena.
                    if !self.lies_in_arena(operand.receiver, base, operand.span) {
                        return Err(watchdog::mismatch(self, operand.receiver));
                    }
                    self.reads_peer = true;
                    let (low, high) = operand.span;
                    let len = high.wrapping_sub(low);
                    let lowest = self.group.heap().mapped(base.wrapping_add(low), len)?;
                    OperandSource::ZeroCopy(lowest.wrapping_sub(low as usize))
                }
                ContentKind::Cma if operand.place != NOWHERE => match receiver.reach() {
                    Some(pid) => {
                        (cma, self.reads_peer) = (true, true);
                        let (base, copy) = (message.pulled_from(), std::ptr::null_mut());
                        OperandSource::Cma { pid, base, copy }
                    }
                    None => return Err(watchdog::mismatch(self, operand.receiver)),
                },
                _ => return Err(watchdog::mismatch(self, operand.receiver)),
            };
            self.work.sources.push(source);
        }
        Ok(cma)
    }

    fn lies_in_arena(&self, receiver: u32, base: u64, span: (u64, u64)) -> bool {
        let Some(from) = self.bound.froms.iter().find(|f| f.receiver == receiver) else {
            return false;
        };
        let (low, high) = (base.wrapping_add(span.0), base.wrapping_add(span.1));
        self.group.lies_in_arena(from.peer, low, high)
    }

    /// Posts a message of a step.
    #[inline]
    fn post(&mut self, step: &BoundStep, out: &OutEnd, pass: u32, elements: u64) {
        let kind = self.kind(out, elements);
        let len = elements as usize * out.size as usize;
        let meta = meta(self.digest ^ step.tag, len, kind);
        self.stats.messages += 1;
        self.stats.bytes += len as u64;
        let sender = &mut self.endpoints.senders[out.sender as usize];
        match kind {
            ContentKind::Inline | ContentKind::Slot => sender.post(meta, len),
            ContentKind::ZeroCopy | ContentKind::Cma => {
                let bases = &self.work.bases;
                let BufferAddress { address, mapped } = bases[out.buffer as usize];
                let base = match kind {
                    ContentKind::ZeroCopy => mapped.unwrap_or(0),
                    _ => address as u64,
                };
                let pieces = pieces(self.bound, step, out.place, pass, bases)
                    .map(|(ptr, len)| IoVec { ptr, len });
                sender.rendezvous(kind, (meta, len), base.wrapping_sub(out.before), pieces);
                self.stats.pulled += 1;
            }
        }
    }

    /// Waits until no peer reads this rank's memory any more, and sockets have taken all messages.
    #[inline]
    fn finish(&mut self) -> Result<CallStats, Error> {
        if self.stats.pulled > 0 || self.bound.posted {
            for i in 0..self.bound.sends.len() {
                let mut waited = false;
                while self.is_read(i) {
                    self.pause()?;
                    waited = true;
                }
                self.progress();
                if let (true, Some(tracer)) = (waited, &mut self.recorder.tracer) {
                    tracer.drained(self.bound.sends[i].peer);
                }
            }
        }
        // A rank that fails raises the alarm before its memory serves other ends. So what was read
        // there is good if there is no alarm now.
        if self.reads_peer {
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            if self.group.is_aborted() {
                self.check_wait(WaitAction::Aborted)?;
            }
        }
        if let Some(tracer) = &mut self.recorder.tracer {
            tracer.call_ends(self.stats.bytes);
        }
        Ok(self.stats)
    }
}
