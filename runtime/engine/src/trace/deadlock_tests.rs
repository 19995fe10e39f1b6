//! Jobs of two and three communicators.

use super::super::{AwaitedEvent, WaitDescription};
use super::*;

/// Returns the recorder of a rank that has made `calls` and waits for `peer` in the last one, or for no rank.
fn flight(communicator: &str, rank: u32, pid: i32, calls: u64, peer: Option<u32>) -> FlightDump {
    let wait = |peer| WaitDescription {
        peer,
        others: vec![],
        channel: 0,
        what: AwaitedEvent::Message,
        call: calls,
        digest: 7,
        step: 1,
        pass: 0,
        site: "ring.algo:6".into(),
        since: 1,
    };
    FlightDump {
        rank,
        ranks: 2,
        pid,
        host: "here".into(),
        communicator: communicator.into(),
        now: 9,
        calls,
        waiting: peer.map(wait),
        error: None,
        recorded: 0,
        events: vec![],
        seen: vec![],
    }
}

/// Two processes make the calls of two communicators in different orders.
fn crossed() -> Vec<FlightDump> {
    vec![
        flight("a", 0, 10, 5, Some(1)),
        flight("a", 1, 11, 4, None),
        flight("b", 0, 10, 2, None),
        flight("b", 1, 11, 3, Some(0)),
    ]
}

#[test]
fn calls_in_different_orders_are_told_with_both_waits() {
    let verdict = deadlock(&crossed()).expect("a deadlock");
    assert_eq!(verdict.class, CauseClass::Deadlock);
    for words in [
        "process 10, rank 0 of communicator a, waits in call 5 for rank 1 of it",
        "process 11, rank 1 of communicator b, waits in call 3 for rank 0 of it",
        "in the same order",
    ] {
        assert!(verdict.cause.contains(words), "{verdict}");
    }
}

#[test]
fn a_circle_may_go_through_three_communicators() {
    let ring = |n: i32| -> Vec<FlightDump> {
        let pair = |i: i32| {
            // Communicator i is of process i, which waits, and the next one, which waits in its own.
            [
                flight(&format!("c{i}"), 0, i, 4, Some(1)),
                flight(&format!("c{i}"), 1, (i + 1) % n, 3, None),
            ]
        };
        (0..n).flat_map(pair).collect()
    };
    let verdict = deadlock(&ring(3)).expect("a deadlock");
    assert_eq!(verdict.cause.matches("waits in call 4").count(), 3, "{verdict}");
}

/// Of a rank whose lanes wait for several, the report names the one that leads on.
#[test]
fn the_rank_that_leads_on_is_named() {
    let mut flights = crossed();
    flights.push(flight("a", 2, 12, 5, None));
    if let Some(wait) = &mut flights[0].waiting {
        (wait.peer, wait.others) = (2, vec![1]);
    }
    let verdict = deadlock(&flights).expect("a deadlock");
    assert!(verdict.cause.contains("waits in call 5 for rank 1 of it"), "{verdict}");
}

#[test]
fn what_is_no_deadlock_is_not_called_one() {
    // One of them goes on: it waits for no rank.
    let mut flights = crossed();
    flights[3].waiting = None;
    assert_eq!(deadlock(&flights), None);
    // The call is made already: it was sent what it waits for.
    let mut flights = crossed();
    flights[1].calls = 5;
    assert_eq!(deadlock(&flights), None);
    // Another host has a process of that number.
    let mut flights = crossed();
    flights[3].host = "there".into();
    assert_eq!(deadlock(&flights), None);
    // Ranks that are threads of one process.
    let mut flights = crossed();
    flights.iter_mut().for_each(|flight| flight.pid = 10);
    assert_eq!(deadlock(&flights), None);
    // A circle in one communicator is another cause.
    let one = [flight("a", 0, 10, 5, Some(1)), flight("a", 1, 11, 5, Some(0))];
    assert_eq!(deadlock(&one), None);
}
