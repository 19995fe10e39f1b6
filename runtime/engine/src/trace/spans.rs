//! Spans: the steps and waits of every lane with their times, while tracing is on.
//!
//! The clock is read once a step: a step that follows another at once begins when that ended. Waits are
//! the times between the steps of a lane; each has the condition that the lane found missing.

use serde::{Deserialize, Serialize};

use crate::bind::{BoundPlan, LaneCondition, NOWHERE};
use crate::tunables::SPAN_NAMES_MAX;
use roundelay_support::waiting::AwaitedEvent;
use roundelay_support::waiting::now;

/// Spans that a rank keeps at most by default.
pub const SPANS: usize = 16 << 10;
/// The first of names that are not kept.
const NAMELESS: u32 = 1 << 30;
/// The lane of spans that are of a whole call.
const WHOLE: u32 = 0;
/// The number that stands for no rank.
const NO_PEER: u32 = u32::MAX;

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// A call.
    Call,
    /// A step of a lane, in one pass.
    Step,
    /// A wait.
    Wait(AwaitedEvent),
}

/// Something that took time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceSpan {
    /// The kind of the span.
    pub kind: SpanKind,
    /// Index of its name: of the call, or of the statement.
    pub name: u32,
    /// 0 for the call as a whole, else one more than the lane.
    pub lane: u32,
    /// The number of the call.
    pub call: u64,
    /// The index of the `each` of the program, from 0.
    pub step: u32,
    /// The pass over the plan, from 0.
    pub pass: u32,
    /// Bytes of the operands; of a call, bytes sent.
    pub bytes: u64,
    /// The rank that a wait is for; else `u32::MAX`.
    pub peer: u32,
    /// Nanoseconds of the machine's monotonic clock.
    pub begin: u64,
    /// The time at which it ended, in nanoseconds.
    pub end: u64,
}

/// One end of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFlow {
    /// Index of the span that sent or took it.
    pub span: u32,
    /// True if it was sent, false if it was received.
    pub out: bool,
    /// The rank at the other end.
    pub peer: u32,
    /// The channel.
    pub channel: u16,
    /// The number of the message of the call on this connection, from 0.
    pub number: u32,
}

/// The spans of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTrace {
    /// The rank.
    pub rank: u32,
    /// The machine whose clock the times are of.
    pub machine: String,
    /// The clock right after a barrier of all ranks: clocks of different machines are aligned by it.
    pub stamp: u64,
    /// The time that barrier took: the alignment is not better known than that.
    pub accuracy: u64,
    /// The names of spans and calls.
    pub names: Vec<String>,
    /// The spans, in the order in which they ended.
    pub spans: Vec<TraceSpan>,
    /// The ends of messages.
    pub flows: Vec<MessageFlow>,
    /// Spans that found no room.
    pub missing: u64,
}

impl RankTrace {
    /// Adds later spans of the same rank.
    pub fn join(&mut self, later: RankTrace) {
        let (names, spans) = (self.names.len() as u32, self.spans.len() as u32);
        self.names.extend(later.names);
        self.spans.extend(later.spans.into_iter().map(|s| TraceSpan { name: s.name + names, ..s }));
        self.flows
            .extend(later.flows.into_iter().map(|f| MessageFlow { span: f.span + spans, ..f }));
        self.missing += later.missing;
        self.accuracy = self.accuracy.max(later.accuracy);
    }
}

/// Collects spans.
pub struct SpanTracer {
    limit: usize,
    trace: RankTrace,
    /// The index of the first name of each bound plan seen, by digest.
    known: Vec<(u64, u32)>,
    lanes: Vec<LaneState>,
    /// Messages of this call sent on each sending end, and taken from each receiving one.
    sent: Vec<u32>,
    taken: Vec<u32>,
    call: u64,
    first_name: u32,
    began: u64,
    /// The end of the latest step, and true if nothing has come since.
    latest: u64,
    at_once: bool,
}

/// The state of a lane.
#[derive(Debug, Clone, Copy)]
struct LaneState {
    /// The time since which it has done nothing.
    idle: u64,
    waits: Option<LaneCondition>,
    /// The time at which its step began.
    step: u64,
}

