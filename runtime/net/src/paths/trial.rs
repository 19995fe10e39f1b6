//! Tries out whether calls of a size gain by being divided, for no model predicts the cost of one part more
//! processors that are busy with the others.

use std::time::Duration;

use crate::tunables::{TRIAL_CALLS, TRIAL_REPEAT_CALLS, TRIALS_MAX};

/// Undivided calls are preferred unless divided ones take less than this part of their time.
const GAIN: f32 = 0.97;

/// Calls of a plan, of sizes up to a power of two.
#[derive(Debug, Clone, PartialEq)]
struct SizeTrial {
    plan: u64,
    class: u32,
    /// Calls since it began: first divided ones, then undivided ones, then as was agreed.
    calls: u32,
    /// Times of both, in seconds, on this rank.
    times: [Vec<f32>; 2],
    divides: Option<bool>,
}

/// The trials of a communicator, in step on all ranks.
#[derive(Debug, Clone, Default)]
pub struct DivisionTrials {
    all: Vec<SizeTrial>,
    /// The one that the call in progress belongs to, and which of its times it is.
    current: Option<(usize, usize)>,
}

impl DivisionTrials {
    /// Returns the result of this rank, if the ranks must agree on it before this call.
    pub fn is_time(&mut self, plan: u64, bytes: u64) -> Option<u64> {
        self.current = None;
        let trial = &self.all[self.at(plan, bytes)?];
        if trial.divides.is_some() || (trial.calls as usize) < 2 * TRIAL_CALLS {
            return None;
        }
        let [divided, whole] = trial.times.each_ref().map(|times| median(times).to_bits());
        Some(u64::from(divided) << 32 | u64::from(whole))
    }

    /// Takes in what all ranks found: the slowest of them counts.
    pub fn agree(&mut self, plan: u64, bytes: u64, ranks: &[u64]) {
        let most = |shift: u32| {
            ranks.iter().map(|word| f32::from_bits((word >> shift) as u32)).fold(0.0, f32::max)
        };
        if let Some(at) = self.at(plan, bytes) {
            self.all[at].divides = Some(most(32) < most(0) * GAIN);
        }
    }

    /// Returns true if this call is to be divided.
    pub fn divides(&mut self, plan: u64, bytes: u64) -> bool {
        let at = self.at(plan, bytes).unwrap_or_else(|| {
            if self.all.len() == TRIALS_MAX {
                self.all.remove(0);
            }
            let (class, times) = (class(bytes), [Vec::new(), Vec::new()]);
            self.all.push(SizeTrial { plan, class, calls: 0, times, divides: None });
            self.all.len() - 1
        });
        let trial = &mut self.all[at];
        if trial.divides.is_some() && trial.calls >= TRIAL_REPEAT_CALLS {
            (trial.calls, trial.divides, trial.times) = (0, None, [Vec::new(), Vec::new()]);
        }
        let call = trial.calls as usize;
        trial.calls += 1;
        match trial.divides {
            Some(divides) => divides,
            None => {
                self.current = Some((at, usize::from(call >= TRIAL_CALLS)));
                call < TRIAL_CALLS
            }
        }
    }

    /// Records the time of the call that was just asked about.
    pub fn took(&mut self, time: Duration) {
        if let Some((at, which)) = self.current.take() {
            self.all[at].times[which].push(time.as_secs_f32());
        }
    }

    /// Forgets all trials, for shares are others now.
    pub(crate) fn forget(&mut self) {
        self.all.clear();
        self.current = None;
    }

    fn at(&self, plan: u64, bytes: u64) -> Option<usize> {
        self.all.iter().position(|t| (t.plan, t.class) == (plan, class(bytes)))
    }
}

fn class(bytes: u64) -> u32 {
    bytes.max(1).next_power_of_two().trailing_zeros()
}

fn median(times: &[f32]) -> f32 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs calls until all ranks must agree; gives what this one found.
    fn run_calls(trials: &mut DivisionTrials, divided: u64, whole: u64) -> u64 {
        for call in 0..2 * TRIAL_CALLS {
            assert_eq!(trials.is_time(7, 100_000), None);
            let divides = trials.divides(7, 100_000);
            assert_eq!(divides, call < TRIAL_CALLS);
            trials.took(Duration::from_micros(if divides { divided } else { whole }));
        }
        trials.is_time(7, 100_000).expect("it is time")
    }

    #[test]
    fn what_was_faster_on_the_slowest_rank_is_done() {
        for (other, divides) in [(80, true), (99, false), (200, false)] {
            let (mut one, mut two) = (DivisionTrials::default(), DivisionTrials::default());
            let words = [run_calls(&mut one, 50, 100), run_calls(&mut two, other, 90)];
            for trials in [&mut one, &mut two] {
                trials.agree(7, 100_000, &words);
                assert_eq!(trials.is_time(7, 100_000), None);
                assert_eq!(trials.divides(7, 90_000), divides, "{other}");
                assert!(trials.divides(7, 1 << 20), "another size begins anew");
                assert!(trials.divides(8, 90_000), "another plan too");
            }
            one.forget();
            assert!(one.divides(7, 90_000));
        }
    }

    #[test]
    fn it_is_tried_again_now_and_then() {
        let mut trials = DivisionTrials::default();
        let word = run_calls(&mut trials, 100, 50);
        trials.agree(7, 100_000, &[word]);
        let again = (0..2 * TRIAL_REPEAT_CALLS).position(|_| trials.divides(7, 100_000));
        assert_eq!(again, Some(TRIAL_REPEAT_CALLS as usize - 2 * TRIAL_CALLS));
    }
}
