//! Traces of all ranks as one file in the trace event format, which Perfetto and Chrome read.
//!
//! A rank is a process. Its thread 0 shows calls, and waits at their ends; every lane is a thread with
//! its steps and waits. Arrows go from the step that sent a message to the one that took it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use super::spans::{MessageFlow, RankTrace, SpanKind, TraceSpan};

/// One event, with the names of the format.
#[derive(Serialize)]
struct TraceEvent<'a> {
    name: &'a str,
    cat: &'a str,
    ph: &'a str,
    pid: u32,
    tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// An arrow ends at the span around it, not at the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

/// Writes one file of the traces of all ranks.
///
/// Ranks of one machine share its clock. Those of another are shifted so that all ranks left the
/// barrier at which tracing began at the same time; how long that barrier took bounds the error, and is
/// written into the file.
///
/// # Errors
///
/// The errors of the writer.
pub fn write(traces: &[RankTrace], out: &mut impl Write) -> io::Result<()> {
    let clocks = HostClocks::new(traces);
    let missing: u64 = traces.iter().map(|t| t.missing).sum();
    let other = json!({
        "ranks": traces.len(),
        "missing_spans": missing,
        "clock": clocks.words(),
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{other},\"traceEvents\":[")?;
    let mut list = EventWriter { out, first: true };
    for trace in traces {
        one_rank(trace, &clocks, &mut list)?;
    }
    writeln!(list.out, "\n]}}")
}

struct EventWriter<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> EventWriter<'_, W> {
    fn add(&mut self, event: &TraceEvent<'_>) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::other)
    }

    fn about(&mut self, what: &str, pid: u32, tid: u32, args: Value) -> io::Result<()> {
        let (ts, dur, id, bp) = (None, None, None, None);
        self.add(&TraceEvent { name: what, cat: "", ph: "M", pid, tid, ts, dur, id, bp, args })
    }
}

fn one_rank<W: Write>(
    trace: &RankTrace,
    clocks: &HostClocks,
    list: &mut EventWriter<'_, W>,
) -> io::Result<()> {
    let pid = trace.rank;
    list.about("process_name", pid, 0, json!({ "name": format!("rank {pid}") }))?;
    list.about("process_sort_index", pid, 0, json!({ "sort_index": pid }))?;
    let threads = trace.spans.iter().map(|s| s.lane).max().unwrap_or(0);
    for tid in 0..=threads {
        let name = if tid == 0 { "calls".into() } else { format!("lane {}", tid - 1) };
        list.about("thread_name", pid, tid, json!({ "name": name }))?;
        list.about("thread_sort_index", pid, tid, json!({ "sort_index": tid }))?;
    }
    let mut flows = trace.flows.iter().peekable();
    for (index, span) in trace.spans.iter().enumerate() {
        let mut own = Vec::new();
        while let Some(flow) = flows.next_if(|f| f.span as usize == index) {
            own.push(*flow);
        }
        one_span(trace, span, &own, clocks, list)?;
    }
    if trace.missing > 0 {
        let last = trace.spans.last().map_or(trace.stamp, |s| s.end);
        let name = format!("the trace is full: {} spans are missing", trace.missing);
        list.add(&TraceEvent {
            name: &name,
            cat: "trace",
            ph: "i",
            pid,
            tid: 0,
            ts: Some(clocks.micros(trace, last)),
            dur: None,
            id: None,
            bp: None,
            args: Value::Null,
        })?;
    }
    Ok(())
}

