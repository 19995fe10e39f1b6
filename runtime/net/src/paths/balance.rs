//! Decides how much of a call each path is given.

use roundelay_compiler::cost::{LinkCost, balance};
use roundelay_compiler::plan::{PathShares, WHOLE, WeightedSplit};

use super::trial::DivisionTrials;
use super::{PathCode, PathMeasurement};
use crate::tunables::{BALANCED_BYTES_MIN, BALANCED_CALLS_MAX};
use roundelay_support::backend::host::environment::DefaultEnvironment;

/// Shares change only if a call is to take less than this part of its time.
const GAIN: f64 = 0.95;
/// Paths are no longer what they were if a call takes less than this part of its time with other shares.
const OTHER: f64 = 0.5;
/// The cost of an agreement, in microseconds, and the part of a call's time that it may take.
const WORDS_US: f64 = 150.0;
const COST: f64 = 0.01;
/// The time below which calls are tried, in microseconds.
const SHORT_US: f64 = 5000.0;

/// The state of a path, the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct PathState {
    link: LinkCost,
    /// The bandwidth according to the model.
    model_gbs: f64,
    /// Its bandwidth as it was measured last, if it was.
    last: Option<f64>,
    lost: bool,
}

impl PathState {
    /// Takes in a measurement. One alone may be a matter of something else that the machines did: what is
    /// known moves only as far as two in a row agree.
    fn learn(&mut self, gbs: f64) {
        self.link.gbs = match self.last {
            Some(last) => self.link.gbs.clamp(last.min(gbs), last.max(gbs)),
            None => gbs,
        };
        self.last = Some(gbs);
    }
}

/// The state of the paths, and the shares that follow.
#[derive(Debug, Clone)]
pub struct PathBalance {
    known: Vec<PathState>,
    /// The state that shares follow from: that of their last change, and the call at which it was.
    used: Vec<PathState>,
    since: u64,
    measured: bool,
    /// Calls until the ranks agree again.
    left: u32,
    /// The measurements of this rank.
    pub own: PathMeasurement,
    /// The trials of other divisions.
    pub trials: DivisionTrials,
}

impl PathBalance {
    /// Begins with the estimate of the model for each path.
    pub fn new(links: &[LinkCost]) -> Self {
        let known =
            |&link: &LinkCost| PathState { link, model_gbs: link.gbs, last: None, lost: false };
        let known: Vec<PathState> = links.iter().map(known).collect();
        let used = known.clone();
        let (own, trials) = (PathMeasurement::default(), DivisionTrials::default());
        PathBalance { known, used, since: 0, measured: false, left: 1, own, trials }
    }

    /// Returns the number of paths.
    pub fn paths(&self) -> usize {
        self.known.len()
    }

    /// Returns true if the ranks must agree before this call. The same on all ranks.
    pub fn is_time(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left == 0
    }

    /// Takes in the measurements of all ranks before a call of `bytes` bytes. Returns true if shares change.
    pub fn agree(
        &mut self,
        ranks: &[Vec<PathCode>],
        call: u64,
        split: &WeightedSplit,
        bytes: u64,
    ) -> bool {
        let worst = |path: usize| {
            ranks.iter().filter_map(|codes| codes.get(path)).max().copied().unwrap_or_default()
        };
        for (path, known) in self.known.iter_mut().enumerate() {
            let code = worst(path);
            known.lost = code == PathCode::LOST;
            if let Some(seconds) = code.seconds() {
                self.measured = true;
                known.learn(1e-9 / seconds);
            }
        }
        self.assume();
        let now = flows(split, &self.known);
        let (old, new) = (self.shares(split, bytes), balance::shares(&now, bytes));
        let time = |shares: &PathShares| balance::time_us(&now, bytes, shares);
        let (before, after) = (time(&old), time(&new));
        self.left = match after > 0.0 && after.is_finite() {
            // A bandwidth that was only assumed is measured at once, by calls that can.
            _ if !self.measured && bytes >= BALANCED_BYTES_MIN => 1,
            true => ((WORDS_US / COST / after) as u32).clamp(1, BALANCED_CALLS_MAX),
            false => 1,
        };
        let other = self.known.iter().zip(&self.used).any(|(a, b)| a.lost != b.lost);
        let changes = other || after < before * GAIN;
        if changes {
            (self.used, self.since) = (self.known.clone(), call);
            // Earlier trials were made with paths that did something else.
            if other || after < before * OTHER {
                self.trials.forget();
            }
        }
        changes
    }

