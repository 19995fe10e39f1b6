//! Implements `roundelay stress`: tests what a GPU backend must stand, beyond results and times: the whole
//! algorithm library, calls back to back, graphs replayed, bits that stay, ranks that die.
//!
//! Every part is one or two jobs of fresh processes, a rank and a GPU each (`rank`), and has a time after which it
//! is ended. A part that fails is named, and the others are still run.

mod first;
mod library;
mod loss;
pub(crate) mod rank;
mod report;
mod series;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roundelay::cuda::probe;
use roundelay::launch::{ProcessEnding, RankLauncher};
use roundelay_dsl::diag::codes;
use serde::{Deserialize, Serialize};

use crate::args::{StressArgs, StressPart};
use crate::report::{FAILED, VerbError, VerbReport, VerbResult, fault};
use crate::tunables::STRESS_JOIN_TIMEOUT;

/// The work of the ranks in a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StressOrder {
    part: StressPart,
    seed: u64,
    /// Seconds to be spent.
    seconds: f64,
    /// Calls, where a part makes a number of them.
    calls: u64,
    /// Milliseconds that a rank waits for another.
    timeout_ms: u64,
    /// True in the parts in which ranks are lost if this is the job after that.
    afterwards: bool,
}

/// The report that a rank makes in the end.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct CheckReport {
    /// Checks that were made.
    checks: u64,
    /// The first few faults, in words.
    faults: Vec<String>,
    /// Number of faults.
    wrong: u64,
    /// Calls, replays or comparisons of the part that the time was too short for.
    #[serde(default)]
    left: u64,
    /// The digest of all results; 0 if the part has none.
    digest: u64,
    /// Further remarks.
    words: String,
}

/// A part as programs read it.
#[derive(Serialize)]
struct PartVerdict {
    stress: &'static str,
    passed: bool,
    ranks: u32,
    seed: u64,
    seconds: f64,
    checks: u64,
    wrong: u64,
    left: u64,
    words: String,
    faults: Vec<String>,
}

/// The result of a part that was run as a whole, and without a fault.
const PASSED: &str = "passed";

/// Faults that are named.
const NAMED: usize = 8;

impl CheckReport {
    /// Adds what a check found.
    fn add(&mut self, wrong: u64, faults: impl IntoIterator<Item = String>) {
        self.checks += 1;
        self.wrong += wrong;
        let room = NAMED.saturating_sub(self.faults.len());
        self.faults.extend(faults.into_iter().take(room));
    }

    /// Returns the result of the part. What the time was too short for is not wrong, and has not passed either.
    fn result(&self) -> &'static str {
        match (self.wrong, self.left, self.checks) {
            (1.., ..) => "FAILED",
            (0, 1.., _) => "no time left",
            (0, 0, 0) => "FAILED",
            (0, 0, _) => PASSED,
        }
    }
}

impl StressPart {
    /// Returns its name on the command line.
    fn name(self) -> &'static str {
        match self {
            StressPart::Library => "library",
            StressPart::Types => "types",
            StressPart::Random => "random",
            StressPart::Graph => "graph",
            StressPart::Bits => "bits",
            StressPart::Killed => "killed",
            StressPart::Absent => "absent",
            StressPart::First => "first",
        }
    }
}

/// Runs the verb.
pub(crate) fn stress(args: &StressArgs, report: VerbReport) -> VerbResult {
    let machine = probe().map_err(|why| VerbError::Run(fault(codes::CUDA, why.to_string())))?;
    let ranks = args.n.unwrap_or(machine.devices.len() as u32).max(1);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = args.seed.unwrap_or_else(|| clock.map_or(1, |d| d.as_nanos() as u64));
    report.line(format!("{ranks} ranks, seed {seed}"));
    report.line(format!("{:8} {:>8} {:>8} {:>8}  result", "part", "seconds", "checks", "wrong"));
    let mut failed = false;
    for &part in if args.parts.is_empty() { StressPart::ALL } else { &args.parts } {
        let order = StressOrder {
            part,
            seed,
            seconds: args.budget.as_secs_f64(),
            calls: args.calls,
            timeout_ms: args.timeout.as_millis() as u64,
            afterwards: false,
        };
        let began = Instant::now();
        let said = executed(&order, ranks);
        let result = said.result();
        let passed = result == PASSED;
        failed |= !passed;
        let verdict = PartVerdict {
            stress: part.name(),
            passed,
            ranks,
            seed,
            seconds: began.elapsed().as_secs_f64(),
            checks: said.checks,
            wrong: said.wrong,
            left: said.left,
            words: said.words,
            faults: said.faults,
        };
        show(&verdict, result, report);
    }
    if failed { Err(VerbError::Said(FAILED)) } else { Ok(()) }
}

fn show(verdict: &PartVerdict, result: &str, report: VerbReport) {
    report.result(verdict);
    let PartVerdict { stress, seconds, checks, wrong, words, faults, .. } = verdict;
    report.line(format!("{stress:8} {seconds:>8.1} {checks:>8} {wrong:>8}  {result}: {words}"));
    faults.iter().for_each(|fault| report.line(format!("    {fault}")));
}