fn one_span<W: Write>(
    trace: &RankTrace,
    span: &TraceSpan,
    flows: &[MessageFlow],
    clocks: &HostClocks,
    list: &mut EventWriter<'_, W>,
) -> io::Result<()> {
    let name = trace.names.get(span.name as usize).map_or("", String::as_str);
    let TraceSpan { call, step, pass, bytes, peer, .. } = *span;
    let peers = |out: bool| flows.iter().filter(|f| f.out == out).map(|f| f.peer).collect();
    let (title, cat, args) = match span.kind {
        SpanKind::Call => (name.to_owned(), "call", json!({ "call": call, "bytes_sent": bytes })),
        SpanKind::Step => {
            let (from, to): (Vec<u32>, Vec<u32>) = (peers(false), peers(true));
            let args = json!({
                "call": call, "step": step, "pass": pass, "bytes": bytes, "from": from, "to": to,
            });
            (name.to_owned(), "step", args)
        }
        SpanKind::Wait(what) => {
            let title = match peer == trace.rank {
                true => format!("wait for {}", what.text()),
                false => format!("wait for rank {peer}"),
            };
            let args = json!({
                "call": call, "step": step, "pass": pass, "peer": peer, "for": what.text(),
                "before": name,
            });
            (title, "wait", args)
        }
    };
    let (begin, end) = (clocks.micros(trace, span.begin), clocks.micros(trace, span.end));
    let (pid, tid) = (trace.rank, span.lane);
    list.add(&TraceEvent {
        name: &title,
        cat,
        ph: "X",
        pid,
        tid,
        ts: Some(begin),
        dur: Some(((end - begin) * 1e3).round() / 1e3),
        id: None,
        bp: None,
        args,
    })?;
    for flow in flows {
        let MessageFlow { out, peer, channel, number, .. } = *flow;
        let (from, to) = if out { (pid, peer) } else { (peer, pid) };
        list.add(&TraceEvent {
            name: "message",
            cat: "message",
            ph: if out { "s" } else { "f" },
            pid,
            tid,
            // Within the span, so that it is bound to no other.
            ts: Some(((begin + end) * 500.0).round() / 1e3),
            dur: None,
            id: Some(format!("{call}:{from}>{to}.{channel}#{number}")),
            bp: (!out).then_some("e"),
            args: Value::Null,
        })?;
    }
    Ok(())
}

/// The alignment of the clocks of machines.
struct HostClocks {
    /// The stamps by machine: the earliest of its ranks'.
    stamps: BTreeMap<String, u64>,
    accuracy: u64,
    /// Nanoseconds from the stamps back to the first span.
    before: u64,
}

impl HostClocks {
    fn new(traces: &[RankTrace]) -> Self {
        let mut stamps: BTreeMap<String, u64> = BTreeMap::new();
        for trace in traces {
            let stamp = stamps.entry(trace.machine.clone()).or_insert(trace.stamp);
            *stamp = (*stamp).min(trace.stamp);
        }
        let accuracy = traces.iter().map(|t| t.accuracy).max().unwrap_or(0);
        let first = |t: &RankTrace| {
            let first = t.spans.iter().map(|s| s.begin).min().unwrap_or(t.stamp);
            stamps.get(&t.machine).map_or(0, |stamp| stamp.saturating_sub(first))
        };
        let before = traces.iter().map(first).max().unwrap_or(0);
        HostClocks { stamps, accuracy, before }
    }

    /// Returns the microseconds since the beginning of the file.
    fn micros(&self, trace: &RankTrace, time: u64) -> f64 {
        let stamp = self.stamps.get(&trace.machine).copied().unwrap_or(trace.stamp);
        (time + self.before).saturating_sub(stamp) as f64 / 1e3
    }

    fn words(&self) -> String {
        match self.stamps.len() {
            0 | 1 => "one machine, one clock".into(),
            n => {
                let us = self.accuracy as f64 / 1e3;
                format!(
                    "{n} machines, aligned at a barrier that took {us} us: not better than that"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(rank: u32, machine: &str, stamp: u64, begin: u64) -> RankTrace {
        let span = TraceSpan {
            kind: SpanKind::Step,
            name: 0,
            lane: 1,
            call: 1,
            step: 0,
            pass: 0,
            bytes: 8,
            peer: u32::MAX,
            begin,
            end: begin + 500,
        };
        RankTrace {
            rank,
            machine: machine.into(),
            stamp,
            accuracy: 2000,
            names: vec!["a.algo:1: \"x\"".into()],
            spans: vec![span],
            flows: vec![MessageFlow {
                span: 0,
                out: rank == 0,
                peer: 1 - rank,
                channel: 0,
                number: 0,
            }],
            missing: u64::from(rank),
        }
    }

    #[test]
    fn clocks_of_machines_meet_at_the_barrier() {
        let traces = [trace(0, "a", 1_000_000, 1_001_000), trace(1, "b", 77, 3_077)];
        let mut bytes = Vec::new();
        write(&traces, &mut bytes).expect("memory");
        let file: Value = serde_json::from_slice(&bytes).expect("JSON");
        let clock = file["otherData"]["clock"].as_str().expect("words");
        assert!(clock.contains("2 machines") && clock.contains("2 us"), "{clock}");
        let events = file["traceEvents"].as_array().expect("events");
        let times: Vec<f64> =
            events.iter().filter(|e| e["ph"] == "X").filter_map(|e| e["ts"].as_f64()).collect();
        assert_eq!(times, [1.0, 3.0]);
        let ids: Vec<_> = events.iter().filter_map(|e| e["id"].as_str()).collect();
        assert_eq!(ids, ["1:0>1.0#0", "1:0>1.0#0"]);
        assert!(events.iter().any(|e| e["ph"] == "i"), "that it is full is said");
    }
}