    /// Assumes of paths that were never measured that the model is as right as it was of the best of the
    /// others: else calls that ride one path would leave a good one for each that was never tried.
    fn assume(&mut self) {
        let measured = self.known.iter().filter(|k| k.last.is_some() && !k.lost);
        let right = measured.map(|k| k.link.gbs / k.model_gbs).fold(0.0, f64::max);
        for known in self.known.iter_mut().filter(|k| right > 0.0 && k.last.is_none()) {
            known.link.gbs = known.model_gbs * right;
        }
    }

    /// Returns the shares of a call of `bytes` bytes.
    pub fn shares(&self, split: &WeightedSplit, bytes: u64) -> PathShares {
        // Every rank divides by itself, by numbers that another rounding would change.
        let _environment = DefaultEnvironment::ensure();
        balance::shares(&flows(split, &self.used), bytes)
    }

    /// Returns true if the model's advice for calls of `bytes` bytes is to be tried: they are divided, and so
    /// short that what it does not know may cost more than that gains.
    pub fn is_doubtful(&self, split: &WeightedSplit, bytes: u64) -> bool {
        let shares = self.shares(split, bytes);
        let time = balance::time_us(&flows(split, &self.used), bytes, &shares);
        shares.only().is_none() && time < SHORT_US
    }

    /// Returns the shares of such a call if it is not to be divided: all to the best path.
    pub fn whole(&self, split: &WeightedSplit, bytes: u64) -> PathShares {
        let (flows, paths) = (flows(split, &self.used), self.paths() as u32);
        let alone = |path: u32| PathShares::single(path, paths);
        let time = |path: &u32| balance::time_us(&flows, bytes, &alone(*path));
        let best = (0..paths).min_by(|a, b| time(a).total_cmp(&time(b)));
        alone(best.unwrap_or(0))
    }

    /// Describes the shares of such a call, and the reason for them.
    pub fn explain(&self, names: &[String], shares: &PathShares) -> String {
        let each = names.iter().zip(&self.used).zip(shares.list());
        let each: Vec<String> = each
            .map(|((name, path), share)| {
                let share = f64::from(*share) * 100.0 / f64::from(WHOLE);
                match path.lost {
                    true => format!("{name} {share:.1} % (lost)"),
                    false => format!("{name} {share:.1} % ({:.3} GB/s)", path.link.gbs),
                }
            })
            .collect();
        let why = match (self.measured, self.since) {
            (false, 0) => "as the model says, nothing was measured yet".into(),
            (true, 0) => "as the model says, and measured to be near the best".into(),
            (_, since) => format!("as measured, since call {since}"),
        };
        format!("{}: {why}", each.join(", "))
    }
}

