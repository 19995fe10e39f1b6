//! The queues of a connection: which of them live, what is open on them, when one is given up.
//!
//! A queue that fails is *ending* until its device has handed back all work that was open, so that nothing is
//! missed that came through it. Then it is destroyed: after that no device reads or writes for it. It has *ended*,
//! and this may be reported to the peer. A device that hands nothing back is not waited for.
//!
//! **A stall**: nothing that a queue wrote was delivered for a while, though this end looked, while on another
//! queue all is well. That is a cable, a port or a switch long before the device gives up. It may be a false
//! alarm, and costs no more than the queue. Where it is not better elsewhere there is more time: until then a
//! device should have said so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{QueueError, VerbsError};
use super::verbs::{
    AccessRequest, DeviceGid, QueuePair, VerbsDevice, WorkCompletion, WriteRequest,
};
use crate::tunables::{
    RDMA_FLUSH_TIMEOUT, RDMA_POLL_GAP_MAX, RDMA_QUEUE_STALL_TIMEOUT, RDMA_STREAM_STALL_TIMEOUT,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RailLife {
    Live,
    Ending(Instant),
    Ended,
}

/// A queue, and what is open on it.
pub(super) struct QueueRail {
    /// The queue; `None` once it was destroyed.
    queue: Option<QueuePair>,
    /// The device and the address of a queue that replaces it, the time at which that is made, and the pause
    /// before.
    pub(super) source: (Arc<VerbsDevice>, DeviceGid),
    pub(super) due: Option<Instant>,
    pub(super) pause: Duration,
    pub(super) made: Instant,
    /// True if another one is in its place.
    pub(super) is_replaced: bool,
    /// True if it carries no pieces, but accesses to the peer's memory: one that is refused costs the queue.
    pub(super) is_one_sided: bool,
    /// The number of its device: among those of the region, and of the registrations.
    pub(super) device: (usize, usize),
    /// The peer's key of its region.
    pub(super) peer_key: u32,
    life: RailLife,
    /// True if it has not ended on the other side.
    pub(super) live_there: bool,
    /// Writes that are not complete, and receives that are posted.
    open: u32,
    receives: u32,
    /// True if a write was delivered since the last look; and the time for which none was.
    moved: bool,
    waited: Duration,
    /// Writes that were delivered.
    #[cfg(test)]
    pub(super) delivered: u64,
}

impl QueueRail {
    /// Makes a rail of a queue, and posts its receives.
    pub(super) fn new(
        queue: QueuePair,
        device: usize,
        receives: u32,
    ) -> std::io::Result<QueueRail> {
        for _ in 0..receives {
            queue.receive()?;
        }
        Ok(QueueRail {
            source: (queue.device().clone(), queue.gid()),
            queue: Some(queue),
            due: None,
            pause: Duration::ZERO,
            made: Instant::now(),
            is_replaced: false,
            is_one_sided: false,
            device: (device, 0),
            peer_key: 0,
            life: RailLife::Live,
            live_there: true,
            open: 0,
            receives,
            moved: false,
            waited: Duration::ZERO,
            #[cfg(test)]
            delivered: 0,
        })
    }

    pub(super) fn queue(&self) -> Option<&QueuePair> {
        self.queue.as_ref()
    }

    pub(super) fn is_live(&self) -> bool {
        self.life == RailLife::Live
    }

    /// Returns true if nothing goes through it any more, either way.
    pub(super) fn has_ended(&self) -> bool {
        self.life == RailLife::Ended
    }
}

/// All queues of a connection.
pub(super) struct RailSet {
    pub(super) all: Vec<QueueRail>,
    /// Writes in a queue.
    depth: u32,
    turn: usize,
    looked: Instant,
    /// The device of the last queue that failed, and the reason.
    last_failure: Option<(String, QueueError)>,
    /// The queue that gets no receives, and the only one to write through.
    #[cfg(test)]
    starved: Option<usize>,
    #[cfg(test)]
    pub(super) only: Option<usize>,
}

impl RailSet {
    pub(super) fn new(all: Vec<QueueRail>, depth: u32) -> RailSet {
        RailSet {
            all,
            depth,
            turn: 0,
            looked: Instant::now(),
            last_failure: None,
            #[cfg(test)]
            starved: None,
            #[cfg(test)]
            only: None,
        }
    }

    /// Returns true if pieces can be written.
    pub(super) fn are_live(&self) -> bool {
        self.all.iter().any(|rail| rail.is_live() && !rail.is_one_sided)
    }

    /// Returns the live queue for accesses to the peer's memory.
    pub(super) fn one_sided(&self) -> Option<usize> {
        self.all.iter().position(|rail| rail.is_live() && rail.is_one_sided)
    }

    /// Returns the reason for which nothing moves any more.
    pub(super) fn trouble(&self) -> Option<VerbsError> {
        if self.are_live() {
            return None;
        }
        let counts = |rail: &&QueueRail| !rail.is_replaced && !rail.is_one_sided;
        let count = self.all.iter().filter(counts).count();
        Some(match self.last_failure.clone() {
            Some((device, source)) => VerbsError::NoQueue { count, device, source },
            None => VerbsError::Cut,
        })
    }

    /// Destroys all of them: when it returns no device reads or writes memory for them.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.last_failure = None;
    }

    /// Returns a live queue for pieces with room, in turn.
    pub(super) fn pick(&mut self) -> Option<usize> {
        let count = self.all.len();
        #[cfg(test)]
        if self.only.is_some() {
            return self.only;
        }
        let fits = |&at: &usize| self.has_room(at) && !self.all[at].is_one_sided;
        let found = (1..=count).map(|step| (self.turn + step) % count).find(fits)?;
        self.turn = found;
        Some(found)
    }

    /// Returns true if a queue lives and takes a write.
    pub(super) fn has_room(&self, at: usize) -> bool {
        self.all.get(at).is_some_and(|rail| rail.is_live() && rail.open < self.depth)
    }

    /// Posts a write on a queue that was picked.
    pub(super) fn write(&mut self, at: usize, write: &WriteRequest<'_>) -> Result<(), QueueError> {
        let rail = &mut self.all[at];
        let Some(queue) = &rail.queue else { return Err(QueueError::Destroyed) };
        queue.write(write)?;
        rail.open += 1;
        Ok(())
    }

    /// Posts an access to the peer's memory on the queue for that.
    pub(super) fn access(
        &mut self,
        at: usize,
        access: &AccessRequest<'_>,
    ) -> Result<(), QueueError> {
        let rail = &mut self.all[at];
        let Some(queue) = &rail.queue else { return Err(QueueError::Destroyed) };
        queue.access(access)?;
        rail.open += 1;
        Ok(())
    }

    /// Collects what was completed.
    pub(super) fn poll(&self, news: &mut Vec<(usize, WorkCompletion)>) {
        for (at, rail) in self.all.iter().enumerate() {
            if let Some(queue) = &rail.queue {
                while queue.poll(|completion| news.push((at, completion))) == 16 {}
            }
        }
    }

    /// Counts what was completed; if a queue failed with it, returns the reason.
    pub(super) fn count(&mut self, at: usize, completion: WorkCompletion) -> Option<QueueError> {
        let rail = self.all.get_mut(at)?;
        match completion {
            WorkCompletion::Written(_) => {
                rail.open = rail.open.saturating_sub(1);
                rail.moved = true;
                #[cfg(test)]
                (rail.delivered += 1);
                None
            }
            WorkCompletion::Arrived { .. } => {
                rail.receives = rail.receives.saturating_sub(1);
                let queue = rail.queue.as_ref().filter(|_| rail.life == RailLife::Live)?;
                #[cfg(test)]
                if self.starved == Some(at) {
                    return None;
                }
                match queue.receive() {
                    Ok(()) => {
                        rail.receives += 1;
                        None
                    }
                    Err(error) => Some(error.into()),
                }
            }
            WorkCompletion::Failed { write, status: code } => {
                let count = if write { &mut rail.open } else { &mut rail.receives };
                *count = count.saturating_sub(1);
                rail.is_live().then_some(QueueError::Status(code))
            }
        }
    }

    /// Records that a queue failed; returns true if that is news.
    pub(super) fn lose(&mut self, at: usize, why: QueueError) -> bool {
        let Some(rail) = self.all.get_mut(at).filter(|rail| rail.is_live()) else { return false };
        rail.life = RailLife::Ending(Instant::now());
        if let Some(queue) = &rail.queue {
            queue.end();
        }
        if !rail.is_one_sided {
            self.last_failure = Some((rail.source.0.name.clone(), why));
        }
        true
    }

    /// Returns a queue that has ended since it was last asked. What was completed has been collected just
    /// before.
    pub(super) fn ended(&mut self) -> Option<usize> {
        let done = |rail: &QueueRail| match rail.life {
            RailLife::Ending(since) => {
                rail.open == 0 && rail.receives == 0 || since.elapsed() > RDMA_FLUSH_TIMEOUT
            }
            RailLife::Live | RailLife::Ended => false,
        };
        let at = self.all.iter().position(done)?;
        let rail = &mut self.all[at];
        (rail.life, rail.queue) = (RailLife::Ended, None);
        Some(at)
    }

    /// Returns the queues that have ended, as a mask.
    pub(super) fn mask(&self) -> u32 {
        let ended = self.all.iter().enumerate().filter(|(_, rail)| rail.has_ended());
        ended.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// Returns a queue through which nothing is delivered, and the time for which nothing was.
    pub(super) fn stalled(&mut self, now: Instant) -> Option<(usize, Duration)> {
        let step = now.saturating_duration_since(self.looked).min(RDMA_POLL_GAP_MAX);
        self.looked = now;
        for rail in &mut self.all {
            let idle = rail.open == 0 || std::mem::take(&mut rail.moved);
            rail.waited = if idle { Duration::ZERO } else { rail.waited + step };
        }
        #[cfg(test)]
        if self.only.is_some() {
            return None;
        }
        let live = |waited: &dyn Fn(Duration) -> bool| {
            self.all.iter().position(|rail| rail.is_live() && waited(rail.waited))
        };
        let carries = |rail: &&QueueRail| rail.is_live() && !rail.is_one_sided;
        let well =
            self.all.iter().filter(carries).any(|rail| rail.waited < RDMA_QUEUE_STALL_TIMEOUT / 2);
        let at = live(&|waited| {
            waited >= if well { RDMA_QUEUE_STALL_TIMEOUT } else { RDMA_STREAM_STALL_TIMEOUT }
        })?;
        Some((at, self.all[at].waited))
    }
}

/// Functions with which tests interfere with queues.
#[cfg(test)]
impl RailSet {
    /// Posts no more receives on a queue.
    pub(super) fn starve(&mut self, at: usize) {
        self.starved = Some(at);
    }

    /// Posts receives again on a queue that had none.
    pub(super) fn feed(&mut self, at: usize) {
        self.starved = None;
        let queue = self.all[at].queue().expect("a queue");
        (0..4).for_each(|_| queue.receive().expect("room for a receive"));
        self.all[at].receives += 4;
    }

    /// Gives a queue a local address that does not exist: connecting it fails.
    pub(super) fn misplace(&mut self, at: usize) {
        self.all[at].queue.as_mut().expect("a queue").misplace();
    }

    /// Lets a queue die.
    pub(super) fn kill(&self, at: usize) {
        self.all[at].queue().expect("a queue").end();
    }
}

#[cfg(test)]
impl QueueRail {
    pub(super) fn state(&self) -> String {
        let there = if self.live_there { "lives" } else { "has ended" };
        let QueueRail { life, open, receives, .. } = self;
        format!("{life:?}, {there} there, {open} writes and {receives} receives open")
    }
}
