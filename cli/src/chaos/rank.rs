//! A rank of a job under faults: it makes verified calls until one fails, and then goes on with the survivors.

use std::time::{Duration, Instant};

use roundelay::launch::{JobSetup, RankHandles};
use roundelay::{Communicator, Error, Hints, RedOp};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::notes::NoteFolder;
use super::process::{RankOrder, disturbed, late};
use super::resources::{HeldResources, LeakedResources, threads};
use crate::report::{VerbError, VerbResult, usage};
use crate::tunables::{FINAL_SETTLE_TIMEOUT, GENERATION_SETTLE_TIMEOUT, NOTE_POLL_INTERVAL};

/// Rounds after which a rank says that its generation works.
const ROUNDS: u64 = 3;
/// Rounds after which it says what it has done.
const REPORT_INTERVAL: u64 = 20;

/// The report of a rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankTally {
    pub(super) calls: u64,
    pub(super) wrong: u64,
    /// The times that it took to come to a generation, in milliseconds, from the call of `reconfigure` on, where it was
    /// not stopped meanwhile.
    pub(super) reconfigured: Vec<f64>,
    pub(super) left: LeakedResources,
    /// The threads that ran when something was left.
    pub(super) threads: Vec<String>,
}

/// The next step of a rank.
enum NextStep {
    /// It goes on with the next attempt.
    Attempt,
    End,
}

struct ChaosRank {
    order: RankOrder,
    notes: NoteFolder,
    timeout: Duration,
    step: u64,
    tally: RankTally,
    /// The resources that it held in the beginning.
    held: HeldResources,
}

/// Runs a rank.
pub(crate) fn rank(order: &str) -> VerbResult {
    let order: RankOrder = serde_json::from_str(order).map_err(usage)?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(usage)?;
    if getppid().map(|parent| parent.as_raw_nonzero().get() as u32) != Some(order.parent) {
        return Ok(());
    }
    let hints: Hints = order.hints.parse()?;
    let setup = JobSetup::from_env()?.hints(&hints);
    let setup = order.host.iter().fold(setup, |setup, host| setup.host_label(host));
    let mut comm = Communicator::alone(&setup)?;
    let held = HeldResources::beside(&mut comm)?;
    let (notes, timeout) = (NoteFolder::at(&order.folder), Duration::from_millis(order.timeout_ms));
    let mut worker =
        ChaosRank { order, notes, timeout, step: 0, tally: RankTally::default(), held };
    let done = worker.work(&mut comm);
    drop(comm);
    worker.count(FINAL_SETTLE_TIMEOUT, || Ok(HeldResources::now()))?;
    worker.publish();
    done.map_err(VerbError::Call)
}

impl ChaosRank {
    fn publish(&self) {
        if let Ok(text) = serde_json::to_string(&self.tally) {
            self.notes.put(&format!("tally-{}", self.order.name), &text);
        }
    }

    /// Compares what this rank holds with what it held in the beginning.
    fn count(
        &mut self,
        settled: Duration,
        mut held: impl FnMut() -> Result<HeldResources, Error>,
    ) -> Result<(), Error> {
        let until = Instant::now() + settled;
        let mut left = held()?.beyond(&self.held);
        // A thread that has ended is there for a moment longer.
        while left != LeakedResources::default() && Instant::now() < until {
            std::thread::sleep(NOTE_POLL_INTERVAL);
            left = held()?.beyond(&self.held);
        }
        if left != LeakedResources::default() && self.tally.threads.is_empty() {
            self.tally.threads = threads();
        }
        self.tally.left = self.tally.left.most(left);
        Ok(())
    }

    fn key(&self, what: &str, name: &str) -> String {
        format!("{}-{what}-{name}", self.order.attempt)
    }

    fn members(&self, attempt: u64) -> Option<String> {
        self.notes.find(&format!("{attempt}-members"))
    }

    /// Waits for as long as this rank is to be late.
    fn be_late(&self) {
        let time = self.notes.take(&late(&self.order.name)).and_then(|text| text.parse().ok());
        std::thread::sleep(Duration::from_millis(time.unwrap_or(0)));
    }

