//! Decides after which phases there are block barriers: before signals, and between phases of which the later
//! one counts on the earlier one.

use std::collections::BTreeMap;

use super::build::TaskDraft;
use super::order::places;
use super::rules::reads;
use crate::num::{count, index};
use crate::plan::{Plan, PlanRegion};

/// The facts that decide after which phases of a rank there are block barriers.
pub(super) struct RankBarriers<'d> {
    pub(super) plan: &'d Plan,
    pub(super) drafts: &'d [Vec<TaskDraft>],
    /// For each task whose message landed, the phase from which on that is known.
    pub(super) landed: &'d [Vec<u32>],
    pub(super) signals: &'d [BTreeMap<u32, u32>],
    /// Phases with a block barrier between them.
    pub(super) needs: &'d [(u32, u32)],
    /// The second one in the pass after.
    pub(super) around: &'d [(u32, u32)],
    /// True if peers take a phase to tell that the pass before is over.
    pub(super) renewed: bool,
}

impl RankBarriers<'_> {
    /// Returns, for each phase, true if there is a block barrier after it. They are as few as possible: each is
    /// either before signals, or as late as the first phase that counts on it allows.
    pub(super) fn all(&self) -> Vec<bool> {
        let phases = self.drafts.len();
        let mut before: Vec<Option<u32>> = vec![None; phases];
        for &(a, b) in self.needs.iter().chain(&self.conflicts()) {
            let latest = &mut before[index(b)];
            *latest = (*latest).max(Some(a));
        }
        let mut barriers = vec![false; phases];
        // The latest barrier so far, and whether anything was executed since.
        let (mut last, mut executed): (Option<u32>, bool) = (None, false);
        for phase in 0..phases {
            if before[phase].is_some_and(|a| last.is_none_or(|l| l < a)) {
                barriers[phase - 1] = true;
                (last, executed) = (Some(count(phase) - 1), false);
            }
            executed |= self.drafts[phase].iter().any(TaskDraft::works);
            if executed && !self.signals[phase].is_empty() {
                barriers[phase] = true;
                (last, executed) = (Some(count(phase)), false);
            }
        }
        let within = |range: std::ops::Range<u32>| range.into_iter().any(|p| barriers[index(p)]);
        let mut around =
            self.around.iter().any(|&(a, b)| !within(a..count(phases)) && !within(0..b));
        let first = self.signals.iter().position(|s| !s.is_empty());
        around |=
            self.renewed && executed && first.is_some_and(|first| !within(0..count(first) + 1));
        if let (true, Some(last)) = (around, barriers.last_mut()) {
            *last = true;
        }
        barriers
    }

    /// Returns pairs of phases that touch the same memory of the rank.
    fn conflicts(&self) -> Vec<(u32, u32)> {
        let places = places(self.plan);
        let mut cells: Vec<(Option<u32>, Option<u32>)> = vec![(None, None); places.per_rank];
        let mut found = Vec::new();
        for (phase, (tasks, landed)) in self.drafts.iter().zip(self.landed).enumerate() {
            let phase = count(phase);
            for (draft, &landed) in tasks.iter().zip(landed) {
                for (buf, c) in draft.landed.iter().flat_map(PlanRegion::iter) {
                    cells[places.local(buf, c)] = (Some(landed), None);
                }
            }
            let stores = || tasks.iter().filter_map(|d| d.task.store.as_ref());
            for (buf, c) in stores().flat_map(PlanRegion::iter) {
                let (written, read) = cells[places.local(buf, c)];
                found.extend(written.into_iter().chain(read).map(|before| (before, phase)));
            }
            for (buf, c) in tasks.iter().flat_map(|d| reads(&d.task)).flat_map(PlanRegion::iter) {
                let (written, read) = &mut cells[places.local(buf, c)];
                found.extend(written.map(|w| (w, phase)));
                *read = Some(phase);
            }
            for (buf, c) in stores().flat_map(PlanRegion::iter) {
                cells[places.local(buf, c)] = (Some(phase), None);
            }
        }
        found.retain(|&(a, b)| a < b);
        found
    }
}
