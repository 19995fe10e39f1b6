//! Seeded scenarios: jobs whose calls run by a simulated clock, with one rank or one link that is slow, or none.

use super::*;

/// A small generator: the same scenarios every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 33) % n
    }
}

const MS: u64 = 1_000_000;
/// The shortest wait that a recorder keeps.
const LONG: u64 = MS;

/// The reason for which a job is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Nothing,
    Rank(u32),
    Link(u32, u32),
}

/// A job of which every call is a ring, or doubles the distance in every step.
struct Job {
    n: u32,
    is_ring: bool,
    reason: Reason,
    /// The time that is lost at each occasion, and how many in ten occasions lose it.
    lost: u64,
    often: u64,
    /// Messages that a sender may have under way.
    slots: usize,
}

impl Job {
    /// Returns the rank that sends to one in a step, and the one to which that sends.
    fn peers(&self, rank: u32, step: u32) -> (u32, u32) {
        match self.is_ring {
            true => ((rank + self.n - 1) % self.n, (rank + 1) % self.n),
            false => (rank ^ (1 << step), rank ^ (1 << step)),
        }
    }

    fn steps(&self) -> u32 {
        if self.is_ring { 2 * (self.n - 1) } else { self.n.ilog2() }
    }

    /// Simulates calls; returns the recorders.
    fn run(&self, random: &mut Random, calls: u64) -> Vec<FlightDump> {
        let n = self.n as usize;
        let mut at: Vec<u64> = (0..n).map(|_| 1000 * MS + random.below(MS)).collect();
        let mut flights: Vec<FlightDump> = (0..self.n).map(|rank| empty(rank, self.n)).collect();
        // The arrivals of the messages that each rank has sent to the next one.
        let mut sent: Vec<Vec<u64>> = vec![Vec::new(); n];
        for call in 1..=calls {
            for rank in 0..self.n {
                let occasion = self.reason == Reason::Rank(rank) && random.below(10) < self.often;
                let lost = if occasion { self.lost } else { 0 };
                at[rank as usize] += MS + random.below(3 * MS) + lost;
                let begun = at[rank as usize];
                flights[rank as usize].events.push(entry(call, begun));
                flights[rank as usize].calls = call;
            }
            for step in 0..self.steps() {
                let mut arrivals = vec![0; n];
                for rank in 0..self.n {
                    let (_, to) = self.peers(rank, step);
                    let own = rank as usize;
                    let earlier = sent[own].len().checked_sub(self.slots).map(|i| sent[own][i]);
                    if let Some(free) = earlier.filter(|_| self.is_ring) {
                        flights[own].waits(call, step, to, AwaitedEvent::Room, at[own], free);
                        at[own] = at[own].max(free);
                    }
                    let is_slow =
                        self.reason == Reason::Link(rank, to) && random.below(10) < self.often;
                    let lost = if is_slow { self.lost } else { 0 };
                    arrivals[to as usize] = at[own] + MS / 20 + random.below(MS / 10) + lost;
                    sent[own].push(arrivals[to as usize]);
                }
                for rank in 0..self.n {
                    let (from, _) = self.peers(rank, step);
                    let own = rank as usize;
                    flights[own].waits(
                        call,
                        step,
                        from,
                        AwaitedEvent::Message,
                        at[own],
                        arrivals[own],
                    );
                    at[own] = at[own].max(arrivals[own]) + MS / 50;
                }
            }
        }
        for (flight, at) in flights.iter_mut().zip(at) {
            flight.now = at;
            let first = flight.events.len().saturating_sub(128);
            flight.events.drain(..first);
        }
        flights
    }
}

impl FlightDump {
    fn waits(
        &mut self,
        call: u64,
        step: u32,
        peer: u32,
        what: AwaitedEvent,
        since: u64,
        until: u64,
    ) {
        if until >= since + LONG {
            let (line, channel, pass, until) = (6, 0, 0, Some(until));
            self.events.push(DumpEntry::Wait {
                call,
                peer,
                what,
                step,
                line,
                channel,
                pass,
                since,
                until,
            });
        }
    }
}

fn entry(call: u64, at: u64) -> DumpEntry {
    let (name, dtype, op) = ("all_reduce.ring".into(), "f32".into(), "sum".into());
    DumpEntry::Call { call, name, count: 1000, dtype, op, digest: call as u32, at, ended: true }
}

fn empty(rank: u32, ranks: u32) -> FlightDump {
    FlightDump {
        rank,
        ranks,
        pid: 100 + rank as i32,
        host: "here".into(),
        communicator: "a".into(),
        now: 0,
        calls: 0,
        waiting: None,
        error: None,
        recorded: 0,
        events: Vec::new(),
        seen: Vec::new(),
    }
}

