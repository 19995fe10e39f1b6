//! Finds the rank or the link that slows a job down, from the long waits in the flight recorders of its ranks.
//!
//! While a rank waits for another, the time is the fault of one of three. The other one waits itself: then it only
//! passes on a delay. It is in a later step: then it has sent the awaited message, and the *link* is slow. It does
//! neither: then it computes, or has no core, and the *rank* is slow. A receiver and a sender that wait for each other,
//! the one for a message, the other for room, have a slow link between them.
//!
//! Steps are compared within a pass and a channel, calls always. Waits shorter than a millisecond are not recorded and
//! do not count. Ranks of different hosts have different clocks, which are set to each other by messages in both
//! directions.

use std::collections::BTreeMap;

use super::diagnose::{CauseClass, TraceVerdict, names};
use super::dump::{DumpEntry, FlightDump};
use crate::tunables::{REPORTED_DELAY_FACTOR, REPORTED_DELAY_MIN, REPORTED_DELAY_PERCENT};
use roundelay_support::waiting::AwaitedEvent;

/// A position in the calls of a rank.
#[derive(Debug, Clone, Copy)]
struct WaitPlace {
    call: u64,
    channel: u16,
    pass: u16,
    step: u32,
}

impl WaitPlace {
    /// Returns true if a rank at this place has done all that one at the other place needs of it.
    fn is_past(&self, there: &WaitPlace) -> bool {
        let within = self.call == there.call
            && self.channel == there.channel
            && (self.pass, there.pass) != (u16::MAX, u16::MAX);
        self.call > there.call || within && (self.pass, self.step) > (there.pass, there.step)
    }
}

/// A wait, in the clock of all.
#[derive(Debug, Clone, Copy)]
struct ObservedWait {
    place: WaitPlace,
    peer: u32,
    what: AwaitedEvent,
    line: u32,
    from: i64,
    to: i64,
}

/// The waits of a rank, in their order, and the time that is observed of it.
struct RankWaits {
    waits: Vec<ObservedWait>,
    from: i64,
    to: i64,
}

/// A time for which a rank waited, and the longest wait of which it was a part.
#[derive(Clone, Copy)]
struct DelayedWait {
    from: i64,
    to: i64,
    waiter: u32,
    wait: ObservedWait,
}

/// The culprit: a rank, or a link from a rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DelayCause {
    Rank(u32),
    Link(u32, u32),
}

/// Finds the rank or the link for which the others waited longest, if it stands out: for a fifth of the time that the
/// recorders cover, and twice as long as for any other. The ranks of a verdict on a link are its two, sender first.
pub fn delays(flights: &[FlightDump]) -> Option<TraceVerdict> {
    let observed = observe(flights);
    let whole = observed.values().map(|seen| seen.to - seen.from).max()?;
    let mut found: BTreeMap<DelayCause, Vec<DelayedWait>> = BTreeMap::new();
    for (&waiter, seen) in &observed {
        for wait in &seen.waits {
            if let Some(peer) = observed.get(&wait.peer)
                && wait.peer != waiter
            {
                blame(waiter, wait, peer, &mut found);
            }
        }
    }
    let mut by_length: Vec<(i64, DelayCause, Vec<DelayedWait>)> =
        found.into_iter().map(|(culprit, delays)| (union(&delays), culprit, delays)).collect();
    by_length.sort_by_key(|(length, culprit, _)| (std::cmp::Reverse(*length), *culprit));
    let next = by_length.get(1).map_or(0, |(length, ..)| *length);
    let (length, culprit, delays) = by_length.into_iter().next()?;
    let stands_out = length >= REPORTED_DELAY_MIN.as_nanos() as i64
        && length * 100 >= whole * REPORTED_DELAY_PERCENT as i64
        && length >= next * REPORTED_DELAY_FACTOR as i64;
    stands_out.then(|| verdict(culprit, &delays, length, whole, next))
}

fn verdict(
    culprit: DelayCause,
    delays: &[DelayedWait],
    length: i64,
    whole: i64,
    next: i64,
) -> TraceVerdict {
    let mut waiters: Vec<u32> = delays.iter().map(|delay| delay.waiter).collect();
    waiters.sort_unstable();
    waiters.dedup();
    let longest = delays.iter().max_by_key(|delay| delay.to - delay.from);
    let place = longest.map_or(String::new(), |delay| {
        let ObservedWait { place: WaitPlace { call, step, .. }, line, .. } = delay.wait;
        let line = if line > 0 { format!(", line {line}") } else { String::new() };
        format!("{} at once in call {call}, step {step}{line}", time(delay.to - delay.from))
    });
    let of = format!(
        "for {} of {}, {place}; the next cause has {}",
        time(length),
        time(whole),
        time(next)
    );
    let (class, ranks, cause) = match culprit {
        DelayCause::Rank(rank) => {
            let text = format!(
                "rank {rank} is slow: {} waited for it, which waited for no rank, {of}",
                names(&waiters)
            );
            (CauseClass::Slow, vec![rank], text)
        }
        DelayCause::Link(from, to) => {
            let text = format!(
                "the link from rank {from} to rank {to} is slow: rank {to} waited for what rank {from} had sent, {of}"
            );
            (CauseClass::Link, vec![from, to], text)
        }
    };
    TraceVerdict { class, ranks, waiters, cause, chain: String::new() }
}

