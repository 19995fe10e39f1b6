//! Tests traces and flight recorders of real runs, as files.

use std::path::Path;

use crate::support::roundelay;
use serde_json::Value;

fn read(path: &str) -> Value {
    let text = std::fs::read_to_string(path).expect("a file");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {path}"))
}

fn path(name: &str) -> String {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).display().to_string()
}

fn number(event: &Value, name: &str) -> f64 {
    event[name].as_f64().unwrap_or_else(|| panic!("no {name} in {event}"))
}

#[test]
fn a_trace_names_source_lines_and_nests() {
    let file = path("ring_trace.json");
    let args = ["run", "all_reduce.ring", "-n", "3", "--bytes", "1K,256K", "--iters", "10"];
    let ran = roundelay(&[&args[..], &["--trace", &file]].concat()).ok();
    assert!(ran.err.contains("trace: "), "{}", ran.err);
    let trace = read(&file);
    let events = trace["traceEvents"].as_array().expect("events");
    assert_eq!(trace["otherData"]["missing_spans"], 0);
    let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).collect::<Vec<_>>();
    let spans = of("X");
    for rank in 0..3 {
        let own: Vec<&Value> = spans.iter().filter(|e| e["pid"] == rank).copied().collect();
        let calls: Vec<&Value> = own.iter().filter(|e| e["cat"] == "call").copied().collect();
        assert_eq!(calls.len(), 6, "three of each size");
        let lanes = events.iter().filter(|e| {
            e["pid"] == rank && e["name"] == "thread_name" && e["tid"].as_u64() > Some(0)
        });
        assert!(lanes.count() >= 1);
        let mut ends = [0.0f64; 64];
        for span in own.iter().filter(|e| e["cat"] != "call") {
            let (begin, dur) = (number(span, "ts"), number(span, "dur"));
            let call = calls.iter().find(|c| c["args"]["call"] == span["args"]["call"]);
            let call = call.expect("its call");
            let (from, to) = (number(call, "ts"), number(call, "ts") + number(call, "dur"));
            assert!(from <= begin + 1e-3 && begin + dur <= to + 1e-3, "{span} in {call}");
            let end = &mut ends[number(span, "tid") as usize];
            assert!(*end <= begin + 1e-3, "{span} begins before {end}");
            *end = begin + dur;
        }
    }
    let steps = spans.iter().filter(|e| e["cat"] == "step");
    for step in steps {
        let name = step["name"].as_str().expect("a name");
        assert!(name.contains("ring.algo:") && name.contains("r -> "), "{name}");
        assert!(step["args"]["bytes"].as_u64().is_some(), "{step}");
    }
    let ids = |ph: &str| {
        let mut ids: Vec<&str> = of(ph).iter().filter_map(|e| e["id"].as_str()).collect();
        ids.sort_unstable();
        ids.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(!ids("s").is_empty());
    assert_eq!(ids("s"), ids("f"), "every message is sent and taken");
}

#[test]
fn a_trace_that_cannot_be_written_is_an_error() {
    let args = ["run", "all_reduce.ring", "-n", "2", "--bytes", "8", "--iters", "1", "--trace"];
    let ran = roundelay(&[&args[..], &["/nonexistent/trace.json"]].concat());
    ran.fails(3, &["trace: /nonexistent/trace.json"]);
}