fn job(random: &mut Random) -> Job {
    let is_ring = random.below(2) == 0;
    let n = if is_ring { 3 + random.below(14) as u32 } else { 4 << random.below(3) };
    let rank = random.below(u64::from(n)) as u32;
    let reason = match random.below(3) {
        0 => Reason::Nothing,
        1 => Reason::Rank(rank),
        _ if is_ring => Reason::Link(rank, (rank + 1) % n),
        _ => Reason::Link(rank, rank ^ (1 << random.below(u64::from(n.ilog2())))),
    };
    let lost = 20 * MS + random.below(80 * MS);
    Job {
        n,
        is_ring,
        reason,
        lost,
        often: 5 + random.below(6),
        slots: 1 + random.below(8) as usize,
    }
}

#[test]
fn slow_ranks_and_links_are_told_apart_in_500_scenarios() {
    let (mut right, mut wrong) = (0, Vec::new());
    for seed in 0..500 {
        let mut random = Random(seed);
        let job = job(&mut random);
        let mut flights = job.run(&mut random, 30);
        // Hosts whose clocks differ, now and then.
        if seed % 4 == 3 {
            let ahead = 1000 * MS + random.below(5000 * MS);
            let from = flights.len() / 2;
            flights[from..].iter_mut().for_each(|flight| shift(flight, ahead));
        }
        let verdict = delays(&flights);
        let found = verdict.as_ref().map(|v| (v.class, &v.ranks[..]));
        let is_right = match job.reason {
            Reason::Nothing => found.is_none(),
            Reason::Rank(rank) => found == Some((CauseClass::Slow, &[rank][..])),
            Reason::Link(from, to) => found == Some((CauseClass::Link, &[from, to][..])),
        };
        right += u32::from(is_right);
        if !is_right {
            let cause = verdict.map_or("nothing".into(), |v| v.cause);
            wrong.push(format!(
                "{seed}: {:?} of {} (ring: {}): {cause}",
                job.reason, job.n, job.is_ring
            ));
        }
    }
    assert!(right >= 475, "{right} of 500 are right: {wrong:#?}");
}

fn shift(flight: &mut FlightDump, ahead: u64) {
    flight.host = "there".into();
    flight.now += ahead;
    for event in &mut flight.events {
        match event {
            DumpEntry::Call { at, .. } => *at += ahead,
            DumpEntry::Wait { since, until, .. } => {
                *since += ahead;
                *until = until.map(|until| until + ahead);
            }
        }
    }
}

#[test]
fn a_verdict_shows_its_evidence() {
    let mut random = Random(7);
    let (reason, lost) = (Reason::Link(1, 2), 50 * MS);
    let job = Job { n: 4, is_ring: true, reason, lost, often: 10, slots: 8 };
    let text = delays(&job.run(&mut random, 10)).expect("a verdict").cause;
    for words in [
        "the link from rank 1 to rank 2 is slow: rank 2 waited for what rank 1 had sent, for ",
        " at once in call ",
        ", line 6; the next cause has ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let job = Job { reason: Reason::Rank(3), ..job };
    let verdict = delays(&job.run(&mut random, 10)).expect("a verdict");
    assert!(verdict.cause.starts_with("rank 3 is slow: rank 0 waited for it"), "{verdict}");
    assert_eq!(verdict.waiters, [0]);
}

/// A wait that is not over is one until the recorder was read.
#[test]
fn a_wait_that_goes_on_counts() {
    let mut flights = vec![empty(0, 2), empty(1, 2)];
    for flight in &mut flights {
        flight.events.push(entry(1, 1000 * MS));
        flight.now = 3000 * MS;
    }
    let (line, channel, pass, step) = (6, 0, 0, 0);
    let (what, since, until) = (AwaitedEvent::Message, 1100 * MS, None);
    let wait = DumpEntry::Wait { call: 1, peer: 1, what, step, line, channel, pass, since, until };
    flights[0].events.push(wait);
    let verdict = delays(&flights).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Slow, &[1][..]), "{verdict}");
    // The other one waits in a later step: it has sent.
    let (what, since, until) = (AwaitedEvent::Message, 1200 * MS, None);
    let wait =
        DumpEntry::Wait { call: 1, peer: 0, what, step: 1, line, channel, pass, since, until };
    flights[1].events.push(wait.clone());
    let verdict = delays(&flights).expect("a verdict");
    assert_eq!((verdict.class, &verdict.ranks[..]), (CauseClass::Link, &[1, 0][..]), "{verdict}");
    // In another pass or channel nothing is known.
    for (channel, pass) in [(1, 0), (0, u16::MAX)] {
        let mut other = wait.clone();
        if let DumpEntry::Wait { channel: c, pass: p, .. } = &mut other {
            (*c, *p) = (channel, pass);
        }
        flights[1].events.pop();
        flights[1].events.push(other);
        let link = delays(&flights).filter(|v| v.class == CauseClass::Link);
        assert!(pass == u16::MAX || link.is_none(), "{link:?}");
    }
    assert_eq!(delays(&[]), None);
}
