//! How much each path is given.

use roundelay_compiler::plan::Shares;

use super::{Code, Measured};

/// Shares change only if a call is to take less than this part of its time.
const GAIN: f64 = 0.95;
/// What agreeing costs, in seconds, and the part of a call's time that it may take.
const WORDS: f64 = 150e-6;
const COST: f64 = 0.01;
/// Most calls between two agreements.
const SELDOM: u32 = 64;
/// What a part more costs a call, in seconds: a message more in every round, on processors that are
/// busy with the others.
const PART: f64 = 60e-6;

/// What is known of a path, the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Known {
    /// Seconds for a byte.
    byte: f64,
    lost: bool,
}

/// What is known of the paths, and the shares that follow.
#[derive(Debug, Clone)]
pub(crate) struct Balance {
    paths: Vec<Known>,
    /// The shares of large calls.
    shares: Shares,
    /// Since which call.
    since: u64,
    /// Whether anything was measured.
    measured: bool,
    /// Calls until the ranks agree again.
    left: u32,
    pub(crate) own: Measured,
}

impl Balance {
    /// What the model says: seconds for a byte of each path.
    pub(crate) fn new(bytes: &[f64]) -> Self {
        let paths: Vec<Known> = bytes.iter().map(|&byte| Known { byte, lost: false }).collect();
        let shares = Shares::of_weights(&weights(&paths));
        let own = Measured::default();
        Balance { paths, shares, since: 0, measured: false, left: 1, own }
    }

