//! Waits that remain once those are left out whose condition is known already: by what was waited for
//! before, or by another wait of the same task.

use super::build::{TaskDraft, WaitCondition};
use super::order::PhaseOrder;
use super::travel::{BarrierPairs, PhaseKnowledge, learn};
use crate::num::{count, index};

/// The knowledge of ranks when phases are over, in the first pass.
pub(super) struct PrunedWaits {
    /// At the end of each rank.
    pub(super) end: Vec<PhaseKnowledge>,
    /// For each task whose message landed, the phase from which on that is known.
    pub(super) landed: Vec<Vec<Vec<u32>>>,
    /// The block barriers that ranks need between a phase of one pass and a phase of the next.
    pub(super) around: BarrierPairs,
    /// Ranks of which a phase tells that the pass before is over.
    pub(super) renewed: Vec<bool>,
}

/// Leaves out conditions of tasks and of leaving; adds what needs a block barrier.
pub(super) fn prune(
    order: &PhaseOrder<'_>,
    drafts: &mut [Vec<Vec<TaskDraft>>],
    leave: &mut [Vec<WaitCondition>],
    barriers: &mut BarrierPairs,
) -> PrunedWaits {
    let n = order.plans.len();
    let mut pass = PassKnowledge { known: vec![Vec::new(); n] };
    let mut landed: Vec<Vec<Vec<u32>>> = vec![Vec::new(); n];
    for &(rank, phase) in &order.sequence {
        let tasks = &mut drafts[index(rank)][index(phase)];
        let mut whens = Vec::new();
        for draft in tasks.iter_mut() {
            let since = pass.task(rank, phase, &mut draft.conditions);
            let works = !draft.task.inputs.is_empty();
            let kept = draft.conditions.iter().any(|c| c.earlier == 0);
            let when = match since {
                Some(since) if draft.landed.is_some() && !works && !kept => since,
                Some(since) => {
                    barriers[index(rank)].push((since, phase));
                    phase
                }
                None => phase,
            };
            whens.push(when);
        }
        landed[index(rank)].push(whens);
        pass.idle(rank, tasks);
        pass.ends(rank, tasks);
    }
    let (around, renewed) = earlier(order, drafts, &pass, barriers);
    let mut end = Vec::new();
    for (rank, conditions) in leave.iter_mut().enumerate() {
        pass.task(count(rank), count(order.phases[rank].len()), conditions);
        let mut known = pass.known[rank].last().cloned().unwrap_or_else(|| vec![0; n]);
        conditions.iter().for_each(|c| learn(&mut known, &pass.knowledge(c)));
        end.push(known);
    }
    PrunedWaits { end, landed, around, renewed }
}

/// Leaves out waits for signals of the pass before. A rank needs none of them once it knows that the peer
/// has ended a phase of this pass, or that phase in the pass before.
fn earlier(
    order: &PhaseOrder<'_>,
    drafts: &mut [Vec<Vec<TaskDraft>>],
    pass: &PassKnowledge,
    barriers: &mut BarrierPairs,
) -> (BarrierPairs, Vec<bool>) {
    let mut around = vec![Vec::new(); order.plans.len()];
    let mut renewed = vec![false; order.plans.len()];
    for (rank, phases) in drafts.iter_mut().enumerate() {
        let known = &pass.known[rank];
        for (phase, tasks) in phases.iter_mut().enumerate() {
            for draft in tasks {
                let signalled: Vec<PhaseKnowledge> = draft
                    .conditions
                    .iter()
                    .filter(|c| c.earlier == 0)
                    .map(|c| pass.knowledge(c))
                    .collect();
                draft.conditions.retain(|c| {
                    let (true, (peer, Some(of))) =
                        (c.earlier > 0 && c.source.0 != count(rank), c.source)
                    else {
                        return true;
                    };
                    let peer = index(peer);
                    if signalled.iter().any(|t| t[peer] >= 2) {
                        renewed[peer] = true;
                        return false;
                    }
                    // Known in this pass, in the pass before, or in those before that.
                    let now = known[..phase].partition_point(|k| k[peer] < 2);
                    let need = if c.earlier > 1 { 2 } else { of + 2 };
                    let then = known.partition_point(|k| k[peer] < need);
                    let known_since = now < phase || then < known.len();
                    renewed[peer] |= known_since && (now < phase || c.earlier > 1);
                    if now < phase {
                        barriers[rank].push((count(now), count(phase)));
                    } else if then < known.len() && c.earlier > 2 {
                        around[rank].push((0, count(known.len())));
                    } else if then < known.len() {
                        around[rank].push((count(then), count(phase)));
                    }
                    !known_since
                });
            }
        }
    }
    (around, renewed)
}