/// Returns the times of the parts. With no path left there is nothing to choose: the former paths are tried.
fn flows(split: &WeightedSplit, known: &[PathState]) -> Vec<balance::PathFlow> {
    let links: Vec<LinkCost> = known.iter().map(|path| path.link).collect();
    let mut flows = balance::flows(split, &links);
    if known.iter().any(|path| !path.lost) {
        let lost = flows.iter_mut().zip(known).filter(|(_, path)| path.lost);
        lost.for_each(|(flow, _)| flow.us = f64::INFINITY);
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use roundelay_compiler::plan::PartLoad;

    const LARGE: u64 = 64 << 20;

    /// Returns a ring of two ranks on each of two paths.
    fn ring() -> WeightedSplit {
        let load = PartLoad { rounds: 2, moved: 1024 };
        WeightedSplit { units: 1, parts: 2, scratch: vec![], loads: vec![load; 2] }
    }

    fn balance(gbs: [f64; 2]) -> PathBalance {
        PathBalance::new(&gbs.map(|gbs| LinkCost { gbs, ..LinkCost::NETWORK }))
    }

    /// Returns the words of a rank; each part has the bytes moved over a path, and the milliseconds.
    fn measured_words(parts: &[(u64, u64)], lost: u64) -> Vec<PathCode> {
        let mut own = PathMeasurement::default();
        own.add(parts.iter().map(|&(bytes, ms)| (bytes, Duration::from_millis(ms))));
        PathCode::all(&own.words(parts.len(), lost), parts.len())
    }

    fn percent(shares: &PathShares) -> Vec<u32> {
        shares.list().iter().map(|share| (share * 100 + 32768) / 65536).collect()
    }

    #[test]
    fn shares_follow_the_slowest_rank() {
        let mut balance = balance([1.0, 1.0]);
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [50, 50]);
        let fast = measured_words(&[(32 << 20, 10), (32 << 20, 10)], 0);
        let slow = measured_words(&[(32 << 20, 10), (32 << 20, 40)], 0);
        assert!(balance.agree(&[fast.clone(), slow], 7, &ring(), LARGE));
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [80, 20]);
        assert!(
            balance
                .explain(&["a".into(), "b".into()], &balance.shares(&ring(), LARGE))
                .contains("since call 7")
        );
        assert!(
            !balance.agree(&[fast.clone(), fast.clone()], 9, &ring(), LARGE),
            "it may be chance"
        );
        assert!(balance.agree(&[fast.clone(), fast], 10, &ring(), LARGE));
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [50, 50]);
    }

    #[test]
    fn a_small_gain_changes_nothing() {
        let mut balance = balance([1.0, 1.0]);
        assert!(!balance.agree(
            &[measured_words(&[(32 << 20, 100), (32 << 20, 109)], 0)],
            1,
            &ring(),
            LARGE
        ));
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [50, 50]);
        assert!(!balance.agree(
            &[measured_words(&[(32 << 20, 100), (32 << 20, 113)], 0)],
            2,
            &ring(),
            LARGE
        ));
        assert!(balance.agree(
            &[measured_words(&[(32 << 20, 100), (32 << 20, 113)], 0)],
            3,
            &ring(),
            LARGE
        ));
    }

    #[test]
    fn a_path_that_nobody_tried_is_not_believed_to_be_better() {
        let bytes = 64 << 10;
        let mut balance = balance([1.0, 1.0]);
        let first = balance.whole(&ring(), bytes);
        // Small calls use the first path alone, and less of it than the model expects.
        for call in 1..5 {
            balance.agree(&[measured_words(&[(64 << 10, 1), (0, 0)], 0)], call, &ring(), bytes);
            assert_eq!(balance.whole(&ring(), bytes), first, "call {call}");
        }
        // The model's advice counts where it is larger.
        let mut balance = self::balance([1.0, 3.0]);
        balance.agree(&[measured_words(&[(64 << 10, 1), (0, 0)], 0)], 1, &ring(), bytes);
        assert_ne!(balance.whole(&ring(), bytes), first);
    }

    #[test]
    fn a_lost_path_has_nothing_until_it_is_back() {
        let mut balance = balance([1.0, 0.25]);
        let (well, lost) =
            (measured_words(&[(0, 0), (0, 0)], 0), measured_words(&[(0, 0), (0, 0)], 1));
        assert!(balance.agree(&[well.clone(), lost.clone()], 1, &ring(), LARGE));
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [0, 100]);
        assert!(!balance.agree(&[lost, well.clone()], 2, &ring(), LARGE));
        assert!(balance.agree(&[well.clone(), well], 3, &ring(), LARGE));
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [80, 20]);
        let none = measured_words(&[(0, 0), (0, 0)], 3);
        balance.agree(&[none.clone(), none], 4, &ring(), LARGE);
        assert_eq!(percent(&balance.shares(&ring(), LARGE)), [80, 20]);
    }

    #[test]
    fn little_goes_over_the_best_path_alone() {
        let balance = balance([0.125, 0.5]);
        assert_eq!(balance.shares(&ring(), 1 << 10).only(), Some(1));
        assert_eq!(balance.shares(&ring(), LARGE).only(), None);
    }

    #[test]
    fn ranks_agree_seldom_where_that_costs_much() {
        let mut balance = balance([1.0, 1.0]);
        assert!(balance.is_time(), "at the first call");
        balance.agree(&[], 1, &ring(), 1 << 10);
        assert!((0..BALANCED_CALLS_MAX - 1).all(|_| !balance.is_time()) && balance.is_time());
        balance.agree(&[], 2, &ring(), LARGE);
        assert!(balance.is_time(), "at every call of tens of milliseconds");
    }
}
