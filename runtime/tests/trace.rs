//! Tests who waits for whom, as real ranks report it; traces of real calls.

use std::time::Duration;

use crate::support::{
    Part, chunk, data, everywhere, header, layout, local, patiently, ring, threads,
};
use roundelay::trace::{
    CauseClass, DumpEntry, RankTrace, SPANS, SpanKind, TraceSpan, delays, diagnose, live, merge,
    write,
};
use roundelay::{Communicator, Error, RedOp};
use roundelay_compiler::plan::Plan;
use roundelay_dsl::diag::codes;
use roundelay_tests::until;
use serde_json::Value;

/// Makes plans in which everybody takes from the left before it sends to the right: no checker would prove this.
fn circle(n: u32) -> Vec<Plan> {
    let header = header("all_reduce", "circle", n, 1);
    let part = |r: u32| {
        let mut part = Part::new(&header, r);
        let region = || data(chunk(0, 1));
        let message = part.recv((r + n - 1) % n, 0, None);
        part.op(vec![message], Some(region()), vec![], chunk(0, 1));
        let out = part.send((r + 1) % n, 0, None);
        part.op(vec![local(region())], None, vec![out], chunk(0, 1));
        part.plan()
    };
    (0..n).map(part).collect()
}

#[test]
fn a_circle_is_told_link_by_link() {
    let plans = circle(3);
    patiently(|timeout| {
        let found = threads(layout(3, 1024), |comm, rank| {
            comm.barrier().expect("a barrier");
            comm.set_timeout(timeout);
            let error = comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]);
            (error.expect_err("a circle"), comm.flight().expect("its memory"))
        });
        let (errors, flights): (Vec<Error>, Vec<_>) = found.into_iter().unzip();
        let first = errors.iter().find(|e| matches!(e, Error::Timeout { .. })).expect("a timeout");
        let text = first.to_string();
        let wanted = [
            "a cycle: rank 0 waits for rank 2 (call 2, step 0, hand.algo:1)",
            ", which waits for rank 0 (call 2, step 0, hand.algo:1); ",
        ];
        let verdict = diagnose(&merge(3, &flights, &[]), None).expect("a verdict");
        let found = (verdict.class, &verdict.ranks[..]) == (CauseClass::Cycle, &[0, 2, 1][..]);
        match found && wanted.iter().all(|words| text.contains(words)) {
            true => Ok(()),
            false => Err(format!("{text}, {verdict}")),
        }
    });
}

/// Waits until all other ranks of this process have begun a call.
fn await_callers(comm: &mut Communicator, call: u64) {
    let own = comm.flight().expect("its memory");
    let pid = i32::try_from(std::process::id()).expect("a number");
    let missing = || format!("not all others have begun call {call}");
    until(Duration::from_secs(60), missing, || {
        let all = live(pid).expect("this process has ranks");
        let flights = all.iter().filter(|live| live.communicator == own.communicator);
        let begun = flights.flat_map(|live| &live.flights).filter(|f| f.calls >= call);
        begun.filter(|flight| flight.rank != own.rank).count() as u32 == own.ranks - 1
    });
}

/// Waits until a rank of a communicator of this process has published that it waits.
fn wait_until_shown(communicator: &str, rank: u32) {
    let pid = i32::try_from(std::process::id()).expect("a number");
    let missing = || format!("rank {rank} does not wait");
    until(Duration::from_secs(60), missing, || {
        let all = live(pid).expect("this process has ranks");
        let flights = all.iter().filter(|live| live.communicator == communicator);
        let mut waits = flights.flat_map(|live| &live.flights).filter(|f| f.waiting.is_some());
        waits.any(|flight| flight.rank == rank)
    });
}