/// The knowledge of ranks when the phases of a pass are over, by the signals of that pass.
struct PassKnowledge {
    known: Vec<Vec<PhaseKnowledge>>,
}

impl PassKnowledge {
    /// Returns the progress of all ranks that a fulfilled condition implies.
    fn knowledge(&self, c: &WaitCondition) -> PhaseKnowledge {
        let (rank, phase) = (index(c.source.0), c.source.1);
        let mut known = match phase {
            Some(phase) => self.known[rank][index(phase)].clone(),
            None => vec![0; self.known.len()],
        };
        known[rank] = known[rank].max(phase.map_or(1, |p| p + 2));
        known
    }

    /// Leaves out what is known; gives the phase since when all of it is.
    fn task(&self, rank: u32, phase: u32, list: &mut Vec<WaitCondition>) -> Option<u32> {
        let phases = &self.known[index(rank)][..index(phase)];
        let mut since = None;
        let mut i = 0;
        while i < list.len() {
            let c = list[i];
            let (peer, need) = (index(c.source.0), c.source.1.map_or(1, |p| p + 2));
            if c.earlier > 0 || c.proxy || c.source.0 == rank {
                i += 1;
                continue;
            }
            let at = phases.partition_point(|k| k[peer] < need);
            let others = list.iter().enumerate().filter(|(j, o)| *j != i && o.earlier == 0);
            let others = others.map(|(_, o)| o).filter(|o| o.source.0 != rank);
            if others.into_iter().any(|o| self.knowledge(o)[peer] >= need) {
                list.remove(i);
            } else if at < phases.len() {
                since = since.max(Some(count(at)));
                list.remove(i);
            } else {
                i += 1;
            }
        }
        since
    }

    /// Leaves out the waits of tasks that only wait if other tasks of the phase wait for the same: such a
    /// task is there for what comes after the phase.
    fn idle(&self, rank: u32, tasks: &mut [TaskDraft]) {
        for i in (0..tasks.len()).filter(|&i| tasks[i].task.inputs.is_empty()).collect::<Vec<_>>() {
            let others = tasks.iter().enumerate().filter(|(j, _)| *j != i);
            let others = others.flat_map(|(_, d)| &d.conditions);
            let signalled: Vec<PhaseKnowledge> = others
                .filter(|c| c.earlier == 0 && c.source.0 != rank)
                .map(|c| self.knowledge(c))
                .collect();
            tasks[i].conditions.retain(|c| {
                let need = c.source.1.map_or(1, |p| p + 2);
                c.earlier > 0 || c.proxy || !signalled.iter().any(|t| t[index(c.source.0)] >= need)
            });
        }
    }

    /// Records the knowledge of a rank at the end of a phase.
    fn ends(&mut self, rank: u32, tasks: &[TaskDraft]) {
        let before = self.known[index(rank)].last().cloned();
        let mut now = before.unwrap_or_else(|| vec![0; self.known.len()]);
        for c in tasks.iter().flat_map(|d| &d.conditions).filter(|c| c.earlier == 0) {
            if c.source.0 != rank {
                learn(&mut now, &self.knowledge(c));
            }
        }
        self.known[index(rank)].push(now);
    }
}
