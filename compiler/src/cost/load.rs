//! What ranks do in a round, or in a pass, and how long that takes them.
//!
//! Inside a host the processors do the work. A message is either copied by its sender (into a slot, or a
//! socket) and taken in by its receiver, or stays where it is and is taken in from there, for a word back. So
//! a rank is busy with what it copies and what it takes in, one after the other (and what it takes in must have
//! been copied), and a host whose ranks outnumber its cores with the sum of its ranks' work. Between hosts bytes move beside the processor, in
//! both directions at once.

use super::Rates;
use crate::lower::Content;
use crate::plan::{CACHED_VECTOR, Protocol};

/// What each further message that a rank receives over a network in one round costs of its
/// bandwidth: senders that meet at one port get in each other's way (measured over four hosts at
/// 1 Gbit/s: 12 % where three meet).
const INCAST: f64 = 0.06;

/// A call at a size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) rates: &'a Rates,
    pub(super) protocol: Protocol,
    /// Bytes of the vector.
    pub(super) vector: u64,
    /// Bytes of it that a pass moves.
    pub(super) piece: f64,
}

/// Messages of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) messages: f64,
    /// What they move, in vectors.
    pub(super) vectors: f64,
}

/// Messages inside the host, by what they are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Local {
    input: Traffic,
    kept: Traffic,
    copied: Traffic,
}

/// What a rank does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load {
    pub(super) sent: Local,
    pub(super) received: Local,
    pub(super) out: Traffic,
    pub(super) into: Traffic,
    /// Vectors that it adds, and copies in its own memory.
    pub(super) reduced: f64,
    pub(super) copied: f64,
}

/// What messages inside its host cost a rank, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Near {
    /// Whatever is in them.
    messages: f64,
    /// Copying what it sends.
    copies: f64,
    /// What it receives being copied by others meanwhile.
    awaited: f64,
    /// Taking that in.
    takes: f64,
}

impl Near {
    /// What the rank itself does.
    fn work(&self) -> f64 {
        self.messages + self.copies + self.takes
    }

    /// The same, with waiting for what it takes in to be copied.
    fn path(&self) -> f64 {
        self.messages + self.copies.max(self.awaited) + self.takes
    }
}

/// Ranks that do the same.
#[derive(Debug, Clone, Copy)]
struct Member {
    host: u32,
    /// How many they are.
    weight: f64,
    /// How often the host's ranks outnumber its cores.
    crowd: f64,
    load: Load,
}

/// What all ranks do at a time, host by host.
#[derive(Debug, Clone, Default)]
pub(super) struct Crew(Vec<Member>);

impl Traffic {
    pub(super) fn add(&mut self, messages: f64, vectors: f64) {
        self.messages += messages;
        self.vectors += vectors;
    }
}

impl Local {
    pub(super) fn of(&mut self, content: Content) -> &mut Traffic {
        match content {
            Content::Input => &mut self.input,
            Content::Kept => &mut self.kept,
            Content::Copied => &mut self.copied,
        }
    }

    fn messages(&self) -> f64 {
        self.input.messages + self.kept.messages + self.copied.messages
    }
}

impl Load {
    /// Adds what another does so many times.
    pub(super) fn add(&mut self, other: &Load, times: f64) {
        let pairs = [
            (&mut self.sent.input, &other.sent.input),
            (&mut self.sent.kept, &other.sent.kept),
            (&mut self.sent.copied, &other.sent.copied),
            (&mut self.received.input, &other.received.input),
            (&mut self.received.kept, &other.received.kept),
            (&mut self.received.copied, &other.received.copied),
            (&mut self.out, &other.out),
            (&mut self.into, &other.into),
        ];
        for (sum, one) in pairs {
            sum.add(one.messages * times, one.vectors * times);
        }
        self.reduced += other.reduced * times;
        self.copied += other.copied * times;
    }

    /// What the processor does for the rank itself.
    fn own(&self, call: &Call<'_>) -> f64 {
        let rates = call.rates;
        let us = self.reduced * 1e-3 / rates.reduce_gbs + self.copied * rates.local.slope();
        us * call.piece
    }

    /// What messages inside the host cost the rank.
    fn near(&self, call: &Call<'_>, crowded: bool) -> Near {
        let link = &call.rates.local;
        let each = link.message_us + if crowded { call.rates.crowd_us } else { 0.0 };
        let kinds = [
            (Some(true), &self.sent.input, &self.received.input),
            (Some(false), &self.sent.kept, &self.received.kept),
            (None, &self.sent.copied, &self.received.copied),
        ];
        let mut near = Near::default();
        for (input, sent, received) in kinds {
            let direct = |t: &Traffic| {
                let (input, extra) = input.zip(link.direct_us)?;
                let least = call.protocol.direct_from(input, call.vector, crowded);
                (t.vectors * call.piece >= t.messages * least as f64).then_some(extra)
            };
            let copy = |t: &Traffic| t.vectors * call.piece * 1e-3 / link.copy_gbs;
            for (t, copies) in [(sent, &mut near.copies), (received, &mut near.awaited)] {
                near.messages += t.messages * each;
                match direct(t) {
                    Some(extra) => near.messages += t.messages * extra,
                    None => *copies += copy(t),
                }
            }
            let gbs = match (input, direct(received)) {
                (Some(true), Some(_)) if call.vector < CACHED_VECTOR => link.input_gbs,
                _ => link.gbs,
            };
            near.takes += received.vectors * call.piece * 1e-3 / gbs;
        }
        near
    }

