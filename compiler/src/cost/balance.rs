//! Balance: how much of the vector each path carries.
//!
//! A part of `m` bytes takes its path `a + b m` microseconds. All paths that carry anything are to finish
//! together, at `T = (m + sum a/b) / (sum 1/b)`: water poured into a vessel with steps as high as the `a`
//! stands at T, and each path has `(T - a)/b` of it. A path whose step is above the water has none. That is
//! the closed form; which paths are worth their trouble is tried out, for there are few: a rank looks after
//! one path at a time, so that each further one costs something of its own however little it carries, and
//! a model is not exact, so that a gain must be worth mentioning. Below some size one path is left.
//!
//! Sums, products, quotients and maxima of doubles only: all ranks come to the same shares.

use super::LinkCost;
use crate::num::{count, float, index};
use crate::plan::{MAX_PATHS, PathShares, WHOLE, WeightedSplit};

/// A rank looks after one path at a time: this share of what the others take for no bytes is added.
const ASIDE: f64 = 0.5;
/// A further path must make a call faster by this factor.
const LEAST_GAIN: f64 = 1.03;

/// The cost of a part of a plan on its path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathFlow {
    /// Microseconds without content. A path that cannot be used has infinitely many.
    pub us: f64,
    /// Microseconds for each byte of the vector that the part has.
    pub us_per_byte: f64,
}

impl PathFlow {
    fn usable(&self) -> bool {
        self.us.is_finite()
            && self.us >= 0.0
            && self.us_per_byte.is_finite()
            && self.us_per_byte > 0.0
    }

    fn at(&self, bytes: f64) -> f64 {
        self.us + self.us_per_byte * bytes
    }
}

/// Returns the costs of the parts of a plan on these paths; part i rides path i.
pub fn flows(split: &WeightedSplit, paths: &[LinkCost]) -> Vec<PathFlow> {
    let flow = |(load, link): (&crate::plan::PartLoad, &LinkCost)| PathFlow {
        us: f64::from(load.rounds) * link.latency_us,
        us_per_byte: load.vectors() * link.slope(),
    };
    split.loads.iter().zip(paths).map(flow).collect()
}

/// Returns the shares of a vector of `bytes` bytes with which the call takes least time; everything on the
/// best path where no other is worth it.
pub fn shares(flows: &[PathFlow], bytes: u64) -> PathShares {
    let flows = &flows[..flows.len().min(index(MAX_PATHS))];
    let m = float(bytes);
    let single = best_single(flows, m);
    let mut best = (flows.get(single).map_or(f64::INFINITY, |f| f.at(m)), None);
    for set in 1u32..1 << flows.len() {
        let chosen = || (0..flows.len()).filter(move |p| set >> p & 1 == 1);
        if set.count_ones() < 2 || !chosen().all(|p| flows[p].usable()) {
            continue;
        }
        let level = level(chosen().map(|p| flows[p]), m);
        if chosen().any(|p| flows[p].us >= level) {
            continue;
        }
        let time = level + aside(chosen().map(|p| flows[p].us));
        // The gain is asked for once, and not again of each path that joins.
        let enough = if best.1.is_none() { LEAST_GAIN } else { 1.0 };
        if time * enough < best.0 {
            best = (time, Some((set, level)));
        }
    }
    let Some((set, level)) = best.1 else {
        return PathShares::single(count(single), count(flows.len()));
    };
    let weight = |(p, f): (usize, &PathFlow)| match set >> p & 1 {
        1 => (level - f.us) / f.us_per_byte,
        _ => 0.0,
    };
    let weights: Vec<f64> = flows.iter().enumerate().map(weight).collect();
    PathShares::of_weights(&weights)
}

/// Returns the time of a call of `bytes` bytes with those shares, in microseconds.
pub fn time_us(flows: &[PathFlow], bytes: u64, shares: &PathShares) -> f64 {
    let used = || flows.iter().zip(shares.list()).filter(|(_, share)| **share > 0);
    let part = |share: u32| float(bytes) * (f64::from(share) / f64::from(WHOLE));
    let longest = used().map(|(f, &share)| f.at(part(share))).fold(0.0, f64::max);
    longest + aside(used().map(|(f, _)| f.us))
}

/// Returns the least size, up to rounding to powers of two, from which on several paths are used.
pub fn threshold(flows: &[PathFlow]) -> Option<u64> {
    (0..44).map(|k| 1u64 << k).find(|&bytes| shares(flows, bytes).only().is_none())
}

