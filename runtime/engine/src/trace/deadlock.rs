//! Finds processes that wait for each other in calls of different communicators.
//!
//! Of one communicator alone, such a job looks as if a rank had not made its call. Its process has not, because it
//! waits in a call of another communicator, for a process that waits in the first one. A process with several ranks of
//! one communicator proves nothing: it has several threads, of which each waits for itself.

use std::collections::{BTreeMap, VecDeque};

use super::diagnose::{CauseClass, TraceVerdict};
use super::dump::{DumpEntry, FlightDump};

/// A step from a rank that waits to another: the one that it waits for, or one of the same process that waits in
/// another communicator.
#[derive(Clone, Copy)]
struct WaitEdge {
    to: usize,
    changes: bool,
}

/// Finds a circle of processes that wait for each other in calls of several communicators, from the recorders of all of
/// these; `None` if there is none. The ranks of the verdict are those of the circle that wait in its first
/// communicator.
pub fn deadlock(flights: &[FlightDump]) -> Option<TraceVerdict> {
    let steps: Vec<Vec<WaitEdge>> = (0..flights.len()).map(|at| steps(flights, at)).collect();
    let changes = steps.iter().enumerate().flat_map(|(from, steps)| {
        steps.iter().filter(|step| step.changes).map(move |step| (from, step.to))
    });
    let mut circles = changes.filter_map(|(from, to)| path(&steps, to, from));
    circles.next().map(|circle| verdict(flights, &circle))
}

/// Returns where a rank's wait leads.
fn steps(flights: &[FlightDump], at: usize) -> Vec<WaitEdge> {
    let own = &flights[at];
    let Some(wait) = &own.waiting else { return Vec::new() };
    let mut steps = Vec::new();
    for peer in wait.peers(own.rank) {
        let is_peer = |f: &FlightDump| f.communicator == own.communicator && f.rank == peer;
        let Some(theirs) = flights.iter().position(is_peer) else { continue };
        if flights[theirs].waiting.is_some() {
            steps.push(WaitEdge { to: theirs, changes: false });
        } else if flights[theirs].calls < wait.call && is_alone(flights, theirs) {
            let waits = |f: &FlightDump| f.communicator != own.communicator && f.waiting.is_some();
            let other = |&other: &usize| {
                waits(&flights[other])
                    && is_of_one_process(&flights[other], &flights[theirs])
                    && is_alone(flights, other)
            };
            steps.extend((0..flights.len()).filter(other).map(|to| WaitEdge { to, changes: true }));
        }
    }
    steps
}

fn is_of_one_process(a: &FlightDump, b: &FlightDump) -> bool {
    (&a.host, a.pid) == (&b.host, b.pid)
}

/// Returns true if no other rank of the communicator is in the process.
fn is_alone(flights: &[FlightDump], at: usize) -> bool {
    let own = &flights[at];
    let is_beside =
        |f: &&FlightDump| f.communicator == own.communicator && is_of_one_process(f, own);
    flights.iter().filter(is_beside).count() == 1
}

/// Returns the shortest way from one to another, both included.
fn path(steps: &[Vec<WaitEdge>], from: usize, to: usize) -> Option<Vec<usize>> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if at == to {
            let mut path = vec![to];
            while let Some(&previous) =
                path.last().filter(|&&at| at != from).and_then(|at| before.get(at))
            {
                path.push(previous);
            }
            path.reverse();
            return Some(path);
        }
        for step in &steps[at] {
            if step.to != from && !before.contains_key(&step.to) {
                before.insert(step.to, at);
                queue.push_back(step.to);
            }
        }
    }
    None
}

fn verdict(flights: &[FlightDump], circle: &[usize]) -> TraceVerdict {
    let next = circle.iter().skip(1).chain(circle.first());
    let link = |(&at, &next): (&usize, &usize)| {
        let FlightDump { rank, pid, communicator, waiting, events, .. } = &flights[at];
        let call = waiting.as_ref().map_or(0, |wait| wait.call);
        let leads_on = |f: &&FlightDump| {
            let peers = waiting.as_ref().is_some_and(|wait| wait.peers(*rank).any(|p| p == f.rank));
            peers && f.communicator == *communicator && is_of_one_process(f, &flights[next])
        };
        let peer = flights.iter().find(leads_on).map_or(*rank, |flight| flight.rank);
        let what = events.iter().rev().find_map(|entry| match entry {
            DumpEntry::Call { call: number, name, .. } if *number == call && !name.is_empty() => {
                Some(&**name)
            }
            _ => None,
        });
        let name = what.map_or(String::new(), |name| format!(" ({name})"));
        format!(
            "process {pid}, rank {rank} of communicator {communicator}, waits in call {call}{name} for rank {peer} of it"
        )
    };
    let links: Vec<String> = circle.iter().zip(next).map(link).collect();
    let first = circle.first().map_or("", |&at| &*flights[at].communicator);
    let within = circle.iter().filter(|&&at| flights[at].communicator == first);
    let mut ranks: Vec<u32> = within.map(|&at| flights[at].rank).collect();
    ranks.sort_unstable();
    let cause = format!(
        "a deadlock between communicators: {}; make the calls of all communicators in the same order in all processes",
        links.join("; ")
    );
    TraceVerdict {
        class: CauseClass::Deadlock,
        ranks,
        waiters: Vec::new(),
        cause,
        chain: String::new(),
    }
}

#[cfg(test)]
#[path = "deadlock_tests.rs"]
mod tests;