    /// The first message out and in of a round is in its latency.
    fn covered(&self, call: &Call<'_>) -> f64 {
        let some = |messages: f64| if messages > 0.0 { call.rates.local.message_us } else { 0.0 };
        some(self.sent.messages()) + some(self.received.messages())
    }

    /// The time that the network takes.
    fn afar(&self, call: &Call<'_>, waits: bool) -> f64 {
        let link = &call.rates.remote;
        let count = self.out.messages + self.into.messages;
        if count == 0.0 {
            return 0.0;
        }
        let crush = 1.0 + INCAST * (self.into.messages - 1.0).max(0.0);
        let vectors = self.out.vectors.max(self.into.vectors * crush);
        let sides = [self.out.messages, self.into.messages].iter().filter(|m| **m > 0.0).count();
        let (latency, covered) = if waits { (link.latency_us, sides as f64) } else { (0.0, 0.0) };
        latency + (count - covered) * link.message_us + vectors * call.piece * link.slope()
    }
}

impl Crew {
    /// A rank more, or so many: those of a host come one after the other.
    pub(super) fn join(&mut self, host: u32, weight: f64, crowd: f64, load: &Load) {
        if *load == Load::default() {
            return;
        }
        let same = |m: &&mut Member| m.host == host && m.load == *load;
        match self.0.iter_mut().rev().take_while(|m| m.host == host).find(same) {
            Some(member) => member.weight += weight,
            None => self.0.push(Member { host, weight, crowd, load: *load }),
        }
    }

    /// Whether no rank sends or receives.
    pub(super) fn is_alone(&self) -> bool {
        let messages = |l: &Load| l.sent.messages() + l.out.messages + l.into.messages;
        self.0.iter().all(|m| messages(&m.load) + m.load.received.messages() == 0.0)
    }

    /// How long a round takes in which ranks wait for messages, or in which none does.
    pub(super) fn time(&self, call: &Call<'_>, waits: bool) -> f64 {
        let link = &call.rates.local;
        let once = |us: f64| if waits { us } else { 0.0 };
        let rank = |m: &Member| {
            let load = &m.load;
            let local = load.sent.messages() + load.received.messages() > 0.0;
            let turn = once(m.crowd * call.rates.turn_us);
            let path = load.near(call, m.crowd > 0.0).path() - once(load.covered(call));
            let near = if local { once(link.latency_us) + turn + path } else { 0.0 };
            near.max(load.afar(call, waits)) + load.own(call)
        };
        let host = |members: &[Member]| {
            let crowded = members[0].crowd > 0.0;
            let latency = once(link.latency_us + call.rates.turn_us);
            let shared = if crowded { latency + shared(members, call) } else { 0.0 };
            shared.max(uplink(members, call, once(call.rates.remote.latency_us)))
        };
        let ranks = self.0.iter().map(rank).fold(0.0, f64::max);
        self.hosts().map(host).fold(ranks, f64::max)
    }

    /// How long the busiest rank, or the cores of the busiest host, have something to do. What is copied and taken
    /// in at once moves no faster (broadcast of 256 KiB on 2 ranks: 137 us in 16 passes, 103 us in one).
    pub(super) fn busy(&self, call: &Call<'_>) -> f64 {
        let rank = |m: &Member| {
            let near = m.load.near(call, m.crowd > 0.0).path();
            near.max(m.load.afar(call, false)) + m.load.own(call)
        };
        let host = |members: &[Member]| {
            let crowded = members[0].crowd > 0.0;
            let shared = if crowded { shared(members, call) } else { 0.0 };
            shared.max(uplink(members, call, 0.0))
        };
        let ranks = self.0.iter().map(rank).fold(0.0, f64::max);
        self.hosts().map(host).fold(ranks, f64::max)
    }

    fn hosts(&self) -> impl Iterator<Item = &[Member]> {
        self.0.chunk_by(|a, b| a.host == b.host)
    }
}

/// What the ranks of a host do, divided among its cores.
fn shared(members: &[Member], call: &Call<'_>) -> f64 {
    let work = |m: &Member| m.weight * (m.load.near(call, m.crowd > 0.0).work() + m.load.own(call));
    let cores = f64::from(call.rates.cores.max(1));
    members.iter().map(work).sum::<f64>() / cores
}

/// What leaves a host, or enters it, over its uplink.
fn uplink(members: &[Member], call: &Call<'_>, latency: f64) -> f64 {
    let sum = |side: fn(&Load) -> &Traffic| {
        members.iter().map(|m| m.weight * side(&m.load).vectors).sum::<f64>()
    };
    let vectors = sum(|l| &l.out).max(sum(|l| &l.into));
    if vectors > 0.0 { latency + vectors * call.piece * 1e-3 / call.rates.uplink_gbs } else { 0.0 }
}