    /// Number of paths.
    pub(crate) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Whether the ranks must agree before this call. The same on all ranks.
    pub(crate) fn is_time(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Takes in what all ranks found, before that call of so many bytes. Says whether shares changed.
    pub(crate) fn agree(&mut self, ranks: &[Vec<Code>], call: u64, bytes: u64) -> bool {
        let worst = |path: usize| {
            ranks.iter().filter_map(|codes| codes.get(path)).max().copied().unwrap_or_default()
        };
        let mut now = self.paths.clone();
        for (path, known) in now.iter_mut().enumerate() {
            let code = worst(path);
            known.lost = code == Code::LOST;
            if let Some(seconds) = code.seconds() {
                self.measured = true;
                known.byte = seconds;
            }
        }
        // With no path left there is nothing to choose: what was is tried.
        if now.iter().all(|path| path.lost) {
            now.iter_mut().for_each(|path| path.lost = false);
        }
        let better = Shares::of_weights(&weights(&now));
        let (before, after) = (time(&now, &self.shares), time(&now, &better));
        let other = now.iter().zip(&self.paths).any(|(a, b)| a.lost != b.lost);
        self.paths = now;
        let call_takes = after.min(before) * bytes as f64;
        self.left = match call_takes > 0.0 {
            true => ((WORDS / COST / call_takes) as u32).clamp(1, SELDOM),
            false => SELDOM,
        };
        let changes = other || after < before * GAIN;
        if changes {
            (self.shares, self.since) = (better, call);
        }
        changes
    }

    /// The shares of a call of so many bytes: all to one path if a second one does not pay.
    pub(crate) fn shares(&self, bytes: u64) -> Shares {
        let alive = |path: &&Known| !path.lost;
        let best = self.paths.iter().filter(alive).map(|path| path.byte).fold(f64::MAX, f64::min);
        let alone = self.paths.iter().position(|path| !path.lost && path.byte == best);
        let gain = (best - time(&self.paths, &self.shares)) * bytes as f64;
        match alone {
            Some(alone) if gain < PART => Shares::single(alone as u32, self.paths.len() as u32),
            _ => self.shares.clone(),
        }
    }

    /// The shares and why they are so.
    pub(crate) fn explain(&self, names: &[String]) -> String {
        let each = names.iter().zip(&self.paths).zip(self.shares.list());
        let each: Vec<String> = each
            .map(|((name, path), share)| {
                let share = f64::from(*share) * 100.0 / f64::from(roundelay_compiler::plan::WHOLE);
                match path.lost {
                    true => format!("{name} {share:.1} % (lost)"),
                    false => format!("{name} {share:.1} % ({:.2} GB/s)", 1e-9 / path.byte),
                }
            })
            .collect();
        let why = match (self.measured, self.since) {
            (false, _) => "as the model says, nothing was measured yet".into(),
            (true, 0) => "as the model says, and measured to be near the best".into(),
            (true, since) => format!("as measured, since call {since}"),
        };
        format!("{}: {why}", each.join(", "))
    }
}

/// How fast the paths are that are not lost.
fn weights(paths: &[Known]) -> Vec<f64> {
    paths.iter().map(|path| if path.lost { 0.0 } else { 1.0 / path.byte }).collect()
}

/// How long a byte takes that is divided so: as long as the slowest part.
fn time(paths: &[Known], shares: &Shares) -> f64 {
    let part = |(path, &share): (&Known, &u32)| {
        f64::from(share) / f64::from(roundelay_compiler::plan::WHOLE) * path.byte
    };
    paths.iter().zip(shares.list()).map(part).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LARGE: u64 = 64 << 20;

    /// What a rank says that moved so many bytes over each path in so many milliseconds.
    fn said(parts: &[(u64, u64)], lost: u64) -> Vec<Code> {
        let mut own = Measured::default();
        own.add(parts.iter().map(|&(bytes, ms)| (bytes, Duration::from_millis(ms))));
        Code::all(&own.words(parts.len(), lost), parts.len())
    }

    fn percent(shares: &Shares) -> Vec<u32> {
        shares.list().iter().map(|share| (share * 100 + 32768) / 65536).collect()
    }

    #[test]
    fn shares_follow_the_slowest_rank() {
        let mut balance = Balance::new(&[1e-9, 1e-9]);
        assert_eq!(percent(&balance.shares(LARGE)), [50, 50]);
        let fast = said(&[(32 << 20, 10), (32 << 20, 10)], 0);
        let slow = said(&[(32 << 20, 10), (32 << 20, 40)], 0);
        assert!(balance.agree(&[fast.clone(), slow], 7, LARGE));
        assert_eq!(percent(&balance.shares(LARGE)), [80, 20]);
        assert!(balance.explain(&["a".into(), "b".into()]).contains("since call 7"));
        assert!(balance.agree(&[fast.clone(), fast], 9, LARGE));
        assert_eq!(percent(&balance.shares(LARGE)), [50, 50]);
    }

    #[test]
    fn a_small_gain_changes_nothing() {
        let mut balance = Balance::new(&[1e-9, 1e-9]);
        assert!(!balance.agree(&[said(&[(32 << 20, 100), (32 << 20, 109)], 0)], 1, LARGE));
        assert_eq!(percent(&balance.shares(LARGE)), [50, 50]);
        assert!(balance.agree(&[said(&[(32 << 20, 100), (32 << 20, 113)], 0)], 2, LARGE));
    }

    #[test]
    fn a_lost_path_has_nothing_until_it_is_back() {
        let mut balance = Balance::new(&[1e-9, 4e-9]);
        let (well, lost) = (said(&[(0, 0), (0, 0)], 0), said(&[(0, 0), (0, 0)], 1));
        assert!(balance.agree(&[well.clone(), lost.clone()], 1, LARGE));
        assert_eq!(percent(&balance.shares(LARGE)), [0, 100]);
        assert!(!balance.agree(&[lost, well.clone()], 2, LARGE));
        assert!(balance.agree(&[well.clone(), well], 3, LARGE));
        assert_eq!(percent(&balance.shares(LARGE)), [80, 20]);
        let none = said(&[(0, 0), (0, 0)], 3);
        balance.agree(&[none.clone(), none], 4, LARGE);
        assert_eq!(percent(&balance.shares(LARGE)), [80, 20]);
    }

    #[test]
    fn little_goes_over_the_best_path_alone() {
        let balance = Balance::new(&[8e-9, 2e-9]);
        assert_eq!(balance.shares(1 << 10).only(), Some(1));
        assert_eq!(balance.shares(LARGE).only(), None);
    }

    #[test]
    fn ranks_agree_seldom_where_that_costs_much() {
        let mut balance = Balance::new(&[1e-9, 1e-9]);
        assert!(balance.is_time(), "at the first call");
        balance.agree(&[], 1, 1 << 10);
        assert!((0..SELDOM - 1).all(|_| !balance.is_time()) && balance.is_time());
        balance.agree(&[], 2, LARGE);
        assert!(balance.is_time(), "at every call of tens of milliseconds");
    }
}
