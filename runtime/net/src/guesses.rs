//! Counts wrong proofs of a secret by the address that they come from, and slows those addresses. A right proof
//! that was answered at once would tell as much as a wrong one that is not, so that all connections of an
//! address are slowed that show nothing else that strangers do not know.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use crate::tunables::{
    GUESSING_ADDRESSES_MAX, WRONG_PROOF_DELAY, WRONG_PROOF_EXPIRY, WRONG_PROOFS_MAX,
};

/// The wrong proofs that have come to a port.
#[derive(Debug, Default)]
pub(crate) struct WrongGuesses {
    addresses: BTreeMap<IpAddr, GuesserRecord>,
    all: u64,
    last: Option<IpAddr>,
}

#[derive(Debug)]
struct GuesserRecord {
    wrong: u64,
    /// The time of its last wrong proof.
    last: Instant,
}

impl GuesserRecord {
    fn is_forgiven(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= WRONG_PROOF_EXPIRY
    }
}

impl WrongGuesses {
    /// Returns the time before which a connection from an address is not answered; `None` if it is answered at once.
    pub(crate) fn held_until(&self, from: IpAddr, now: Instant) -> Option<Instant> {
        let guesser = self.addresses.get(&network(from))?;
        (guesser.wrong >= WRONG_PROOFS_MAX && !guesser.is_forgiven(now))
            .then(|| now + WRONG_PROOF_DELAY)
    }

    /// Counts a wrong proof, and reports on standard error the address that was refused, and how often: the
    /// first time, the tenth, the hundredth and so on. `port` is the one that it came to, in words.
    pub(crate) fn count(&mut self, from: IpAddr, now: Instant, port: &str) {
        let key = network(from);
        if !self.addresses.contains_key(&key) && self.addresses.len() >= GUESSING_ADDRESSES_MAX {
            let oldest = self.addresses.iter().min_by_key(|(_, g)| g.last).map(|(&ip, _)| ip);
            oldest.map(|ip| self.addresses.remove(&ip));
        }
        let guesser = self.addresses.entry(key).or_insert(GuesserRecord { wrong: 0, last: now });
        guesser.wrong = if guesser.is_forgiven(now) { 1 } else { guesser.wrong + 1 };
        guesser.last = now;
        self.all += 1;
        self.last = Some(from);
        if self.all.ilog10() > (self.all - 1).max(1).ilog10() || self.all == 1 {
            // The output was closed on purpose.
            let _ = writeln!(std::io::stderr(), "roundelay: {port} {}", self.words());
        }
    }

    /// Describes the addresses that were refused, and how often; `None` if no connection was.
    pub(crate) fn remark(&self) -> Option<String> {
        (self.all > 0).then(|| self.words())
    }

    fn words(&self) -> String {
        let noun = if self.all == 1 { "connection" } else { "connections" };
        let last = self.last.map_or_else(String::new, |ip| format!(", the last from {ip}"));
        format!("has refused {} {noun} with another secret{last}", self.all)
    }
}

/// Returns what stands for an address: of IPv6 the network of 64 bits, of which one host may have all addresses.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn guesses_are_slowed_by_their_address_alone() {
        let (mut guesses, start) = (WrongGuesses::default(), Instant::now());
        let bad = ip("10.0.0.3");
        for _ in 0..WRONG_PROOFS_MAX {
            assert_eq!(guesses.held_until(bad, start), None);
            guesses.count(bad, start, "a test");
        }
        assert_eq!(guesses.held_until(bad, start), Some(start + WRONG_PROOF_DELAY));
        assert_eq!(guesses.held_until(ip("10.0.0.4"), start), None);
        assert_eq!(guesses.held_until(bad, start + WRONG_PROOF_EXPIRY), None, "it is forgiven");
        let remark = guesses.remark().expect("a remark");
        assert_eq!(remark, "has refused 8 connections with another secret, the last from 10.0.0.3");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_and_memory_is_bounded() {
        let (mut guesses, start) = (WrongGuesses::default(), Instant::now());
        for last in 0..WRONG_PROOFS_MAX {
            guesses.count(ip(&format!("2001:db8::{last}")), start, "a test");
        }
        assert!(guesses.held_until(ip("2001:db8::ffff"), start).is_some());
        assert!(guesses.held_until(ip("2001:db8:0:1::1"), start).is_none());
        for at in 0..3000u32 {
            guesses.count(
                IpAddr::V4(at.into()),
                start + Duration::from_millis(at.into()),
                "a test",
            );
        }
        assert_eq!(guesses.addresses.len(), GUESSING_ADDRESSES_MAX);
    }
}