fn time(nanos: i64) -> String {
    match nanos {
        ..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// Divides a wait among those whose fault it is.
fn blame(
    waiter: u32,
    wait: &ObservedWait,
    peer: &RankWaits,
    found: &mut BTreeMap<DelayCause, Vec<DelayedWait>>,
) {
    let mut note = |culprit, from: i64, to: i64| {
        if to > from {
            let delay = DelayedWait { from, to, waiter, wait: *wait };
            found.entry(culprit).or_default().push(delay);
        }
    };
    let is_message = wait.what == AwaitedEvent::Message;
    let link = DelayCause::Link(wait.peer, waiter);
    let past = peer.waits.iter().filter(|own| own.place.is_past(&wait.place));
    let past = past.map(|own| own.from).min().unwrap_or(i64::MAX);
    if is_message {
        note(link, past.max(wait.from), wait.to);
    }
    // What comes before: the peer waits, or is busy as far as it is observed.
    let end = wait.to.min(past).min(peer.to);
    let mut at = wait.from.max(peer.from);
    for own in &peer.waits {
        if own.to <= at || own.from >= end {
            continue;
        }
        note(DelayCause::Rank(wait.peer), at, own.from.min(end));
        let is_full =
            matches!(own.what, AwaitedEvent::Room | AwaitedEvent::Drained) && own.peer == waiter;
        if is_message && is_full {
            note(link, own.from.max(at), own.to.min(end));
        }
        at = at.max(own.to);
    }
    note(DelayCause::Rank(wait.peer), at, end);
}

/// Returns the time that is covered by at least one of them.
fn union(delays: &[DelayedWait]) -> i64 {
    let mut spans: Vec<(i64, i64)> = delays.iter().map(|delay| (delay.from, delay.to)).collect();
    spans.sort_unstable();
    let (mut sum, mut end) = (0, i64::MIN);
    for (from, to) in spans {
        sum += (to - from.max(end)).max(0);
        end = end.max(to);
    }
    sum
}

/// Returns what is observed of each rank, in the clock of the first one's host.
fn observe(flights: &[FlightDump]) -> BTreeMap<u32, RankWaits> {
    let mut hosts: BTreeMap<&str, Vec<&FlightDump>> = BTreeMap::new();
    for flight in flights {
        hosts.entry(&flight.host).or_default().push(flight);
    }
    let Some(first) = flights.first() else { return BTreeMap::new() };
    let reference = hosts.get(&*first.host).cloned().unwrap_or_default();
    let mut observed = BTreeMap::new();
    for (host, there) in hosts {
        let ahead = if host == first.host { 0 } else { ahead(&reference, &there) };
        observed.extend(there.iter().map(|flight| (flight.rank, waits(flight, ahead))));
    }
    observed.retain(|_, seen| seen.to > seen.from);
    observed
}

fn waits(flight: &FlightDump, offset: i64) -> RankWaits {
    let here = |time: u64| time as i64 - offset;
    let mut waits = Vec::new();
    let (mut begin, mut end) = (i64::MAX, if flight.now > 0 { here(flight.now) } else { i64::MIN });
    for entry in &flight.events {
        match *entry {
            DumpEntry::Call { at, .. } if at > 0 => {
                begin = begin.min(here(at));
                end = end.max(here(at));
            }
            DumpEntry::Wait { call, peer, what, step, line, channel, pass, since, until } => {
                let until = until.or((flight.now > 0).then_some(flight.now)).unwrap_or(since);
                let (from, to) = (here(since), here(until.max(since)));
                (begin, end) = (begin.min(from), end.max(to));
                let place = WaitPlace { call, channel, pass, step };
                waits.push(ObservedWait { place, peer, what, line, from, to });
            }
            DumpEntry::Call { .. } => {}
        }
    }
    RankWaits { waits, from: begin, to: end }
}

/// Returns how far the clock of one host is ahead of another's. No wait for a message ends before it was sent,
/// so that messages in both directions bound it; of links that are slow in one direction a half of that is missed.
fn ahead(here: &[&FlightDump], there: &[&FlightDump]) -> i64 {
    let most = bound(here, there);
    let least = bound(there, here).map(|bound| -bound);
    match (least, most) {
        (Some(least), Some(most)) => least + (most - least) / 2,
        (bound, None) | (None, bound) => bound.unwrap_or(0),
    }
}

/// Returns the shortest time, in their own clocks, from what a rank of one host did before it sent a message to the end
/// of the wait for it on the other.
fn bound(senders: &[&FlightDump], receivers: &[&FlightDump]) -> Option<i64> {
    let mut least: Option<i64> = None;
    for receiver in receivers {
        for entry in &receiver.events {
            let DumpEntry::Wait {
                call,
                peer,
                what: AwaitedEvent::Message,
                step,
                channel,
                pass,
                until,
                ..
            } = *entry
            else {
                continue;
            };
            let place = WaitPlace { call, channel, pass, step };
            let sender = senders.iter().find(|sender| sender.rank == peer);
            let before = sender
                .and_then(|sender| sender.events.iter().filter_map(|e| before(e, &place)).max());
            if let (Some(until), Some(before)) = (until, before) {
                let time = until as i64 - before;
                least = Some(least.map_or(time, |least| least.min(time)));
            }
        }
    }
    least
}

/// Returns the time of an event that comes before what a rank does at some place.
fn before(entry: &DumpEntry, place: &WaitPlace) -> Option<i64> {
    match *entry {
        DumpEntry::Call { call, at, .. } => (at > 0 && call <= place.call).then_some(at as i64),
        DumpEntry::Wait { call, step, channel, pass, until, .. } => {
            let own = WaitPlace { call, channel, pass, step };
            until.filter(|_| place.is_past(&own)).map(|until| until as i64)
        }
    }
}

#[cfg(test)]
#[path = "delays_tests.rs"]
mod tests;