    /// Returns how often this rank was disturbed: an odd number while it is.
    fn disturbed(&self) -> u64 {
        let note = self.notes.find(&disturbed(&self.order.name));
        note.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Works through attempts until all is over, or this rank is left out.
    fn work(&mut self, comm: &mut Communicator) -> Result<(), Error> {
        loop {
            let members = loop {
                if self.notes.find("end").is_some() {
                    return Ok(());
                }
                match self.members(self.order.attempt) {
                    Some(members) => break members,
                    None => std::thread::sleep(NOTE_POLL_INTERVAL),
                }
            };
            if !members.split(' ').any(|name| name == self.order.name) {
                return Ok(());
            }
            match self.attempt(comm, &members) {
                Ok(NextStep::End) => return Ok(()),
                Ok(NextStep::Attempt) => {}
                Err(error @ (Error::Usage(_) | Error::Refused { .. } | Error::Unsupported(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    self.notes.put(&self.key("failed", &self.order.name), &error.to_string());
                }
            }
            self.publish();
            self.order.attempt += 1;
        }
    }

    /// Makes a generation of these members, and calls in it until something changes.
    fn attempt(&mut self, comm: &mut Communicator, members: &str) -> Result<NextStep, Error> {
        self.notes.put(&self.key("handle", &self.order.name), &comm.handle()?);
        let until = Instant::now() + 2 * self.timeout;
        let mut handles = Vec::new();
        for name in members.split(' ') {
            loop {
                if let Some(handle) = self.notes.find(&self.key("handle", name)) {
                    handles.push(handle);
                    break;
                }
                if self.members(self.order.attempt + 1).is_some() {
                    return Ok(NextStep::Attempt);
                }
                if Instant::now() > until {
                    return Err(Error::Start(format!("{name} did not leave its handle")));
                }
                std::thread::sleep(NOTE_POLL_INTERVAL);
            }
        }
        comm.set_timeout(self.timeout);
        self.be_late();
        let id = self.order.attempt.to_string();
        let (began, before) = (Instant::now(), self.disturbed());
        comm.reconfigure(&id, RankHandles::List(&handles), self.timeout)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        if before % 2 == 0 && before == self.disturbed() {
            self.tally.reconfigured.push(took);
        }
        self.count(GENERATION_SETTLE_TIMEOUT, || HeldResources::beside(comm))?;
        // Newcomers learn how far the others are.
        let mut steps = [self.step];
        comm.all_reduce(&mut steps, RedOp::Max)?;
        self.step = steps[0];
        for round in 0_u64.. {
            self.be_late();
            self.call(comm)?;
            let changes = self.members(self.order.attempt + 1).is_some();
            let mut wish = [u8::from(changes), u8::from(self.notes.find("end").is_some())];
            comm.all_reduce(&mut wish, RedOp::Max)?;
            match wish {
                [_, 1] => return Ok(NextStep::End),
                [1, _] => return Ok(NextStep::Attempt),
                _ => {}
            }
            if round == ROUNDS {
                self.notes.put(&self.key("done", &self.order.name), "");
            }
            if round % REPORT_INTERVAL == ROUNDS {
                self.publish();
            }
        }
        Ok(NextStep::End)
    }

    /// Makes a call, and compares its result with the sum of what all ranks gave.
    fn call(&mut self, comm: &mut Communicator) -> Result<(), Error> {
        let (rank, ranks, step) = (u64::from(comm.rank()), u64::from(comm.size()), self.step);
        let turn = self.order.counts.len().max(1) as u64;
        let count = self.order.counts.get((step % turn) as usize).copied().unwrap_or(1).max(1);
        let mut data: Vec<f32> = (0..count).map(|i| given(rank, i, step)).collect();
        comm.all_reduce(&mut data, RedOp::Sum)?;
        let sum = |i| (0..ranks).map(|rank| given(rank, i, step)).sum::<f32>();
        let right = data.iter().zip(0..).all(|(&x, i)| x == sum(i));
        self.tally.calls += 1;
        self.tally.wrong += u64::from(!right);
        self.step += 1;
        Ok(())
    }
}

/// Returns what a rank gives: small whole numbers, so that every sum is exact.
fn given(rank: u64, i: u64, step: u64) -> f32 {
    ((i * 7 + rank * 13 + step * 5) % 101) as f32 - 50.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(folder: &std::path::Path, step: u64) -> ChaosRank {
        let order = RankOrder { counts: vec![1, 1000], ..RankOrder::default() };
        let notes = NoteFolder::at(&folder.display().to_string());
        let (timeout, tally) = (Duration::from_secs(60), RankTally::default());
        ChaosRank { order, notes, timeout, step, tally, held: HeldResources::now() }
    }

    /// Has two ranks make two calls each, of which one gives what belongs to `step`.
    fn wrong(step: u64) -> Vec<u64> {
        let ranks = Communicator::local(2).expect("two ranks");
        std::thread::scope(|scope| {
            let job_args = |(at, mut comm): (usize, Communicator)| {
                let mut worker = worker(&std::env::temp_dir(), step * at as u64);
                scope.spawn(move || {
                    (0..2).for_each(|_| worker.call(&mut comm).expect("a call"));
                    assert_eq!(worker.tally.calls, 2);
                    worker.tally.wrong
                })
            };
            let ranks: Vec<_> = ranks.into_iter().enumerate().map(job_args).collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
        })
    }

    #[test]
    fn a_wrong_result_is_counted() {
        assert_eq!(wrong(0), [0, 0]);
        // The other one's vector is of another step of as many elements.
        assert_eq!(wrong(2), [2, 2]);
    }
}