/// A wait that was published is taken back when it is over, however the awaited message came: sockets bring it in
/// parts, and other ranks would see this one waiting for ever.
#[test]
fn a_wait_that_is_over_is_not_told() {
    const COUNT: usize = 4 << 20;
    for flights in everywhere(2, 1 << 20, |comm, rank| {
        let mut data = vec![1.0f32; COUNT];
        let mut waited = false;
        // By chance a message comes at once, or is seen whole.
        for _ in 0..5 {
            if rank == 1 {
                wait_until_shown(&comm.flight().expect("its memory").communicator, 0);
            }
            comm.all_reduce(&mut data, RedOp::Max).expect("it comes late");
            waited |= comm.flight().expect("its memory").events.iter().any(is_wait);
        }
        (comm.flight().expect("its memory"), waited)
    }) {
        assert!(flights[0].1, "it has waited: {:?}", flights[0].0);
        for (flight, _) in flights {
            assert_eq!(flight.waiting, None, "{flight:?}");
        }
    }
}

fn is_wait(entry: &DumpEntry) -> bool {
    matches!(entry, DumpEntry::Wait { .. })
}

#[test]
fn the_odd_call_is_found_from_the_dumps() {
    let plans = ring(&header("all_reduce", "ring", 4, 4));
    let flights = threads(layout(4, 1024), |comm, rank| {
        comm.set_timeout(Duration::from_secs(20));
        for round in 0..5 {
            let is_odd = rank == 2 && round == 3;
            if is_odd {
                // A rank that has not begun the call when another aborts does not make it.
                await_callers(comm, 4);
            }
            let op = if is_odd { RedOp::Max } else { RedOp::Sum };
            let result = comm.run_in_place(&plans[rank], op, &mut [1.0f32; 10]);
            if let Err(error) = result {
                assert_eq!(error.code(), codes::PLAN_MISMATCH, "{error}");
                break;
            }
        }
        comm.flight().expect("its memory")
    });
    let verdict = diagnose(&merge(4, &flights, &[]), Some(0)).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Mismatch, &[2][..]), "{verdict}");
    assert_eq!(
        verdict.to_string(),
        "call 4 is not the same on all ranks: rank 2 makes all_reduce.ring of 10 x f32 with max, \
         ranks 0, 1 and 3 make all_reduce.ring of 10 x f32 with sum"
    );
}

#[test]
fn a_rank_in_no_call_is_told_with_who_waits() {
    let plans = ring(&header("all_reduce", "ring", 3, 3));
    patiently(|timeout| {
        let begun = std::sync::Barrier::new(3);
        let errors = threads(layout(3, 1024), |comm, rank| {
            let mut vector = [1.0f32; 9];
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run");
            comm.set_timeout(timeout);
            let error =
                (rank != 1).then(|| comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector));
            begun.wait();
            error.map(|e| e.expect_err("late").to_string())
        });
        let waits = |text: &String| {
            text.contains("rank 1 (process ")
                && text.contains("has not made call 2")
                && text.contains("ranks 0 and 2 wait for it")
        };
        match errors.iter().flatten().any(waits) {
            true => Ok(()),
            false => Err(format!("{errors:?}")),
        }
    });
}

/// One rank computes for longer than the others before every call.
#[test]
fn a_rank_that_computes_for_long_is_told_from_what_the_others_waited() {
    let plans = ring(&header("all_reduce", "ring", 4, 4));
    let flights = threads(layout(4, 1024), |comm, rank| {
        for _ in 0..10 {
            if rank == 2 {
                let begun = std::time::Instant::now();
                while begun.elapsed() < Duration::from_millis(40) {
                    std::hint::spin_loop();
                }
            }
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut [1.0f32; 10]).expect("a run");
        }
        comm.flight().expect("its memory")
    });
    let verdict = delays(&flights).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Slow, &[2][..]), "{verdict}");
    assert!(verdict.cause.contains("waited for it, which waited for no rank, for "), "{verdict}");
    // The others alone have no rank to blame.
    let others: Vec<_> = flights.into_iter().filter(|flight| flight.rank != 2).collect();
    assert_eq!(delays(&others), None);
}