impl SpanTracer {
    /// Begins the trace of a rank, of `limit` spans at most, with the clock's stamp and accuracy.
    pub fn new(rank: u32, limit: usize, stamp: u64, accuracy: u64) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        SpanTracer {
            limit,
            trace: RankTrace {
                rank,
                machine: boot.trim().to_owned(),
                stamp,
                accuracy,
                names: Vec::new(),
                spans: Vec::with_capacity(limit.min(1 << 20)),
                flows: Vec::with_capacity(limit.min(1 << 20)),
                missing: 0,
            },
            known: Vec::new(),
            lanes: Vec::new(),
            sent: Vec::new(),
            taken: Vec::new(),
            call: 0,
            first_name: 0,
            began: 0,
            latest: 0,
            at_once: false,
        }
    }

    /// Returns what was recorded.
    pub fn finish(self) -> RankTrace {
        self.trace
    }

    /// Returns the index of the name of a call; those of its statements follow.
    fn names(&mut self, bound: &BoundPlan) -> u32 {
        if let Some(&(_, first)) = self.known.iter().find(|(digest, _)| *digest == bound.digest) {
            return first;
        }
        let first = self.trace.names.len() as u32;
        if self.trace.names.len() + bound.sites.len() > SPAN_NAMES_MAX {
            return NAMELESS;
        }
        self.trace.names.push(bound.name());
        let sites = bound.sites.iter();
        self.trace.names.extend(sites.map(|s| format!("{}:{}: {}", s.file, s.line, s.text)));
        self.known.push((bound.digest, first));
        first
    }

    pub(crate) fn call_begins(&mut self, bound: &BoundPlan, call: u64) {
        (self.call, self.first_name) = (call, self.names(bound));
        self.sent.clear();
        self.sent.resize(bound.sends.len(), 0);
        self.taken.clear();
        self.taken.resize(bound.froms.len(), 0);
        self.began = now();
        self.latest = self.began;
        self.at_once = true;
        let idle = LaneState { idle: self.began, waits: None, step: 0 };
        self.lanes.clear();
        self.lanes.resize(bound.lanes.len(), idle);
    }

    /// Records that a lane cannot go on.
    #[inline]
    pub(crate) fn blocked(
        &mut self,
        bound: &BoundPlan,
        lane: usize,
        blocked: LaneCondition,
        at: (u32, u32),
    ) {
        self.at_once = false;
        let state = &mut self.lanes[lane];
        match state.waits {
            Some(known) if known == blocked => {}
            None => state.waits = Some(blocked),
            Some(_) => {
                let end = now();
                self.waited(bound, lane, end, at);
                self.lanes[lane].waits = Some(blocked);
            }
        }
    }

    /// Ends the wait of a lane.
    fn waited(&mut self, bound: &BoundPlan, lane: usize, end: u64, (step, pass): (u32, u32)) {
        let state = &mut self.lanes[lane];
        let begin = std::mem::replace(&mut state.idle, end);
        let Some(blocked) = state.waits.take() else { return };
        let (what, peer) = bound.awaited(blocked, self.trace.rank);
        let step = &bound.steps[step as usize];
        self.add(TraceSpan {
            kind: SpanKind::Wait(what),
            name: self.first_name + 1 + step.site,
            lane: lane as u32 + 1,
            call: self.call,
            step: step.round,
            pass,
            bytes: 0,
            peer,
            begin,
            end,
        });
    }

    /// Records that a lane begins a step.
    #[inline]
    pub(crate) fn step_begins(&mut self, bound: &BoundPlan, lane: usize, at: (u32, u32)) {
        let begin = if self.at_once { self.latest } else { now() };
        if self.lanes[lane].waits.is_some() {
            self.waited(bound, lane, begin, at);
        }
        self.lanes[lane].step = begin;
    }

    /// Records that a lane has ended a step.
    #[inline]
    pub(crate) fn step_ends(
        &mut self,
        bound: &BoundPlan,
        lane: usize,
        at: (u32, u32),
        elements: u64,
    ) {
        let end = now();
        (self.latest, self.at_once) = (end, true);
        self.lanes[lane].idle = end;
        let step = &bound.steps[at.0 as usize];
        let span = self.trace.spans.len() as u32;
        let added = self.add(TraceSpan {
            kind: SpanKind::Step,
            name: self.first_name + 1 + step.site,
            lane: lane as u32 + 1,
            call: self.call,
            step: step.round,
            pass: at.1,
            bytes: elements * bound.shape.size,
            peer: NO_PEER,
            begin: self.lanes[lane].step,
            end,
        });
        let inputs = &bound.operands[step.inputs.start as usize..step.inputs.end as usize];
        for operand in inputs.iter().filter(|o| o.receiver != NOWHERE) {
            let from = bound.froms.iter().position(|f| f.receiver == operand.receiver);
            let Some(index) = from else { continue };
            let number = self.taken[index];
            self.taken[index] += 1;
            let from = &bound.froms[index];
            let (peer, channel) = (from.peer, from.channel);
            self.flow(added, MessageFlow { span, out: false, peer, channel, number });
        }
        for out in &bound.outs[step.outs.start as usize..step.outs.end as usize] {
            let number = self.sent[out.send as usize];
            self.sent[out.send as usize] += 1;
            let send = &bound.sends[out.send as usize];
            let (peer, channel) = (send.peer, send.channel);
            self.flow(added, MessageFlow { span, out: true, peer, channel, number });
        }
    }

    /// Records that all lanes are done; the rank waited since then until a peer was done with its memory.
    pub(crate) fn drained(&mut self, peer: u32) {
        let (begin, end) = (self.latest, now());
        self.latest = end;
        self.add(TraceSpan {
            kind: SpanKind::Wait(AwaitedEvent::Drained),
            name: self.first_name,
            lane: WHOLE,
            call: self.call,
            step: 0,
            pass: 0,
            bytes: 0,
            peer,
            begin,
            end,
        });
    }

    pub(crate) fn call_ends(&mut self, bytes: u64) {
        self.add(TraceSpan {
            kind: SpanKind::Call,
            name: self.first_name,
            lane: WHOLE,
            call: self.call,
            step: 0,
            pass: 0,
            bytes,
            peer: NO_PEER,
            begin: self.began,
            end: now(),
        });
    }

    fn add(&mut self, span: TraceSpan) -> bool {
        let room = self.trace.spans.len() < self.limit;
        match room {
            true => self.trace.spans.push(span),
            false => self.trace.missing += 1,
        }
        room
    }

    fn flow(&mut self, added: bool, flow: MessageFlow) {
        // Several messages a step are drawn as far as there is room.
        if added && self.trace.flows.len() < 2 * self.limit {
            self.trace.flows.push(flow);
        }
    }
}