/// Runs a part, from beginning to end.
fn executed(order: &StressOrder, ranks: u32) -> CheckReport {
    let first = job(order, ranks);
    match order.part {
        StressPart::Bits => {
            // The job is run again, in other processes.
            let (a, b) = match (first, job(order, ranks)) {
                (Ok(a), Ok(b)) => (a, b),
                (Err(why), _) | (_, Err(why)) => return broken(why),
            };
            compared(a.said, b.said)
        }
        StressPart::Killed | StressPart::Absent => {
            let lost = match first {
                Ok(job) => loss::verdict(order, &job),
                Err(why) => return broken(why),
            };
            let after = StressOrder { afterwards: true, ..order.clone() };
            match job(&after, ranks) {
                Ok(after) if after.endings.iter().all(|e| *e == ProcessEnding::Exited(0)) => {
                    let mut said = lost;
                    said.checks += after.said.checks;
                    said.add(after.said.wrong, after.said.faults);
                    said.words += "; afterwards the GPUs serve a new job";
                    said
                }
                Ok(after) => broken(format!("afterwards: {}", after.trouble())),
                Err(why) => broken(format!("afterwards: {why}")),
            }
        }
        _ => match first {
            Ok(job) if job.endings.iter().all(|e| *e == ProcessEnding::Exited(0)) => job.said,
            Ok(job) => {
                let trouble = job.trouble();
                let mut said = job.said;
                said.add(1, [trouble]);
                said
            }
            Err(why) => broken(why),
        },
    }
}

/// Compares the bits of two runs. Runs that the time cut to different lengths have digests of different results, which
/// say nothing.
fn compared(mut said: CheckReport, second: CheckReport) -> CheckReport {
    let cut = said.left > 0 || second.left > 0;
    let fault = match (said.checks == second.checks, said.digest == second.digest) {
        (false, _) if cut => None,
        (false, _) => Some("the second run made other checks"),
        (true, false) => Some("a second run has other bits"),
        (true, true) => None,
    };
    if let Some(fault) = fault {
        said.add(1, [fault.to_string()]);
    }
    said.left = said.left.max(second.left);
    said.add(second.wrong, second.faults);
    said.words += ", twice in fresh processes";
    said
}

fn broken(why: String) -> CheckReport {
    CheckReport {
        checks: 1,
        wrong: 1,
        left: 0,
        words: "it could not be run".into(),
        faults: vec![why],
        digest: 0,
    }
}

/// The outcome of a job.
struct StressOutcome {
    /// The reports of all ranks together.
    said: CheckReport,
    /// The ranks that gave up: rank, and error with the seconds since it had last done something.
    errors: Vec<(u32, report::RankFailure)>,
    endings: Vec<ProcessEnding>,
}

impl StressOutcome {
    /// Says in words why not all ranks ended well.
    fn trouble(&self) -> String {
        match self.errors.first() {
            Some((rank, lost)) => format!("rank {rank}: {}", lost.message),
            None => {
                let bad = self.endings.iter().position(|e| *e != ProcessEnding::Exited(0));
                bad.map_or(String::new(), |rank| format!("rank {rank}: {}", self.endings[rank]))
            }
        }
    }
}

/// Runs one job of fresh processes.
fn job(order: &StressOrder, ranks: u32) -> Result<StressOutcome, String> {
    let text = serde_json::to_string(order).map_err(|e| e.to_string())?;
    let timeout = Duration::from_millis(order.timeout_ms);
    // Ranks that are left report their outcome; none is ended before that. To be set up takes longer than to fail.
    let launcher = RankLauncher::new(ranks)
        .args(["stress-rank", &text])
        .timeout(STRESS_JOIN_TIMEOUT)
        .grace(timeout * 2 + Duration::from_secs(10));
    let (mut said, mut errors) = (CheckReport::default(), Vec::new());
    let outcome = launcher.run(|rank, line| match serde_json::from_str(line) {
        Ok(report::RankReport::End(end)) => {
            let CheckReport { checks, faults, wrong, left, digest, words } = end;
            said.checks += if rank == 0 { checks } else { 0 };
            said.wrong += wrong;
            // All ranks leave out the same.
            said.left = said.left.max(left);
            // Ranks report in any order.
            said.digest ^= digest.rotate_left(rank % 64);
            let faults = faults.into_iter().map(|fault| format!("rank {rank}: {fault}"));
            said.faults.extend(faults);
            said.faults.truncate(NAMED);
            if rank == 0 {
                said.words = words;
            }
        }
        Ok(report::RankReport::Lost(lost)) => errors.push((rank, lost)),
        Err(_) => {}
    });
    let endings = outcome.map_err(|e| e.to_string())?.endings;
    errors.sort_by_key(|(rank, _)| *rank);
    Ok(StressOutcome { said, errors, endings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(checks: u64, wrong: u64, left: u64, digest: u64) -> CheckReport {
        CheckReport { checks, wrong, left, digest, ..CheckReport::default() }
    }

    #[test]
    fn what_the_time_is_too_short_for_is_not_wrong() {
        assert_eq!(said(5, 0, 0, 0).result(), "passed");
        assert_eq!(said(5, 0, 3, 0).result(), "no time left");
        assert_eq!(said(0, 0, 3, 0).result(), "no time left");
        // A fault stays one, and a part that checks nothing has not passed.
        assert_eq!(said(5, 1, 3, 0).result(), "FAILED");
        assert_eq!(said(0, 0, 0, 0).result(), "FAILED");
    }

    #[test]
    fn runs_that_the_time_cut_are_not_compared() {
        let cut = compared(said(5, 0, 0, 17), said(4, 0, 1, 18));
        assert_eq!((cut.wrong, cut.result()), (0, "no time left"));
        for (first, second) in [
            (said(5, 0, 0, 17), said(5, 0, 0, 18)),
            (said(5, 0, 1, 17), said(5, 0, 1, 18)),
            (said(5, 0, 0, 17), said(4, 0, 0, 17)),
            (said(5, 0, 0, 17), said(5, 1, 0, 17)),
        ] {
            let whole = compared(first, second);
            assert_eq!((whole.wrong, whole.result()), (1, "FAILED"));
        }
        assert_eq!(compared(said(5, 0, 0, 17), said(5, 0, 0, 17)).result(), "passed");
    }
}
