//! The flight recorder: a ring of the latest calls and long waits.

use super::spans::SpanTracer;
use crate::bind::BoundPlan;
use crate::tunables::{EVENTS_PER_CLOCK_READ, FLIGHT_NAMES_MAX};
use roundelay_support::dtype::{DType, RedOp};
use roundelay_support::waiting::WaitRecord;
use roundelay_support::waiting::{AwaitedEvent, coarse, now};

/// Events that a rank remembers.
pub const EVENTS: usize = 1024;

/// The description of a call for the recorder.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLabel {
    /// Index of the name; 0 is a meeting of all ranks, without a plan.
    pub(super) name: u16,
    pub(super) dtype: DType,
    pub(super) op: RedOp,
    pub(super) count: u64,
}

const MEETING: CallLabel = CallLabel { name: 0, dtype: DType::U8, op: RedOp::Sum, count: 0 };

/// An event of the recorder.
#[derive(Debug, Clone, Copy)]
pub(super) enum FlightEvent {
    /// A call, begun not before that time. It has ended, if another one follows.
    Call { call: u64, digest: u32, label: CallLabel, at: u64 },
    /// A wait of a millisecond or more, and when it was over, 0 if it was not.
    Wait { call: u64, waiting: RecordedWait, until: u64 },
}

/// The essence of a [`WaitRecord`].
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordedWait {
    pub(super) peer: u32,
    pub(super) step: u32,
    pub(super) line: u32,
    pub(super) channel: u16,
    pub(super) pass: u16,
    pub(super) what: AwaitedEvent,
    pub(super) since: u64,
}

/// The flight recorder of a rank: allocated once, never larger. What is not recorded yet is not touched.
pub struct FlightRecorder {
    ring: Vec<FlightEvent>,
    /// Events recorded since the beginning.
    recorded: u64,
    /// The last reading of the clock.
    stamp: u64,
    /// The labels by the index of the bound plan.
    labels: Vec<CallLabel>,
    names: Vec<String>,
    /// The wait in progress, once it is long, and where it is recorded.
    waiting: Option<(WaitRecord, usize)>,
    /// Spans, while tracing is on.
    pub tracer: Option<Box<SpanTracer>>,
}

impl FlightRecorder {
    pub(crate) fn new() -> Self {
        FlightRecorder {
            ring: Vec::with_capacity(EVENTS),
            recorded: 0,
            stamp: 0,
            labels: Vec::new(),
            names: vec!["barrier".into()],
            waiting: None,
            tracer: None,
        }
    }

    /// Records the label of the calls of a bound plan.
    pub(crate) fn learn(&mut self, at: usize, bound: &BoundPlan) {
        let name = bound.name();
        let index = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            if self.names.len() < FLIGHT_NAMES_MAX {
                self.names.push(name);
            }
            self.names.len() - 1
        });
        let (dtype, op, count) = (bound.key.dtype, bound.key.op, bound.key.count);
        self.labels.resize(self.labels.len().max(at + 1), MEETING);
        self.labels[at] = CallLabel { name: index as u16, dtype, op, count };
    }

    #[inline]
    fn push(&mut self, event: FlightEvent) -> usize {
        let at = self.recorded as usize % EVENTS;
        self.recorded += 1;
        match self.ring.get_mut(at) {
            Some(place) => *place = event,
            None => self.ring.push(event),
        }
        at
    }

    /// Records the begin of a call, of a bound plan or without one.
    #[inline]
    pub(crate) fn begin(&mut self, call: u64, digest: u32, bound: Option<usize>) {
        let label = bound.and_then(|at| self.labels.get(at)).copied().unwrap_or(MEETING);
        if self.recorded.is_multiple_of(EVENTS_PER_CLOCK_READ) {
            self.stamp = coarse();
        }
        let at = self.stamp;
        self.push(FlightEvent::Call { call, digest, label, at });
    }

    /// Records that a wait has become long, or goes on.
    pub(crate) fn waits(&mut self, waiting: &WaitRecord) {
        if let Some((known, _)) = &mut self.waiting
            && known.since == waiting.since
        {
            *known = *waiting;
            return;
        }
        let WaitRecord { peer, step, line, channel, pass, what, since, call, .. } = *waiting;
        let waits = RecordedWait { peer, step, line, channel, pass, what, since };
        let at = self.push(FlightEvent::Wait { call, waiting: waits, until: 0 });
        self.waiting = Some((*waiting, at));
    }

    /// Records that the long wait is over.
    pub(crate) fn resumes(&mut self) {
        let Some((waiting, at)) = self.waiting.take() else { return };
        if let FlightEvent::Wait { waiting: RecordedWait { since, .. }, until, .. } =
            &mut self.ring[at]
            && *since == waiting.since
        {
            *until = now();
            self.stamp = *until;
        }
    }

    /// Returns the wait of this rank, if it is long.
    pub(crate) fn waiting(&self) -> Option<&WaitRecord> {
        self.waiting.as_ref().map(|(waiting, _)| waiting)
    }

    /// Returns the number of events recorded since the beginning.
    pub(super) fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Returns the latest events, oldest first.
    pub(super) fn latest(&self, most: usize) -> impl Iterator<Item = &FlightEvent> {
        let n = most.min(EVENTS).min(self.recorded as usize) as u64;
        (self.recorded - n..self.recorded).map(|i| &self.ring[i as usize % EVENTS])
    }

    pub(super) fn name(&self, label: &CallLabel) -> &str {
        self.names.get(usize::from(label.name)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_stays_as_large_as_it_is() {
        let mut recorder = FlightRecorder::new();
        let before = recorder.ring.capacity();
        for call in 1..=100_000 {
            recorder.begin(call, 7, None);
            if call % 3 == 0 {
                recorder.waits(&WaitRecord::new(AwaitedEvent::Message, 1, call, 7, call));
                recorder.resumes();
            }
        }
        assert_eq!((recorder.ring.len(), recorder.ring.capacity()), (EVENTS, before));
        assert_eq!((recorder.names.len(), recorder.labels.len()), (1, 0));
        let events: Vec<_> = recorder.latest(usize::MAX).collect();
        assert_eq!(events.len(), EVENTS);
        assert!(matches!(events[EVENTS - 1], FlightEvent::Call { call: 100_000, .. }));
        assert!(size_of::<FlightEvent>() <= 64, "an event is a line");
    }

    #[test]
    fn a_wait_is_one_event_however_long() {
        let mut recorder = FlightRecorder::new();
        recorder.begin(1, 7, None);
        let waiting = WaitRecord::new(AwaitedEvent::Message, 1, 1, 7, 5);
        for _ in 0..10 {
            recorder.waits(&waiting);
        }
        assert_eq!(recorder.recorded(), 2);
        assert_eq!(recorder.waiting(), Some(&waiting));
        recorder.resumes();
        assert_eq!(recorder.waiting(), None);
        let last = recorder.latest(1).next();
        assert!(matches!(last, Some(FlightEvent::Wait { until: 1.., .. })), "{last:?}");
    }
}
