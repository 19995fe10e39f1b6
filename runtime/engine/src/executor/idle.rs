//! Waits while none of a rank's lanes can go: attends to sockets, determines what each lane waits for, and asks
//! the watchdog whether to continue.

use super::execution::PlanExecution;
use super::watchdog;
use crate::bind::LaneCondition;
use crate::bind::{BoundPlan, BoundStep};
use crate::progress::wait::WaitAction;
use roundelay_support::error::Error;

impl PlanExecution<'_> {
    /// Returns true if the peer of a send may still read memory of this call that was not copied, or a socket
    /// has not taken all yet.
    pub(super) fn is_read(&mut self, send: usize) -> bool {
        let sender = &mut self.endpoints.senders[self.bound.sends[send].sender as usize];
        let zero_copied = sender.zero_copied();
        !sender.flush()
            || zero_copied > self.work.before[send] && !sender.is_consumed(zero_copied - 1)
    }

    /// Refills pipes that peers read from; returns true if anything has moved, here or at a peer, since the last call.
    fn push(&mut self) -> bool {
        let mut moved = false;
        for send in &self.bound.sends {
            moved |= self.endpoints.senders[send.sender as usize].push();
        }
        let receivers = self.bound.froms.iter().map(|from| from.receiver as usize);
        let taken = receivers.map(|at| self.endpoints.receivers[at].taken()).sum();
        moved | (std::mem::replace(&mut self.taken, taken) != taken)
    }

    /// Records that a lane has come to its end: if it executes a part of a split by bandwidth, notes the time.
    #[inline]
    pub(super) fn part_ended(&mut self, lane: usize) {
        if let Some(&Some(part)) = self.bound.parts.get(lane) {
            self.work.clock.end(part.into());
        }
    }

    #[inline]
    pub(super) fn pause(&mut self) -> Result<(), Error> {
        if self.bound.cma && self.push() {
            self.progress();
            return Ok(());
        }
        if self.bound.posted {
            for send in self.bound.sends.iter().filter(|send| send.posted) {
                self.endpoints.senders[send.sender as usize].flush();
            }
        }
        match self.wait.pause(self.group) {
            WaitAction::Again => Ok(()),
            WaitAction::Doze => {
                self.endpoints.tend();
                let _ = self.attend();
                self.endpoints.doze(self.bound.ends());
                Ok(())
            }
            look => {
                self.endpoints.tend();
                // The wait that would be examined is over.
                if self.bound.posted && self.attend() && look != WaitAction::Aborted {
                    return Ok(());
                }
                self.check_wait(look)
            }
        }
    }

    /// Attends to sockets in a wait: a part of a message is progress too, and where all messages come
    /// through sockets, the processor is left to other threads. Returns true if there was progress.
    #[cold]
    fn attend(&mut self) -> bool {
        let moved = self.endpoints.moved(self.bound.ends());
        if moved != self.moved {
            self.moved = moved;
            self.progress();
            return true;
        }
        if self.wait.is_long() && self.bound.froms.iter().all(|from| from.posted) {
            self.wait.sleeps();
            self.endpoints.doze(self.bound.ends());
        }
        false
    }

    #[cold]
    pub(super) fn check_wait(&mut self, look: WaitAction) -> Result<(), Error> {
        let (lane, blocked) = self.obstacle()?;
        watchdog::decide_wait(self, look, lane, blocked)
    }

    /// Returns the first lane that waits for another rank, and its condition; lanes that wait for it follow.
    pub(crate) fn obstacle(&mut self) -> Result<(Option<usize>, Option<LaneCondition>), Error> {
        let mut found = (None, None);
        for lane in 0..self.bound.lanes.len() {
            if self.is_done(lane) {
                continue;
            }
            match self.blocked(lane)? {
                Some(blocked @ LaneCondition::After(_)) if found.0.is_none() => {
                    found = (Some(lane), Some(blocked));
                }
                Some(LaneCondition::After(_)) | None => {}
                Some(blocked) => return Ok((Some(lane), Some(blocked))),
            }
        }
        if found.0.is_none() {
            let read = (0..self.bound.sends.len()).find(|&i| self.is_read(i));
            found.1 = read.map(|i| LaneCondition::Drained(i as u32));
        }
        Ok(found)
    }

    /// Returns the conditions that lanes wait for, other than lanes.
    pub(crate) fn obstacles(&mut self) -> Result<Vec<LaneCondition>, Error> {
        let mut found = Vec::new();
        for lane in 0..self.bound.lanes.len() {
            if self.is_done(lane) {
                continue;
            }
            found.extend(self.blocked(lane)?.filter(|b| !matches!(b, LaneCondition::After(_))));
        }
        Ok(found)
    }

    /// Returns the pass that a lane is in, as far as 16 bits go.
    pub(crate) fn pass(&self, lane: usize) -> u16 {
        u16::try_from(self.work.cursors[lane].pass).unwrap_or(u16::MAX)
    }

    /// Returns the step that a lane is at; of no lane, the last that sends what is not taken yet.
    pub(crate) fn at(
        &self,
        lane: Option<usize>,
        blocked: Option<LaneCondition>,
    ) -> Option<&BoundStep> {
        let BoundPlan { steps, outs, .. } = self.bound;
        let sends = |step: &&BoundStep, send| {
            outs[step.outs.start as usize..step.outs.end as usize].iter().any(|o| o.send == send)
        };
        match (lane, blocked) {
            (Some(lane), _) => steps.get(self.work.cursors[lane].step as usize),
            (None, Some(LaneCondition::Drained(send))) => {
                steps.iter().rfind(|step| sends(step, send))
            }
            _ => steps.last(),
        }
    }
}