#[test]
fn a_hundred_thousand_calls_leave_a_bounded_memory() {
    threads(layout(1, 1024), |comm, _| {
        let before = comm.flight().expect("its memory");
        assert_eq!((before.recorded, before.events.len()), (0, 0));
        for _ in 0..100_000 {
            comm.barrier().expect("a barrier");
        }
        let flight = comm.flight().expect("its memory");
        assert_eq!((flight.calls, flight.recorded), (100_000, 100_000));
        assert!(flight.events.len() <= 128);
        let Some(DumpEntry::Call { call, name, ended, at, .. }) = flight.events.last() else {
            panic!("a call: {flight:?}");
        };
        assert_eq!((*call, &name[..], *ended), (100_000, "barrier", true));
        assert!(*at > 0);
    });
}

/// Makes calls in several passes and lanes, traced on every rank.
fn traced(ranks: u32, spans: usize) -> Vec<RankTrace> {
    let plans = crate::support::two_shot(&header("all_reduce", "two_shot", ranks, ranks));
    threads(layout(ranks, 256), |comm: &mut Communicator, rank| {
        let mut vector = comm.alloc::<f32>(1000).expect("memory");
        let mut run = |comm: &mut Communicator| {
            comm.run_in_place(&plans[rank], RedOp::Sum, &mut vector).expect("a run")
        };
        run(comm);
        comm.start_trace(spans).expect("a barrier");
        let stats = run(comm);
        assert!(stats.passes > 1);
        run(comm);
        let trace = comm.take_trace().expect("a trace");
        assert_eq!(comm.take_trace(), None);
        run(comm);
        trace
    })
}

#[test]
fn every_step_has_a_span_within_its_call() {
    let traces = traced(3, SPANS);
    for trace in &traces {
        assert_eq!(trace.missing, 0);
        let calls: Vec<&TraceSpan> =
            trace.spans.iter().filter(|s| s.kind == SpanKind::Call).collect();
        assert_eq!(calls.len(), 2);
        for lane in 0..=3u32 {
            let mut end = 0;
            for span in trace.spans.iter().filter(|s| s.lane == lane && s.kind != SpanKind::Call) {
                let call = calls.iter().find(|c| c.call == span.call).expect("its call");
                assert!(call.begin <= span.begin && span.end <= call.end, "{call:?} {span:?}");
                assert!(end <= span.begin && span.begin <= span.end, "{span:?} after {end}");
                end = span.end;
            }
            assert!(end > 0 || lane == 0 || lane == 3, "lane {lane} has spans");
        }
        let steps = trace.spans.iter().filter(|s| s.kind == SpanKind::Step);
        for span in steps {
            let name = &trace.names[span.name as usize];
            assert!(name.starts_with("hand.algo:") && name.contains(": statement "), "{name}");
        }
        // What one rank sent another took.
        for flow in trace.flows.iter().filter(|f| f.out) {
            let other = &traces[flow.peer as usize];
            let call = trace.spans[flow.span as usize].call;
            let taken = other.flows.iter().filter(|f| {
                let theirs = other.spans[f.span as usize].call;
                (f.out, f.peer, f.channel, f.number, theirs)
                    == (false, trace.rank, flow.channel, flow.number, call)
            });
            assert_eq!(taken.count(), 1, "{flow:?}");
        }
    }
    let mut file = Vec::new();
    write(&traces, &mut file).expect("memory");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let events = file["traceEvents"].as_array().expect("events");
    let threads = events.iter().filter(|e| e["name"] == "thread_name").count();
    assert_eq!(threads, 3 * (3 + 1), "lanes and calls of three ranks");
}

#[test]
fn a_trace_is_bounded_and_says_what_is_missing() {
    for trace in traced(2, 5) {
        assert_eq!(trace.spans.len(), 5);
        assert!(trace.missing > 5);
    }
}
