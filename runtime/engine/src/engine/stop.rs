//! Ends the calls and messages of a rank from any thread, and reports when user memory is no longer accessed.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::messages::RankMessenger;
use crate::tunables::STOP_POLL_INTERVAL;
use roundelay_net::group::{AlarmClock, GroupAlarm, RankGroup};
use roundelay_support::abort::AbortRecord;
use roundelay_support::error::Error;
use roundelay_support::fork::OwnerProcess;

/// The number of calls, one inside another, in which the thread that makes calls uses memory of callers. That thread
/// alone changes it, and nothing else shares its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CallDepth(AtomicU32);

/// The means to end the calls and messages of a rank from any thread.
pub struct StopHandle {
    /// The process that is the rank.
    process: OwnerProcess,
    alarm: GroupAlarm,
    clock: AlarmClock,
    inside: CallDepth,
    messages: Mutex<Option<RankMessenger>>,
}

impl StopHandle {
    pub(super) fn of(group: &RankGroup) -> Self {
        let (alarm, clock) = (group.alarm(), group.alarm_clock());
        let (process, messages) = (OwnerProcess::here(), Mutex::new(None));
        StopHandle { process, alarm, clock, inside: CallDepth::default(), messages }
    }

    /// Makes known what moves this rank's messages with tags.
    pub(super) fn of_messages(&self, messenger: RankMessenger) {
        *self.messages.lock().unwrap_or_else(PoisonError::into_inner) = Some(messenger);
    }

    /// Records that a call begins. It has to look at the abort word before it writes.
    #[inline]
    pub(super) fn enter(&self) {
        let inside = &self.inside.0;
        inside.store(inside.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Records that a call has ended.
    #[inline]
    pub(super) fn leave(&self) {
        let inside = &self.inside.0;
        inside.store(inside.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Returns the number of this rank.
    pub fn rank(&self) -> u32 {
        self.alarm.rank()
    }

    /// Returns the number that the memory of this rank's communicator has, and no other.
    pub fn memory(&self) -> u64 {
        self.alarm.memory()
    }

    /// Returns true once a rank has made all ranks stop.
    pub fn is_raised(&self) -> bool {
        self.alarm.is_raised()
    }

    /// Makes all ranks stop. Waits, but no longer than that, until this rank writes to no caller's memory; returns
    /// true if so. Fails in a child of the rank's process, which ends nothing.
    pub fn raise(&self, cause: &AbortRecord, longest: Duration) -> Result<bool, Error> {
        self.process.check("communicator")?;
        let until = Instant::now() + longest;
        self.alarm.raise(cause);
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = messages.is_none_or(|messages| messages.cancel(until));
        // A call that began before the alarm has said so, and one that begins now sees the alarm.
        fence(Ordering::SeqCst);
        loop {
            self.clock.ring();
            std::thread::sleep(STOP_POLL_INTERVAL);
            if self.inside.0.load(Ordering::Acquire) == 0 {
                return Ok(silent);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
    }
}
