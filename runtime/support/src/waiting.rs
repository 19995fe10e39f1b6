//! Describes the wait of a rank, in the form of one cache line, and spelled out.

use roundelay_compiler::plan::SourceLine;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

/// The number that stands for no rank.
const NO_RANK: u32 = u32::MAX;
/// Other ranks that lanes beside the first one wait for, as many as fit.
const OTHERS: usize = 6;

/// The event that is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AwaitedEvent {
    /// A message from the peer.
    Message = 1,
    /// Room for another message: the peer takes earlier ones.
    Room,
    /// The end of the peer's reads of this rank's buffer.
    Drained,
    /// Another lane of the same rank.
    Lane,
    /// The peer's call, which must be the same.
    Meeting,
}

impl AwaitedEvent {
    fn from_code(code: u8) -> Option<Self> {
        [
            AwaitedEvent::Message,
            AwaitedEvent::Room,
            AwaitedEvent::Drained,
            AwaitedEvent::Lane,
            AwaitedEvent::Meeting,
        ]
        .into_iter()
        .find(|&what| what as u8 == code)
    }

    /// Describes it for the name of a span.
    pub fn text(self) -> &'static str {
        match self {
            AwaitedEvent::Message => "a message",
            AwaitedEvent::Room => "room for a message",
            AwaitedEvent::Drained => "a buffer to be read",
            AwaitedEvent::Lane => "another lane",
            AwaitedEvent::Meeting => "the same call",
        }
    }
}

/// The wait of a rank: 64 bytes that fit a control line, or a small message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitRecord {
    /// The rank it waits for.
    pub peer: u32,
    /// The channel.
    pub channel: u16,
    /// The event it waits for.
    pub what: AwaitedEvent,
    /// The number of the call.
    pub call: u64,
    /// The digest of the call with all calls before.
    pub digest: u32,
    /// The index of the `each` of the program, from 0.
    pub step: u32,
    /// The line of the statement, 0 if there is none. The file is that of the plan, which all ranks share.
    pub line: u32,
    /// The column of the statement, 0 if there is none.
    pub column: u32,
    /// The pass of the call, from 0, as far as 16 bits go: all steps are done once a pass.
    pub pass: u16,
    /// The time at which the wait began, see [`now`].
    pub since: u64,
    /// Other ranks that further lanes wait for.
    others: [u32; OTHERS],
}

impl WaitRecord {
    /// Describes a wait without a location in the algorithm.
    pub fn new(what: AwaitedEvent, peer: u32, call: u64, digest: u32, since: u64) -> Self {
        WaitRecord {
            peer,
            channel: 0,
            what,
            call,
            digest,
            step: 0,
            line: 0,
            column: 0,
            pass: 0,
            since,
            others: [NO_RANK; OTHERS],
        }
    }

    /// Notes another rank that is waited for too.
    pub fn also(&mut self, peer: u32) {
        if peer == self.peer || self.others.contains(&peer) {
            return;
        }
        if let Some(free) = self.others.iter_mut().find(|o| **o == NO_RANK) {
            *free = peer;
        }
    }

    /// Returns the wait as words; the first one is never 0.
    pub fn words(&self) -> [u64; 8] {
        let pair = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
        let [a, b, c, d, e, f] = self.others;
        [
            pair(self.peer, (u32::from(self.channel) << 16) | self.what as u32),
            self.call,
            pair(self.digest, self.step),
            pair(self.line, (u32::from(self.pass) << 16) | self.column.min(0xffff)),
            self.since,
            pair(a, b),
            pair(c, d),
            pair(e, f),
        ]
    }

    /// Decodes the words of a wait; `None` if they are not one.
    pub fn from_words(words: [u64; 8]) -> Option<Self> {
        let (high, low) = (|w: u64| (w >> 32) as u32, |w: u64| w as u32);
        let [first, call, digest, site, since, a, b, c] = words;
        Some(WaitRecord {
            peer: high(first),
            channel: (low(first) >> 16) as u16,
            what: AwaitedEvent::from_code(low(first) as u8)?,
            call,
            digest: high(digest),
            step: low(digest),
            line: high(site),
            column: low(site) & 0xffff,
            pass: (low(site) >> 16) as u16,
            since,
            others: [high(a), low(a), high(b), low(b), high(c), low(c)],
        })
    }

    /// Spells it out, with the places of this rank's part of the plan.
    pub fn spell(&self, sites: &[SourceLine]) -> WaitDescription {
        let same = |s: &&SourceLine| {
            (s.line, s.column.min(0xffff)) == (self.line, self.column.min(0xffff))
        };
        let site = match sites.iter().find(same) {
            Some(site) => format!("{}:{}", site.file, site.line),
            None if self.line > 0 => format!("line {}", self.line),
            None => String::new(),
        };
        WaitDescription {
            peer: self.peer,
            others: self.others.into_iter().filter(|&o| o != NO_RANK).collect(),
            channel: self.channel,
            what: self.what,
            call: self.call,
            digest: self.digest,
            step: self.step,
            pass: self.pass,
            site,
            since: self.since,
        }
    }
}

/// The wait of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitDescription {
    /// The rank it waits for: the first lane's peer.
    pub peer: u32,
    /// Other ranks that further lanes wait for.
    pub others: Vec<u32>,
    /// The channel.
    pub channel: u16,
    /// The event it waits for.
    pub what: AwaitedEvent,
    /// The number of the call, counted from 1.
    pub call: u64,
    /// A digest of that call and all before it.
    pub digest: u32,
    /// The index of the `each` of the program, from 0.
    pub step: u32,
    /// The pass of the call, from 0: all steps are done once a pass. 65535 stands for that one and later ones.
    #[serde(default)]
    pub pass: u16,
    /// `file:line` of the statement, if the plan knows it.
    pub site: String,
    /// The time at which the wait began: nanoseconds of the machine's monotonic clock.
    pub since: u64,
}

impl WaitDescription {
    /// Returns all ranks that are waited for, but for this one itself.
    pub fn peers(&self, own: u32) -> impl Iterator<Item = u32> {
        std::iter::once(self.peer).chain(self.others.iter().copied()).filter(move |&p| p != own)
    }
}

/// Returns the nanoseconds of the clock that all processes of a machine share.
pub fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Returns the time of [`now`] as of the clock's latest tick, a few milliseconds ago: a load instead of a
/// measurement.
#[inline]
pub fn coarse() -> u64 {
    nanos(clock_gettime(ClockId::MonotonicCoarse))
}

fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_survive_their_words() {
        let mut waiting =
            WaitRecord::new(AwaitedEvent::Drained, 70_000, 1 << 40, 0xdead_beef, 12_345);
        (waiting.channel, waiting.step, waiting.line, waiting.column) = (65_535, 9, 1_000_000, 7);
        waiting.pass = 40_000;
        for peer in [70_000, 3, 3, 0, 5, 6, 7, 8, 9] {
            waiting.also(peer);
        }
        assert_eq!(WaitRecord::from_words(waiting.words()), Some(waiting));
        assert_eq!(waiting.spell(&[]).others, [3, 0, 5, 6, 7, 8]);
        assert_eq!(WaitRecord::from_words([0; 8]), None);
        assert_eq!(WaitRecord::from_words([u64::MAX; 8]), None, "no such thing to wait for");
    }
}
