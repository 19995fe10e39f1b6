//! Divides calls over the paths, and learns from their times.

use std::time::Duration;

use roundelay_compiler::cost::LinkCost;
use roundelay_compiler::plan::{PathShares, Plan, WeightedSplit};

use super::core::EngineCore;
use crate::bind::PlanKey;
use roundelay_net::paths::{PathBalance, PathCode};
use roundelay_support::error::Error;

impl EngineCore {
    /// Returns the shares for a plan that is split by bandwidth: those that were set, or else those of the
    /// balance. All ranks agree on that now and then.
    pub(crate) fn divide(
        &mut self,
        plan: &Plan,
        key: &PlanKey,
    ) -> Result<Option<PathShares>, Error> {
        let Some(split) = &plan.header.split else { return Ok(None) };
        if let Some(set) = self.shares.as_ref().filter(|s| s.parts() == split.parts) {
            return Ok(Some(set.clone()));
        }
        let paths = self.group.paths().len();
        if split.parts as usize != paths {
            return Ok(Some(PathShares::even(split.parts)));
        }
        let size = u64::from(plan.header.blocks) * key.dtype.size() as u64;
        let bytes = key.count.saturating_mul(size);
        let links: Vec<LinkCost> = self.group.path_costs().iter().map(|path| path.link).collect();
        let balance = self.balance.get_or_insert_with(|| PathBalance::new(&links));
        if balance.is_time() {
            self.agree_on_paths(split, bytes)?;
        }
        let plan = u64::from_le_bytes(std::array::from_fn(|at| plan.header.hash[at]));
        if let Some(word) = self.balance.as_mut().and_then(|b| b.trials.is_time(plan, bytes)) {
            let ranks = self.words(word)?;
            self.balance.iter_mut().for_each(|b| b.trials.agree(plan, bytes, &ranks));
        }
        let divided = self.balance.as_mut().map(|balance| {
            let whole = balance.is_doubtful(split, bytes) && !balance.trials.divides(plan, bytes);
            if whole { balance.whole(split, bytes) } else { balance.shares(split, bytes) }
        });
        Ok(divided)
    }

    /// Shares what was measured of the paths, before a call of that many bytes.
    fn agree_on_paths(&mut self, split: &WeightedSplit, bytes: u64) -> Result<(), Error> {
        self.group.listen();
        let lost = self.group.lost_paths();
        let Some(mut balance) = self.balance.take() else { return Ok(()) };
        let mut reports = vec![Vec::new(); self.size() as usize];
        for word in balance.own.words(balance.paths(), lost) {
            self.control_all_gather(word, |rank, word| reports[rank as usize].push(word))?;
        }
        let ranks: Vec<Vec<PathCode>> =
            reports.iter().map(|words| PathCode::all(words, balance.paths())).collect();
        balance.agree(&ranks, self.calls + 1, split, bytes);
        self.balance = Some(balance);
        Ok(())
    }

    /// Describes how the last call was divided, and the reason, if it was.
    pub fn divided(&self) -> Option<String> {
        let shares = self.bounds.get(self.current?)?.shares.as_ref()?;
        Some(self.balance.as_ref()?.explain(self.group.paths(), shares))
    }

    /// Begins to measure a call that is divided.
    pub(crate) fn measure(&mut self, at: usize) {
        let bound = &self.bounds[at];
        if let (Some(shares), Some(_)) = (&bound.shares, &self.balance) {
            self.moved.resize(shares.parts() as usize, (0, 0));
            self.endpoints.moved_over(bound.ends(), &mut self.moved);
        }
    }

    /// Ends the measurement: takes in how long each part took, and how much it moved.
    pub(crate) fn measured(&mut self, at: usize) {
        let bound = &self.bounds[at];
        let (Some(shares), Some(balance)) = (&bound.shares, &mut self.balance) else { return };
        let mut now = vec![(0, 0); shares.parts() as usize];
        self.endpoints.moved_over(bound.ends(), &mut now);
        let parts = self.moved.iter().zip(&now).zip(self.work.clock.parts());
        let parts = parts.map(|((before, now), time): (_, &Duration)| {
            let bytes = (now.0 - before.0).max(now.1 - before.1);
            (bytes, *time)
        });
        balance.own.add(parts);
        balance.trials.took(self.work.clock.elapsed());
    }
}