/// Returns the path that alone takes least time; the first of equal ones.
fn best_single(flows: &[PathFlow], bytes: f64) -> usize {
    let mut best = 0;
    for (p, f) in flows.iter().enumerate().filter(|(_, f)| f.usable()) {
        if !flows[best].usable() || f.at(bytes) < flows[best].at(bytes) {
            best = p;
        }
    }
    best
}

/// Returns the time, in microseconds, at which the given flows end together.
fn level(flows: impl Iterator<Item = PathFlow>, bytes: f64) -> f64 {
    let add = |(sum, rate): (f64, f64), f: PathFlow| {
        (sum + f.us / f.us_per_byte, rate + 1.0 / f.us_per_byte)
    };
    let (sum, rate) = flows.fold((bytes, 0.0), add);
    sum / rate
}

fn aside(latencies: impl Iterator<Item = f64>) -> f64 {
    let (sum, most) = latencies.fold((0.0, 0.0f64), |(sum, most), us| (sum + us, most.max(us)));
    (sum - most) * ASIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(us: f64, gbs: f64) -> PathFlow {
        PathFlow { us, us_per_byte: 1e-3 / gbs }
    }

    #[test]
    fn paths_finish_together() {
        // 4 and 1 Gbit/s with no latency: four fifths and one fifth.
        let flows = [flow(0.0, 0.5), flow(0.0, 0.125)];
        assert_eq!(shares(&flows, 1 << 24).list(), [52429, 13107]);
        // With latencies, T = (m + sum a/b) / (sum 1/b).
        let flows = [flow(100.0, 1.0), flow(500.0, 0.5)];
        let found = shares(&flows, 10 << 20);
        let level = ((10 << 20) as f64 + 100.0 * 1e3 + 500.0 * 500.0) / 1500.0;
        for (f, share) in flows.iter().zip(found.list()) {
            let bytes = (10 << 20) as f64 * f64::from(*share) / f64::from(WHOLE);
            assert!((f.at(bytes) / level - 1.0).abs() < 1e-4, "{f:?} {share}");
        }
    }

    #[test]
    fn below_the_threshold_the_best_path_has_all() {
        let flows = [flow(50.0, 0.5), flow(50.0, 0.125)];
        let from = threshold(&flows).expect("a threshold");
        assert_eq!(shares(&flows, from / 2).only(), Some(0));
        assert!(shares(&flows, from).only().is_none());
        let before = time_us(&flows, from / 2, &PathShares::single(0, 2));
        assert!(from > 1 << 10 && from < 1 << 20, "{from}");
        assert!(before <= time_us(&flows, from / 2, &shares(&flows, from / 2)));
        // The best path is that of least latency for short calls, and of most bandwidth where the other
        // is too slow to be of use.
        let flows = [flow(500.0, 10.0), flow(5.0, 0.05)];
        assert_eq!(shares(&flows, 16).only(), Some(1));
        assert_eq!(shares(&flows, 1 << 30).only(), Some(0));
        assert_eq!(shares(&[flow(1.0, 1.0)], 1 << 30).list(), [WHOLE]);
    }

    #[test]
    fn more_is_never_slower_and_what_cannot_be_used_has_nothing() {
        for k in 0..36 {
            let bytes = 1u64 << k;
            let flows = [flow(40.0, 1.0), flow(80.0, 0.5), flow(20.0, 0.1), flow(300.0, 3.0)];
            let found = shares(&flows, bytes);
            let time = time_us(&flows, bytes, &found);
            for p in 0..4 {
                let alone = time_us(&flows, bytes, &PathShares::single(p, 4));
                assert!(time <= alone * 1.0001, "{bytes}: {time} {alone}");
            }
        }
        let dead = PathFlow { us: f64::INFINITY, us_per_byte: 1e-3 };
        let broken = PathFlow { us: 1.0, us_per_byte: f64::NAN };
        let flows = [dead, flow(1.0, 1.0), broken, flow(1.0, 1.0)];
        assert_eq!(shares(&flows, 1 << 30).list(), [0, WHOLE / 2, 0, WHOLE / 2]);
        assert_eq!(shares(&[dead, broken], 1 << 30).list(), [WHOLE, 0]);
        assert_eq!(shares(&[], 1).parts(), 1);
    }
}
